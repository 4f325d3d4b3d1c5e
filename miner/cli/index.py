"""`miner index`."""

from typing import Any

import click

from miner.cli import console, options
from miner.config.commands import IndexConfig


@click.command()
@click.argument("embeddings")
@options.output_option
@options.setting(
    IndexConfig, "factory", "auto, or the kind of index in FAISS's words: Flat, IVF4096,PQ64x4, HNSW32, ...", metavar="FACTORY"
)
@options.approximate_options
@options.setting(IndexConfig, "k", "Neighbours of which the recall is measured.", type=int)
@options.setting(IndexConfig, "seed", "Of the sample the index is trained on.", type=int)
@options.setting(IndexConfig, "device", "auto, cpu, cuda (all GPUs) or cuda:N.", metavar="NAME")
@options.json_option
def command(json_file: str | None, **settings: Any) -> None:
    """Build a FAISS index over EMBEDDINGS, a folder of `miner embed`.

    How hard the index has to look is tuned until it finds the --target-recall of what exact search finds; what it does find is
    printed. `miner mine` takes the index as well as the embeddings. Needs FAISS: pip install 'bitext-miner[cpu]', or [gpu].

    \b
    Example:
      miner index embedded/de --output indexed/de
    """
    from pipelines.search import build_index as stage

    result = stage.run(IndexConfig.check(**settings), console.beam_options())
    console.write_figures(json_file, result.figures())
    click.echo(result.summary())
