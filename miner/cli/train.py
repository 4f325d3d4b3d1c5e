"""`miner train`."""

import click

from miner.cli import console, options, report


@click.command()
@options.config_argument
@click.option("--output", required=True, metavar="DIR", help="Folder to write; DIR/encoder is the encoder.")
@options.changes_option("training.lr=1e-5")
@click.option("--resume", is_flag=True, help="Go on with the run in DIR where it stopped.")
@options.json_option
@report.report_option
def command(config: str, output: str, changes: tuple[str, ...], resume: bool, json_file: str | None, no_report: bool) -> None:
    """Train an encoder as CONFIG says; OUTPUT/encoder then serves as --encoder.

    \b
    Example:
      miner train configs/builtin.yaml --output build/builtin
    """
    from dataclasses import asdict

    from miner.config.base import load_yaml
    from miner.training import distributed, run
    from miner.training.settings import TrainConfig

    trained = run.train(load_yaml(TrainConfig, config, changes), output, resume)
    if not distributed.first():
        return
    console.write_figures(json_file, asdict(trained))
    score = "" if trained.score is None else f", best score {trained.score:.4f}"
    click.echo(f"{trained.steps:,} steps, {trained.examples:,} examples, loss {trained.loss:.4f} at the end{score}\n{trained.encoder}")
    if not no_report:
        report.leave(output)
