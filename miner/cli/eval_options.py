"""Options of `miner eval`, derived from the settings of a task."""

from collections.abc import Callable
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import click

from miner.cli import options, report
from miner.config.datasets import parse_table_file
from miner.evaluation.task_base import TaskSettings

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

Option = Callable[[Any], Any]


output = options.group(options.json_option, report.report_option)


def settings(task: type[TaskSettings]) -> list[Option]:
    """Return an argument or an option for each setting of a task, with the setting's default, bounds and description."""
    return [_option(task, name, field) for name, field in task.model_fields.items() if name not in ("task", "name")]


def _option(task: type[TaskSettings], name: str, field: "FieldInfo") -> Option:
    if name in task.ARGUMENTS:
        return click.argument(name, required=field.is_required(), type=parse_table_file)
    flag = f"--{name.replace('_', '-')}"
    annotation = field.annotation if name not in task.PATHS else str  # configs also name public datasets
    if get_origin(annotation) is tuple:
        return click.option(flag.removesuffix("s"), name, multiple=True, metavar="NAME", help=field.description)
    default = {"required": True} if field.is_required() else {"default": field.default, "show_default": field.default is not None}
    if get_origin(annotation) in (UnionType, Union):  # such as `str | None`
        (annotation,) = (part for part in get_args(annotation) if part is not NoneType)
    bounds = {name: getattr(constraint, name) for constraint in field.metadata for name in ("ge", "le") if hasattr(constraint, name)}
    value_type: dict[str, Any] = {"type": annotation}
    if annotation is bool:
        value_type = {"is_flag": True}
    elif annotation is str:
        value_type = {"type": parse_table_file, "metavar": "PATH"} if name in task.PATHS else {"metavar": "NAME"}
    elif annotation is int and bounds:
        value_type = {"type": click.IntRange(bounds.get("ge"), bounds.get("le"))}
    elif get_origin(annotation) is Literal:
        value_type = {"type": click.Choice(get_args(annotation))}
    return click.option(flag, name, help=field.description, **default, **value_type)
