"""`miner eval`: a command for each task, derived from the task's settings; and `bitext` and `suite`."""

import inspect
import posixpath
from typing import TYPE_CHECKING, Any

import click

from miner.cli import console, options, report
from miner.cli import gold as gold_module
from miner.config.base import load_yaml
from miner.config.commands import EncoderSettings
from miner.errors import ConfigError
from miner.evaluation.tasks import TASKS, find_task
from miner.io.defer_pandas import defer_pandas

if TYPE_CHECKING:
    from miner.evaluation.scores import EvaluationResult
    from miner.evaluation.task_base import TaskSettings


def output_options(function: options.Function) -> options.Function:
    """Add --json and --no-report."""
    return options.json_option(options.report_option(function))


class EvaluationGroup(click.Group):
    """A group with a command for each task, which is made of the settings of the task when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*TASKS, *super().list_commands(ctx)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in TASKS:
            return super().get_command(ctx, cmd_name)
        task = find_task(cmd_name)

        @click.command(
            cmd_name, cls=options.SettingsCommand, models={"task": task, "encoder_settings": EncoderSettings}, help=inspect.getdoc(task)
        )
        @output_options
        def evaluate(task: "TaskSettings", encoder_settings: EncoderSettings, json_file: str | None, no_report: bool) -> None:
            defer_pandas()
            from miner.encoders import load_encoder

            result = task.evaluate(load_encoder(encoder_settings.encoder, encoder_settings))
            _write_result(task.figures(), result, json_file, no_report)

        return evaluate

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        commands = {name: command.get_short_help_str(100) for name, command in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted({**commands, **{name: entry.help for name, entry in TASKS.items()}}.items()))


@click.group(cls=EvaluationGroup)
def command() -> None:
    """Measure an encoder, or a mined bitext."""


@command.command()
@click.argument("folder", metavar="DIR")
@click.option(
    "--gold",
    multiple=True,
    metavar="FILE",
    help="All true pairs, as for `miner mine --gold`; or marks, tables with the columns mark, source and target: may be repeated.",
)
@output_options
def bitext(folder: str, gold: tuple[str, ...], json_file: str | None, no_report: bool) -> None:
    """Describe the pairs in a directory of `miner mine`; with gold or marks, measure precision above each threshold.

    \b
    Example:
      miner eval bitext mined --gold gold.tsv --json bitext.json
    """
    defer_pandas()
    from miner.evaluation.bitext import evaluate

    known_pairs = gold_module.read(folder, gold)
    _write_result({"task": "bitext"}, evaluate(folder, known_pairs), json_file, no_report=True)
    if not no_report:
        report.write_report(folder, known_pairs, identify=True)


@command.command(cls=options.SettingsCommand, models={"encoder_settings": EncoderSettings}, without=["side"])
@options.suite_option
@click.option("--data", metavar="DIR", help="Directory of the data files, instead of `data` in the config.")
@click.option("--against", metavar="NAME", help="A second encoder, to compare with the first.")
@output_options
def suite(
    path: str, data: str | None, against: str | None, encoder_settings: EncoderSettings, json_file: str | None, no_report: bool
) -> None:
    """Run several tasks and print one table; with --against, compare two encoders with confidence intervals and p values.

    \b
    Example:
      miner eval suite --config configs/eval.yaml --data data --against sentence-transformers/LaBSE
    """
    defer_pandas()
    from functools import partial

    from miner.encoders import load_encoder
    from miner.evaluation.suite import SuiteConfig, run

    config = load_yaml(SuiteConfig, path)
    if data is not None:
        config = config.model_copy(update={"data": data})
    if against == encoder_settings.encoder:
        raise ConfigError(f"--against {against}: the same encoder as the first; name another")
    names = [encoder_settings.encoder, *([against] if against is not None else [])]
    result = run({name: partial(load_encoder, name, encoder_settings) for name in names}, config)
    _write_result({"task": "suite"}, result, json_file, no_report)


def _write_result(task: dict[str, Any], result: "EvaluationResult", json_file: str | None, no_report: bool) -> None:
    """Write the figures to a file, with a report beside it, and print the summary."""
    console.write_figures(json_file, {**task, **result.figures})
    console.echo(result.summary)
    if json_file not in (None, console.STDOUT) and not no_report:
        report.write_report(posixpath.dirname(json_file) or ".")
