"""The layouts of public datasets by name, read from `layouts.yaml`."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from miner.config.base import load_values
from miner.errors import ConfigError
from miner.research.datasets.delimited import DelimitedRows, Similarity
from miner.research.datasets.detokenise import delete_spaces, detokenise
from miner.research.datasets.documents import LinesOfDocuments, TranslationMemory, WikiParagraphs
from miner.research.datasets.gold_pairs import BuccObject, BuccPairs, BuccSentences, JoinedByNumber, SortedEnglish
from miner.research.datasets.json_rows import JsonArray, JsonLines, ParquetRows
from miner.research.datasets.layout import KINDS, DatasetForm, DatasetLayout, FilePattern, RowReader
from miner.research.datasets.line_aligned import AlignedText, ColumnFiles, HeaderOfLanguages, PairsAndScores, PlainLines, Translations

FILE = Path(__file__).with_name("layouts.yaml")

CODE = "[a-z]{2,3}(?:_[A-Za-z]{2,4})?"
GROUPS = {
    "<l1>": f"<l1:{CODE}>",
    "<l2>": f"<l2:{CODE}>",
    "<lang>": f"<lang:{CODE.replace('_', '[_-]')}>",
    "<split>": "<split:train|dev|test>",
    "<side>": "<role:<=l1>|<=l2>>",
}
SYNTAX = re.compile(r"<=(?P<same>\w+)>|<(?P<name>\w+):|>|\.")

READERS: dict[str, Callable[..., RowReader]] = {
    "aligned": AlignedText,
    "bucc object": BuccObject,
    "bucc pairs": BuccPairs,
    "bucc sentences": BuccSentences,
    "column files": ColumnFiles,
    "delimited": DelimitedRows,
    "header of languages": HeaderOfLanguages,
    "joined by number": JoinedByNumber,
    "json array": JsonArray,
    "json lines": JsonLines,
    "lines": PlainLines,
    "pairs and scores": PairsAndScores,
    "parquet": ParquetRows,
    "sorted english": SortedEnglish,
    "tmx": TranslationMemory,
    "translations": Translations,
}
CHANGES: dict[str, Callable[[RowReader], RowReader]] = {  # of the rows of another reader
    "lines of documents": LinesOfDocuments,
    "similarity": Similarity,
    "wiki paragraphs": WikiParagraphs,
}
CLEANERS = {function.__name__: function for function in (delete_spaces, detokenise)}


def name_regex(name: str) -> str:
    """Return the regular expression of a file name as `layouts.yaml` has it."""

    def replace(match: re.Match[str]) -> str:
        if match["same"]:
            return f"(?P={match['same']})"
        return f"(?P<{match['name']}>" if match["name"] else ")" if match[0] == ">" else r"\."

    for short, group in GROUPS.items():
        name = name.replace(short, group)
    return SYNTAX.sub(replace, name)


def _layout(name: str, values: Mapping[str, Any]) -> DatasetLayout:
    forms = tuple(form for form_values in values["forms"] for form in _forms(form_values))
    return DatasetLayout(name=name, **{**values, "kind": KINDS[values["kind"]], "forms": forms})


def _forms(values: dict[str, Any]) -> list[DatasetForm]:
    """Return the form, for each of its folders and then for files that are in none of them."""
    values = dict(values)
    folders, files = values.pop("folders", []), values.pop("files")
    files = [{"name": file} if isinstance(file, str) else file for file in (files if isinstance(files, list) else [files])]
    key = next(key for key in values if key in READERS or key in CHANGES)
    options: dict[str, Any] = {"read": _reader(key, values.pop(key))}
    options |= {name: tuple(values.pop(name)) for name in ("roles", "unlabelled") if name in values}
    options |= {"clean": CLEANERS[values.pop("clean")]} if "clean" in values else {}
    patterns = [tuple(_pattern(prefix, **file) for file in files) for prefix in (*(f"{folder}/" for folder in folders), "")]
    return [DatasetForm(patterns=of_folder, **options, **values) for of_folder in patterns]


def _pattern(prefix: str, name: str, only_first: bool = False, **fixed: str) -> FilePattern:
    return FilePattern(name_regex(prefix + name), fixed, only_first)


def _reader(key: str, values: Mapping[str, Any]) -> RowReader:
    if key in CHANGES:
        ((inner, inner_values),) = values.items()
        return CHANGES[key](_reader(inner, inner_values))
    return READERS[key](**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


LAYOUTS = {name: _layout(name, values) for name, values in load_values(str(FILE)).items()}


def get_layout(name: str) -> DatasetLayout:
    """The layout of that name; ConfigError, with the names there are, for another."""
    if name not in LAYOUTS:
        raise ConfigError(f"unknown dataset {name!r}; one of {', '.join(sorted(LAYOUTS))}")
    return LAYOUTS[name]
