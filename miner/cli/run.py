"""`miner run`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from miner.cli import console, options, report

if TYPE_CHECKING:
    from pipelines.runs.run import RunResult, RunStep


@click.command()
@options.config_argument
@options.changes_option("k=8, corpora.de=new.txt")
@click.option("--profile", metavar="NAME", help="Run on this profile of CONFIG's runner section.")
@click.option("--dry-run", is_flag=True, help="Only tell what is done, and what is to be done.")
@click.option("--strict", is_flag=True, help="Stop at the first line, file, shard or pair that fails, instead of setting it aside.")
@options.json_option
@report.report_option
def command(
    config: str, changes: tuple[str, ...], profile: str | None, dry_run: bool, strict: bool, json_file: str | None, no_report: bool
) -> None:
    """Mine many corpora with one another, as CONFIG says; every one is embedded once.

    What is complete is kept: run again, it goes on where it stopped, and with new files it makes what they change. A file that
    cannot be read is set aside, told and tried again the next time; the exit status is 3 then.

    \b
    Example:
      miner run configs/run.yaml --dry-run
      miner run configs/run.yaml
    """
    from dataclasses import asdict

    from miner import storage
    from miner.config.base import load_yaml
    from miner.config.runs import RunConfig
    from pipelines.runs import run

    settings = load_yaml(RunConfig, config, (*changes, *(["strict=true"] if strict else [])))
    beam_options = (*settings.runner.options(profile), *console.beam_options())
    if dry_run:
        steps = run.plan(settings)
        console.write_figures(json_file, {"runner": list(beam_options), "steps": [asdict(step) for step in steps]})
        click.echo(planned(steps, beam_options))
        return
    result = run.run(settings, beam_options)
    console.write_figures(json_file, result.figures())
    click.echo(summary(result))
    if not no_report:
        for name, pair in result.pairs.items():
            if not pair["kept"]:
                report.leave(storage.join(result.output, run.PAIRS, name))
    console.exit_if_skipped(result.set_aside)


def planned(steps: Sequence["RunStep"], beam_options: Sequence[str]) -> str:
    """A line for each stage, and where they run."""
    width = max(len(step.name) for step in steps)
    lines = [f"{'done ' if step.done else 'to do'}  {step.name:{width}}  {step.made_from} -> {step.output}" for step in steps]
    left = sum(not step.done for step in steps)
    return "\n".join([*lines, f"{left} of {len(steps)} stages to do, {' '.join(beam_options) or 'on this machine'}"])


def summary(result: "RunResult") -> str:
    """A line for each corpus and each pair."""
    lines = []
    for name, corpus in result.corpora.items():
        spent = "kept" if corpus["kept"] else f"{sum(corpus['seconds'].values()):.1f} s"
        lines.append(f"{name}: {corpus['unique']:,} sentences ({corpus['lang']}), {spent}")
    for name, pair in result.pairs.items():
        spent = "kept" if pair["kept"] else f"{sum(pair['seconds'].values()):.1f} s"
        lines.append(f"{name}: {pair['pairs']:,} pairs, {spent}")
    total = sum(pair["pairs"] for pair in result.pairs.values())
    return "\n".join([*lines, f"{total:,} pairs of {len(result.pairs)} pairs of corpora in {result.seconds:.1f} s, in {result.output}"])
