"""`miner loop`."""

from statistics import fmean
from typing import TYPE_CHECKING, Any

import click

from miner.cli import console, options, report

if TYPE_CHECKING:
    from pipelines.loop.loop import LoopResult

COLUMNS = ("round", "dev", "test", "pairs", "precision", "same", "minutes")


@click.command()
@options.config_argument
@click.option("--output", required=True, metavar="DIR", help="Folder to write; DIR/best/encoder is the encoder.")
@options.changes_option("stop.rounds=5")
@click.option("--resume", is_flag=True, help="Go on with the loop in DIR where it stopped, also with more text or rounds.")
@options.json_option
@report.report_option
def command(config: str, output: str, changes: tuple[str, ...], resume: bool, json_file: str | None, no_report: bool) -> None:
    """Mine, train on what was mined, and mine again, as CONFIG says.

    \b
    Example:
      miner loop configs/loop-news.yaml --output build/loop-news
    """
    from miner.config.base import load_yaml
    from miner.loop.settings import LoopConfig
    from pipelines.loop import loop

    result = loop.run(load_yaml(LoopConfig, config, changes), output, resume, console.beam_options())
    console.write_figures(json_file, result.figures())
    click.echo(summary(result))
    if not no_report:
        report.leave(output)


def summary(result: "LoopResult") -> str:
    """A line for each round, and why there are no more."""
    figures = result.figures()
    rows: list[tuple[str, ...]] = [COLUMNS, ("seed", *_scores(figures["start"]), "", "", "", "")]
    for number, told in enumerate(figures["rounds"]):
        rows.append((f"{number:02d}", *_scores(told), *_mined(told)))
    lines = ["".join(cell.rjust(11) for cell in row) for row in rows]
    back = [f"round {number:02d} was rolled back" for number, told in enumerate(figures["rounds"]) if "dev" in told and not told["kept"]]
    return "\n".join([*lines, *back, f"the loop ended: {figures['stopped']}", f"best on dev: {figures['best']}", result.encoder])


def _scores(figures: dict[str, Any]) -> tuple[str, str]:
    """Retrieval accuracy on dev and test, in percent."""
    dev, test = (f"{100 * fmean(figures[name].values()):.1f}" if figures.get(name) else "-" for name in ("dev", "test"))
    return dev, test


def _mined(figures: dict[str, Any]) -> tuple[str, ...]:
    """Pairs selected, how many of them are right where that is known, how many are the last round's, and minutes."""
    selection, same = figures["selection"], figures["changes"]["jaccard"]
    known = [pair for pair in selection["pairs"].values() if "precision" in pair]
    right = sum(pair["precision"] * pair["selected"] for pair in known) / max(1, sum(pair["selected"] for pair in known))
    minutes = sum(figures["seconds"].values()) / 60
    return f"{selection['learnt']:,}", f"{right:.4f}" if known else "-", "-" if same is None else f"{same:.3f}", f"{minutes:.1f}"
