"""Tables of marks: whether people who read both languages find a pair right or wrong."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from miner.errors import DataError
from miner.evaluation.lines import read_lines
from miner.mining.review import MarkScorer, Pair, cohen_kappa
from miner.text import streams
from miner.text.normalise import sentence_ids

COLUMNS = ("mark", "source", "target")
MARKS = {"right": True, "wrong": False}
UNSURE = "unsure"  # reviewed, but not judged
CORRECT = f"correct them, and mark pairs as {', '.join(MARKS)} or {UNSURE}"
MAX_UNUSABLE = 0.05  # share of the marks of a table that cannot be used

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MarksFile:
    """The marks of one table, by the ids of the texts of a pair."""

    uri: str
    marks: Mapping[Pair, str]

    @property
    def judged(self) -> dict[Pair, bool]:
        """Whether a pair is right, for the pairs that are marked right or wrong."""
        return {pair: MARKS[mark] for pair, mark in self.marks.items() if mark in MARKS}


@dataclass(frozen=True)
class Agreement:
    """How far two tables agree on the pairs that both mark right or wrong."""

    uris: tuple[str, str]
    num_pairs: int
    num_equal: int
    kappa: float | None  # Cohen's; None if both give only one mark, and the same one

    def figures(self) -> dict[str, Any]:
        return {"files": list(self.uris), "pairs": self.num_pairs, "equal": self.num_equal, "kappa": self.kappa}

    def summary(self) -> str:
        kappa = "undefined, because all marks are the same" if self.kappa is None else f"{self.kappa:.3f}"
        return f"{' and '.join(self.uris)}: {self.num_equal:,} of {self.num_pairs:,} marks equal, Cohen's kappa {kappa}"


@dataclass(frozen=True)
class ReviewMarks:
    """The marks of one or several tables: rounds of one sample after the other, or several people on the same pairs."""

    files: tuple[MarksFile, ...]

    @property
    def name(self) -> str:
        return " and ".join(file.uri for file in self.files)

    @cached_property
    def right(self) -> dict[Pair, float]:
        """The share of the marks of each judged pair that are right."""
        marks: dict[Pair, list[bool]] = {}
        for file in self.files:
            for pair, is_right in file.judged.items():
                marks.setdefault(pair, []).append(is_right)
        return {pair: sum(of_pair) / len(of_pair) for pair, of_pair in marks.items()}

    @cached_property
    def reviewed(self) -> frozenset[Pair]:
        """The pairs with a mark, also with one that is neither right nor wrong."""
        return frozenset(pair for file in self.files for pair in file.marks)

    def scorer(self) -> MarkScorer:
        return MarkScorer(self.right)

    def agreements(self) -> list[Agreement]:
        """Compare every two tables with pairs in common."""
        agreements = []
        for one, other in combinations(self.files, 2):
            common = sorted(one.judged.keys() & other.judged.keys())
            if common:
                first, second = (np.array([file.judged[pair] for pair in common]) for file in (one, other))
                agreement = Agreement((one.uri, other.uri), len(common), int((first == second).sum()), cohen_kappa(first, second))
                agreements.append(agreement)
        return agreements


def is_marks(uri: str) -> bool:
    """Return whether a file is a table of marks, by its header; gold has two numbers per line instead."""
    with streams.open_bytes(uri, streams.split_extensions(uri)[1]) as handle:
        first_line = handle.readline(streams.MAX_LINE_BYTES).removeprefix(streams.BOM)
    return set(COLUMNS) <= set(re.findall(r"\w+", first_line.decode(errors="replace")))


def read_marks(uris: Sequence[str]) -> ReviewMarks:
    """Read tables of mark, source and target. Rows without a mark are ignored.

    Unknown marks, and those of a pair that is marked right and wrong in one table, are dropped with a warning. Raise DataError where they
    are more than MAX_UNUSABLE, for a line that cannot be read, and if no row of a table is marked right or wrong.
    """
    return ReviewMarks(tuple(_read_table(uri) for uri in dict.fromkeys(uris)))


def _read_table(uri: str) -> MarksFile:
    column, sources, targets = (read_lines(uri, column) for column in COLUMNS)
    pairs = zip(sentence_ids(sources).tolist(), sentence_ids(targets).tolist(), strict=True)
    rows = [(pair, mark.lower()) for pair, mark in zip(pairs, column, strict=True) if mark]
    unknown = [mark for _, mark in rows if mark not in (*MARKS, UNSURE)]
    marks: dict[Pair, set[str]] = {}
    for pair, mark in rows:
        if mark in (*MARKS, UNSURE):
            marks.setdefault(pair, set()).add(mark)
    contradictory = {pair for pair, of_pair in marks.items() if of_pair >= MARKS.keys()}
    problems = [f"{len(unknown):,} of unknown words, such as {unknown[0]!r}"] if unknown else []
    problems += [f"{len(contradictory):,} pairs marked right and wrong"] if contradictory else []
    report_unusable(uri, problems, len(unknown) + len(contradictory), len(rows))
    table = MarksFile(uri, {pair: min(of_pair) for pair, of_pair in marks.items() if pair not in contradictory})
    if not table.judged:
        raise DataError(f"{uri}: no row is marked {' or '.join(MARKS)}; mark some pairs")
    return table


def report_unusable(name: str, problems: Sequence[str], num_unusable: int, num_marks: int, remedy: str = CORRECT) -> None:
    """Warn of marks that cannot be used; raise DataError if they are more than MAX_UNUSABLE of all."""
    if not problems:
        return
    message = f"{name}: {num_unusable:,} of {num_marks:,} marks cannot be used: {' and '.join(problems)}"
    if num_unusable > MAX_UNUSABLE * num_marks:
        raise DataError(f"{message}; {remedy}")
    logger.warning("%s", message)
