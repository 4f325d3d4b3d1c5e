"""`miner verify`."""

import click

from miner.cli import console, options
from miner.errors import DataError


@click.command()
@click.argument("folder", metavar="DIR")
@options.json_option
def command(folder: str, json_file: str | None) -> None:
    """Check that everything in DIR, the --output of any command, is intact.

    Reads every manifest, compares every file it lists with its checksum, and checks that the inputs of each stage have not changed. Each
    fault is printed in one line with its remedy; the exit status is then 1.

    \b
    Example:
      miner verify mined
    """
    from pipelines.runs import verify

    result = verify.run(folder)
    console.write_figures(json_file, result.figures())
    for fault in result.faults:
        console.echo(str(fault))
    if result.faults:
        raise DataError(f"{folder}: {len(result.faults)} faults in {result.files:,} files; apply the remedy of each")
    others = f", and {result.others:,} other files" if result.others else ""
    console.echo(f"{result.files:,} files of {result.stages} stages{others} are intact")
