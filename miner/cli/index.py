"""`miner index`."""

from typing import Any

import click

from miner.cli import console, options
from miner.config.commands import IndexConfig
from miner.io.defer_pandas import defer_pandas


@click.command()
@click.argument("embeddings")
@options.output_option
@options.setting(IndexConfig, "factory", "auto, or a FAISS factory string: Flat, IVF4096,PQ64x4, HNSW32, ...", metavar="FACTORY")
@options.approximate_options
@options.setting(IndexConfig, "k", "Number of neighbours whose recall is measured.", type=int)
@options.setting(IndexConfig, "seed", "Random seed of the training sample.", type=int)
@options.setting(IndexConfig, "device", "auto, cpu, cuda (all GPUs) or cuda:N.", metavar="NAME")
@options.json_option
def command(json_file: str | None, **settings: Any) -> None:
    """Build a FAISS index over EMBEDDINGS, the output directory of `miner embed`.

    The search effort is tuned until the index reaches --target-recall compared with exact search; the measured recall is printed.
    `miner mine` accepts an index directory in place of embeddings. Needs FAISS: pip install 'bitext-miner[cpu]', or [gpu].

    \b
    Example:
      miner index embedded/de --output indexed/de
    """
    config = IndexConfig.check(**settings)
    defer_pandas()
    from pipelines.search import build_index  # after the checks, which need not wait for torch

    result = build_index.run(config, console.beam_options())
    console.write_figures(json_file, result.figures())
    console.echo(result.summary())
