"""`miner score`."""

from typing import Any

import click

from miner.cli import console, options
from miner.cli.filters import check_lang_id_model, filter_option, lang_id_option
from miner.config.choices import MARGINS
from miner.config.commands import PairTextFilters, ScoreConfig, SentenceFilters
from miner.config.filters import choose
from miner.io.defer_pandas import defer_pandas


@click.command()
@click.argument("source")
@click.argument("target", required=False)
@click.option("--output", required=True, metavar="FILE", help="File to write, compressed if its name ends in .gz.")
@options.side_column_options
@options.setting(
    ScoreConfig, "background_source", "A larger corpus to search for neighbours: text, or an embeddings or index directory.", metavar="PATH"
)
@options.setting(ScoreConfig, "background_target", "The same for the other side.", metavar="PATH")
@options.setting(ScoreConfig, "source_lang", "Language of SOURCE.", metavar="CODE")
@options.setting(ScoreConfig, "target_lang", "Language of TARGET.", metavar="CODE")
@options.setting(ScoreConfig, "k", "Neighbours per sentence.", type=int)
@options.rescore_options
@options.setting(ScoreConfig, "margin", "Score of a pair.", type=click.Choice(list(MARGINS)))
@options.encoder_options
@options.text_options
@options.setting(ScoreConfig, "threshold", "Write only pairs with a larger margin; by default, all lines.", type=float)
@options.setting(ScoreConfig, "min_probability", "Write only pairs with at least this probability.", type=float)
@filter_option(SentenceFilters, PairTextFilters)
@options.top_option
@lang_id_option
@options.json_option
def command(json_file: str | None, filters: tuple[str, ...], **settings: Any) -> None:
    """Score every line pair of a bitext by its margin, and filter it.

    Line i of SOURCE and line i of TARGET are a pair; or SOURCE is one file of both: a table with --source-column and --target-column, or
    TMX with --source-lang and --target-lang; or the stem of Moses files, such as `corpus` for corpus.en and corpus.de. The output has a
    line `margin<TAB>source<TAB>target` for each line of the input, in the same order. The margin is nan if a side is empty, invalid or
    too long. With --threshold, --min-probability, --filter or --top, the output has only the pairs that they keep.

    \b
    Examples:
      miner score news.en.txt news.de.txt --output scored.tsv.gz
      miner score corpus.tmx --source-lang en --target-lang de --threshold 1.15 --filter recommended --output clean.tsv.gz
      miner score pairs.tsv --source-column 1 --target-column 2 --output scored.tsv
    """
    options.resolve_sides(settings)
    chosen = choose(filters, sentence_filters=SentenceFilters, pair_filters=PairTextFilters)
    check_lang_id_model(settings["lang_id_model"], chosen.values())
    config = ScoreConfig.check(**settings, **chosen)
    defer_pandas()
    from pipelines.mining import score  # after the checks, which need not wait for torch

    result = score.run(config, console.beam_options())
    console.write_figures(json_file, result.figures())
    console.echo("\n".join([result.summary(), console.time_line(result.seconds), f"file: {result.output}"]))
