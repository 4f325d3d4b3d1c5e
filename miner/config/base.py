"""The base class of all settings, and reading settings from YAML files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import pydantic
import yaml

from miner.errors import ConfigError

Model = TypeVar("Model", bound="Settings")
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times as fast, but not in every build


class Settings(pydantic.BaseModel):
    """A frozen group of settings. Unknown keys are errors."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def check(cls, **values: Any) -> Self:
        """Return the settings with these values. Raises ConfigError, with a message of one line, if they are invalid."""
        try:
            return cls(**values)
        except pydantic.ValidationError as error:
            raise ConfigError(_one_line(error)) from error

    def part(self, model: type[Model]) -> Model:
        """Return the settings of `model`, a base class of this one."""
        return model(**{name: getattr(self, name) for name in model.model_fields})


def load_yaml(model: type[Model], path: str, changes: Sequence[str] = ()) -> Model:
    """Read a YAML file or URI into `model`, with `changes` as for `load_values`.

    Raises ConfigError with the file and the first error.
    """
    values = load_values(path, changes)
    try:
        return model(**values)
    except pydantic.ValidationError as error:
        raise ConfigError(f"{path}: {_one_line(error)}") from error


def load_values(path: str, changes: Sequence[str] = ()) -> dict[str, Any]:
    """Return the values of a YAML file or URI.

    `changes` such as `training.lr=1e-5` or `data.0.files=[a.tsv]` override values of the file; their values are YAML. Raises
    ConfigError with the file and the first error.
    """
    try:
        values = yaml.load(_read_text(path), Loader=YAML_LOADER)
    except (OSError, ValueError, ImportError) as error:
        missing = "no such file" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or missing or str(error) or 'cannot be read'}") from error
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        raise ConfigError(f"{path}{f':{mark.line + 1}' if mark else ''}: not YAML ({problem or ' '.join(str(error).split())})") from error
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ConfigError(f"{path}: expected a mapping of settings, each with a name, at the top")
    for change in changes:
        _apply_change(values, change)
    return values


def _read_text(path: str) -> str:
    if "://" not in path:
        return Path(path).read_text(encoding="utf-8")
    import fsspec

    with fsspec.open(path, encoding="utf-8", mode="r") as handle:
        return str(handle.read())


def _apply_change(values: Any, change: str) -> None:
    """Set a value in nested mappings and lists, as in `training.lr=1e-5`. Raises ConfigError for an invalid path."""
    name, equals, text = change.partition("=")
    *parents, last = name.split(".")
    try:
        if not equals:
            raise KeyError
        for part in parents:
            values = values[int(part)] if isinstance(values, list) else values.setdefault(part, {})
        values[int(last) if isinstance(values, list) else last] = yaml.safe_load(text)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"--set {change}: expected SETTING=VALUE, as in training.lr=1e-5 or data.0.weight=2") from error


def _one_line(error: pydantic.ValidationError) -> str:
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown setting {path!r}"
    value = "" if isinstance(first["input"], dict) else f", not {first['input']!r}"  # a group of settings is too long to print
    message = first["msg"].replace("a valid tuple", "a list")
    return f"{path + ': ' if path else ''}{message[0].lower()}{message[1:]}{value}"
