"""Options of commands, derived from their settings; and the options that several commands share."""

import contextlib
import functools
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import click

from miner.cli import console
from miner.config import recipes
from miner.config.base import Settings, dump_yaml
from miner.config.commands import NO_FILTERS, Filters
from miner.config.datasets import DatasetFiles, parse_table_file
from miner.config.filters import FILTERS, RECOMMENDED, MisuseError, filter_groups, settings_from
from miner.config.messages import as_option

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

Function = TypeVar("Function", bound=Callable[..., Any])

PLACEHOLDERS = {str: "NAME", int: "INTEGER", float: "FLOAT"}
LOWER = (("gt", "<", ">"), ("ge", "<=", ">="))  # constraint, its sign before x, its sign after x
UPPER = (("lt", "<"), ("le", "<="))
CONFIG_ONLY = ("task", "name")  # settings of an evaluation task in a suite


class SettingsCommand(click.Command):
    """A command with an argument or an option for each setting of its models, whose function gets the settings by these keywords."""

    def __init__(self, *args: Any, models: Mapping[str, type[Settings]], without: Collection[str] = (), **extra: Any) -> None:
        super().__init__(*args, **extra)
        self.models = models
        fields = {name: field for model in [*models.values()][::-1] for name, field in model.model_fields.items()}
        names = dict.fromkeys(name for model in models.values() for name in model.model_fields if name not in (*CONFIG_ONLY, *without))
        arguments = [name for model in models.values() for name in model.ARGUMENTS]
        groups = {name: group for model in models.values() for name, group in filter_groups(model).items()}
        options = sorted((name for name in names if name not in arguments), key=lambda name: not fields[name].is_required())
        parameters = [
            *(_argument(name, fields[name]) for name in arguments),
            *(_option(name, fields[name]) for name in options if name not in groups),
            *([_filter_option([*groups.values()])] if groups else []),
        ]
        self.names = [str(parameter.name) for parameter in parameters]
        self.params = [*parameters, *self.params]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Replace the values of options by settings. Raises UsageError or ConfigError for a value that its setting does not accept."""
        rest = super().parse_args(ctx, args)
        values = {name: ctx.params.pop(name) for name in self.names}
        try:
            ctx.params |= self.read({name: value for name, value in values.items() if value not in (None, False, ())}, ctx)
        except MisuseError as error:
            raise click.UsageError(str(error), ctx) from error
        return rest

    def read(self, values: dict[str, Any], ctx: click.Context) -> dict[str, Settings]:  # noqa: ARG002
        """Return the settings by keyword, from the values of options. Raises ConfigError for those that are invalid."""
        return {keyword: read(model, values) for keyword, model in self.models.items()}


def read(model: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Return the settings of a model from those of the options that it has. Raises ConfigError for an invalid value."""
    own = {name: value for name, value in values.items() if name in model.model_fields or (name == FILTERS and filter_groups(model))}
    return settings_from(model, own, lambda path: path.upper() if path in model.ARGUMENTS else as_option(path))


def _argument(name: str, field: "FieldInfo") -> click.Argument:
    is_list = get_origin(field.annotation) is tuple
    metavar = f"{name.removesuffix('s').upper()}..." if is_list else name.upper()
    metavar = metavar if field.is_required() else f"[{metavar}]"
    return click.Argument([name], metavar=metavar, nargs=-1 if is_list else 1, required=False, type=_parser(field))


def _option(name: str, field: "FieldInfo") -> click.Option:
    """Return the option of a setting. Its value is text as it was given: the model checks it."""
    kinds = list(_kinds(field.annotation, field.metadata))
    flag = as_option(name)
    if field.annotation is bool:
        return click.Option([flag, name], is_flag=True, help=field.description)
    if get_origin(field.annotation) is tuple:
        return click.Option([flag.removesuffix("s"), name], multiple=True, metavar=_placeholder(kinds), help=field.description)
    notes = ["required"] if field.is_required() else [f"default: {field.default}"] if field.default not in (None, "") else []
    notes += filter(None, [_range([item for _, metadata in kinds for item in metadata])])
    help = [field.description or "", *([f"[{'; '.join(notes)}]"] if notes else [])]
    return click.Option([flag, name], metavar=_placeholder(kinds), help="  ".join(help), type=_parser(field))


def _parser(field: "FieldInfo") -> Callable[[str], Any]:
    """Return the function that parses the value of an option: public datasets are YAML, all else is left to the model."""
    return parse_table_file if any(kind is DatasetFiles for kind, _ in _kinds(field.annotation)) else str


def _kinds(annotation: Any, metadata: Sequence[Any] = ()) -> Iterator[tuple[Any, list[Any]]]:
    """Yield each type that a setting accepts but None, with its metadata."""
    if get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        yield from _kinds(annotation, [*metadata, *(part for item in more for part in getattr(item, "metadata", [item]))])
    elif get_origin(annotation) in (UnionType, Union):
        for part in get_args(annotation):
            yield from _kinds(part, metadata)
    elif annotation is not NoneType:
        yield annotation, list(metadata)


def _placeholder(kinds: Sequence[tuple[Any, list[Any]]]) -> str:
    """Return the placeholder of a value in --help: its own, or those of its types."""
    own = next((item for _, metadata in kinds for item in metadata if isinstance(item, str)), None)
    if own is not None:
        return own
    choices = [choice for kind, _ in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    if len(kinds) == 1 and choices:
        return f"[{'|'.join(choices)}]"
    return "|".join([*(PLACEHOLDERS.get(kind, "NAME") for kind, _ in kinds if get_origin(kind) is not Literal), *choices])


def _range(constraints: Sequence[Any]) -> str:
    """Return the bounds of a number, such as 1<=x<=1024."""
    bounds = {sign: getattr(item, sign) for item in constraints for sign in ("gt", "ge", "lt", "le") if hasattr(item, sign)}
    low = next(((f"{bounds[sign]}{text}", f"{flipped}{bounds[sign]}") for sign, text, flipped in LOWER if sign in bounds), None)
    high = next((f"{text}{bounds[sign]}" for sign, text in UPPER if sign in bounds), "")
    return f"{low[0]}x{high}" if low and high else f"x{low[1] if low else high}" if bounds else ""


def _filter_option(groups: Collection[Filters]) -> click.Option:
    names = ", ".join(name for group in groups for name in type(group).model_fields)
    default = ", ".join(f"{name}={bound:g}" for group in groups for name, bound in group.bounds().items()) or NO_FILTERS
    if all(group == type(group)() for group in groups):
        default = RECOMMENDED
    help = (
        f"Turn on a filter, with its usual bound or BOUND, or off, with `off` as BOUND. {RECOMMENDED}: those that drop few translations;"
        f" {NO_FILTERS}: no filter. One of {names}. Repeatable.  [default: {default}]"
    )
    return click.Option(["--filter", FILTERS], metavar="NAME[=BOUND]", multiple=True, help=help)


def _find_config(ctx: click.Context, parameter: click.Parameter, path: str) -> str:  # noqa: ARG001
    return recipes.config_path(path)


config_argument = click.argument("config", metavar="CONFIG", callback=_find_config)
suite_option = click.option(
    "--config", "path", required=True, metavar="FILE", callback=_find_config, help="Config file with the tasks, such as configs/eval.yaml."
)
print_config_option = click.option(
    "--print-config", is_flag=True, help="Print CONFIG with all defaults filled in, as YAML, and do nothing else."
)
report_option = click.option("--no-report", is_flag=True, help="Do not write the report.")


def print_config(settings: Settings) -> None:
    """Print all settings of a config."""
    console.echo(dump_yaml(settings).rstrip())


def require_output(output: str | None) -> str:
    """Return the output of a command that also has --print-config, which needs none."""
    if output is None:
        raise click.UsageError("--output: missing, and required")
    return output


def changes_option(example: str) -> Callable[[Function], Function]:
    """Create the option --set, which changes settings of CONFIG, with an example for the help."""
    return click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help=f"Change a setting of CONFIG, for example {example}.")


def json_option(function: Function) -> Function:
    """Add `--json FILE`. Before the command runs, raise ConfigError if the file is one of its inputs."""

    @functools.wraps(function)
    def run(*args: Any, **values: Any) -> Any:
        path: str | None = values.get("json_file")
        if path == console.STDOUT and not console.is_quiet():
            with contextlib.redirect_stdout(sys.stderr):
                return function(*args, **values)
        if path is not None:
            from miner.io import outputs

            groups = [
                dict(value) if isinstance(value, Settings) else {name: value} for name, value in values.items() if name != "json_file"
            ]
            texts = [text for group in groups for value in group.values() for text in (value if isinstance(value, tuple) else (value,))]
            outputs.claim_file(path, [text for text in texts if isinstance(text, str)], outputs.are_figures, "--json")
        return function(*args, **values)

    help = "Also write the results to this JSON file; `-` is standard output, and the summary then goes to standard error."
    return click.option("--json", "json_file", metavar="FILE", help=help)(run)  # type: ignore[return-value]
