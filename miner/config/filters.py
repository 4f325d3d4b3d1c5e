"""Filters as people name them: `numbers`, `length_ratio=1.5`, `recommended`, `hubs=off`."""

from collections.abc import Sequence
from typing import Any

from miner.config.commands import Filters
from miner.errors import ConfigError

RECOMMENDED, OFF = "recommended", "off"
IDENTIFYING = ("language", "languages")  # filters that identify languages

Chosen = dict[str, dict[str, Any]]


def choose(values: str | Sequence[str], **models: type[Filters]) -> dict[str, Filters]:
    """Parse the values of `--filter`, in order, into the models; return them by keyword. Raises ConfigError for an unknown filter."""
    values = (values,) if isinstance(values, str) else values
    if not isinstance(values, Sequence) or not all(isinstance(item, str) for item in values):
        raise ConfigError(f"filters: expected a list such as ['numbers', 'length_ratio=1.5'], not {values!r}")
    chosen: Chosen = {setting: {} for setting in models}
    for item in values:
        name, equals, bound = item.partition("=")
        owners = [setting for setting, model in models.items() if name == RECOMMENDED or name in model.model_fields]
        if not owners:
            choices = ", ".join([RECOMMENDED, *(field for model in models.values() for field in model.model_fields)])
            raise ConfigError(f"unknown --filter {name!r}; one of {choices}")
        if name == RECOMMENDED and equals and bound != OFF:
            raise ConfigError(
                f"--filter {item}: each of the {RECOMMENDED} filters has its own bound; set the bound of a filter by its name"
            )
        for setting in owners:
            names = models[setting].RECOMMENDED if name == RECOMMENDED else (name,)
            chosen[setting] |= dict.fromkeys(names, False if bound == OFF else bound if equals else True)
    return {setting: model.check(**chosen[setting]) for setting, model in models.items()}
