"""`miner verify`."""

from dataclasses import asdict

import click

from miner.cli import console, options
from miner.errors import DataError
from miner.units import counted


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
    console.write_figures(json_file, asdict(result))
    for fault in result.faults:
        console.echo(str(fault))
    if result.faults:
        faults, files = counted(len(result.faults), "fault"), counted(result.files, "file")
        raise DataError(f"{folder}: {faults} in {files}; apply the remedy of each")
    parts = [f"{counted(result.files, 'file')} of {counted(result.stages, 'stage')}"] if result.stages else []
    if result.records:  # such as the checksums of an encoder
        parts.append(f"{counted(result.records, 'other JSON file' if parts else 'JSON file')} and the files listed there")
    console.echo(f"intact: {', '.join(parts)}")
