"""`miner loop`."""

from collections import Counter
from statistics import fmean
from typing import TYPE_CHECKING, Any

import click

from miner.cli import console, options, report
from miner.errors import require
from miner.units import list_counts

if TYPE_CHECKING:
    from pipelines.loop.loop import LoopResult

COLUMNS = ("round", "dev", "test", "pairs", "precision", "same", "minutes")


@click.command()
@options.config_argument
@click.option("--output", metavar="DIR", help="Output directory; the best encoder is DIR/best/encoder.  [required]")
@options.changes_option("stop.rounds=5")
@options.print_config_option
@click.option("--resume", is_flag=True, help="Resume the loop in DIR, also with more text or other stop rules.")
@options.json_option
@options.report_option
def command(config: str, output: str | None, changes: tuple[str, ...], json_file: str | None, **flags: bool) -> None:
    """Mine, train an encoder on the mined pairs, and mine again with it.

    CONFIG, a file or a recipe of `miner config list`, sets the corpora, the training and when to stop; docs/loop.md explains it.

    \b
    Example:
      miner loop configs/loop-news.yaml --output build/loop-news
    """
    require("accelerate")
    from miner.config.base import load_yaml
    from miner.loop.settings import LoopConfig
    from pipelines.loop import loop

    settings = load_yaml(LoopConfig, config, changes)
    if flags["print_config"]:
        options.print_config(settings)
        return
    output = options.require_output(output)
    result = loop.run(settings, output, flags["resume"], console.beam_options())
    console.write_figures(json_file, result.figures())
    console.echo(summary(result))
    if not flags["no_report"]:
        report.write_report(output)


def summary(result: "LoopResult") -> str:
    """Return a line per round, the rounds that were rolled back, and why the loop ended."""
    figures = result.figures()
    rows: list[tuple[str, ...]] = [COLUMNS, ("seed", *_scores(figures["start"]), "", "", "", "")]
    rolled_back, dropped = list[str](), list[str]()
    for number, outcome in enumerate(figures["rounds"]):
        rows.append((f"{number:02d}", *_scores(outcome), *_mined(outcome)))
        if "dev" in outcome and not outcome["kept"]:
            rolled_back.append(f"round {number:02d} was rolled back")
        if filtered := list_counts(_count_filtered(outcome["selection"])):
            dropped.append(f"round {number:02d}: the filters dropped {filtered}")
    lines = ["".join(cell.rjust(11) for cell in row) for row in rows]
    return "\n".join(
        [*lines, *rolled_back, *dropped, f"the loop ended: {figures['stop_reason']}", f"best on dev: {figures['best']}", result.encoder]
    )


def _count_filtered(selection: dict[str, Any]) -> Counter[str]:
    """Return the candidates that the filters of mining dropped in all pairs of languages, by reason."""
    counts = Counter[str]()
    for pair in selection["pairs"].values():
        counts.update(pair.get("filtered", {}))
    return counts


def _scores(figures: dict[str, Any]) -> tuple[str, str]:
    """Return the mean retrieval accuracy on dev and test, in percent."""
    dev, test = (f"{100 * fmean(figures[name].values()):.1f}" if figures.get(name) else "-" for name in ("dev", "test"))
    return dev, test


def _mined(figures: dict[str, Any]) -> tuple[str, ...]:
    """Return the number of training pairs, their precision if there is gold, the Jaccard index with the previous round, and minutes."""
    from miner.loop.figures import training_precision

    selection, jaccard = figures["selection"], figures["changes"]["jaccard"]
    precision = training_precision(selection)
    shares = ("-" if precision is None else f"{precision:.4f}", "-" if jaccard is None else f"{jaccard:.3f}")
    return f"{selection['training']:,}", *shares, f"{sum(figures['seconds'].values()) / 60:.1f}"
