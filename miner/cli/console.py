"""What the commands share at the edge: the terminal. Errors become one line, progress a bar; logging is configured here alone."""

import contextlib
import logging
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click

from miner.errors import MinerError

OURS = ("miner", "pipelines")
SET_ASIDE_STATUS = 3  # of a command that made all but what was set aside
QUIET_SECONDS = 10.0  # without a terminal, progress is told this often, and not before


@dataclass
class ConsoleOptions:
    """What the command line was given besides the command's own options."""

    beam_options: tuple[str, ...] = ()
    verbose: bool = False
    debug: bool = False
    log_format: str = "text"


def beam_options() -> tuple[str, ...]:
    """What followed `--`."""
    return _edge(click.get_current_context()).beam_options


def _edge(ctx: click.Context) -> ConsoleOptions:
    return ctx.ensure_object(ConsoleOptions)


def add_edge_options(command: click.Command) -> None:
    """Give a command, and those below it, `--verbose` and the like: they may stand before or after the command's name."""

    def remember(ctx: click.Context, parameter: click.Parameter, value: bool | str | None) -> None:
        if value:
            setattr(_edge(ctx), str(parameter.name), value)

    if not any(parameter.name == "debug" for parameter in command.params):
        for declarations, text in ((["-v", "--verbose"], "Log what is being done."), (["--debug"], "Show where an error comes from.")):
            command.params.append(click.Option(declarations, is_flag=True, expose_value=False, callback=remember, help=text))
        choice = click.Choice(["text", "json"])
        text = "json: a JSON object on each line of stderr, and no bars."
        command.params.append(click.Option(["--log-format"], type=choice, expose_value=False, callback=remember, help=text))
    for below in getattr(command, "commands", {}).values():
        add_edge_options(below)


@contextlib.contextmanager
def errors_as_lines(ctx: click.Context) -> Iterator[None]:
    """A MinerError -> one line on stderr and exit status 1; Ctrl-C -> one line and 130. Anything else is a bug, and raised."""
    try:
        yield
    except MinerError as error:
        close_bar()
        if _edge(ctx).debug and _edge(ctx).log_format == "text":
            click.echo("".join(traceback.format_exception(error)), err=True)
        _say(ctx, logging.ERROR, f"error: {' '.join(str(error).split())}", kind=type(error).__name__)
        ctx.exit(1)
    except KeyboardInterrupt:
        close_bar()
        _say(ctx, logging.ERROR, "stopped; run the same command again to go on")
        ctx.exit(130)


def exit_unless_whole(set_aside: Mapping[str, str]) -> None:
    """End with status 3 where something was set aside: the rest is done, and a schedule is to notice."""
    if set_aside:
        ctx = click.get_current_context()
        for place, reason in set_aside.items():
            _say(ctx, logging.WARNING, f"set aside: {reason}" if place in reason else f"set aside: {place}: {reason}")
        _say(ctx, logging.WARNING, f"the rest is done, {len(set_aside)} set aside; mend that and run the same command again")
        ctx.exit(SET_ASIDE_STATUS)


def _say(ctx: click.Context, level: int, text: str, **more: str) -> None:
    """A line on stderr."""
    if _edge(ctx).log_format == "json":
        from miner.cli import json_logs

        record = logging.LogRecord("miner", level, "", 0, text.removeprefix("error: "), None, None)
        click.echo(json_logs.as_json(record, **more), err=True)
    else:
        click.echo(f"miner: {text}", err=True)


def write_figures(path: str | None, figures: dict[str, Any]) -> None:
    """Write a result's figures to the file of `--json`, if one is asked for."""
    from miner import storage

    if path is not None:
        storage.write_json(path, figures)


def configure_logging(edge: ConsoleOptions) -> None:
    """Send warnings and progress to stderr, and where `edge.verbose` everything else. Beam's chatter is heard only then."""
    root = logging.getLogger()
    root.handlers = [handler for handler in root.handlers if not isinstance(handler, Terminal)] + [Terminal(edge)]
    for name in OURS:
        logging.getLogger(name).setLevel(logging.INFO)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


class Terminal(logging.Handler):
    """Log records -> lines on stderr; those that carry progress -> a bar or, where there is no terminal, a line now and then."""

    def __init__(self, edge: ConsoleOptions) -> None:
        super().__init__()
        self.edge = edge
        self.bar: Any = None
        self.stage = ""
        self.told = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # a terminal that is gone is no reason to stop
            self.show(record)

    def show(self, record: logging.LogRecord) -> None:
        progress: dict[str, Any] | None = getattr(record, "progress", None)
        ours = record.name.partition(".")[0] in OURS
        json = self.edge.log_format == "json"
        if progress is not None and sys.stderr.isatty() and not json:
            self.draw(**progress)
        elif progress is not None and not self.edge.verbose:
            self.tell(record, **progress)
        elif self.edge.verbose or (ours and (json or record.levelno >= logging.WARNING)):
            self.write(record)

    def draw(self, stage: str, done: int, total: int, unit: str = "shard", note: str = "") -> None:
        from tqdm import tqdm

        if self.bar is None or self.stage != stage:
            self.close_bar()
            self.stage = stage
            self.bar = tqdm(desc=stage, total=total, initial=done, unit=unit, leave=False, file=sys.stderr)
        self.bar.n = done
        self.bar.set_postfix_str(note, refresh=False)
        self.bar.refresh()
        if done == total:
            self.close_bar()

    def tell(self, record: logging.LogRecord, stage: str, done: int, total: int, **_: object) -> None:
        now = time.monotonic()
        if self.stage != stage:
            self.stage, self.told = stage, now
        elif done < total and now - self.told >= QUIET_SECONDS:
            self.told = now
            self.write(record)

    def write(self, record: logging.LogRecord) -> None:
        from miner.cli import json_logs

        if self.bar is not None:
            self.bar.clear()
        click.echo(json_logs.as_json(record) if self.edge.log_format == "json" else f"miner: {self.format(record)}", err=True)

    def close_bar(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def close_bar() -> None:
    """Take the progress bar off the terminal, so that what is printed next stands alone."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, Terminal):
            handler.close_bar()
