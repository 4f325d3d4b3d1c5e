"""`miner plan`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from miner.cli import console, options
from miner.config.planning import PlanSettings
from miner.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from pipelines.runs.plan import RunPlan


@click.command(cls=options.SettingsCommand, models={"settings": PlanSettings}, without=("sentences", "rates"))
@options.config_argument
@options.changes_option("k=8, plan.sentences.en=1e9")
@click.option("--profile", metavar="NAME", help="Plan for the machines that this profile of CONFIG's runner section names.")
@click.option("--rates", metavar="FILE", help="YAML file with the section `plan` of CONFIG, such as measured speeds of machines.")
@options.json_option
def command(
    config: str, settings: PlanSettings, changes: tuple[str, ...], profile: str | None, rates: str | None, json_file: str | None
) -> None:
    """Estimate what `miner run CONFIG` would take: hours, memory, disk, index and money.

    Corpora are counted or, where they are large, sampled; this machine is measured for some seconds. Nothing is written.

    \b
    Example:
      miner plan configs/run.yaml
      miner plan configs/run.yaml --hardware l4 --workers 8 --price 0.7 --set plan.sentences.en=1e9
    """
    from miner.config.base import load_yaml
    from miner.config.runs import RunConfig
    from pipelines.runs import plan

    run_config = load_yaml(RunConfig, config, changes)
    if rates is not None:
        settings = settings.over(load_yaml(PlanSettings, rates))
    plan_settings = settings.over(run_config.plan).over(run_config.runner.plan_settings(profile))
    run_plan = plan.make_plan(run_config.model_copy(update={"plan": plan_settings}))
    console.close_bar()
    console.write_figures(json_file, run_plan.figures())
    console.echo(summary(run_plan))


def summary(plan: "RunPlan") -> str:
    """Return the tables of corpora, pairs and stages, the totals and the advice."""
    totals = [_totals(plan), *(f"note: {advice}" for advice in plan.advice)]
    blocks = [_corpora(plan), _pairs(plan), _stages(plan), totals]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _corpora(plan: "RunPlan") -> list[str]:
    rows = [
        (name, f"{corpus.sentences:,}", format_bytes(corpus.sentences * corpus.text_bytes), str(corpus.shards), corpus.reason)
        for name, corpus in plan.corpora.items()
    ]
    return table(("corpus", "sentences", "text", "shards", "method, duplicates included"), rows, "<>>><")


def _pairs(plan: "RunPlan") -> list[str]:
    rows = [
        (name, choice.engine, " and ".join(dict.fromkeys(choice.factories or ("-",))), f"{choice.recall:g}", choice.reason)
        for name, choice in plan.pairs.items()
    ]
    return table(("pair", "engine", "index", "recall", "reason"), rows, "<<<><")


def _stages(plan: "RunPlan") -> list[str]:
    rows = [
        (
            stage.name,
            format_seconds(stage.seconds),
            format_bytes(stage.need.memory),
            format_bytes(stage.need.disk),
            format_bytes(stage.need.temporary_disk) if stage.need.temporary_disk else "",
        )
        for stage in plan.stages
    ]
    done = [(name, "done", "", "", "") for name in plan.done]
    return table(("stage", "time", "memory", "disk", "temporary"), [*done, *rows], "<>>>>")


def _totals(plan: "RunPlan") -> str:
    """Return the line of totals."""
    workers = plan.pool.workers
    machines = "this machine" if (plan.machine, workers) == ("here", 1) else f"{workers} x {plan.machine}"
    cost = "" if plan.cost is None else f"; {plan.cost:,.2f} at {plan.price:g} per machine and hour"
    copies = f"; {format_bytes(plan.worker_disk)} on the disk of each machine for copies of indexes" if plan.worker_disk else ""
    return (
        f"{format_seconds(plan.seconds)} on {machines}, {format_bytes(plan.memory)} of memory per worker, {format_bytes(plan.disk)} on"
        f" disk, {format_bytes(plan.peak_disk)} at the peak{copies}{cost}"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], alignments: str) -> list[str]:
    """Return the lines of a table; each column is aligned to the left (<) or to the right (>)."""
    if not rows:
        return []
    widths = [max(len(cell) for cell in column) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(f"{cell:{alignment}{width}}" for cell, alignment, width in zip(row, alignments, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]
