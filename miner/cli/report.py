"""`miner report`, and the report that other commands write."""

import contextlib
import importlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from miner.cli import console
from miner.cli import gold as gold_module
from miner.errors import ConfigError, DataError

if TYPE_CHECKING:
    from miner.evaluation.bitext_precision import KnownPairs


@click.command()
@click.argument("folder", metavar="DIR")
@click.option(
    "--gold",
    multiple=True,
    metavar="FILE",
    help="For mined pairs: all true pairs, or marks; may be repeated with the marks of several rounds or people.",
)
@click.option("--sample", type=click.IntRange(1), help="Number of mined pairs to draw for marking; by default, 100.")
def command(folder: str, gold: tuple[str, ...], sample: int | None) -> None:
    """Write DIR/report.html: charts of the results in DIR.

    DIR is a directory of `miner mine`, `miner run`, `miner train` or `miner loop`, or has figures of `miner eval`; or a file of `miner
    score`, beside which FILE.report.html is written. The page opens without a network.

    \b
    Examples:
      miner report mined --sample 200
      miner report mined --gold marks.tsv
    """
    from miner.io import storage
    from miner.report.build import write
    from miner.report.marking import SAMPLE_PAIRS

    if not storage.is_folder(folder) and storage.exists(folder):
        if gold or sample is not None:
            raise ConfigError(f"{folder}: --{'gold' if gold else 'sample'} has no effect on the report of a file; remove it")
        from miner.report import scored_pairs

        console.echo(scored_pairs.write(folder))
        return
    uri = write(folder, gold_module.read(folder, gold), identify=True, sample_pairs=sample or SAMPLE_PAIRS)
    if uri is None:
        raise DataError(
            f"{folder}: nothing to show; name a directory of `miner mine`, `run`, `train` or `loop`, or one with figures of `miner eval`"
        )
    console.echo(uri)


def preload_charts() -> None:
    """Start to import what draws charts in a background thread, which takes half a second, while a command computes or waits."""
    threading.Thread(target=_import_charts, name="preload-charts").start()


def _import_charts() -> None:
    with contextlib.suppress(ConfigError):  # a missing package is reported where charts are drawn
        importlib.import_module("miner.report.charts")


def write_scored_report(uri: str) -> str | None:
    """Write the report of a file of `miner score` and return its path; None, with a warning, if it cannot be written."""
    with _warn_instead():
        from miner.report import scored_pairs

        return scored_pairs.write(uri)
    return None


def write_report(folder: str, known_pairs: "KnownPairs | None" = None, identify: bool = False) -> str | None:
    """Write the report of a directory and return its path; None if nothing is to show or, with a warning, if it cannot be written."""
    with _warn_instead():
        from miner.report.build import write

        return write(folder, known_pairs, identify)
    return None


@contextlib.contextmanager
def _warn_instead() -> Iterator[None]:
    """Warn of a missing package, or of a file of that name: neither must fail a run that is done."""
    try:
        yield
    except ConfigError as error:
        console.warn(f"no report: {error}")
