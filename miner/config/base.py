"""The base of all settings: frozen models in which an unknown key is an error, and their YAML files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import pydantic
import yaml

from miner.errors import ConfigError

Model = TypeVar("Model", bound="Settings")


class Settings(pydantic.BaseModel):
    """A frozen group of settings; a key it does not know is an error."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def check(cls, **values: Any) -> Self:
        """The settings of these values; ConfigError, in one line, where they cannot work."""
        try:
            return cls(**values)
        except pydantic.ValidationError as error:
            raise ConfigError(_one_line(error)) from error

    def part(self, model: type[Model]) -> Model:
        """The settings of `model`, which this one includes."""
        return model(**{name: getattr(self, name) for name in model.model_fields})


def load_yaml(model: type[Model], path: str, changes: Sequence[str] = ()) -> Model:
    """Read a config file into `model`; ConfigError names the file and the first fault.

    Changes such as `training.lr=1e-5` or `data.0.files=[a.tsv]` are made to what the file says; their values are YAML.
    """
    try:
        values = yaml.safe_load(_text(path))
    except (OSError, ValueError, ImportError) as error:
        gone = "no such file" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or gone or str(error) or 'cannot be read'}") from error
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        raise ConfigError(f"{path}{f':{mark.line + 1}' if mark else ''}: not YAML ({problem or ' '.join(str(error).split())})") from error
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ConfigError(f"{path}: expected a mapping of settings, each with a name, at the top")
    for change in changes:
        _change(values, change)
    try:
        return model(**values)
    except pydantic.ValidationError as error:
        raise ConfigError(f"{path}: {_one_line(error)}") from error


def _text(path: str) -> str:
    """Of a file, or a URI."""
    if "://" not in path:
        return Path(path).read_text(encoding="utf-8")
    import fsspec

    with fsspec.open(path, encoding="utf-8", mode="r") as handle:
        return str(handle.read())


def _change(values: Any, change: str) -> None:
    """Make a change such as `training.lr=1e-5` to nested mappings and lists; ConfigError where it has no place."""
    name, equals, text = change.partition("=")
    *folders, last = name.split(".")
    try:
        if not equals:
            raise KeyError
        for part in folders:
            values = values[int(part)] if isinstance(values, list) else values.setdefault(part, {})
        values[int(last) if isinstance(values, list) else last] = yaml.safe_load(text)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"--set {change}: not a setting and its value; write one like training.lr=1e-5 or data.0.weight=2") from error


def _one_line(error: pydantic.ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown setting {where!r}"
    given = "" if isinstance(first["input"], dict) else f", not {first['input']!r}"  # of several settings that do not fit, not all
    message = first["msg"].replace("a valid tuple", "a list")
    return f"{where + ': ' if where else ''}{message[0].lower()}{message[1:]}{given}"
