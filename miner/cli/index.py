"""`miner index`."""

import click

from miner.cli import console, options
from miner.config import IndexConfig


@click.command()
@click.argument("embeddings")
@options.output_option
@options.setting(IndexConfig, "factory", "The kind of index, in FAISS's words.", metavar="FACTORY")
def command(embeddings: str, output: str, factory: str) -> None:
    """Build a FAISS index over EMBEDDINGS, a folder of `miner embed`.

    Needs FAISS: pip install 'bitext-miner[cpu]', or [gpu]. `miner mine` takes the index as well as the embeddings.

    \b
    Example:
      miner index embedded/de --output indexed/de
    """
    from pipelines import index as stage

    result = stage.run(IndexConfig.check(embeddings=embeddings, output=output, factory=factory), console.beam_options())
    click.echo(result.summary())
