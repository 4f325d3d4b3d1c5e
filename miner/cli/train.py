"""`miner train`."""

import click

from miner.cli import console, options, report


@click.command()
@options.config_argument
@click.option("--output", required=True, metavar="DIR", help="Output folder; the encoder is written to DIR/encoder.")
@options.changes_option("training.lr=1e-5")
@click.option("--resume", is_flag=True, help="Continue the run in DIR from its last checkpoint.")
@options.json_option
@report.report_option
def command(config: str, output: str, changes: tuple[str, ...], resume: bool, json_file: str | None, no_report: bool) -> None:
    """Train an encoder by CONFIG; pass DIR/encoder as --encoder to other commands.

    \b
    Example:
      miner train configs/builtin.yaml --output build/builtin
    """
    from dataclasses import asdict

    from miner.config.base import load_yaml
    from miner.training import distributed, run
    from miner.training.config import TrainConfig

    result = run.train(load_yaml(TrainConfig, config, changes), output, resume)
    if not distributed.is_main_process():
        return
    console.write_figures(json_file, asdict(result))
    console.echo(result.summary())
    if not no_report:
        report.write_report(output)
