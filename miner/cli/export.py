"""`miner export`."""

import click

from miner.cli import console, options
from miner.export.settings import ExportConfig
from miner.io.defer_pandas import defer_pandas


@click.command(cls=options.SettingsCommand, models={"config": ExportConfig})
@options.json_option
def command(config: ExportConfig, json_file: str | None) -> None:
    """Export BITEXT, the output directory of `miner mine` or a file of `miner score`, to another format.

    `huggingface` is read by `datasets.load_dataset(DIR)`, `moses` is a pair of text files, `tmx` is for translation memories.
    Every export has a dataset card, README.md, with the provenance of the pairs. With --dev and --test, pairs that share a
    sentence stay in one split.

    \b
    Examples:
      miner export mined/en-de --output dataset/en-de --threshold 1.25 --dev 1000 --test 1000
      miner export mined/en-de --output moses/en-de --format moses --top 100000
      miner export scored.tsv.gz --source-lang en --target-lang de --output clean/en-de --min-probability 0.5
    """
    defer_pandas()
    from miner.export import export

    result = export.run(config)
    console.write_figures(json_file, result.figures())
    console.echo(result.summary())
