"""The base class of all settings, and reading settings from YAML files."""

import math
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Self, TypeVar

import pydantic
import yaml

from miner.errors import ConfigError

MAX_CHARACTERS = 1 << 24
MAX_DEPTH = 100
MAX_NODES = 100_000  # with aliases expanded

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
        values = _parse(_read_text(path))
    except (OSError, ValueError, ImportError) as error:
        missing = "no such file" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or missing or str(error) or 'cannot be read'}") from error
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        raise ConfigError(f"{path}{f':{mark.line + 1}' if mark else ''}: not YAML ({problem or ' '.join(str(error).split())})") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deeply") from error
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ConfigError(f"{path}: expected a mapping of settings, each with a name, at the top")
    for change in changes:
        _apply_change(values, change)
    return values


def _read_text(path: str) -> str:
    if "://" not in path:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
    else:
        import fsspec

        with fsspec.open(path, encoding="utf-8", mode="r") as handle:
            text = str(handle.read(MAX_CHARACTERS + 1))
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"longer than {MAX_CHARACTERS:,} characters, so not a file of settings")
    return text


class _SettingsLoader(YAML_LOADER):  # type: ignore[misc, valid-type]
    """Refuses a key that is given twice, aliases that expand to very many values, and integers of more than 64 bits."""

    def get_single_node(self) -> Any:
        node = super().get_single_node()
        if node is not None and _count_nodes(node, {}) > MAX_NODES:
            raise yaml.composer.ComposerError(None, None, f"aliases expand to more than {MAX_NODES:,} values", node.start_mark)
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names: set[str] = set()
        for key, _ in node.value:
            if key.value in names and isinstance(key.value, str):
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            names |= {key.value} if isinstance(key.value, str) else set()
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping

    def construct_yaml_int(self, node: Any) -> int:
        value = int(super().construct_yaml_int(node))
        if value.bit_length() > 63:
            raise yaml.constructor.ConstructorError(None, None, "an integer of more than 64 bits", node.start_mark)
        return value


_SettingsLoader.add_constructor("tag:yaml.org,2002:int", _SettingsLoader.construct_yaml_int)


def _count_nodes(node: Any, counts: dict[int, float]) -> float:
    """Count the nodes of a YAML document with every alias expanded; infinity where one contains itself."""
    if id(node) not in counts:
        counts[id(node)] = math.inf
        children = [] if isinstance(node, yaml.ScalarNode) else node.value
        pairs = chain.from_iterable(children) if isinstance(node, yaml.MappingNode) else children
        counts[id(node)] = 1 + sum(_count_nodes(child, counts) for child in pairs)
    return counts[id(node)]


def _parse(text: str) -> Any:
    return yaml.load(text, _SettingsLoader)


def _apply_change(values: Any, change: str) -> None:
    """Set a value in nested mappings and lists, as in `training.lr=1e-5`. Raises ConfigError for an invalid path."""
    name, equals, text = change.partition("=")
    *parents, last = name.split(".")
    try:
        if not equals:
            raise KeyError
        for part in parents:
            values = values[int(part)] if isinstance(values, list) else values.setdefault(part, {})
        values[int(last) if isinstance(values, list) else last] = _parse(text)
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"--set {change}: expected SETTING=VALUE, as in training.lr=1e-5 or data.0.weight=2") from error


def _one_line(error: pydantic.ValidationError) -> str:
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown setting {path!r}"
    value = "" if isinstance(first["input"], dict) else f", not {first['input']!r}"  # a group of settings is too long to print
    message = first["msg"].replace("a valid tuple", "a list")
    return f"{path + ': ' if path else ''}{message[0].lower()}{message[1:]}{value}"
