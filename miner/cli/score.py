"""`miner score`."""

import time

import click

from miner.cli import console, options, report
from miner.config.commands import ScoreConfig
from miner.io.defer_pandas import defer_pandas


@click.command(cls=options.SettingsCommand, models={"config": ScoreConfig})
@options.json_option
@options.report_option
def command(config: ScoreConfig, json_file: str | None, no_report: bool) -> None:
    """Score every line pair of a bitext by its margin, and filter it.

    Line i of SOURCE and line i of TARGET are a pair; or SOURCE is one file of both: a table with --source-column and --target-column, or
    TMX with --source-lang and --target-lang; or the stem of Moses files, such as `corpus` for corpus.en and corpus.de. The output has a
    line `margin<TAB>source<TAB>target<TAB>probability<TAB>reason<TAB>line` for each line of the input, in the same order, followed by
    the other columns of a table; .jsonl and .parquet name the columns, and have the similarity. The margin is nan if a side is empty,
    invalid, too long or without letters. OUTPUT.report.html shows the margins and samples of the pairs; `miner export` reads the output.
    With --threshold, --min-probability, --filter or --top, the output has only the pairs that they keep or, with --reasons, all of them
    with the reason that drops a pair and, before the columns of the input, what each filter found: `{"length_ratio": 2.31, ...}`.

    \b
    Examples:
      miner score news.en.txt news.de.txt --output scored.tsv.gz
      miner score corpus.tmx --source-lang en --target-lang de --threshold 1.15 --filter recommended --output clean.tsv.gz
      miner score pairs.tsv --source-column 1 --target-column 2 --output scored.tsv
    """
    defer_pandas()
    if not no_report:
        report.preload_charts()
    from pipelines.mining import score  # after the checks, which need not wait for torch

    result = score.run(config, console.beam_options())
    console.write_figures(json_file, result.figures())
    files, seconds = [result.output], dict(result.seconds)
    if not no_report:
        start = time.perf_counter()
        files += filter(None, [report.write_scored_report(result.output)])
        seconds["report"] = time.perf_counter() - start
    console.echo("\n".join([result.summary(), console.time_line(seconds), f"files: {', '.join(files)}"]))
