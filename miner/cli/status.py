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
    """Show the progress of the run that writes to DIR, while it runs elsewhere or after it stopped.

    \b
    Example:
      miner status build/run
    """
    from pipelines.runs.status import read_status

    status = read_status(folder)
    console.write_figures(json_file, status.figures())
    console.echo(summary(status))


def summary(status: "RunStatus") -> str:
    """Format a line for the run and a line for each stage."""
    if status.run is None:
        lines = ["no run is active"]
    elif status.alive:
        lines = [f"running: {status.run.describe()}"]
    else:
        command = next(iter(status.run.command.split()[1:]), None)
        lines = [f"died: {status.run.describe()}; {console.resume_advice(command)}"]
    width = max((len(stage.folder) for stage in status.stages), default=0)
    lines += [f"{'done' if stage.finished else 'started':7}  {stage.folder:{width}}  {_format_shards(stage)}" for stage in status.stages]
    for name, progress in status.run.stages.items() if status.run is not None else ():
        if progress.done < progress.total:
            note = f", {progress.note}" if progress.note else ""
            lines.append(f"now      {name}: {progress.done:,} of {progress.total:,} {progress.unit}s{note}")
    return "\n".join(lines)


def _format_shards(stage: "StageStatus") -> str:
    if stage.finished:
        return f"{stage.shards:,} shards, {stage.rows:,} rows" + (f", {stage.skipped:,} skipped" if stage.skipped else "")
    return f"{stage.shards:,} shards" if stage.total is None else f"{stage.shards:,} of {stage.total:,} shards"
