"""Linear probes: a linear classifier on frozen embeddings. See docs/evaluation.md for the protocol.

Features are standardised by their mean and deviation in training, so encoders with anisotropic vectors are not at a disadvantage. The
regularisation strength is the best one on a held-out fifth of the training rows; the final classifier is trained on all of them. The test
rows influence nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from miner.arrays import Floats32
from miner.config.datasets import DatasetFiles
from miner.encoders import Encoder
from miner.errors import DataError, require
from miner.evaluation.inputs import encode, load_columns
from miner.evaluation.label_tasks import ClassificationTask
from miner.evaluation.scores import Items, Score, agreement, macro_f1, percent, table
from miner.evaluation.task_base import ProbeTask

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)  # C of scikit-learn: the inverse of the regularisation strength
HELD_OUT_SHARE = 0.2
TRAIN, TEST = "train", "test"  # values of a split column

Labels = npt.NDArray[np.str_]


@dataclass(frozen=True)
class LabelledRows:
    """Rows of a table: texts column by column, labels and languages."""

    texts: Sequence[Sequence[str]]
    labels: Sequence[str]
    langs: Sequence[str]


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """The result of a classifier."""

    languages: Mapping[str, Items]  # by language of the test rows: (n, 2) the true label and the predicted one, as numbers
    trained_on: int | None  # rows; None if the classifier came with the encoder
    classes: int

    def scores(self) -> dict[str, Score]:
        return {"accuracy": Score(self.languages, agreement)}

    def figures(self) -> dict[str, Any]:
        scores = {"accuracy": Score(self.languages, agreement), "macro_f1": Score(self.languages, macro_f1)}
        by_language = {name: score.by_group for name, score in scores.items()}
        return {
            "trained_on": self.trained_on,
            "classes": self.classes,
            "languages": {
                lang: {"n": len(items), **{name: values[lang] for name, values in by_language.items()}, "majority": majority(items)}
                for lang, items in self.languages.items()
            },
            "mean": {name: score.value for name, score in scores.items()},
        }

    def summary(self) -> str:
        figures = self.figures()
        rows = {**figures["languages"], **({"mean": figures["mean"]} if len(self.languages) > 1 else {})}
        cells = {
            name: [str(row.get("n", "")), *(percent(row[head]) if head in row else "" for head in ("accuracy", "macro_f1", "majority"))]
            for name, row in rows.items()
        }
        head = ("" if self.trained_on is None else f"trained on {self.trained_on:,} rows, ") + f"{self.classes} classes"
        return f"{head}\n{table(['tested', 'accuracy', 'macro F1', 'majority'], cells)}"


def majority(items: Items) -> float:
    """True and predicted labels (n, 2) -> the accuracy of always predicting the most frequent label."""
    return float(np.unique(items[:, 0], return_counts=True)[1].max() / len(items))


def evaluate(encoder: Encoder, task: ClassificationTask) -> ProbeResult:
    """Classify texts by a probe of their embeddings. Raise DataError as `read_rows` does."""
    train, test = read_rows(task, task.text_column)
    vectors = encode(encoder, [*train.texts[0], *test.texts[0]], np.float32)
    return classify(vectors[: len(train.labels)], [vectors[len(train.labels) :]], train, test)


def read_rows(task: ProbeTask, *text_columns: str) -> tuple[LabelledRows, LabelledRows]:
    """Return the training rows, in the chosen languages, and all test rows.

    Raise DataError if there are no rows, the training rows have one label only, or the test rows have none of their labels.
    """
    assert task.train is not None
    train, test = _read_split(task, task.train, TRAIN, text_columns), read_test_rows(task, *text_columns)
    if unknown := [lang for lang in task.train_langs if lang not in train.langs]:
        raise DataError(f"{task.train}: no training rows in {', '.join(unknown)}; choose from {', '.join(dict.fromkeys(train.langs))}")
    if task.train_langs:
        train = _select(train, [lang in task.train_langs for lang in train.langs])
    if len(set(train.labels)) < 2:
        raise DataError(f"{task.train}: all training rows are labelled {train.labels[0]!r}; give two labels or more")
    if not set(test.labels) & set(train.labels):
        missing = f"{task.test}: no test row has a label of the training rows, such as {train.labels[0]!r}"
        raise DataError(f"{missing}; give the same labels in both files")
    return train, test


def read_test_rows(task: ProbeTask, *text_columns: str) -> LabelledRows:
    return _read_split(task, task.test, TEST, text_columns)


def _read_split(task: ProbeTask, uri: str | DatasetFiles, split: str, text_columns: Sequence[str]) -> LabelledRows:
    labels, langs, splits, *texts = load_columns(uri, task.label_column, task.lang_column, task.split_column, *text_columns)
    rows = LabelledRows(texts, labels, langs)
    if task.split_column is None:
        return rows
    if split not in splits:
        raise DataError(f"{uri}: no row says {split!r} in {task.split_column!r}; name another split column, or give two files")
    return _select(rows, [value == split for value in splits])


def _select(rows: LabelledRows, is_selected: Sequence[bool]) -> LabelledRows:
    def select(values: Sequence[str]) -> list[str]:
        return [value for value, selected in zip(values, is_selected, strict=True) if selected]

    return LabelledRows([select(column) for column in rows.texts], select(rows.labels), select(rows.langs))


def classify(train: Floats32, test_blocks: Iterable[Floats32], train_rows: LabelledRows, test_rows: LabelledRows) -> ProbeResult:
    """Train a probe on features (n, f) and test it on blocks of features (m, f)."""
    predicted = predict(train, np.array(train_rows.labels), test_blocks)
    return ProbeResult(items_by_language(test_rows, predicted), len(train), len(set(train_rows.labels)))


def items_by_language(rows: LabelledRows, predicted: Labels) -> dict[str, Items]:
    """Rows and their predicted labels (n,) -> by language (n, 2) the true label and the predicted one, as numbers."""
    items = label_items(np.array(rows.labels), predicted)[1]
    langs = np.array(rows.langs)
    return {str(lang): items[langs == lang] for lang in dict.fromkeys(rows.langs)}


def label_items(labels: Labels, predicted: Labels) -> tuple[list[str], Items]:
    """True and predicted labels, (n,) each -> the names of the labels, and (n, 2) their numbers: these resample faster than strings."""
    names, numbers = np.unique(np.concatenate([labels, predicted]), return_inverse=True)
    return names.tolist(), numbers.reshape(2, -1).T.astype(np.int32)


def predict(train: Floats32, labels: Labels, test_blocks: Iterable[Floats32]) -> Labels:
    """Features (n, f), their labels (n,), blocks of features (m, f) -> (m,) predicted labels, by multinomial logistic regression."""
    StandardScaler = require("sklearn.preprocessing").StandardScaler
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # floating-point sums depend on the number of threads
        scaler = StandardScaler().fit(train)
        train = scaler.transform(train)
        probe = _fit(train, labels, _best_strength(train, labels))
        return np.concatenate([probe.predict(scaler.transform(block)) for block in test_blocks])


def _best_strength(train: Floats32, labels: Labels) -> float:
    """Return the C with the best accuracy on held-out rows, of equal ones the smallest; the smallest if too few rows can be held out."""
    train_test_split = require("sklearn.model_selection").train_test_split

    fit_rows, held_out = train_test_split(np.arange(len(train)), test_size=HELD_OUT_SHARE, random_state=0) if len(train) > 1 else ([], [])
    if len(np.unique(labels[fit_rows])) < 2:
        return STRENGTHS[0]
    accuracies = [
        float(_fit(train[fit_rows], labels[fit_rows], strength).score(train[held_out], labels[held_out])) for strength in STRENGTHS
    ]
    return STRENGTHS[int(np.argmax(accuracies))]


def _fit(train: Floats32, labels: Labels, strength: float) -> Any:
    LogisticRegression = require("sklearn.linear_model").LogisticRegression

    return LogisticRegression(C=strength, max_iter=200, tol=1e-3).fit(train, labels)
