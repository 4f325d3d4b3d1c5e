"""The command line as tests run it: in this process, and without pictures, which have tests of their own."""

from click.testing import CliRunner, Result

from miner.cli.main import main


def miner(*arguments: object, stdin: bytes | None = None) -> Result:
    command, *rest = map(str, arguments)
    quiet = ["--no-report"] if command == "mine" else []
    return CliRunner().invoke(main, [command, *quiet, *rest], input=stdin)
