"""`miner report`, and the report that other commands write."""

from typing import TYPE_CHECKING

import click

from miner.cli import console
from miner.cli import gold as gold_module
from miner.errors import ConfigError, DataError

if TYPE_CHECKING:
    from miner.evaluation.bitext_precision import GoldPairs, ReviewMarks

report_option = click.option("--no-report", is_flag=True, help="Do not write report.html.")


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--gold", metavar="FILE", help="For mined pairs: all true pairs, or marks, as for `miner eval bitext`.")
def command(folder: str, gold: str | None) -> None:
    """Write DIR/report.html: charts of the results in DIR.

    DIR is a directory of `miner mine`, `miner run`, `miner train` or `miner loop`, or has figures of `miner eval`. The page opens without a
    network.

    \b
    Example:
      miner report mined --gold gold.tsv
    """
    uri = write_report(folder, None if gold is None else gold_module.read(folder, gold), identify=True)
    if uri is None:
        raise DataError(
            f"{folder}: nothing to show; name a directory of `miner mine`, `run`, `train` or `loop`, or one with figures of `miner eval`"
        )
    console.echo(uri)


def write_report(folder: str, known_pairs: "GoldPairs | ReviewMarks | None" = None, identify: bool = False) -> str | None:
    """Write the report of a directory and return its path; None if there is nothing to show."""
    try:
        from miner.report.build import write
    except ConfigError as error:  # a missing package must not fail a run that is done
        if not identify:
            console.warn(f"no report: {error}")
            return None
        raise

    return write(folder, known_pairs, identify)
