"""`miner train`."""

import click

from miner.cli import console, options, report
from miner.errors import require


@click.command()
@options.config_argument
@click.option("--output", metavar="DIR", help="Output directory; the encoder is written to DIR/encoder.  [required]")
@options.changes_option("training.lr=1e-5")
@options.print_config_option
@click.option("--resume", is_flag=True, help="Continue the run in DIR from its last checkpoint.")
@options.json_option
@options.report_option
def command(config: str, output: str | None, changes: tuple[str, ...], json_file: str | None, **flags: bool) -> None:
    """Train an encoder by CONFIG, a file or a recipe of `miner config list`; pass DIR/encoder as --encoder to other commands.

    \b
    Example:
      miner train configs/builtin.yaml --output build/builtin
    """
    from dataclasses import asdict

    require("accelerate")
    from miner.config.base import load_yaml
    from miner.training import run
    from miner.training.config import TrainConfig
    from miner.training.steps import distributed

    settings = load_yaml(TrainConfig, config, changes)
    if flags["print_config"]:
        options.print_config(settings)
        return
    output = options.require_output(output)
    result = run.train(settings, output, flags["resume"])
    if not distributed.is_main_process():
        return
    console.write_figures(json_file, asdict(result))
    console.echo(result.summary())
    if not flags["no_report"]:
        report.write_report(output)
