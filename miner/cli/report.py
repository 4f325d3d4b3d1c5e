"""`miner report`, and the report that other commands leave."""

from typing import TYPE_CHECKING

import click

from miner.cli import gold as gold_module
from miner.errors import DataError

if TYPE_CHECKING:
    from miner.evaluation.bitext_precision import GoldPairs, ReviewMarks

report_option = click.option("--no-report", is_flag=True, help="Leave report.html out.")


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--gold", metavar="FILE", help="Of mined pairs: all true ones, or marks, as of `miner eval bitext`.")
def command(folder: str, gold: str | None) -> None:
    """Write DIR/report.html: pictures of what a command left in DIR.

    DIR is a folder of `miner mine` or `miner train`, or has figures of `miner eval`. The page opens without a network.

    \b
    Example:
      miner report mined --gold gold.tsv
    """
    uri = leave(folder, None if gold is None else gold_module.read(folder, gold), identify=True)
    if uri is None:
        raise DataError(f"{folder}: nothing to show; name a folder of `miner mine` or `miner train`, or one with figures of `miner eval`")
    click.echo(uri)


def leave(folder: str, known: "GoldPairs | ReviewMarks | None" = None, identify: bool = False) -> str | None:
    """Write the report of a folder and tell where it is; None where the folder holds nothing to show."""
    from miner.report.build import write

    return write(folder, known, identify)
