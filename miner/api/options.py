"""The options of the Python interface: those of the commands, by their names in the settings."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from miner.config.base import Settings
from miner.config.filters import FILTERS, filter_groups
from miner.config.messages import as_keyword, respelling, suggest
from miner.errors import ConfigError

Function = TypeVar("Function", bound=Callable[..., Any])


def with_options(model: type[Settings], without: Iterable[str] = ()) -> Callable[[Function], Function]:
    """State the settings of a model as keyword arguments of a function that takes `**options`; its errors spell them as in Python."""

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        parameters = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
        groups, keyword = filter_groups(model), inspect.Parameter.KEYWORD_ONLY
        if groups:
            parameters.append(inspect.Parameter(FILTERS, keyword, default=(), annotation=Iterable[str]))
        for name, field in model.model_fields.items():
            if name not in {*groups, *signature.parameters, *without}:
                default = field.get_default(call_default_factory=True)
                parameters.append(inspect.Parameter(name, keyword, default=default, annotation=field.annotation))

        stated = signature.replace(parameters=parameters)
        choices = [parameter.name for parameter in parameters if parameter.kind is keyword]

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            for name in options:
                if name not in stated.parameters:
                    raise ConfigError(f"unknown option {name!r}; {suggest(name, choices)}")
            with respelling(as_keyword):
                return function(*args, **options)

        call.__signature__ = stated  # type: ignore[attr-defined]
        return cast("Function", call)

    return decorate
