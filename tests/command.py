"""The command line as tests run it: in this process, and without pictures, which have tests of their own."""

from click.testing import CliRunner, Result

from miner.cli.main import main


def miner(*arguments: object, stdin: bytes | None = None) -> Result:
    command, *rest = map(str, arguments)
    quiet = ["--no-report"] if command == "mine" else []
    return CliRunner().invoke(main, [command, *quiet, *rest], input=stdin)


def refused(*arguments: object, stdin: bytes | None = None) -> str:
    """The message of a command that cannot be done: status 1, one line on stderr, nothing printed."""
    result = miner(*arguments, stdin=stdin)
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert result.stderr.startswith("miner: error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("miner: error: ").strip()
