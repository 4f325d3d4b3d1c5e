"""BUCC: the pairs mined from two sets of sentences against gold. See docs/evaluation.md for the protocol.

The threshold is tuned on the gold of the dev split and applied to the test split. The F1 of the best
threshold on the test split is told apart: it is an oracle, which nobody has who mines.
"""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from miner import storage
from miner.encoders import Encoder
from miner.errors import DataError
from miner.evaluation.inputs import encode, read_lines
from miner.evaluation.precision_recall import Bools, Curve, curve
from miner.evaluation.retrieval import search
from miner.evaluation.scores import Floats, Items, Score, f1, percent, table
from miner.evaluation.settings import BuccTask
from miner.mining.candidates import backward_edges, forward_edges, join, means_of, score
from miner.mining.matching import match, rank

FILE = re.compile(r"([a-z]{2,3})-([a-z]{2,3})\.(dev|sample|test|training)\.(\1|\2|gold)(?:\.gz)?")
SPLITS = {"dev": ("dev", "sample"), "test": ("test", "training")}  # the names of XTREME, and of BUCC 2018

logger = logging.getLogger(__name__)

Pair = tuple[str, str]  # ids of a source and a target sentence


@dataclass(frozen=True)
class BuccSide:
    """The sentences of one side of a split; their ids differ, their texts need not."""

    ids: Sequence[str]
    texts: Sequence[str]


@dataclass(frozen=True)
class BuccSplit:
    """One split of a language pair, with the pairs to be found."""

    source: BuccSide
    target: BuccSide
    gold: frozenset[Pair]


@dataclass(frozen=True, eq=False)
class MinedSplit:
    """The pairs that were mined from a split, best first, and which of them are gold."""

    pairs: Sequence[Pair]
    margins: Floats  # (n,)
    right: Bools  # (n,)
    split: BuccSplit

    @property
    def curve(self) -> Curve:
        return curve(self.margins, self.right, len(self.split.gold))

    def items(self, threshold: float) -> Items:
        """By source sentence how many pairs above a threshold are right, how many there are, and how many are gold."""
        rows = {name: row for row, name in enumerate(self.split.source.ids)}
        items = np.zeros((len(rows) + 1, 3), dtype=np.int32)  # the last for gold of sentences that are missing
        for (source, _), margin, right in zip(self.pairs, self.margins, self.right, strict=True):
            if margin > threshold:
                items[rows[source]] += (right, 1, 0)
        for source, _ in self.split.gold:
            items[rows.get(source, -1), 2] += 1
        return items


@dataclass(frozen=True, eq=False)
class BuccPairResult:
    """What was found for one language pair. Without a right pair in the dev split the threshold is infinite."""

    threshold: float
    dev: MinedSplit
    test: MinedSplit
    items: Items  # of the test split, above the threshold

    def figures(self) -> dict[str, Any]:
        curve = self.test.curve
        best, tuned = curve.best(), self.dev.curve.best()
        right, found, wanted = (int(count) for count in self.items.sum(axis=0))
        shares = {"precision": right / max(found, 1), "recall": right / wanted, "f1": f1(self.items)}
        return {
            "dev": None if tuned is None else self.dev.curve.point(tuned),
            "test": {"pairs": found, **shares},
            "oracle": None if best is None else curve.point(best),
            "gold": {"dev": len(self.dev.split.gold), "test": wanted},
            "curve": curve.figures(),
        }


@dataclass(frozen=True, eq=False)
class BuccResult:
    """What `miner eval bucc` found, by language pair."""

    found: Mapping[str, BuccPairResult]

    def scores(self) -> dict[str, Score]:
        return {"F1": Score({name: found.items for name, found in self.found.items()}, f1)}

    def figures(self) -> dict[str, Any]:
        return {"pairs": {name: found.figures() for name, found in self.found.items()}, "mean": {"f1": self.scores()["F1"].value}}

    def summary(self) -> str:
        rows = {}
        for name, found in self.figures()["pairs"].items():
            threshold = f"{found['dev']['threshold']:.4f}" if found["dev"] else "none"
            oracle = percent(found["oracle"]["f1"] if found["oracle"] else 0.0)
            rows[name] = [threshold, *(percent(found["test"][share]) for share in ("precision", "recall", "f1")), oracle]
        if len(rows) > 1:
            rows["mean"] = ["", "", "", percent(self.scores()["F1"].value)]
        return table(
            ["dev threshold", "precision", "recall", "F1", "oracle F1"], {name: row + [""] * (5 - len(row)) for name, row in rows.items()}
        )


def evaluate(encoder: Encoder, task: BuccTask) -> BuccResult:
    """A folder in the layout of BUCC -> what is mined, against gold. DataError where files are missing or not as they should be."""
    found = {}
    for name, files in find_files(task.data).items():
        dev, test = (mine(encoder, read_split(files[split]), task) for split in SPLITS)
        best = dev.curve.best()
        threshold = np.inf if best is None else float(dev.curve.thresholds[best])
        found[name] = BuccPairResult(threshold, dev, test, test.items(threshold))
    return BuccResult(found)


def mine(encoder: Encoder, split: BuccSplit, task: BuccTask) -> MinedSplit:
    """One to one, by margin, from both directions: retrieval `max` over the k nearest.

    Equal texts are one sentence while mining. A text that several ids share belongs to none of them alone, so its pairs are left out.
    """
    owners = [_owners(side) for side in (split.source, split.target)]
    vectors = [encode(encoder, list(texts)) for texts in owners]
    forward, backward = search(vectors[0], vectors[1], task.k)
    source_ids, target_ids = (np.arange(len(texts)) for texts in owners)
    sources, targets = means_of(source_ids, forward), means_of(target_ids, backward)
    candidates = join(forward_edges(source_ids, forward), backward_edges(target_ids, backward), sources, targets)
    best = match(rank(score(candidates, task.margin)), "max")
    names = [list(texts.values()) for texts in owners]
    pairs = [(names[0][one], names[1][other]) for one, other in zip(best.source_ids.tolist(), best.target_ids.tolist(), strict=True)]
    kept = np.array([None not in pair for pair in pairs], dtype=bool)
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    return MinedSplit(known, best.margins[kept], np.array([pair in split.gold for pair in known], dtype=bool), split)


def _owners(side: BuccSide) -> dict[str, str | None]:
    """Text -> the one id that has it, or None where several have."""
    owners: dict[str, str | None] = {}
    for name, text in zip(side.ids, side.texts, strict=True):
        owners[text] = None if text in owners else name
    return owners


def find_files(folder: str) -> dict[str, dict[str, list[str]]]:
    """Language pair -> `dev` and `test` -> the files of the source, the target and gold; in the folder, or one a pair below it."""
    if not storage.is_folder(folder):
        raise DataError(f"{folder}: no such folder; name one with the files of BUCC")
    places: dict[tuple[str, ...], str] = {}
    for below in (folder, *(storage.join(folder, name) for name in storage.names_in(folder))):
        for name in storage.names_in(below):
            if parts := FILE.fullmatch(name):
                places.setdefault(parts.groups(), storage.join(below, name))
    pairs = sorted({f"{one}-{other}" for one, other, _, _ in places})
    if not pairs:
        raise DataError(f"{folder}: no files such as de-en.dev.de, de-en.dev.en and de-en.dev.gold; choose another --data")
    return {pair: {split: _files(folder, places, pair, split) for split in SPLITS} for pair in pairs}


def _files(folder: str, places: Mapping[tuple[str, ...], str], pair: str, split: str) -> list[str]:
    source, target = pair.split("-")
    for name in SPLITS[split]:
        keys = [(source, target, name, what) for what in (source, target, "gold")]
        if all(key in places for key in keys):
            return [places[key] for key in keys]
    wanted = " or ".join(f"{pair}.{name}.{{{source},{target},gold}}" for name in SPLITS[split])
    raise DataError(f"{folder}: {wanted} is not all there; add the files, or take those of {pair} out")


def read_split(files: Sequence[str]) -> BuccSplit:
    """The files of the source, the target and gold -> the split. Gold of sentences that are missing stays: it cannot be found."""
    source, target = (_read_side(uri) for uri in files[:2])
    gold = frozenset(zip(*(read_lines(files[2], column) for column in "12"), strict=True)) - {("", "")}
    if not gold:
        raise DataError(f"{files[2]}: no gold pairs; check the name")
    known = set(source.ids), set(target.ids)
    missing = sum(one not in known[0] or other not in known[1] for one, other in gold)
    if missing == len(gold):
        raise DataError(f"{files[2]}: none of its pairs is of ids in {files[0]} and {files[1]}; write source id<TAB>target id")
    if missing:
        logger.warning("%s: %d of %d pairs are of sentences that are not there; they count as not found", files[2], missing, len(gold))
    return BuccSplit(source, target, gold)


def _read_side(uri: str) -> BuccSide:
    ids, texts = (read_lines(uri, column) for column in "12")
    if not any(ids):
        raise DataError(f"{uri}: no lines; check the name")
    again = [name for name, count in Counter(ids).items() if count > 1]
    if again:
        raise DataError(f"{uri}: several sentences have the id {again[0]!r}; give each its own")
    return BuccSide(ids, texts)
