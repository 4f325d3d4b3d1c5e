"""`miner plan`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from miner.cli import console, options

if TYPE_CHECKING:
    from pipelines.runs.plan import RunPlan


@click.command()
@click.argument("config", metavar="CONFIG")
@options.changes_option("k=8, plan.sentences.en=1e9")
@click.option(
    "--hardware", metavar="NAME", help="Plan for cpu8, cpu32, l4, l40s, a100, h100, h200 or one of --rates, not for this machine."
)
@click.option("--workers", type=int, metavar="N", help="Machines that work side by side.")
@click.option("--price", type=float, metavar="MONEY", help="Of an hour of one machine.")
@click.option("--rates", metavar="FILE", help="Speeds of machines: what the section `plan` of CONFIG says, in a file of its own.")
@options.json_option
def command(config: str, changes: tuple[str, ...], rates: str | None, json_file: str | None, **given: Any) -> None:
    """Tell what `miner run CONFIG` would take: hours, memory, disk, index and money.

    Corpora are counted or, where they are large, estimated; this machine is tried out for some seconds. Nothing is written.

    \b
    Example:
      miner plan configs/run.yaml
      miner plan configs/run.yaml --hardware l4 --workers 8 --price 0.7 --set plan.sentences.en=1e9
    """
    from miner.config.base import load_yaml
    from miner.config.planning import PlanSettings
    from miner.config.runs import RunConfig
    from pipelines.runs import plan

    settings = load_yaml(RunConfig, config, changes)
    asked = PlanSettings.check(**{name: value for name, value in given.items() if value is not None})
    if rates is not None:
        asked = asked.over(load_yaml(PlanSettings, rates))
    found = plan.make(settings.model_copy(update={"plan": asked.over(settings.plan)}))
    console.close_bar()
    console.write_figures(json_file, found.figures())
    click.echo(summary(found))


def summary(plan: "RunPlan") -> str:
    """Corpora, pairs, stages, and what they come to."""
    blocks = [_corpora(plan), _pairs(plan), _stages(plan), [_total(plan), *(f"note: {told}" for told in plan.advice)]]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _corpora(plan: "RunPlan") -> list[str]:
    rows = [
        (
            name,
            f"{corpus.sized.sentences:,}",
            size(corpus.sized.sentences * corpus.sized.text),
            str(corpus.sized.shards),
            corpus.why,
        )
        for name, corpus in plan.corpora.items()
    ]
    return table(("corpus", "sentences", "text", "shards", "how that is known, duplicates included"), rows, "<>>><")


def _pairs(plan: "RunPlan") -> list[str]:
    rows = [
        (name, chosen.engine, " and ".join(dict.fromkeys(chosen.index or ("-",))), f"{chosen.recall:g}", chosen.why)
        for name, chosen in plan.pairs.items()
    ]
    return table(("pair", "engine", "index", "recall", "why"), rows, "<<<><")


def _stages(plan: "RunPlan") -> list[str]:
    rows = [
        (
            stage.name,
            time(stage.seconds),
            size(stage.need.memory),
            size(stage.need.disk),
            size(stage.need.passing) if stage.need.passing else "",
        )
        for stage in plan.stages
    ]
    return table(("stage", "time", "memory", "disk", "for a while"), [*[(name, "done", "", "", "") for name in plan.done], *rows], "<>>>>")


def _total(plan: "RunPlan") -> str:
    """The last line."""
    machines = "this machine" if (plan.machine, plan.workers) == ("here", 1) else f"{plan.workers} x {plan.machine}"
    money = "" if plan.money is None else f"; {plan.money:,.2f} at {plan.price:g} an hour of a machine"
    return (
        f"{time(plan.seconds)} on {machines}, {size(plan.memory)} of memory for a worker, {size(plan.disk)} on disk and"
        f" {size(plan.most_disk)} at most{money}"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Lines with columns as wide as what stands in them, to the left (<) or to the right (>)."""
    if not rows:
        return []
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip() for row in (head, *rows)
    ]


def time(seconds: float) -> str:
    """Seconds, minutes, hours or days."""
    for unit, length in (("days", 172_800), ("h", 7200), ("min", 120)):
        if seconds >= length:
            return f"{seconds / {'days': 86_400, 'h': 3600, 'min': 60}[unit]:,.1f} {unit}"
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def size(amount: float) -> str:
    """Bytes as kB, MB, GB or TB."""
    for unit, length in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if amount >= length:
            return f"{amount / length:,.1f} {unit}"
    return f"{amount / 1e3:,.0f} kB"
