"""`miner calibrate`."""

import click

from miner.cli import console, options
from miner.config.commands import CalibrateConfig


@click.command(cls=options.SettingsCommand, models={"config": CalibrateConfig})
@options.json_option
def command(config: CalibrateConfig, json_file: str | None) -> None:
    """Measure how ENCODER mines, so that its pairs have probabilities and a default threshold.

    ENCODER mines the texts that ship with miner, in 20 pairs of languages. `mining.json` in its directory gets the weights of probabilities
    by each margin, of mined and of line pairs, and whether rescoring pays; if the directory cannot be written, the cache of miner does.
    No vector changes. Takes minutes on a CPU.

    \b
    Example:
      miner calibrate models/e5-small
    """
    from pipelines.mining import calibrate

    result = calibrate.run(config)
    console.write_figures(json_file, result.figures())
    console.echo(result.summary())
