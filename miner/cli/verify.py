"""`miner verify`."""

import click

from miner.cli import console, options
from miner.errors import DataError


@click.command()
@click.argument("folder", metavar="DIR")
@options.json_option
def command(folder: str, json_file: str | None) -> None:
    """Check that everything in DIR, the --output of any command, is as it was written.

    Every manifest is read, every file it names is compared with its checksum, and what each stage was made from with what is there.
    A fault is told in a line, with what mends it; then the exit status is 1.

    \b
    Example:
      miner verify mined
    """
    from pipelines.runs import verify

    found = verify.run(folder)
    console.write_figures(json_file, found.figures())
    for fault in found.faults:
        click.echo(str(fault))
    if found.faults:
        raise DataError(f"{folder}: {len(found.faults)} faults in {found.files:,} files; do what stands behind each of them")
    click.echo(f"{found.files:,} files of {found.stages} stages are whole")
