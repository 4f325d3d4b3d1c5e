"""The base class of all settings, and reading settings from YAML files."""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

import pydantic
import yaml
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from miner.config.messages import UNKNOWN, as_key, describe, respell, suggest
from miner.errors import ConfigError

MAX_CHARACTERS = 1 << 24
MAX_NODES = 100_000  # with aliases expanded

Model = TypeVar("Model", bound="Settings")
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times as fast, but not in every build


class Settings(pydantic.BaseModel):
    """A frozen group of settings. Unknown keys are errors."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", defer_build=True)

    ARGUMENTS: ClassVar[tuple[str, ...]] = ()  # the settings that a command takes as arguments; the others are options

    @pydantic.model_validator(mode="before")
    @classmethod
    def _check_keys(cls, values: Any) -> Any:
        """Report an unknown key with the one that it resembles, before any other fault."""
        for name in values if isinstance(values, Mapping) else ():
            if name not in cls.model_fields:
                hint = PydanticCustomError(UNKNOWN, "{hint}", {"hint": suggest(str(name), list(cls.model_fields))})
                raise pydantic.ValidationError.from_exception_data(
                    cls.__name__, [InitErrorDetails(type=hint, loc=(name,), input=values[name])]
                )
        return values

    @classmethod
    def check(cls, **values: Any) -> Self:
        """Return the settings with these values. Raises ConfigError, with a message of one line, if they are invalid."""
        try:
            return cls(**values)
        except pydantic.ValidationError as error:
            raise ConfigError(describe(error, values)) from error

    def part(self, model: type[Model]) -> Model:
        """Return the settings of `model`, a base class of this one."""
        return model(**self.shared(model))

    def shared(self, model: type["Settings"]) -> dict[str, Any]:
        """Return the values of the settings that `model` has too, by name."""
        return {name: value for name, value in self if name in model.model_fields}


class OneOrMore:
    """Mark a tuple whose only item needs no list around it: `files: a.txt` is `files: [a.txt]`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._as_sequence, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        items = handler(schema)
        return {"anyOf": [items["items"], items]}

    @staticmethod
    def _as_sequence(value: Any) -> Any:
        return (value,) if isinstance(value, str | Mapping | Settings) else value


Strings = Annotated[tuple[str, ...], OneOrMore()]


def load_yaml(model: type[Model], path: str, changes: Sequence[str] = ()) -> Model:
    """Read a YAML file or URI into `model`, with `changes` as for `load_values`.

    Raises ConfigError with the file and the first error.
    """
    values = load_values(path, changes)
    try:
        return model(**values)
    except pydantic.ValidationError as error:
        raise ConfigError(f"{path}: {describe(error, values)}") from error


def load_values(path: str, changes: Sequence[str] = ()) -> dict[str, Any]:
    """Return the values of a YAML file or URI.

    `changes` such as `training.lr=1e-5` or `data.0.files=[a.tsv]` override values of the file; their values are YAML. Raises
    ConfigError with the file and the first error.
    """
    try:
        values = _parse(_read_text(path))
    except (OSError, ValueError, ImportError) as error:
        missing = "no such file; check the name" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f"{path}: {missing or getattr(error, 'strerror', None) or str(error) or 'cannot be read'}") from error
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        raise ConfigError(f"{path}{f':{mark.line + 1}' if mark else ''}: not YAML ({problem or ' '.join(str(error).split())})") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deeply") from error
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ConfigError(f"{path}: expected a mapping of settings, each with a name, at the top")
    values = _plain(values)  # a copy, so that a change of an anchor leaves its aliases as they are
    for change in changes:
        _apply_change(values, change)
    return dict(values)


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
            if not isinstance(key.value, str):
                raise yaml.constructor.ConstructorError(None, None, "a list or mapping as a key", key.start_mark)
            if key.value in names:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            names.add(key.value)
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
    try:
        return yaml.load(text, _SettingsLoader)
    except (AttributeError, KeyError, TypeError) as error:
        raise yaml.YAMLError("a value that does not fit its tag, as in `!!bool x`") from error


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


def json_schema(model: type[Settings]) -> dict[str, Any]:
    """Return the JSON schema of a config, for editors: types, bounds, defaults and descriptions, with settings spelled as in YAML."""
    schema: dict[str, Any] = json.loads(respell(json.dumps(model.model_json_schema()), as_key))
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema}


def dump_yaml(settings: Settings) -> str:
    """Return all settings as YAML, defaults included; `load_yaml` reads it back to the same settings."""
    return str(yaml.safe_dump(_plain(settings.model_dump()), sort_keys=False, allow_unicode=True, width=140))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
