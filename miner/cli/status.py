"""`miner status`."""

from typing import TYPE_CHECKING

import click

from miner.cli import console, options

if TYPE_CHECKING:
    from pipelines.runs.status import RunStatus, StageStatus


@click.command()
@click.argument("folder", metavar="DIR")
@options.json_option
def command(folder: str, json_file: str | None) -> None:
    """Tell how far the run is that writes to DIR, while it runs elsewhere or after it stopped.

    \b
    Example:
      miner status build/run
    """
    from pipelines.runs import status

    found = status.look(folder)
    console.write_figures(json_file, found.figures())
    click.echo(summary(found))


def summary(status: "RunStatus") -> str:
    """Whether it runs, and a line for each stage."""
    if status.run is None:
        lines = ["no run is at work here"]
    elif status.alive:
        lines = [f"running: {status.run.told()}"]
    else:
        lines = [f"died: {status.run.told()}; run the same command again to go on"]
    width = max((len(stage.folder) for stage in status.stages), default=0)
    lines += [f"{'done' if stage.finished else 'begun':5}  {stage.folder:{width}}  {_shards(stage)}" for stage in status.stages]
    for name, progress in status.run.stages.items() if status.run is not None else ():
        if progress["done"] < progress["total"]:
            lines.append(f"now    {name}: {progress['done']:,} of {progress['total']:,}")
    return "\n".join(lines)


def _shards(stage: "StageStatus") -> str:
    if stage.finished:
        return f"{stage.shards:,} shards, {stage.rows:,} rows" + (f", {stage.set_aside:,} set aside" if stage.set_aside else "")
    return f"{stage.shards:,} shards" if stage.total is None else f"{stage.shards:,} of {stage.total:,} shards"
