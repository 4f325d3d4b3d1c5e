"""The command line as tests run it: in this process, and without pictures, which have tests of their own."""

import re

from click.testing import CliRunner, Result

from miner.cli import console
from miner.cli.main import main

# Of other encoders than the built-in one, and of languages that are not known.
WARNINGS = ("the default threshold", "are not rescored", "cannot rate text", "was not trained on", "have the same sentences, each of which")
PROGRESS = re.compile(r"miner: [\w-]+: \d+ of \d+ \w+")  # on a slow machine
PICTURED = {"mine": 1, "run": 1, "loop": 1, "train": 1, "eval": 2, "score": 1}  # what leaves a report, and the words before its options


def miner(*arguments: object, stdin: bytes | None = None, report: bool = False) -> Result:
    """The outcome of a command, which leaves its report only where that is asked for."""
    words = [str(argument) for argument in arguments]
    if not report and words and words[0] in PICTURED:
        words.insert(PICTURED[words[0]], "--no-report")
    result = CliRunner().invoke(main, words, input=stdin)
    assert console.INTERNAL_ERROR not in result.stderr, result.stderr
    return result


def outcome_of(*arguments: object) -> tuple[int, str, str]:
    """Return the exit status of a command, and what it prints to stdout and stderr."""
    result = miner(*arguments)
    return result.exit_code, result.stdout, result.stderr


def output_of(*arguments: object, stdin: bytes | None = None) -> str:
    """What a command that succeeds prints."""
    result = miner(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def error_of(*arguments: object, stdin: bytes | None = None) -> str:
    """The message of a command that cannot be done: status 1, one line on stderr, nothing printed."""
    result = miner(*arguments, stdin=stdin)
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    lines = error_lines(result)
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("miner: error: ")
    return lines[0].removeprefix("miner: error: ").strip()


def error_lines(result: Result) -> list[str]:
    """Return the lines of stderr that are neither warnings nor progress."""
    return [line for line in result.stderr.splitlines() if not any(warning in line for warning in WARNINGS) and not PROGRESS.match(line)]
