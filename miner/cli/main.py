"""The `miner` command: finds the command asked for, and loads nothing else."""

import importlib
import io
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
    "loop": "Mine, train on what was mined, and mine again.",
    "eval": "Measure an encoder, or what was mined.",
    "data": "Read public datasets as they are downloaded.",
    "run": "Mine many corpora with one another.",
    "plan": "Tell what a run would take.",
    "status": "Tell how far a run is.",
    "verify": "Check that what was written is still whole.",
    "report": "Show in pictures what a folder holds.",
}


class Miner(click.Group):
    """Commands are modules of `miner.cli`, loaded when they are asked for; what follows `--` is for Beam."""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]
        ours, beams = _split(list(sys.argv[1:] if args is None else args))
        edge = console.ConsoleOptions(beam_options=tuple(beams))
        console.configure_logging(edge)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # sentences are printed, whatever alphabet the terminal lacks
        return super().main(ours, **{"prog_name": "miner", "obj": edge, **extra})

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

    def invoke(self, ctx: click.Context) -> Any:
        with console.report_errors(ctx):
            return super().invoke(ctx)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments before the first `--`, and those behind it."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


@click.group("miner", cls=Miner, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="miner")
def main() -> None:
    """Mine parallel sentences from text that nobody aligned.

    Whatever follows `--` goes to Apache Beam, which runs the work: `miner embed text.txt --output out -- --runner=FlinkRunner`.
    """


console.add_console_options(main)

if __name__ == "__main__":
    main()
