"""`miner status`."""

import posixpath
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from miner.cli import console, options
from miner.units import counted

if TYPE_CHECKING:
    from pipelines.runs.status import RunStatus, StageStatus, TrainingStatus


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
    console.write_figures(json_file, asdict(status))
    console.echo(summary(status))


def summary(status: "RunStatus") -> str:
    """Format a line for the run and a line for each stage."""
    if status.run is None:
        lines = ["no run is active" + (f"; {console.resume_advice(status.command)}" if status.can_resume else "")]
    elif status.alive:
        lines = [f"running: {status.run.describe()}"]
    else:
        command = next(iter(status.run.command.split()[1:]), None)
        lines = [f"died: {status.run.describe()}; {console.resume_advice(command)}"]
    folders = [stage.folder for stage in status.stages] + [training.folder for training in status.trainings]
    width = max(map(len, folders), default=0)
    lines += [_format_line(stage, _format_shards(stage), width) for stage in status.stages]
    lines += [_format_line(training, _format_training(status.folder, training), width) for training in status.trainings]
    if status.loop is not None:
        lines.append(f"loop     {counted(status.loop.rounds, 'round')}, best on dev: {status.loop.best}")
        lines += [f"ended    {status.loop.stop_reason}"] if status.loop.stop_reason is not None else []
    for name, progress in status.run.stages.items() if status.run is not None else ():
        if progress.done < progress.total:
            note = f", {progress.note}" if progress.note else ""
            lines.append(f"now      {name}: {progress.done:,} of {progress.total:,} {progress.unit}s{note}")
    return "\n".join(lines)


def _format_line(part: "StageStatus | TrainingStatus", state: str, width: int) -> str:
    is_stale = getattr(part, "edited", 0) + getattr(part, "added", 0) > 0
    return f"{'stale' if is_stale else 'done' if part.finished else 'started':7}  {part.folder:{width}}  {state}"


def _format_shards(stage: "StageStatus") -> str:
    if stage.rows is not None:
        notes = [f"{stage.skipped:,} skipped"] if stage.skipped else []
        changes = {"edited": stage.edited, "added": stage.added}
        notes += [f"{counted(count, 'input')} {name} since" for name, count in changes.items() if count]
        advice = "; run the same command again" if stage.edited + stage.added else ""
        return ", ".join([counted(stage.shards, "shard"), counted(stage.rows, "row"), *notes]) + advice
    return counted(stage.shards, "shard") if stage.total is None else f"{stage.shards:,} of {counted(stage.total, 'shard')}"


def _format_training(folder: str, training: "TrainingStatus") -> str:
    """Return steps, scores, the last checkpoint and the encoder of a training run."""
    parts = [counted(training.steps, "step")]
    if training.score is not None:
        parts.append(f"last score {training.score:.4f}, best {training.best_score:.4f}")
    if not training.finished:
        parts.append("no checkpoint" if training.checkpoint is None else f"checkpoint at step {training.checkpoint:,}")
    if training.encoder is not None:
        parts.append(f"{'encoder' if training.finished else 'encoder so far'} {posixpath.join(folder, training.encoder)}")
    return ", ".join(parts)
