"""The options of the Python interface: those of the commands, by their names in the settings."""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from miner.config.base import Settings
from miner.config.commands import Filters
from miner.config.filters import choose
from miner.config.messages import suggest
from miner.errors import ConfigError

Function = TypeVar("Function", bound=Callable[..., Any])


def with_options(model: type[Settings], *others: str, without: Iterable[str] = ()) -> Callable[[Function], Function]:
    """State the settings of a model as keyword arguments in the signature of a function that takes `**options`."""

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        parameters = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
        names = {parameter.name for parameter in parameters}
        fields = {name: field for name, field in model.model_fields.items() if name not in {*names, *without}}
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters += [inspect.Parameter(name, keyword, default=(), annotation=Iterable[str]) for name in others]
        parameters += [
            inspect.Parameter(name, keyword, default=field.get_default(call_default_factory=True), annotation=field.annotation)
            for name, field in fields.items()
        ]
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return decorate


def check_options(function: Callable[..., Any], options: Mapping[str, Any], **filters: type[Filters]) -> dict[str, Any]:
    """Return options as settings: paths as text, and the models of the option `filters`. Raises ConfigError for an unknown option."""
    choices = [name for name, parameter in inspect.signature(function).parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]
    for name in options:
        if name not in choices:
            raise ConfigError(f"unknown option {name!r}; {suggest(name, choices)}")
    settings = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in options.items()}
    return (choose(settings.pop("filters", ()), **filters) if filters else {}) | settings
