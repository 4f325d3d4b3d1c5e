"""Test sets of bitext mining: texts, and a gold file that says which of them are translations."""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from miner.errors import DataError
from miner.research.datasets.delimited import TOO_LONG, WRONG_CELLS
from miner.research.datasets.json_rows import load_json
from miner.research.datasets.layout import SOLE, Dropped, FileGroup, Record
from miner.research.datasets.release import ReleaseFile, read_release_lines

GOLD = "gold"  # role of the gold file
BUCC_ID = re.compile(r"[a-z]{2}-\d{9}")
BUCC_OBJECT = "one JSON object with sentence1, sentence2 and gold"


def bucc_pairs(group: FileGroup) -> Iterator[Record]:
    """Read BUCC: two files of id<TAB>sentence, and the ids of translations, those of the foreign language first."""
    if GOLD not in group.files:
        raise DataError(
            f"{group.title}: no gold beside it, so no pairs are known; read the sentences with bucc-sentences, or choose another split"
        )
    gold = [(line, None if text is None else text.split("\t")) for line, text in read_release_lines(group.files[GOLD])]
    is_pair = [ids is not None and len(ids) == 2 and all(BUCC_ID.fullmatch(key.strip()) for key in ids) for _, ids in gold]
    keys = {key.strip() for (_, ids), valid in zip(gold, is_pair, strict=True) if valid and ids for key in ids}
    texts = {key: text for code in group.languages for key, text in _texts(group.files[code], keys)}
    for (line, ids), valid in zip(gold, is_pair, strict=True):
        if not valid or ids is None:
            yield line, Dropped("not two ids", f"{ids!r}")
        elif not all(key.strip() in texts for key in ids):
            yield line, Dropped("id without a sentence", " ".join(ids))
        else:
            yield line, dict(zip(("source", "target"), (texts[key.strip()] for key in ids), strict=True))


def bucc_sentences(group: FileGroup) -> Iterator[Record]:
    """Read the sentences of both languages of BUCC with their ids, with or without gold."""
    for code in group.languages:
        for line, text in read_release_lines(group.files[code]):
            key, tab, sentence = (text or "").partition("\t")
            if text is None:
                yield line, TOO_LONG
            elif not tab or not BUCC_ID.fullmatch(key):
                yield line, Dropped("no id", f"{text[:40]!r}")
            else:
                yield line, {"text": sentence, "lang": code, "id": key}


def bucc_object(group: FileGroup) -> Iterator[Record]:
    """Read MTEB's BUCC: one JSON object of two lists of sentences, and pairs of their positions from 1."""
    file = group.files[SOLE]
    record = load_json(file)
    if not isinstance(record, dict) or not all(isinstance(record.get(key), list) for key in ("sentence1", "sentence2", GOLD)):
        raise DataError(f"{file.uri}:1: expected {BUCC_OBJECT}, found none; check that the file is as published")
    sources, targets = record["sentence1"], record["sentence2"]
    for number, pair in enumerate(record[GOLD], start=1):
        positions = [int(at) for at in pair] if isinstance(pair, list) and len(pair) == 2 else [0, 0]
        if 1 <= positions[0] <= len(sources) and 1 <= positions[1] <= len(targets):
            yield number, {"source": str(sources[positions[0] - 1]), "target": str(targets[positions[1] - 1])}
        else:
            yield number, Dropped("id without a sentence", f"{pair}")


def sorted_english(group: FileGroup) -> Iterator[Record]:
    """Read XTREME's Tatoeba: the English file is sorted, and line i of the gold is the position, from 0, of the English of line i."""
    source, target = group.languages
    if GOLD not in group.files:
        raise DataError(
            f"{group.title}: XTREME sorts the English file, so the lines are not aligned; put the gold test-{source}.tsv beside it,"
            " or read LASER's copy"
        )
    english = [text or "" for _, text in read_release_lines(group.files[target])]
    positions = [(text or "").strip() for _, text in read_release_lines(group.files[GOLD])]
    sources = list(read_release_lines(group.files[source]))
    if len(positions) != len(sources):
        raise DataError(
            f"{group.files[GOLD].uri}: {len(positions)} positions for the {len(sources)} lines of {group.files[source].uri}; both must"
            " have as many lines"
        )
    for (line, text), position in zip(sources, positions, strict=True):
        if position.isdecimal() and int(position) < len(english):
            yield line, {"source": text or "", "target": english[int(position)]}
        else:
            yield line, Dropped("no position", f"gold {position!r} for {len(english)} English lines")


def joined_by_number(group: FileGroup) -> Iterator[Record]:
    """Read CCMatrix: two files of number<TAB>score<TAB>text, ascending by number; equal numbers are a pair."""
    source, target = (_numbered(group.files[code]) for code in group.languages)
    first, second = next(source, END), next(target, END)
    while first is not END or second is not END:
        if first.text is not None and second.text is not None and first.number == second.number:
            yield first.line, {"source": first.text, "target": second.text, "score": first.score}
            first, second = next(source, END), next(target, END)
        elif first.text is None or (second.text is not None and first.number < second.number):
            yield _unpaired(first)
            first = next(source, END)
        else:
            yield _unpaired(second)
            second = next(target, END)


class NumberedLine(NamedTuple):
    """A line of CCMatrix; one of another shape has no text."""

    number: float
    line: int
    score: str
    text: str | None


END = NumberedLine(math.inf, 0, "", "")


def _numbered(file: ReleaseFile) -> Iterator[NumberedLine]:
    previous = -1
    for line, text in read_release_lines(file):
        cells = (text or "").split("\t")
        if len(cells) != 3 or not cells[0].isdecimal():
            yield NumberedLine(previous, line, "", None)
            continue
        if int(cells[0]) < previous:
            raise DataError(f"{file.uri}:{line}: number {cells[0]} after {previous}; sort the file by number (sort -nk1)")
        previous = int(cells[0])
        yield NumberedLine(previous, line, cells[1], cells[2])


def _unpaired(row: NumberedLine) -> Record:
    if row.text is None:
        return row.line, Dropped(WRONG_CELLS, "a line that is not number, score and text")
    return row.line, Dropped("no translation", f"number {row.number} in one file alone")


def _texts(file: ReleaseFile, keys: set[str]) -> Iterator[tuple[str, str]]:
    for _, text in read_release_lines(file):
        key, _, sentence = (text or "").partition("\t")
        if key in keys:
            yield key, sentence
