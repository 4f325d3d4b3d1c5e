"""`miner fetch`."""

import click

from miner.cli import console, options


@click.command()
@click.argument("encoder")
@click.option("--output", required=True, metavar="DIR", help="Directory or URI of the copy. Run again, the command completes it.")
@options.json_option
def command(encoder: str, output: str, json_file: str | None) -> None:
    """Copy ENCODER to a directory or URI, with checksums, for the workers of a cluster.

    ENCODER is `builtin`, a directory, a URI, or a model id of the Hugging Face Hub.

    \b
    Example:
      miner fetch sentence-transformers/LaBSE --output gs://bucket/encoders/labse
    """
    from miner.encoders import publish

    result = publish.copy_encoder(encoder, output)
    console.write_figures(json_file, result.figures())
    console.echo(result.summary())
