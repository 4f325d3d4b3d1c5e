"""Settings from options: those of the command line, or keyword arguments of Python.

Filters are named as people name them: `numbers`, `length_ratio=1.5`, `recommended`, `hubs=off`, `none`.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import pydantic

from miner.config.base import Settings
from miner.config.commands import NO_FILTERS, Filters
from miner.config.messages import MISSING, Spelling, as_keyword, describe, respell, suggest
from miner.errors import ConfigError

FILTERS = "filters"  # the option; its values are distributed among the settings that are groups of filters
RECOMMENDED, OFF = "recommended", "off"
IDENTIFYING = ("language", "languages")  # filters that identify languages

# Types of errors of a command line that is not understood.
MISUSE = {MISSING, "sides", "int_parsing", "int_from_float", "float_parsing", "literal_error"}

Model = TypeVar("Model", bound=Settings)


class MisuseError(ConfigError):
    """A value that is missing or not of its type, or an option that does not fit the others."""


def settings_from(model: type[Model], options: Mapping[str, Any], spell: Spelling = as_keyword) -> Model:
    """Return settings from options by name. Raises ConfigError, in one line that names an option as `spell` does."""
    values = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in options.items()}
    groups = filter_groups(model)
    names = [name for name in model.model_fields if name not in groups] + ([FILTERS] if groups else [])
    for name in values:
        if name not in names:
            raise ConfigError(f"unknown option {name!r}; {suggest(name, names)}")
    if groups and FILTERS in values:
        try:
            values |= choose(values.pop(FILTERS), groups)
        except ConfigError as error:
            raise ConfigError(respell(str(error), spell)) from error
    try:
        settings = model(**values)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        kind = MisuseError if first["type"] in MISUSE and len(first["loc"]) < 3 else ConfigError  # a union adds the name of a type
        raise kind(describe(error, values, spell)) from error
    bounds = {name for group in groups for name in getattr(settings, group).bounds()}
    if values.get("lang_id_model") is not None and bounds.isdisjoint(IDENTIFYING):
        remedy = " or ".join(f"--filter {name}" for name in IDENTIFYING)
        raise ConfigError(respell(f"--lang-id-model has no effect without {remedy}; add one, or remove it", spell))
    return settings


def filter_groups(model: type[Settings]) -> dict[str, Filters]:
    """Return the defaults of those settings of a model that are groups of filters."""
    return {name: field.default for name, field in model.model_fields.items() if isinstance(field.default, Filters)}


def choose(values: str | Sequence[str], defaults: Mapping[str, Filters]) -> dict[str, Filters]:
    """Apply the values of `--filter`, in order, to the default bounds, and return those that change. ConfigError for an unknown filter."""
    texts = (values,) if isinstance(values, str) else values
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"filters: expected a list such as ['numbers', 'length_ratio=1.5'], not {values!r}")
    chosen: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, equals, bound = text.partition("=")
        owners = [setting for setting, group in defaults.items() if name in (RECOMMENDED, NO_FILTERS, *type(group).model_fields)]
        if not owners:
            choices = ", ".join([RECOMMENDED, NO_FILTERS, *(field for group in defaults.values() for field in type(group).model_fields)])
            raise ConfigError(f"--filter {name}: unknown; one of {choices}")
        if equals and (name == NO_FILTERS or (name == RECOMMENDED and bound != OFF)):
            raise ConfigError(f"--filter {text}: {name} names several filters; set the bound of a filter by its name")
        for setting in owners:
            group = type(defaults[setting])
            names = group.recommended() if name == RECOMMENDED else group.model_fields if name == NO_FILTERS else (name,)
            value = False if bound == OFF or name == NO_FILTERS else bound if equals else True
            chosen.setdefault(setting, {}).update(dict.fromkeys(names, value))
    bounds = {setting: {**defaults[setting].model_dump(), **changes} for setting, changes in chosen.items()}
    return {setting: settings_from(type(defaults[setting]), values, spell=_as_filter) for setting, values in bounds.items()}


def _as_filter(name: str) -> str:
    return f"--filter {name}"
