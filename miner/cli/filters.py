"""The option `--filter`, which sets the bounds of filters by their names."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from miner.cli.options import Function
from miner.config.commands import Filters
from miner.errors import ConfigError

RECOMMENDED, OFF = "recommended", "off"

Chosen = dict[str, dict[str, Any]]


def _help(*models: type[Filters]) -> str:
    names = ", ".join(name for model in models for name in model.model_fields)
    return f"A filter to turn on, with its usual bound or another; {RECOMMENDED} for a good choice. Any of {names}. Repeatable."


def filter_option(*models: type[Filters]) -> Callable[[Function], Function]:
    """`--filter` of a command whose filters are in these models; `choose` makes settings of it."""
    return click.option("--filter", "filters", metavar="NAME[=BOUND]", multiple=True, help=_help(*models))


keep_dropped_option = click.option("--keep-dropped", is_flag=True, help="Also write what the filters drop, with reason and score.")


def choose(named: Sequence[str], **models: type[Filters]) -> dict[str, Filters]:
    """What `--filter` was given, in its order -> the models by the names they were given. ConfigError for an unknown filter."""
    chosen: Chosen = {setting: {} for setting in models}
    for item in named:
        name, given, bound = item.partition("=")
        owners = [setting for setting, model in models.items() if name == RECOMMENDED or name in model.model_fields]
        if not owners:
            known = ", ".join([RECOMMENDED, *(field for model in models.values() for field in model.model_fields)])
            raise ConfigError(f"unknown --filter {name!r}; one of {known}")
        if name == RECOMMENDED and given and bound != OFF:
            raise ConfigError(
                f"--filter {item}: each of the {RECOMMENDED} filters has a bound of its own; give the one of a filter by its name"
            )
        for setting in owners:
            names = models[setting].RECOMMENDED if name == RECOMMENDED else (name,)
            chosen[setting] |= dict.fromkeys(names, False if bound == OFF else bound if given else True)
    return {setting: model.check(**chosen[setting]) for setting, model in models.items()}
