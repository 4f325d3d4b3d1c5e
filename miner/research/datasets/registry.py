"""The layouts of public datasets by name, read from `layouts.yaml`."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from miner.config.base import load_values
from miner.errors import ConfigError
from miner.research.datasets import documents, gold_pairs, line_aligned
from miner.research.datasets.delimited import DelimitedRows, reverse_score
from miner.research.datasets.detokenise import delete_spaces, detokenise
from miner.research.datasets.json_rows import JsonArray, JsonLines, ParquetRows
from miner.research.datasets.layout import (
    KINDS,
    Cells,
    ChangedRows,
    DatasetForm,
    DatasetLayout,
    Dropped,
    FilePattern,
    PlainReader,
    RowReader,
)
from miner.research.datasets.line_aligned import ColumnFiles, PairsAndScores

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
    "column files": ColumnFiles,
    "delimited": DelimitedRows,
    "json array": JsonArray,
    "json lines": JsonLines,
    "pairs and scores": PairsAndScores,
    "parquet": ParquetRows,
}
PLAIN_READERS: dict[str, PlainReader] = {  # without options, and what they expect
    "aligned": PlainReader(line_aligned.aligned_text, "one sentence per line in files of equally many lines"),
    "bucc object": PlainReader(gold_pairs.bucc_object, gold_pairs.BUCC_OBJECT),
    "bucc pairs": PlainReader(gold_pairs.bucc_pairs, "two tab-separated ids per line in the gold, id and sentence in the texts"),
    "bucc sentences": PlainReader(gold_pairs.bucc_sentences, "id and sentence, tab-separated, ids like de-000000001"),
    "header of languages": PlainReader(line_aligned.header_of_languages, line_aligned.HEADER),
    "joined by number": PlainReader(gold_pairs.joined_by_number, "line number, score and text, tab-separated, ascending by number"),
    "lines": PlainReader(line_aligned.plain_lines, "one text per line"),
    "sorted english": PlainReader(gold_pairs.sorted_english, "one sentence per line in two files, and one position per line in the gold"),
    "tmx": PlainReader(documents.translation_memory, "TMX: <tu> elements with a <tuv> and a <seg> per language"),
    "translations": PlainReader(line_aligned.translations, "one sentence per line in two files of equally many lines"),
}
CHANGES: dict[str, Callable[[Cells], Iterable[Cells | Dropped]]] = {  # what is done to the rows of another reader
    "lines of documents": documents.lines_of_document,
    "similarity": reverse_score,
    "wiki paragraphs": documents.wiki_paragraphs,
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


def _forms(values: dict[str, Any]) -> list[DatasetForm]:
    """Return the form, for each of its folders and then for files that are in none of them."""
    values = dict(values)
    folders, files = values.pop("folders", []), values.pop("files")
    files = [{"name": file} if isinstance(file, str) else file for file in (files if isinstance(files, list) else [files])]
    key = next(key for key in values if key in READERS or key in PLAIN_READERS or key in CHANGES)
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
        return ChangedRows(_reader(inner, inner_values), CHANGES[key])
    if key in PLAIN_READERS:
        return PLAIN_READERS[key]
    return READERS[key](**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


LAYOUTS = {
    name: DatasetLayout(
        name=name, **{**values, "kind": KINDS[values["kind"]], "forms": tuple(form for each in values["forms"] for form in _forms(each))}
    )
    for name, values in load_values(str(FILE)).items()
}


def get_layout(name: str) -> DatasetLayout:
    """The layout of that name; ConfigError, with the names there are, for another."""
    if name not in LAYOUTS:
        raise ConfigError(f"unknown dataset {name!r}; one of {', '.join(sorted(LAYOUTS))}")
    return LAYOUTS[name]
