"""The `miner` command: import and run the requested subcommand only."""

import atexit
import gc
import importlib
import io
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import click

from miner import __version__
from miner.cli import console

COMMANDS = {
    "embed": "Clean, deduplicate and embed text.",
    "index": "Build an index over embeddings.",
    "mine": "Find the translations of one text in another.",
    "export": "Export a bitext to other formats.",
    "score": "Score the line pairs of a bitext.",
    "train": "Train an encoder.",
    "loop": "Mine, train on the mined pairs, and mine again.",
    "eval": "Evaluate an encoder or a bitext.",
    "calibrate": "Measure the probabilities of an encoder.",
    "fetch": "Copy an encoder to where workers read it.",
    "reproduce": "Train and evaluate the tables of papers.",
    "config": "List recipes, and describe the settings of configs.",
    "data": "Read public datasets as they are downloaded.",
    "run": "Mine many corpora with one another.",
    "plan": "Estimate the time, memory and disk of a run.",
    "status": "Show the progress of a run.",
    "verify": "Check that the files of a directory are intact.",
    "report": "Write an HTML report with charts of a result.",
}

FULL_COLLECTION_RATIO = 100  # garbage collections of younger objects between two of all objects; Python's default is 10

EPILOG = "`miner COMMAND --help` has the options and an example of a command. On a cluster, options after `--` go to Apache Beam."


class Miner(click.Group):
    """A group whose commands are modules of `miner.cli`, imported on request. Arguments after `--` are for Beam."""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]
        arguments, beam_options = _split(list(sys.argv[1:] if args is None else args))
        _spare_imported_modules()
        command = shlex.join(["miner", *(sys.argv[1:] if args is None else args)])
        options = console.ConsoleOptions(command=command, beam_options=tuple(beam_options))
        console.configure_logging(options)
        unreadable = next((argument for argument in arguments if _has_surrogates(argument)), None)
        if unreadable is not None:
            sys.exit(f"miner: error: {os.fsencode(unreadable)!r}: not UTF-8; rename it, and check the locale")
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # terminals may lack the alphabet of a sentence
        if sys.flags.optimize > 1:
            sys.exit("miner: error: Apache Beam needs docstrings, which PYTHONOPTIMIZE=2 removes; unset it, or set it to 1")
        try:
            return super().main(arguments, **{"prog_name": "miner", "obj": options, **extra})
        except OSError as error:  # of --help and --version
            sys.exit(f"miner: error: standard output: {error.strerror}")

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"miner.cli.{cmd_name}").command
        console.add_console_options(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with console.report_errors(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with console.report_errors(ctx):
            return super().invoke(ctx)


def _spare_imported_modules() -> None:
    """Make full garbage collections rare, and leave them out when the process ends: they scan all modules, which are never garbage."""
    gc.set_threshold(*gc.get_threshold()[:2], FULL_COLLECTION_RATIO)
    atexit.register(gc.freeze)


def _has_surrogates(argument: str) -> bool:
    """Whether an argument of the command line is not UTF-8."""
    return any("\ud800" <= character <= "\udfff" for character in argument)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split the arguments at the first `--`."""
    index = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:index], arguments[index + 1 :]


@click.group("miner", cls=Miner, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(__version__, prog_name="miner")
def main() -> None:
    """Mine translation pairs from monolingual text.

    \b
    Example:
      miner mine en.txt de.txt --source-lang en --target-lang de --output mined
    """


console.add_console_options(main)

if __name__ == "__main__":
    main()
