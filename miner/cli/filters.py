"""The option `--filter`, which turns filters on and sets their bounds."""

from collections.abc import Callable, Iterable

import click

from miner.cli.options import Function, setting
from miner.config.commands import DroppedSettings, Filters, IdentifierSettings
from miner.config.filters import IDENTIFYING, RECOMMENDED
from miner.errors import ConfigError


def _help(*models: type[Filters]) -> str:
    names = ", ".join(name for model in models for name in model.model_fields)
    return f"Turn on a filter, with its usual bound or BOUND; {RECOMMENDED}: those that drop few translations. One of {names}. Repeatable."


def filter_option(*models: type[Filters]) -> Callable[[Function], Function]:
    """Return the option `--filter` for the filters of these models; `miner.config.filters.choose` parses its values."""
    return click.option("--filter", "filters", metavar="NAME[=BOUND]", multiple=True, help=_help(*models))


lang_id_option = setting(
    IdentifierSettings,
    "lang_id_model",
    "fastText model that identifies languages for --filter, such as that of GlotLID; by default, py3langid.",
    metavar="FILE",
)
keep_dropped_option = setting(DroppedSettings, "keep_dropped", "Also write what the filters drop, with reason and score.", is_flag=True)


def check_lang_id_model(path: str | None, filters: Iterable[Filters]) -> None:
    """Raise ConfigError for a model that no filter uses."""
    if path is not None and not any(name in group.bounds() for group in filters for name in IDENTIFYING):
        names = " or ".join(f"--filter {name}" for name in IDENTIFYING)
        raise ConfigError(f"--lang-id-model has no effect without {names}; add one, or remove it")
