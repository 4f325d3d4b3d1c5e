"""`miner export`."""

from typing import Any, get_args

import click

from miner.cli import console, options
from miner.export.settings import ExportConfig, Format


@click.command()
@click.argument("bitext")
@options.output_option
@options.setting(ExportConfig, "format", "Format to write.", type=click.Choice(get_args(Format)))
@options.setting(ExportConfig, "threshold", "Keep pairs with a larger margin.", type=float)
@options.setting(ExportConfig, "min_probability", "Keep pairs with at least this probability.", type=float)
@options.top_option
@options.setting(ExportConfig, "max_chars", "Drop pairs with a longer sentence.", type=int)
@options.setting(ExportConfig, "dev", "Pairs of a dev split.", type=int)
@options.setting(ExportConfig, "test", "Pairs of a test split.", type=int)
@options.setting(ExportConfig, "seed", "Seed of the random split.", type=int)
@options.setting(
    ExportConfig, "escape_formulas", "In TSV, put an apostrophe before cells that a spreadsheet would run as a formula.", is_flag=True
)
@options.setting(ExportConfig, "source_lang", "Language of the source side; default: as recorded.", metavar="CODE")
@options.setting(ExportConfig, "target_lang", "Language of the target side; default: as recorded.", metavar="CODE")
@options.json_option
def command(json_file: str | None, **settings: Any) -> None:
    """Export BITEXT, the output directory of `miner mine`, to another format.

    `huggingface` is read by `datasets.load_dataset(DIR)`, `moses` is a pair of text files, `tmx` is for translation memories.
    Every export has a dataset card, README.md, with the provenance of the pairs. With --dev and --test, pairs that share a
    sentence stay in one split.

    \b
    Examples:
      miner export mined/en-de --output dataset/en-de --threshold 1.25 --dev 1000 --test 1000
      miner export mined/en-de --output moses/en-de --format moses --top 100000
    """
    from miner.export import export

    result = export.run(ExportConfig.check(**settings))
    console.write_figures(json_file, result.figures())
    console.echo(result.summary())
