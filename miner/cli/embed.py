"""`miner embed`."""

from typing import Any

import click

from miner.cli import console, options
from miner.cli.filters import check_lang_id_model, filter_option, keep_dropped_option, lang_id_option
from miner.config.commands import EmbedConfig, SentenceFilters
from miner.config.filters import choose
from miner.io.defer_pandas import defer_pandas


@click.command()
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@options.lang_option
@options.output_option
@options.encoder_options
@options.text_options
@filter_option(SentenceFilters)
@options.split_option
@options.collapse_option
@lang_id_option
@keep_dropped_option
@options.json_option
def command(inputs: tuple[str, ...], filters: tuple[str, ...], json_file: str | None, **settings: Any) -> None:
    """Clean, filter, deduplicate and embed text.

    INPUT is a file, a pattern like 'news/*.gz', a URI, or `-` for standard input: plain text with one sentence per line, or TSV, CSV,
    JSONL, JSON, TMX or Parquet with --text-column. Text may be compressed (.gz, .zst, .xz, .bz2).

    \b
    Example:
      miner embed news.de.txt.gz --lang de --output embedded/de
    """
    chosen = choose(filters, sentence_filters=SentenceFilters)
    check_lang_id_model(settings["lang_id_model"], chosen.values())
    config = EmbedConfig.check(inputs=inputs, **chosen, **settings)
    defer_pandas()
    from pipelines.corpus import embed  # after the checks, which need not wait for torch

    result = embed.run(config, console.beam_options(), warns=True)
    console.write_figures(json_file, result.figures())
    console.echo(f"{result.summary()}\n{console.time_line(result.seconds)}")
    console.exit_if_skipped(result.skipped)
