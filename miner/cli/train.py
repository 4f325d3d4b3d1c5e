"""`miner train`."""

import click

from miner.cli import console, options


@click.command()
@click.argument("config", metavar="CONFIG")
@options.output_option
@options.json_option
def command(config: str, output: str, json_file: str | None) -> None:
    """Train an encoder as CONFIG says; OUTPUT/encoder then serves as --encoder.

    \b
    Example:
      miner train configs/builtin.yaml --output build/builtin
    """
    from dataclasses import asdict

    from miner.config import TrainConfig, load_yaml
    from miner.training import static

    trained = static.train(load_yaml(TrainConfig, config), output)
    console.write_figures(json_file, asdict(trained))
    click.echo(
        f"{trained.texts:,} texts in {trained.languages} languages, {trained.pairs:,} pairs drawn, loss {trained.loss:.4f} at the end\n"
        f"{trained.encoder}"
    )
