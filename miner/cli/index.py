"""`miner index`."""

import click

from miner.cli import console, options
from miner.config.commands import IndexConfig
from miner.io.defer_pandas import defer_pandas


@click.command(cls=options.SettingsCommand, models={"config": IndexConfig})
@options.json_option
def command(config: IndexConfig, json_file: str | None) -> None:
    """Build a FAISS index over EMBEDDINGS, the output directory of `miner embed`.

    The search effort is tuned until the index reaches --target-recall compared with exact search; the measured recall is printed.
    `miner mine` accepts an index directory in place of embeddings. Needs FAISS: pip install 'bitext-miner[cpu]', or [gpu].

    \b
    Example:
      miner index embedded/de --output indexed/de
    """
    defer_pandas()
    from pipelines.search import build_index  # after the checks, which need not wait for torch

    result = build_index.run(config, console.beam_options())
    console.write_figures(json_file, result.figures())
    console.echo(result.summary())
