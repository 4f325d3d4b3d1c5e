"""Errors of settings in one line, in the words of the user: the keys of the config, and the types that it accepts."""

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pydantic
from pydantic_core import ErrorDetails

from miner.errors import MinerError

MAX_SHOWN = 200  # characters of a value in an error
UNKNOWN = "unknown_setting"  # type of the error for an unknown key
MISSING = "missing"
TOP_LEVEL = ""  # in `name_keys`, for the config itself
# Type of pydantic's error -> the type of value that was expected.
EXPECTED = {
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
OPTION = re.compile(r"(?<!\w)--([a-z]+(?:-[a-z]+)*)")

Path = tuple[str | int, ...]


def describe(error: pydantic.ValidationError, values: Mapping[str, Any]) -> str:
    """Return the first error of settings that were made from `values`, in one line."""
    errors = [(_find_path(values, details), details) for details in error.errors(include_url=False)]
    first_path = errors[0][0]
    path = max((path for path, _ in errors if path[: len(first_path)] == first_path), key=len)  # of a union, the type that fits best
    alternatives = [details for other, details in errors if other == path]
    name, first = ".".join(map(str, path)), alternatives[0]
    if first["type"] == UNKNOWN:
        return f"unknown setting {name!r}; {first['msg']}"
    if first["type"].startswith("union_tag"):
        return _describe_kind(name, first)
    return f"{name + ': ' if name else ''}{_describe_problem(alternatives)}"


def _describe_problem(alternatives: Sequence[ErrorDetails]) -> str:
    """Describe a value that fits none of the types that its setting accepts. There is one error for each type."""
    first = alternatives[0]
    if first["type"] == MISSING:
        return "missing, and required"
    value = first["input"]
    shown = "" if isinstance(value, Mapping) else f", not {value!r:.{MAX_SHOWN}}"  # a group of settings is too long to print
    expected = list(dict.fromkeys(text for details in alternatives if (text := _expected(details)) is not None))
    if expected:
        expected = [text for text in expected if (text, "a number" in expected) != ("an integer", True)]
        return f"expected {_join(expected)}{shown}"
    message = re.sub(" after validation, not .*", "", first["msg"].replace("Tuple", "List"))
    return f"{message[0].lower()}{message[1:]}{shown}"


def _describe_kind(name: str, details: ErrorDetails) -> str:
    """Describe a group of settings whose kind is missing or unknown."""
    context = details.get("ctx", {})
    key = context["discriminator"].strip("'")
    name = f"{name}.{key}" if name else key
    if "tag" not in context:
        return f"{name}: missing, and required"
    choices = [choice.strip("'") for choice in context["expected_tags"].split(", ")]
    return f"{name}: unknown {context['tag']!r}; {suggest(str(context['tag']), choices)}"


def _expected(details: ErrorDetails) -> str | None:
    return str(details["ctx"]["expected"]) if details["type"] == "literal_error" else EXPECTED.get(details["type"])


def _join(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


def _find_path(values: Any, details: ErrorDetails) -> Path:
    """Return the keys that lead to an error. Its location also has the names of types, and of groups that `values` do not name."""
    return _match(values, details["loc"], details["type"] == MISSING)[1]


def _match(values: Any, location: Sequence[str | int], is_missing: bool) -> tuple[bool, Path]:
    """Match a location with keys of `values`. Returns whether its last part is among them, and the keys, as many as possible."""
    if not location:
        return False, ()
    part, rest = location[0], location[1:]
    if is_missing and not rest and isinstance(values, Mapping) and part not in values:
        return True, (part,)
    matches = [_match(values, rest, is_missing)]  # without this part
    if (isinstance(values, Mapping) and part in values) or (isinstance(values, list | tuple) and part in range(len(values))):
        is_complete, path = _match(values[part], rest, is_missing)  # type: ignore[index]
        matches.append((is_complete or not rest, (part, *path)))
    return max(matches, key=lambda match: (match[0], len(match[1])))


def find_similar(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice that resembles an unknown name, or None."""
    return next(iter(difflib.get_close_matches(name, list(choices), n=1)), None)


def suggest(name: str, choices: Sequence[str]) -> str:
    """Return the choice that resembles an unknown name, or all choices."""
    similar = find_similar(name.lower().replace("-", "_"), choices)
    return f"did you mean {similar!r}?" if similar else f"one of {', '.join(choices)}" if choices else "there are none here"


@contextlib.contextmanager
def name_keys(groups: Mapping[str, type[pydantic.BaseModel]]) -> Iterator[None]:
    """Replace options in the message of a MinerError by the keys of a config, such as `--pooling` by `start.pooling`.

    `groups` maps keys to groups of settings, TOP_LEVEL to the config itself. An option that is in none of them is left as it is.
    """
    try:
        yield
    except MinerError as error:
        error.args = (OPTION.sub(lambda match: _find_key(match[1].replace("-", "_"), groups) or match[0], str(error)),)
        raise


def _find_key(name: str, groups: Mapping[str, type[pydantic.BaseModel]]) -> str | None:
    prefix = next((prefix for prefix, group in groups.items() if name in group.model_fields), None)
    return None if prefix is None else f"{prefix}.{name}" if prefix else name
