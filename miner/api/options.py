"""The options of the Python interface: those of the commands, by their names in the settings."""

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from miner.config.base import Settings
from miner.config.filters import FILTERS, filter_groups
from miner.config.messages import as_keyword, respelling, suggest
from miner.errors import ConfigError

LINE_CHARS = 120  # of a docstring

Function = TypeVar("Function", bound=Callable[..., Any])


class _Signature(inspect.Signature):
    """All parameters, for completion; `help` prints a few of them, as its screen would not hold the others."""

    printed = ""

    def __str__(self) -> str:
        return self.printed

    def format(self, **_: Any) -> str:  # from Python 3.13 on
        return self.printed


def _list_options(model: type[Settings], defaults: Mapping[str, Any]) -> str:
    """Return a paragraph of a docstring that lists options with their defaults, grouped by the settings that the model consists of."""
    groups: dict[type[Settings], list[str]] = {base: [] for base in [*model.__bases__, model]}
    for name, default in defaults.items():
        owner = next((base for base in groups if name in base.model_fields), model)
        groups[owner].append(name if default in (None, False, ()) else f"{name}={default!r}")
    lines = ["", "    Options, as `--help` of the command describes them:"]
    for owner, names in groups.items():
        if names:
            title = "Others" if owner is model and len(groups) > 2 else re.split(r"[.:;](?: |$)", str(owner.__doc__))[0]
            lines += textwrap.wrap(f"{title}: {', '.join(names)}", LINE_CHARS, initial_indent=" " * 8, subsequent_indent=" " * 12)
    return "\n".join([*lines, ""])


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

        stated = _Signature(parameters, return_annotation=signature.return_annotation)
        stated.printed = str(inspect.Signature([part.replace(annotation=part.empty) for part in signature.parameters.values()]))
        options = {parameter.name: parameter.default for parameter in parameters[len(signature.parameters) - 1 :]}
        choices = [parameter.name for parameter in parameters if parameter.kind is keyword]

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            for name in options:
                if name not in stated.parameters:
                    raise ConfigError(f"unknown option {name!r}; {suggest(name, choices)}")
            with respelling(as_keyword):
                return function(*args, **options)

        call.__signature__ = stated  # type: ignore[attr-defined]
        call.__doc__ = (function.__doc__ or "").replace("\n    Raises", f"{_list_options(model, options)}\n    Raises", 1)
        return cast("Function", call)

    return decorate
