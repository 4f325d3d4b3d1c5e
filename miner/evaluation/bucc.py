"""BUCC: mine pairs from two sets of sentences and compare them with gold. See docs/evaluation.md for the protocol.

By the protocol `test`, the threshold is tuned on the gold of the dev split and applied to the test split; the F1 of the best threshold on
the test split is reported separately, as an oracle. By the protocol `sample`, the threshold is tuned and scored on the dev split, which
BUCC 2018 calls sample: that F1 is itself that of an oracle.
"""

import logging
import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from miner.arrays import Bools, Floats
from miner.config.datasets import DatasetFiles, TableFile
from miner.encoders import Encoder
from miner.encoders.base import search_device
from miner.errors import DataError
from miner.evaluation.inputs import TextPart, encode_parts, encode_tokens
from miner.evaluation.scores import Items, Score, f1, percent, table
from miner.evaluation.translation_tasks import BuccTask
from miner.mining.candidates import ScoredPairs
from miner.mining.in_memory import mine_vectors
from miner.mining.precision_recall import Curve, curve
from miner.research.datasets.file_groups import ALL_SPLITS, find_groups
from miner.research.datasets.layout import Request
from miner.research.datasets.registry import get_layout
from miner.research.datasets.release import ReleaseFile, expand_archives, list_files, read_release_lines
from miner.text.normalise import clean_all

FILE = re.compile(r"([a-z]{2,3})-([a-z]{2,3})\.(dev|sample|test|training)\.(\1|\2|gold)")
SPLITS = {"dev": ("dev", "sample"), "test": ("test", "training")}  # split -> its names in XTREME and in BUCC 2018
PROTOCOL_SPLITS = {"test": ("dev", "test"), "sample": ("dev",)}  # protocol -> the splits that it reads

logger = logging.getLogger(__name__)

Pair = tuple[str, str]  # ids of a source and a target sentence
FileKey = tuple[str, ...]  # source, target, split, and a language or gold


@dataclass(frozen=True)
class BuccSide:
    """The sentences of one side of a split. Ids are unique, texts need not be."""

    ids: Sequence[str]
    texts: Sequence[str]


@dataclass(frozen=True)
class BuccSplit:
    """One split of a language pair."""

    source: BuccSide
    target: BuccSide
    gold: frozenset[Pair]


@dataclass(frozen=True, eq=False)
class MinedSplit:
    """The pairs mined from a split, best first."""

    pairs: Sequence[Pair]
    margins: Floats  # (n,)
    is_correct: Bools  # (n,)
    split: BuccSplit

    @property
    def curve(self) -> Curve:
        return curve(self.margins, self.is_correct, len(self.split.gold))

    def best_threshold(self) -> float:
        """Return the threshold with the best F1; infinity if no pair is correct."""
        best = self.curve.best()
        return np.inf if best is None else float(self.curve.thresholds[best])

    def items(self, threshold: float) -> Items:
        """Return for each source sentence the numbers of correct, mined and gold pairs above a threshold."""
        row_of = {name: row for row, name in enumerate(self.split.source.ids)}
        items = np.zeros((len(row_of) + 1, 3), dtype=np.int32)  # the last row is for gold pairs of missing sentences
        for (source, _), margin, is_correct in zip(self.pairs, self.margins, self.is_correct, strict=True):
            if margin > threshold:
                items[row_of[source]] += (is_correct, 1, 0)
        for source, _ in self.split.gold:
            items[row_of.get(source, -1), 2] += 1
        return items


@dataclass(frozen=True, eq=False)
class BuccPairResult:
    """The result for one language pair by the protocol `test`."""

    HEADS: ClassVar[Sequence[str]] = ("dev threshold", "precision", "recall", "F1", "oracle F1")

    dev: MinedSplit
    test: MinedSplit
    items: Items  # of the test split, above the threshold

    def figures(self) -> dict[str, Any]:
        test_curve, dev_curve = self.test.curve, self.dev.curve
        best, tuned = test_curve.best(), dev_curve.best()
        return {
            "dev": None if tuned is None else dev_curve.point(tuned),
            "test": _accepted_figures(self.items),
            "oracle": None if best is None else test_curve.point(best),
            "gold": {"dev": len(self.dev.split.gold), "test": len(self.test.split.gold)},
            "curve": test_curve.figures(),
        }

    def cells(self) -> list[str]:
        figures = self.figures()
        oracle = percent(figures["oracle"]["f1"] if figures["oracle"] else 0.0)
        return [*_cells(self.dev.best_threshold(), figures["test"]), oracle]


@dataclass(frozen=True, eq=False)
class SamplePairResult:
    """The result for one language pair by the protocol `sample`."""

    HEADS: ClassVar[Sequence[str]] = ("sample threshold", "precision", "recall", "sample F1")

    sample: MinedSplit
    items: Items  # above the threshold that is best for the sample itself

    def figures(self) -> dict[str, Any]:
        threshold = self.sample.best_threshold()
        return {
            "threshold": None if np.isinf(threshold) else threshold,
            **_accepted_figures(self.items),
            "gold": {"sample": len(self.sample.split.gold)},
            "curve": self.sample.curve.figures(),
        }

    def cells(self) -> list[str]:
        return _cells(self.sample.best_threshold(), self.figures())


PairResults = Mapping[str, BuccPairResult | SamplePairResult]  # by language pair


@dataclass(frozen=True, eq=False)
class BuccResult:
    """The result of `miner eval bucc`."""

    protocol: str
    pairs: PairResults  # by margin
    late_pairs: PairResults  # by margin blended with late interaction; empty if candidates were not rescored

    def scores(self) -> dict[str, Score]:
        name = "F1" if self.protocol == "test" else "F1, sample protocol"
        late = {f"{name}, late": _score(self.late_pairs)} if self.late_pairs else {}
        return {name: _score(self.pairs), **late}

    def figures(self) -> dict[str, Any]:
        pairs = {name: result.figures() for name, result in self.pairs.items()}
        for name, result in self.late_pairs.items():
            pairs[name]["late"] = result.figures()
        mean = {key: score.value for key, score in zip(("f1", "late"), self.scores().values(), strict=False)}
        return {"protocol": self.protocol, "pairs": pairs, "mean": mean}

    def summary(self) -> str:
        heads = next(iter(self.pairs.values())).HEADS
        rows: dict[str, Sequence[str]] = {}
        for suffix, pairs in (("", self.pairs), (", late", self.late_pairs)):
            rows |= {f"{name}{suffix}": result.cells() for name, result in pairs.items()}
            if len(pairs) > 1:
                rows[f"mean{suffix}"] = ["", "", "", percent(_score(pairs).value), *([""] * (len(heads) - 4))]
        return table(heads, rows)


def _score(pairs: PairResults) -> Score:
    return Score({name: result.items for name, result in pairs.items()}, f1)


def _accepted_figures(items: Items) -> dict[str, Any]:
    """Numbers (n, 3) of correct, mined and gold pairs -> the number of mined pairs, their precision, recall and F1."""
    num_correct, num_mined, num_gold = (int(count) for count in items.sum(axis=0))
    return {"pairs": num_mined, "precision": num_correct / max(num_mined, 1), "recall": num_correct / num_gold, "f1": f1(items)}


def _cells(threshold: float, figures: Mapping[str, Any]) -> list[str]:
    shares = [percent(figures[share]) for share in ("precision", "recall", "f1")]
    return ["none" if np.isinf(threshold) else f"{threshold:.4f}", *shares]


def evaluate(encoder: Encoder, task: BuccTask) -> BuccResult:
    """Mine files in the layout of BUCC. Raise DataError for missing or malformed files."""
    results: tuple[dict[str, BuccPairResult | SamplePairResult], ...] = {}, {}
    for name, files in find_files(task.data, PROTOCOL_SPLITS[task.protocol]).items():
        splits = [mine(encoder, read_split(split_files), task, name.split("-")) for split_files in files.values()]
        for by_pair, mined in zip(results, zip(*splits, strict=True), strict=False):
            items = mined[-1].items(mined[0].best_threshold())  # the first split tunes the threshold, the last is scored
            by_pair[name] = SamplePairResult(mined[0], items) if len(mined) == 1 else BuccPairResult(mined[0], mined[1], items)
    return BuccResult(task.protocol, *results)


def mine(encoder: Encoder, split: BuccSplit, task: BuccTask, langs: Sequence[str]) -> list[MinedSplit]:
    """Mine one-to-one pairs by margin from the nearest neighbours of both directions, as retrieval `max` does.

    Where candidates can be rescored, mine also by margin blended with late interaction. Equal texts are mined as one sentence. If
    several ids share a text, its pairs are left out, as no id can be preferred.
    """
    ids_by_text = [_unique_ids(side) for side in (split.source, split.target)]
    parts = [TextPart(list(texts), lang) for texts, lang in zip(ids_by_text, langs, strict=True)]
    vectors, tokens = encode_parts(encoder, parts), encode_tokens(encoder, parts[0], parts[1], task)
    scorings = [None] if tokens is None else [None, tokens]
    mined = [mine_vectors(vectors[0], vectors[1], task.k, task.margin, scoring, search_device(encoder)) for scoring in scorings]
    return [_to_ids(matches, ids_by_text, split) for matches in mined]


def _to_ids(matches: ScoredPairs, ids_by_text: Sequence[dict[str, str | None]], split: BuccSplit) -> MinedSplit:
    """Return pairs of texts as pairs of ids."""
    source_ids, target_ids = (list(texts.values()) for texts in ids_by_text)
    pairs: list[Pair] = []
    kept_rows = []
    for row, (source, target) in enumerate(zip(matches.source_ids.tolist(), matches.target_ids.tolist(), strict=True)):
        source_id, target_id = source_ids[source], target_ids[target]
        if source_id is not None and target_id is not None:
            pairs.append((source_id, target_id))
            kept_rows.append(row)
    is_correct = np.array([pair in split.gold for pair in pairs], dtype=bool)
    return MinedSplit(pairs, matches.margins[kept_rows], is_correct, split)


def _unique_ids(side: BuccSide) -> dict[str, str | None]:
    """Return the id of each text, or None if several ids share it."""
    ids: dict[str, str | None] = {}
    for name, text in zip(side.ids, side.texts, strict=True):
        ids[text] = None if text in ids else name
    return ids


def find_files(data: TableFile, splits: Sequence[str]) -> dict[str, dict[str, list[ReleaseFile]]]:
    """Return by language pair and split the files of the source, the target and gold, in a folder or in archives."""
    files = _files_of_release(data) if isinstance(data, DatasetFiles) else _files_below(data)
    pairs = sorted({f"{source}-{target}" for source, target, _, _ in files})
    if not pairs:
        raise DataError(f"{data}: no files such as de-en.dev.de, de-en.dev.en and de-en.dev.gold; choose another --data")
    return {pair: {split: _split_files(data, files, pair, split) for split in splits} for pair in pairs}


def _files_of_release(data: DatasetFiles) -> dict[FileKey, ReleaseFile]:
    _, groups = find_groups(get_layout(data.dataset), data.path, Request(data.languages, ALL_SPLITS))
    pairs = [group for group in groups if len(group.languages) == 2]
    return {(*group.languages, group.split, role): file for group in pairs for role, file in group.files.items()}


def _files_below(path: str) -> dict[FileKey, ReleaseFile]:
    """Return files of any two languages; those that are unpacked precede those in archives."""
    files = list_files(path)
    by_key: dict[FileKey, ReleaseFile] = {}
    for file in [*files, *expand_archives(files)]:
        if parts := FILE.fullmatch(posixpath.basename(file.stem)):
            source, target, split, role = parts.groups()
            by_key.setdefault((source, target, split, role), file)
    return by_key


def _split_files(data: TableFile, files: Mapping[FileKey, ReleaseFile], pair: str, split: str) -> list[ReleaseFile]:
    source, target = pair.split("-")
    for name in SPLITS[split]:
        keys = [(source, target, name, role) for role in (source, target, "gold")]
        if all(key in files for key in keys):
            return [files[key] for key in keys]
    expected = " or ".join(f"{pair}.{name}.{{{source},{target},gold}}" for name in SPLITS[split])
    raise DataError(f"{data}: {expected} is incomplete; add the missing files, or remove those of {pair}")


def read_split(files: Sequence[ReleaseFile]) -> BuccSplit:
    """Read the files of the source, the target and gold. Gold pairs of missing sentences are kept: they count as not mined."""
    source, target = (_read_side(file) for file in files[:2])
    gold_ids, other_ids = _read_cells(files[2], "id<TAB>id")
    gold = frozenset(zip(gold_ids, map(str.strip, other_ids), strict=True))
    names = [file.uri for file in files]
    if not gold:
        raise DataError(f"{names[2]}: no gold pairs; check the file name")
    source_ids, target_ids = set(source.ids), set(target.ids)
    num_missing = sum(source_id not in source_ids or target_id not in target_ids for source_id, target_id in gold)
    if num_missing == len(gold):
        raise DataError(f"{names[2]}: none of its pairs has ids of {names[0]} and {names[1]}; write source id<TAB>target id")
    if num_missing:
        logger.warning("%s: %d of %d pairs have ids of missing sentences; they count as not mined", names[2], num_missing, len(gold))
    return BuccSplit(source, target, gold)


def _read_side(file: ReleaseFile) -> BuccSide:
    ids, texts = _read_cells(file, "id<TAB>sentence")
    if not ids:
        raise DataError(f"{file.uri}: no lines; check the file name")
    repeated = [name for name, count in Counter(ids).items() if count > 1]
    if repeated:
        raise DataError(f"{file.uri}: several sentences have the id {repeated[0]!r}; ids must be unique")
    return BuccSide(ids, clean_all(texts))


def _read_cells(file: ReleaseFile, expected: str) -> tuple[list[str], list[str]]:
    """Return both cells of the lines that are not blank; a sentence may have tabs."""
    ids, others = [], []
    for line, text in read_release_lines(file):
        if text is not None and not text.strip():
            continue
        name, tab, other = (text or "").partition("\t")
        if not tab:
            raise DataError(f"{file.uri}:{line}: expected {expected}, found {(text or 'a line of more than 16 MiB')[:40]!r}; fix the line")
        ids.append(name.strip())
        others.append(other)
    return ids, others
