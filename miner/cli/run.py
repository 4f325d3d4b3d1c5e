"""`miner run`."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from miner.cli import console, options, report
from miner.io.defer_pandas import defer_pandas
from miner.units import list_counts

if TYPE_CHECKING:
    from pipelines.runs.run import RunResult, RunStep


@click.command()
@options.config_argument
@options.changes_option("k=8, corpora.de=new.txt")
@options.print_config_option
@click.option("--profile", metavar="NAME", help="Run on this profile of CONFIG's runner section.")
@click.option("--dry-run", is_flag=True, help="Only list what is done and what is left to do.")
@click.option("--strict", is_flag=True, help="Stop at the first line, file, shard or pair that fails, instead of skipping it.")
@click.option("--replace", is_flag=True, help="Replace results that were made from files that are no longer in CONFIG.")
@options.json_option
@options.report_option
def command(config: str, changes: tuple[str, ...], profile: str | None, dry_run: bool, json_file: str | None, **flags: bool) -> None:
    """Mine the corpora of CONFIG with one another; each corpus is embedded once.

    Run again, the command resumes where it stopped, and with new files it updates only what they change. A file that cannot be read is
    skipped, reported, and tried again by the next run; the exit status is then 3.

    \b
    Example:
      miner run configs/run.yaml --dry-run
      miner run configs/run.yaml
    """
    from miner.config.base import load_yaml
    from miner.config.runs import RunConfig
    from miner.io import storage

    defer_pandas()
    from pipelines.runs import run

    settings = load_yaml(RunConfig, config, (*changes, *(f"{name}=true" for name in ("strict", "replace") if flags[name])))
    if flags["print_config"]:
        options.print_config(settings)
        return
    beam_options = (*settings.runner.options(profile), *console.beam_options())
    if dry_run:
        steps = run.plan_steps(settings)
        console.write_figures(json_file, {"runner": list(beam_options), "steps": [asdict(step) for step in steps]})
        console.echo(format_steps(steps, beam_options))
        return
    result = run.run(settings, beam_options)
    console.write_figures(json_file, asdict(result))
    seconds, uri = {"corpora and pairs": result.seconds}, None
    if not flags["no_report"]:
        start = time.perf_counter()
        for name, pair in result.pairs.items():
            if not pair["reused"]:
                report.write_report(storage.join(result.output, run.PAIRS, name))
        uri = report.write_report(result.output)
        seconds["report"] = time.perf_counter() - start
    console.echo("\n".join([summary(result), console.time_line(seconds), *([f"report: {uri}"] if uri else [])]))
    console.exit_if_skipped(result.skipped)


def format_steps(steps: Sequence["RunStep"], beam_options: Sequence[str]) -> str:
    """Format a line for each step, and where they run."""
    width = max(len(step.name) for step in steps)
    lines = [f"{'done ' if step.done else 'to do'}  {step.name:{width}}  {step.inputs} -> {step.output}" for step in steps]
    num_left = sum(not step.done for step in steps)
    return "\n".join([*lines, f"{num_left} of {len(steps)} stages to do, {' '.join(beam_options) or 'on this machine'}"])


def summary(result: "RunResult") -> str:
    """Format a line for each corpus and each pair."""
    from pipelines.mining.summary import dropped_lines

    lines = []
    for name, corpus in result.corpora.items():
        status = "kept" if corpus["reused"] else f"{sum(corpus['seconds'].values()):.1f} s"
        dropped = dropped_lines(corpus.get("lines", {}))
        lines.append(f"{name}: {corpus['unique']:,} sentences ({corpus['lang']}), {status}{dropped and f'; dropped {dropped}'}")
    for name, pair in result.pairs.items():
        status = "kept" if pair["reused"] else f"{sum(pair['seconds'].values()):.1f} s"
        dropped = list_counts(pair["dropped"])
        lines.append(f"{name}: {pair['pairs']:,} pairs, {status}{dropped and f'; dropped {dropped}'}")
        if "delta" in pair and not pair["reused"]:
            changes = ", ".join(f"{count:,} {change}" for change, count in pair["delta"].items() if change != "file")
            lines.append(f"{name}: since the previous run: {changes} ({pair['delta']['file']})")
    total = sum(pair["pairs"] for pair in result.pairs.values())
    lines.append(f"{total:,} pairs of {len(result.pairs)} pairs of corpora in {result.output}")
    if sum(not part["reused"] for part in (*result.corpora.values(), *result.pairs.values())) > 1:
        lines.append("corpora and pairs ran side by side, so their seconds overlap")
    return "\n".join(lines)
