"""What the commands share: options for logging, errors as one line, progress bars, JSON logs. Logging is configured only here."""

import contextlib
import io
import json
import logging
import re
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

import click

from miner.errors import EXTRAS, REMOTE_REMEDY, MinerError, StorageError, Terminated, first_line, is_remote_error, missing_package
from miner.io.credentials import hide
from miner.progress import Progress, progress_of

PACKAGES = ("miner", "pipelines")
STDOUT = "-"  # as the file of `--json`
BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {unit}s [{elapsed}{postfix}]"  # the note has rate and remaining time
MIN_SCALED_UNITS = 1_000_000  # larger totals are shown as 1.5M
RESUME_COMMANDS = ("loop", "train")  # they refuse a directory with their output, unless --resume is given
INSPECTING_COMMANDS = ("status", "verify")  # the same command is the one that wrote what they inspect
SKIPPED_STATUS = 3  # exit status of a command that finished but skipped broken files or shards
PROGRESS_LINE_SECONDS = 10.0  # between two lines of progress where stderr is not a terminal
INTERNAL_ERROR = "internal error"
# In a RuntimeError of torch or Python, and in an ImportError of a shared library.
OUT_OF_MEMORY = ("can't allocate memory", "can't start new thread", "out of memory", "failed to map segment", "cannot allocate memory")
# Escape sequences of terminals and marks of writing direction, which names of files and settings of others may contain.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
RECORD_FIELDS = ("stage", "shard", "figures")  # attributes of a log record that the JSON log includes


@dataclass
class ConsoleOptions:
    """The options that every command has."""

    command: str = ""  # as it was typed
    beam_options: tuple[str, ...] = ()
    verbose: bool = False
    debug: bool = False
    log_format: str = "text"
    quiet: bool = False
    start: float = field(default_factory=time.perf_counter)  # of the command, before the imports of what it needs
    stdout: TextIO = field(default_factory=lambda: sys.stdout)  # standard output, also where `--quiet` hides that of commands


def beam_options() -> tuple[str, ...]:
    """Return the arguments after `--`."""
    return _console_options(click.get_current_context()).beam_options


def is_quiet() -> bool:
    """Return whether `--quiet` hides the summary."""
    return _console_options(click.get_current_context()).quiet


def _console_options(ctx: click.Context) -> ConsoleOptions:
    return ctx.ensure_object(ConsoleOptions)


def add_console_options(command: click.Command) -> None:
    """Add `--verbose`, `--debug` and `--log-format` to a command and its subcommands, so that they work before and after its name."""

    def store(ctx: click.Context, parameter: click.Parameter, value: bool | str | None) -> None:
        if value:
            setattr(_console_options(ctx), str(parameter.name), value)
        if value and parameter.name == "quiet":
            ctx.with_resource(contextlib.redirect_stdout(io.StringIO()))

    if not any(parameter.name == "debug" for parameter in command.params):
        flags = (
            (["-q", "--quiet"], "Print errors only."),
            (["-v", "--verbose"], "Log every step."),
            (["--debug"], "Print the traceback of an error."),
        )
        for declarations, text in flags:
            command.params.append(click.Option(declarations, is_flag=True, expose_value=False, callback=store, help=text))
        choice = click.Choice(["text", "json"])
        text = "json: one JSON object per line of stderr, and no progress bars."
        command.params.append(click.Option(["--log-format"], type=choice, expose_value=False, callback=store, help=text))
    for subcommand in getattr(command, "commands", {}).values():
        add_console_options(subcommand)


@contextlib.contextmanager
def report_errors(ctx: click.Context) -> Iterator[None]:
    """Print an error as one line and exit with status 1; exit with 130 on Ctrl-C, and with 143 on SIGTERM.

    Exceptions that are not MinerErrors are bugs; `--debug` prints their traceback.
    """
    try:
        with _terminating():
            yield
    except click.UsageError as error:
        raise WrongUsage(error) from error
    except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise  # click handles them
    except KeyboardInterrupt as error:
        close_bar()
        _print_line(ctx, logging.ERROR, f"stopped; {resume_advice(ctx.invoked_subcommand)}")
        ctx.exit(143 if isinstance(error, Terminated) else 130)
    except Exception as error:
        close_bar()
        if _console_options(ctx).debug and _console_options(ctx).log_format == "text":
            click.echo(printable("".join(traceback.format_exception(error))), err=True)
        _print_line(ctx, logging.ERROR, f"error: {' '.join(_describe(error).split())}", kind=type(error).__name__)
        ctx.exit(1)


class WrongUsage(click.ClickException):
    """A command line that is not understood: the usage of the command and, as for other errors, one line. Exit status 2."""

    exit_code = 2

    def __init__(self, error: click.UsageError) -> None:
        super().__init__(_describe_usage(error))
        self.ctx = error.ctx or click.get_current_context()

    def show(self, file: Any = None) -> None:
        if _console_options(self.ctx).log_format == "text":
            click.echo(self.ctx.get_usage(), err=True, file=file)
        _print_line(self.ctx, logging.ERROR, f"error: {self.message}; see `{self.ctx.command_path} --help`")


def _describe_usage(error: click.UsageError) -> str:
    """Describe an error of click in the words of errors of settings."""
    if isinstance(error, click.BadParameter) and error.param is not None:
        names = error.param.opts if isinstance(error.param, click.Option) else [error.param.human_readable_name]
        return f"{names[0]}: {'missing, and required' if isinstance(error, click.MissingParameter) else error.message.rstrip('.')}"
    text = error.format_message().rstrip(".")
    return text if text[:2].isupper() else f"{text[0].lower()}{text[1:]}"


def resume_advice(command: str | None) -> str:
    """Return how to resume a command that was stopped."""
    return "run the same command with --resume" if command in RESUME_COMMANDS else "run the same command again to resume"


def _describe(error: Exception) -> str:
    if isinstance(error, MinerError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in EXTRAS:
        return missing_package(str(error.name))
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError | ImportError) and any(text in str(error) for text in OUT_OF_MEMORY)
    ):
        return "out of memory; see `miner plan` for what a run needs, or choose more --shards"
    if is_remote_error(error):
        return f"{first_line(error)}; {REMOTE_REMEDY} (--debug prints where it happened)"
    if isinstance(error, OSError):
        return f"{first_line(error)}; fix this and run the same command again (--debug prints where it happened)"
    return f"{INTERNAL_ERROR}: {type(error).__name__}: {first_line(error)}; run with --debug for the traceback, and report it"


@contextlib.contextmanager
def _terminating() -> Iterator[None]:
    """Raise Terminated on SIGTERM. Only the main thread may handle signals."""

    def terminate(*_: object) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def exit_if_skipped(skipped: Mapping[str, str]) -> None:
    """Exit with status 3 if anything was skipped, so that a scheduler notices. `skipped` maps a file or shard to the reason."""
    if skipped:
        ctx = click.get_current_context()
        for path, reason in skipped.items():
            _print_line(ctx, logging.WARNING, f"skipped: {reason}" if path in reason else f"skipped: {path}: {reason}")
        _print_line(ctx, logging.WARNING, f"finished, with {len(skipped)} skipped; fix them and run the same command again")
        ctx.exit(SKIPPED_STATUS)


def _print_line(ctx: click.Context, level: int, text: str, **fields: str) -> None:
    """Print a line to stderr in the chosen log format. Where it says to run the same command again, it names the command."""
    command = _console_options(ctx).command
    if command and ctx.invoked_subcommand not in INSPECTING_COMMANDS:
        text = text.replace("run the same command", f"run `{command}`")
    if _console_options(ctx).log_format == "json":
        record = logging.LogRecord("miner", level, "", 0, text.removeprefix("error: "), None, None)
        click.echo(format_json(record, **fields), err=True)
    else:
        click.echo(f"miner: {printable(text)}", err=True)


def printable(text: str) -> str:
    """Escape what would control a terminal, and hide user names, passwords and keys in URLs."""
    return UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), hide(text))


def echo(text: str) -> None:
    """Print a result. Raises StorageError where standard output cannot be written."""
    with _writing_stdout():
        click.echo(printable(text))


@contextlib.contextmanager
def _writing_stdout() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(f"standard output: {error.strerror}; free some space") from error


def time_line(seconds: Mapping[str, float]) -> str:
    """Return the wall time since the start of the command and its parts, of which `seconds` are known; the rest is imports and checks."""
    total = time.perf_counter() - _console_options(click.get_current_context()).start
    parts = {**seconds, "imports and checks": max(0.0, total - sum(seconds.values()))}
    shares = [f"{name} {part:.1f} s ({part / total:.0%})" for name, part in parts.items()]
    return f"{total:.1f} s: {', '.join(shares)}"


def warn(text: str) -> None:
    """Print a line that is no result to stderr, in the chosen log format, without `--quiet`."""
    if not is_quiet():
        _print_line(click.get_current_context(), logging.WARNING, text)


def write_figures(path: str | None, figures: dict[str, Any]) -> None:
    """Write the figures of a result to the file that `--json` names, if it is given; `-` is standard output."""
    from miner.io import outputs, storage

    if path == STDOUT:
        with _writing_stdout():
            stdout = _console_options(click.get_current_context()).stdout
            stdout.write(storage.json_text(figures))
            stdout.flush()
    elif path is not None:
        storage.write_json(path, outputs.mark_figures(figures))


def format_json(record: logging.LogRecord, **fields: Any) -> str:
    """Format a log record as one line of JSON.

    Keys: `time` (UTC), `level`, `logger`, `message`; `stage`, `shard`, `figures`, the fields of its progress and `trace` if present.
    """
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    values = {"time": f"{seconds}.{int(record.msecs):03d}Z", "level": record.levelname, "logger": record.name}
    values |= {"message": record.getMessage()}
    values |= {name: getattr(record, name) for name in RECORD_FIELDS if hasattr(record, name)}
    progress = progress_of(record)
    if progress is not None:
        values |= {name: value for name, value in asdict(progress).items() if value != ""}
    if record.exc_info:
        values["trace"] = "".join(traceback.format_exception(*record.exc_info))
    return hide(json.dumps({**values, **fields}, ensure_ascii=False, default=str))


def configure_logging(options: ConsoleOptions) -> None:
    """Send warnings and progress to stderr; with `--verbose`, every log record of every package, Beam included."""
    root = logging.getLogger()
    root.handlers = [handler for handler in root.handlers if not isinstance(handler, ConsoleHandler)] + [ConsoleHandler(options)]
    for name in PACKAGES:
        logging.getLogger(name).setLevel(logging.INFO)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


class ConsoleHandler(logging.Handler):
    """Write log records to stderr, and progress as a bar, or as a line every few seconds where stderr is not a terminal."""

    def __init__(self, options: ConsoleOptions) -> None:
        super().__init__()
        self.options = options
        self.bar: Any = None
        self.stage = ""  # of the last progress
        self.last_line = 0.0  # time.monotonic() of the last line of progress

    def emit(self, record: logging.LogRecord) -> None:
        if self.options.quiet and record.levelno < logging.ERROR:
            return
        with contextlib.suppress(OSError):  # a closed terminal must not stop the run
            self.show(record)

    def show(self, record: logging.LogRecord) -> None:
        progress = progress_of(record)
        is_ours = record.name.partition(".")[0] in PACKAGES
        is_json = self.options.log_format == "json"
        if progress is not None and sys.stderr.isatty() and not is_json:
            self.draw_bar(progress)
        elif progress is not None and not self.options.verbose:
            self.write_progress(record, progress)
        elif self.options.verbose or (is_ours and (is_json or record.levelno >= logging.WARNING)):
            self.write(record)

    def draw_bar(self, progress: Progress) -> None:
        from tqdm import tqdm

        if self.bar is None or self.stage != progress.stage:
            self.close_bar()
            self.stage = progress.stage
            scale = progress.total >= MIN_SCALED_UNITS
            self.bar = tqdm(
                desc=progress.stage,
                total=progress.total,
                initial=progress.done,
                unit=progress.unit,
                unit_scale=scale,
                leave=False,
                file=sys.stderr,
            )
        self.bar.n = progress.done
        self.bar.bar_format = BAR if progress.note else None
        self.bar.set_postfix_str(progress.note, refresh=False)
        self.bar.refresh()
        if progress.done == progress.total:
            self.close_bar()

    def write_progress(self, record: logging.LogRecord, progress: Progress) -> None:
        now = time.monotonic()
        if self.stage != progress.stage:
            self.stage, self.last_line = progress.stage, now
        elif progress.done < progress.total and now - self.last_line >= PROGRESS_LINE_SECONDS:
            self.last_line = now
            self.write(record)

    def write(self, record: logging.LogRecord) -> None:
        if self.bar is not None:
            self.bar.clear()
        click.echo(format_json(record) if self.options.log_format == "json" else f"miner: {printable(self.format(record))}", err=True)

    def close_bar(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def close_bar() -> None:
    """Remove the progress bar from the terminal before other output."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, ConsoleHandler):
            handler.close_bar()
