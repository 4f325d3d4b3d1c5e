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
from typing import Any, Literal

import numpy as np
import pydantic
from pydantic_core import PydanticCustomError

from miner.arrays import Bools, Floats
from miner.config.choices import MarginName
from miner.config.datasets import DatasetFiles, TableFile
from miner.encoders import Encoder
from miner.encoders.base import search_device
from miner.errors import DataError
from miner.evaluation.inputs import TextPart, encode_parts, encode_tokens
from miner.evaluation.scores import EvaluationResult, Items, Score, f1, figure_table
from miner.evaluation.task_base import BarChart, RescoredTask
from miner.mining.candidates import ScoredPairs
from miner.mining.in_memory import mine_vectors
from miner.mining.precision_recall import Curve, curve
from miner.research.datasets.file_groups import ALL_SPLITS, find_groups
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
class BuccSplit:
    """One split of a language pair: both sides by unique id, whose texts may be equal, and gold."""

    source: Mapping[str, str]
    target: Mapping[str, str]
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

    def best_point(self) -> dict[str, float] | None:
        best = self.curve.best()
        return None if best is None else self.curve.point(best)

    def items(self, threshold: float) -> Items:
        """Return for each source sentence the numbers of correct, mined and gold pairs above a threshold."""
        row_of = {name: row for row, name in enumerate(self.split.source)}
        items = np.zeros((len(row_of) + 1, 3), dtype=np.int32)  # the last row is for gold pairs of missing sentences
        for (source, _), margin, is_correct in zip(self.pairs, self.margins, self.is_correct, strict=True):
            if margin > threshold:
                items[row_of[source]] += (is_correct, 1, 0)
        for source, _ in self.split.gold:
            items[row_of.get(source, -1), 2] += 1
        return items


class BuccTask(RescoredTask):
    """Measure F1 of mined pairs on the test split, above the threshold tuned on the dev split; oracle F1 is reported separately.

    With --protocol sample, the threshold is tuned and scored on the dev split, the sample of BUCC 2018, as in the code of mSimCSE. With a
    static encoder, also with the margin blended with late interaction.

    \b
    Example:
      miner eval bucc --data bucc2018 --encoder sentence-transformers/LaBSE
      miner eval bucc --data '{dataset: bucc, path: bucc2018, languages: [zh]}' --margin distance --k 3
    """

    CHART = BarChart(
        groups="pairs",
        value="f1",
        caption="F1 above the threshold of the protocol",
        axis="F1",
        details="threshold_curves",
    )

    task: Literal["bucc"] = "bucc"
    data: TableFile = pydantic.Field(
        description="Directory of files, or of archives with files, such as de-en.dev.de, de-en.dev.en (id<TAB>sentence) and de-en.dev.gold"
        " (id<TAB>id), also for test."
    )
    protocol: Literal["test", "sample"] = pydantic.Field(
        "test", description="test: tune on dev, score test; sample: tune and score on dev, an oracle."
    )
    margin: MarginName = pydantic.Field("ratio", description="Margin function that scores pairs.")

    @pydantic.field_validator("data")
    @classmethod
    def _check_dataset(cls, data: str | DatasetFiles) -> str | DatasetFiles:
        """Read all splits: the protocol chooses those of a dataset."""
        if isinstance(data, str):
            return data
        if data.dataset != "bucc" or data.split is not None:
            raise PydanticCustomError("data", "name the dataset bucc, and no split: the protocol chooses the splits")
        return data.model_copy(update={"split": "all"})

    def evaluate(self, encoder: Encoder) -> EvaluationResult:
        """Mine files in the layout of BUCC. Raise DataError for missing or malformed files."""
        by_scoring: tuple[dict[str, list[MinedSplit]], ...] = {}, {}  # by margin, and by that blended with late interaction
        for name, files in self.find_files().items():
            splits = [mine(encoder, read_split(split_files), self, name.split("-")) for split_files in files]
            for by_pair, mined in zip(by_scoring, zip(*splits, strict=True), strict=False):
                by_pair[name] = list(mined)
        return _summarise(self.protocol, *by_scoring)

    def find_files(self) -> dict[str, list[list[ReleaseFile]]]:
        """Return by language pair, for each split of the protocol, the files of the source, the target and gold."""
        files = _files_of_release(self.data) if isinstance(self.data, DatasetFiles) else _files_below(self.data)
        pairs = sorted({f"{source}-{target}" for source, target, _, _ in files})
        if not pairs:
            raise DataError(f"{self.data}: no files such as de-en.dev.de, de-en.dev.en and de-en.dev.gold; choose another --data")
        return {pair: [_split_files(self.data, files, pair, split) for split in PROTOCOL_SPLITS[self.protocol]] for pair in pairs}


HEADS = {
    "test": {"threshold": "dev threshold", "precision": "precision", "recall": "recall", "f1": "F1", "oracle": "oracle F1"},
    "sample": {"threshold": "sample threshold", "precision": "precision", "recall": "recall", "f1": "sample F1"},
}


def _summarise(protocol: str, pairs: Mapping[str, list[MinedSplit]], late_pairs: Mapping[str, list[MinedSplit]]) -> EvaluationResult:
    """Report the pairs above the threshold by language pair: the first split of each tunes it, the last one is scored."""
    label = "F1" if protocol == "test" else "F1, sample protocol"
    scores: dict[str, Score] = {}
    figures: dict[str, dict[str, Any]] = {}
    rows: dict[str, dict[str, Any]] = {}
    for suffix, mined in (("", pairs), (", late", late_pairs)):
        items = {name: splits[-1].items(splits[0].best_threshold()) for name, splits in mined.items()}
        for name, splits in mined.items():
            threshold, accepted = splits[0].best_threshold(), _accepted_figures(items[name])
            of_pair = _test_figures(splits, accepted) if protocol == "test" else _sample_figures(splits[0], accepted)
            figures.setdefault(name, {}).update({"late": of_pair} if suffix else of_pair)
            best = splits[-1].best_point()
            cells = {"threshold": "none" if np.isinf(threshold) else f"{threshold:.4f}", "oracle": best["f1"] if best else 0.0}
            rows[f"{name}{suffix}"] = {**accepted, **cells}
        if items:
            score = scores[f"{label}{suffix}"] = Score(items, f1)
        if len(items) > 1:
            rows[f"mean{suffix}"] = {"f1": score.value}
    mean = {key: score.value for key, score in zip(("f1", "late"), scores.values(), strict=False)}
    return EvaluationResult({"protocol": protocol, "pairs": figures, "mean": mean}, figure_table(rows, HEADS[protocol]), scores)


def _test_figures(splits: Sequence[MinedSplit], accepted: dict[str, Any]) -> dict[str, Any]:
    dev, test = splits
    return {
        "dev": dev.best_point(),
        "test": accepted,
        "oracle": test.best_point(),
        "gold": {"dev": len(dev.split.gold), "test": len(test.split.gold)},
        "curve": test.curve.figures(),
    }


def _sample_figures(sample: MinedSplit, accepted: dict[str, Any]) -> dict[str, Any]:
    threshold = sample.best_threshold()
    return {
        "threshold": None if np.isinf(threshold) else threshold,
        **accepted,
        "gold": {"sample": len(sample.split.gold)},
        "curve": sample.curve.figures(),
    }


def _accepted_figures(items: Items) -> dict[str, Any]:
    """Numbers (n, 3) of correct, mined and gold pairs -> the number of mined pairs, their precision, recall and F1."""
    num_correct, num_mined, num_gold = (int(count) for count in items.sum(axis=0))
    return {"pairs": num_mined, "precision": num_correct / max(num_mined, 1), "recall": num_correct / num_gold, "f1": f1(items)}


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


def _unique_ids(side: Mapping[str, str]) -> dict[str, str | None]:
    """Return the id of each text, or None if several ids share it."""
    ids: dict[str, str | None] = {}
    for name, text in side.items():
        ids[text] = None if text in ids else name
    return ids


def _files_of_release(data: DatasetFiles) -> dict[FileKey, ReleaseFile]:
    _, groups = find_groups(get_layout(data.dataset), data.path, data.languages, ALL_SPLITS)
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
    num_missing = sum(source_id not in source or target_id not in target for source_id, target_id in gold)
    if num_missing == len(gold):
        raise DataError(f"{names[2]}: none of its pairs has ids of {names[0]} and {names[1]}; write source id<TAB>target id")
    if num_missing:
        logger.warning("%s: %d of %d pairs have ids of missing sentences; they count as not mined", names[2], num_missing, len(gold))
    return BuccSplit(source, target, gold)


def _read_side(file: ReleaseFile) -> dict[str, str]:
    ids, texts = _read_cells(file, "id<TAB>sentence")
    if not ids:
        raise DataError(f"{file.uri}: no lines; check the file name")
    repeated = [name for name, count in Counter(ids).items() if count > 1]
    if repeated:
        raise DataError(f"{file.uri}: several sentences have the id {repeated[0]!r}; ids must be unique")
    return dict(zip(ids, clean_all(texts), strict=True))


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
