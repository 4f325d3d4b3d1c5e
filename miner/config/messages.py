"""Errors and warnings of settings in one line, in one voice: as the user wrote the setting, and with the values that it accepts."""

import contextlib
import difflib
import functools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pydantic
from pydantic_core import ErrorDetails

from miner.errors import MinerError

MAX_SHOWN = 200  # characters of a value in an error
UNKNOWN = "unknown_setting"  # type of the error for an unknown key
MISSING = "missing"
TOP_LEVEL = ""  # in `name_keys`, for the config itself
# Type of pydantic's error -> the value that was expected, with the names of the error's context.
EXPECTED = {
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "literal_error": "{expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "too_short": "at least {min_length} item",
}
OPTION = re.compile(r"(?<!\w)--([a-z]+(?:-[a-z]+)*)")

Path = tuple[str | int, ...]
Spelling = Callable[[str], str]  # path of a setting, such as `pairs.k` -> as the user writes it


def as_key(path: str) -> str:
    """Spell a setting as in a config: `pairs.k`."""
    return path


def as_keyword(path: str) -> str:
    """Spell a setting as in Python: `k=`."""
    return "filters=" if path == "filter" else f"{path}="


def as_option(path: str) -> str:
    """Spell a setting as on the command line: `--k`."""
    name, _, rest = path.partition(".")
    return f"--{name.replace('_', '-')}{rest and f' {rest}'}"


def describe(error: pydantic.ValidationError, values: Mapping[str, Any], spell: Spelling = as_key) -> str:
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
    return f"{spell(name) + ': ' if name else ''}{respell(_describe_problem(alternatives), spell)}"


def _describe_problem(alternatives: Sequence[ErrorDetails]) -> str:
    """Describe a value that fits none of the types that its setting accepts. There is one error for each type."""
    first = alternatives[0]
    if first["type"] == MISSING:
        return "missing, and required"
    value = first["input"]
    shown = "" if isinstance(value, Mapping) else f", not {value!r:.{MAX_SHOWN}}"  # a group of settings is too long to print
    types = [details for details in alternatives if details["type"] in EXPECTED]
    expected = list(dict.fromkeys(_expected(details) for details in types))
    if expected:
        expected = [text for text in expected if (text, "a number" in expected) != ("an integer", True)]
        return f"expected {_join(expected)}{shown}"
    message = re.sub(" after validation, not .*", "", first["msg"].replace("Tuple", "List"))
    return f"{message[0].lower()}{message[1:]}{shown}"


def _expected(details: ErrorDetails) -> str:
    context = {name: f"{value:g}" if isinstance(value, float) else value for name, value in details.get("ctx", {}).items()}
    return EXPECTED[details["type"]].format(**context)


def _describe_kind(name: str, details: ErrorDetails) -> str:
    """Describe a group of settings whose kind is missing or unknown."""
    context = details.get("ctx", {})
    key = context["discriminator"].strip("'")
    name = f"{name}.{key}" if name else key
    if "tag" not in context:
        return f"{name}: missing, and required"
    choices = [choice.strip("'") for choice in context["expected_tags"].split(", ")]
    return f"{name}: unknown {context['tag']!r}; {suggest(str(context['tag']), choices)}"


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


def respell(message: str, spell: Spelling) -> str:
    """Return a message with its options, such as `--token-layer`, as the user writes them."""
    return OPTION.sub(lambda match: spell(match[1].replace("-", "_")), message)


@contextlib.contextmanager
def respelling(spell: Spelling) -> Iterator[None]:
    """Replace options in warnings and in the message of a MinerError, such as `--token-layer`, by what the user writes."""
    _respell_warnings()
    _spellings.append(spell)
    try:
        yield
    except MinerError as error:
        error.args = (respell(str(error), spell),)
        raise
    finally:
        _spellings.remove(spell)


_spellings: list[Spelling] = []  # of the calls that run, of all threads: a run warns in threads of its own


@functools.cache
def _respell_warnings() -> None:
    """Spell the options in all warnings from now on; they stay as they are while no call has a spelling."""
    make_record = logging.getLogRecordFactory()

    def respelled_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make_record(*args, **kwargs)
        if _spellings and record.levelno == logging.WARNING and record.name.partition(".")[0] in ("miner", "pipelines"):
            message = record.getMessage()
            for spell in reversed(_spellings):
                message = respell(message, spell)
            record.msg, record.args = message, ()
        return record

    logging.setLogRecordFactory(respelled_record)


@contextlib.contextmanager
def name_keys(groups: Mapping[str, type[pydantic.BaseModel]]) -> Iterator[None]:
    """Replace options in the message of a MinerError by the keys of a config, such as `--pooling` by `start.pooling`.

    `groups` maps keys to groups of settings, TOP_LEVEL to the config itself. An option that is in none of them is left as it is.
    """

    def spell(name: str) -> str:
        prefix = next((prefix for prefix, group in groups.items() if name in group.model_fields), None)
        return as_option(name) if prefix is None else f"{prefix}.{name}" if prefix else name

    with respelling(spell):
        yield
