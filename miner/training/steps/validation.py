"""Scores on held-out data, which select the best encoder of a run."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from miner.arrays import Floats32, spearman
from miner.config.datasets import DatasetFiles
from miner.errors import ConfigError, DataError
from miner.research.datasets.columns import Cells, expand_files, load_columns
from miner.research.datasets.reading import parse_number
from miner.training.settings import DevSetSettings, EvaluationSettings
from miner.training.steps.bucc_dev import read_bucc
from miner.training.steps.few_shot import predict_from_samples
from miner.training.steps.grad_cache import Context, encode_without_gradient
from miner.training.steps.step import CHUNK_TEXTS

Halves = npt.NDArray[np.float16]

WINDOW_TEXTS = 4096  # tokenized together, and compared with all keys together
ROLES = {
    "retrieval": ("source", "target"),
    "bucc": (),
    "sts": ("first", "second", "score"),
    "accuracy": ("first", "second", "label"),
    "probe": ("text", "label"),
}
GROUP = "group"  # optional role, except for bucc


class Validation:
    """The held-out data of a run by name, as `EvaluationSettings.dev_sets`. Raises what `ValidationSet` raises."""

    def __init__(self, settings: EvaluationSettings, labels: Sequence[str]) -> None:
        self.settings = settings
        self.dev_sets = {name: ValidationSet(dev_set, labels) for name, dev_set in settings.dev_sets.items()}


class ValidationSet:
    """The files of held-out data, in memory, and the score of encoders on them: the mean over files and groups, higher is better."""

    def __init__(self, settings: DevSetSettings, labels: Sequence[str]) -> None:
        """Read the files; `labels` are the classes in order. Raise ConfigError or DataError where they do not fit the metric."""
        self.settings, self.labels = settings, tuple(labels)
        roles = ROLES[settings.metric]
        if set(settings.columns) - ({GROUP} if roles else set()) != set(roles):
            needed = f"needs exactly the columns {', '.join(roles)}" if roles else "has no columns; remove them"
            raise ConfigError(f"evaluation.columns: {settings.metric} {needed}")
        self.files: list[Cells] = []  # a file or, with groups, the rows of a group
        self.train: list[Cells] = []  # training rows of the probe of each group
        self.bucc_sets = [dev_set for files in settings.files for dev_set in read_bucc(files)] if settings.metric == "bucc" else []
        if self.bucc_sets:
            return
        train_groups: dict[str, Cells] = {}
        for uri in expand_files(settings.train):
            for group, columns in self._read_groups(uri).items():
                earlier = train_groups.get(group, [[]] * len(columns))
                train_groups[group] = [cells + more for cells, more in zip(earlier, columns, strict=True)]
        for uri in expand_files(settings.files):
            for group, columns in self._read_groups(uri).items():
                self._check(uri, columns)
                self.files.append(columns)
                if settings.metric == "probe":
                    self.train.append(self._find_train(uri, group, train_groups))

    def _read_groups(self, uri: str | DatasetFiles) -> dict[str, Cells]:
        """Read the columns of the metric from a file, by group; all rows are in one without a column of groups."""
        roles = (*ROLES[self.settings.metric], GROUP)
        *columns, groups = load_columns(uri, *(self.settings.columns.get(role) for role in roles))
        return {
            group: [list(compress(column, [other == group for other in groups])) for column in columns] for group in dict.fromkeys(groups)
        }

    def _find_train(self, uri: str | DatasetFiles, group: str, train_groups: Mapping[str, Cells]) -> Cells:
        columns = train_groups.get(group, [[], []])
        if len(set(columns[1])) < 2:
            of_group = f" of group {group!r}" if GROUP in self.settings.columns else ""
            raise DataError(f"{uri}: evaluation.train has no two labels{of_group}; add training rows")
        return columns

    def _check(self, uri: str | DatasetFiles, columns: Cells) -> None:
        unknown = [label for label in columns[2] if label not in self.labels] if self.settings.metric == "accuracy" else []
        if unknown:
            raise DataError(f"{uri}: label {unknown[0]!r} is not a class of the training data ({', '.join(self.labels) or 'it has none'})")
        if self.settings.metric == "sts" and not all(math.isfinite(parse_number(score)) for score in columns[2]):
            raise DataError(f"{uri}: the scores are not all numbers; choose another column for score")

    def score(self, towers: Sequence[Any], classifier: nn.Module | None, context: Context) -> float:
        """Score encoders, or for accuracy a classifier of their joint vectors, in the autocast `context`."""
        if self.settings.metric == "accuracy":
            assert classifier is not None  # check_config
            return float(np.mean([self._accuracy(columns, towers[0], classifier, context) for columns in self.files]))
        if self.settings.metric == "bucc":
            encode, device = partial(_encode_sides, towers[0], context), str(next(towers[0].parameters()).device)
            return float(np.mean([dev_set.f1(encode, device) for dev_set in self.bucc_sets]))
        if self.settings.metric == "probe":
            embed = partial(_encode_unit, towers[0], context)
            return float(np.mean([_probe_accuracy(embed, *columns) for columns in zip(self.train, self.files, strict=True)]))
        return float(np.mean([self._similarity_score(columns, towers, context) for columns in self.files]))

    def _accuracy(self, columns: Cells, tower: Any, classifier: nn.Module, context: Context) -> float:
        first, second, labels = columns
        predicted = classifier(encode_texts(tower, context, first, second)).argmax(dim=1).cpu().numpy()
        return float(np.mean(predicted == [self.labels.index(label) for label in labels]))

    def _similarity_score(self, columns: Cells, towers: Sequence[Any], context: Context) -> float:
        is_sts = self.settings.metric == "sts"
        target_tower = towers[0] if is_sts else towers[-1]  # the second of two towers encodes translations
        with towers[0].inference():
            source = functional.normalize(encode_texts(towers[0], context, columns[0]), dim=1)
        with target_tower.inference():
            target = functional.normalize(encode_texts(target_tower, context, columns[1]), dim=1)
        if not is_sts:
            return (retrieval_accuracy(source, target) + retrieval_accuracy(target, source)) / 2
        correlation = spearman((source * target).sum(dim=1).cpu().numpy(), np.array(columns[2], dtype=np.float64))
        return -1.0 if np.isnan(correlation) else correlation  # NaN where all vectors are equal


def _encode_sides(tower: Any, context: Context, sources: list[str], targets: list[str]) -> tuple[Halves, Halves]:
    """Encode n sources and m targets -> (n, d), (m, d) unit rows in the precision of embeddings on disk."""
    vectors = _encode_unit(tower, context, sources + targets).astype(np.float16)
    return vectors[: len(sources)], vectors[len(sources) :]


def _encode_unit(tower: Any, context: Context, texts: list[str]) -> Floats32:
    """Encode n texts -> (n, d) unit rows."""
    with tower.inference():
        vectors: Floats32 = functional.normalize(encode_texts(tower, context, texts).float(), dim=1).cpu().numpy()
    return vectors


def _probe_accuracy(encode: Callable[[list[str]], Floats32], train: Cells, test: Cells) -> float:
    """Texts and labels -> the mean accuracy of classifiers of a few training texts per label, as in MTEB."""
    predicted = predict_from_samples(encode, train[0], np.array(train[1]), test[0])
    return float(np.mean(predicted == np.array(test[1])[:, None]))


def encode_texts(tower: Any, context: Context, texts: list[str], partners: list[str] | None = None) -> Tensor:
    """Encode n texts, or n pairs as joint sequences, without gradients -> (n, d)."""
    windows = []
    for start in range(0, len(texts), WINDOW_TEXTS):
        window = slice(start, start + WINDOW_TEXTS)
        tokens = tower.tokenize(texts[window]) if partners is None else tower.tokenize(texts[window], partners[window])
        windows.append(encode_without_gradient(tower, tokens, CHUNK_TEXTS, context))
    return torch.cat(windows)


def retrieval_accuracy(queries: Tensor, keys: Tensor) -> float:
    """Unit rows (n, d) and (n, d), row i the translation of row i -> the share of queries whose nearest key is their own."""
    num_correct = 0
    for start in range(0, len(queries), WINDOW_TEXTS):
        nearest = (queries[start : start + WINDOW_TEXTS] @ keys.T).argmax(dim=1).cpu()
        num_correct += int((nearest == torch.arange(start, start + len(nearest))).sum())
    return num_correct / len(queries)
