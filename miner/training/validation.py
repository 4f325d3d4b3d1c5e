"""Scores on held-out data, by which the best state of a run is found."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor
from torch.nn import functional

from miner.errors import ConfigError, DataError
from miner.training.columns import Cells, expand_globs, read_columns
from miner.training.grad_cache import Context, encode
from miner.training.settings import EvaluationSettings

CHUNK = 64  # texts of one pass
WINDOW = 4096  # texts encoded, and similarities held, at a time
ROLES = {"retrieval": ("source", "target"), "sts": ("first", "second", "score"), "accuracy": ("first", "second", "label")}


class ValidationSet:
    """The files of an evaluation, read, and the score of an encoder on them: the mean over the files, higher is better."""

    def __init__(self, settings: EvaluationSettings, labels: Sequence[str]) -> None:
        """Raises ConfigError or DataError where the files cannot serve; `labels` are the classes in their order."""
        self.settings, self.labels = settings, tuple(labels)
        roles = ROLES[settings.metric]
        if set(settings.columns) != set(roles):
            raise ConfigError(f"evaluation.columns: {settings.metric} wants a column for each of {', '.join(roles)}, and no other")
        self.files = []
        for uri in expand_globs(settings.files):
            columns = _whole(uri, [settings.columns[role] for role in roles])
            self._check(uri, columns)
            self.files.append(columns)

    def _check(self, uri: str, columns: Cells) -> None:
        if not columns:
            raise DataError(f"{uri}: no lines; choose another file for evaluation.files")
        strange = [label for label in columns[2] if label not in self.labels] if self.settings.metric == "accuracy" else []
        if strange:
            raise DataError(f"{uri}: label {strange[0]!r} is not one that is trained ({', '.join(self.labels) or 'there are none'})")
        if self.settings.metric == "sts" and not all(_is_number(score) for score in columns[2]):
            raise DataError(f"{uri}: its scores are not all numbers; choose another column for score")

    def score(self, towers: Sequence[Any], classifier: Any, context: Context) -> float:
        """`towers` give vectors, `classifier` those of pairs read as one their classes."""
        return float(np.mean([self._score(columns, towers, classifier, context) for columns in self.files]))

    def _score(self, columns: Cells, towers: Sequence[Any], classifier: Any, context: Context) -> float:
        first, second, *more = columns
        if self.settings.metric == "accuracy":
            found = classifier.classes(vectors(towers[0], context, first, second)).argmax(dim=1).cpu().numpy()
            return float(np.mean(found == [self.labels.index(label) for label in more[0]]))
        of_second = towers[0] if self.settings.metric == "sts" else towers[-1]  # of two encoders, the other is that of translations
        x = functional.normalize(vectors(towers[0], context, first), dim=1)
        y = functional.normalize(vectors(of_second, context, second), dim=1)
        if self.settings.metric == "sts":
            found = float(spearmanr((x * y).sum(dim=1).cpu().numpy(), list(map(float, more[0]))).statistic)
            return -1.0 if np.isnan(found) else found  # vectors that are all alike correlate with nothing
        return (retrieved(x, y) + retrieved(y, x)) / 2


def vectors(tower: Any, context: Context, texts: list[str], partners: list[str] | None = None) -> Tensor:
    """n texts, or pairs read as one -> (n, d)."""
    parts = []
    for start in range(0, len(texts), WINDOW):
        of = slice(start, start + WINDOW)
        read = tower.tokenize(texts[of]) if partners is None else tower.tokenize(texts[of], partners[of])
        parts.append(encode(tower, read, CHUNK, context))
    return torch.cat(parts)


def retrieved(queries: Tensor, keys: Tensor) -> float:
    """Unit rows (n, d) and (n, d), row i the translation of row i -> the share of queries whose nearest key is their own."""
    right = 0
    for start in range(0, len(queries), WINDOW):
        nearest = (queries[start : start + WINDOW] @ keys.T).argmax(dim=1).cpu()
        right += int((nearest == torch.arange(start, start + len(nearest))).sum())
    return right / len(queries)


def _whole(uri: str, columns: Sequence[str]) -> Cells:
    """The columns of a whole file; none of an empty one."""
    parts = list(read_columns(uri, columns))
    return [[cell for part in parts for cell in part[place]] for place in range(len(columns))] if parts else []


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
