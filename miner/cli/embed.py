"""`miner embed`."""

import click

from miner.cli import console, options
from miner.config.commands import EmbedConfig
from miner.io.defer_pandas import defer_pandas


@click.command(cls=options.SettingsCommand, models={"config": EmbedConfig})
@options.json_option
def command(config: EmbedConfig, json_file: str | None) -> None:
    """Clean, filter, deduplicate and embed text.

    INPUT is a file, a pattern like 'news/*.gz', a URI, or `-` for standard input: plain text with one sentence per line, or TSV, CSV,
    JSONL, JSON, TMX or Parquet with --text-column. Text may be compressed (.gz, .zst, .xz, .bz2).

    \b
    Example:
      miner embed news.de.txt.gz --lang de --output embedded/de
    """
    defer_pandas()
    from pipelines.corpus import embed  # after the checks, which need not wait for torch

    result = embed.run(config, console.beam_options(), warns=True)
    console.write_figures(json_file, result.figures())
    console.echo(f"{result.summary()}\n{console.time_line(result.seconds)}")
    console.exit_if_skipped(result.skipped)
