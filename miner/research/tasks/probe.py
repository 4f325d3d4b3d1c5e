"""Linear probes: a linear classifier on frozen embeddings. See docs/evaluation.md for the protocol.

Features are standardised by their mean and deviation in training, so encoders with anisotropic vectors are not at a disadvantage. The
regularisation strength is the best one on a held-out fifth of the training rows; the final classifier is trained on all of them. The test
rows influence nothing. With `samples_per_label` the protocol is MTEB's: several classifiers per language, each of a few texts.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import Any, Literal, Self

import numpy as np
import pydantic
from pydantic_core import PydanticCustomError

from miner.arrays import Floats32
from miner.config.base import Strings
from miner.config.datasets import DatasetFiles, TableFile
from miner.encoders import Encoder
from miner.errors import DataError, require
from miner.evaluation.inputs import encode
from miner.evaluation.scores import EvaluationResult, Items, Score, agreement, figure_table, macro_f1
from miner.evaluation.task_base import BarChart, TaskSettings
from miner.research.datasets.columns import load_columns
from miner.training.steps.few_shot import EXPERIMENTS, Labels, predict_from_samples

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)  # C of scikit-learn: the inverse of the regularisation strength
HELD_OUT_SHARE = 0.2
TRAIN, TEST = "train", "test"  # values of a split column


@dataclass(frozen=True)
class LabelledRows:
    """Rows of a table: texts column by column, labels and languages."""

    texts: Sequence[Sequence[str]]
    labels: Sequence[str]
    langs: Sequence[str]


class ProbeTask(TaskSettings):
    """A task that trains a classifier on some rows and tests it on others."""

    CHART = BarChart(groups="languages", value="accuracy", caption="Accuracy", is_share=True)
    PATHS = ("train", "test")

    train: TableFile | None
    test: TableFile = pydantic.Field(description="Table of the test rows; may be that of the training rows, with --split-column.")
    label_column: str = pydantic.Field("label", description="Column of the label.")
    lang_column: str | None = pydantic.Field(None, description="Column of the language; results are reported by language.")
    split_column: str | None = pydantic.Field(None, description="Column that says `train` or `test`; other rows are ignored.")
    train_langs: Strings = pydantic.Field((), description="Train on this language only; may be repeated.")

    @pydantic.model_validator(mode="after")
    def _check_langs(self) -> Self:
        if self.train_langs and self.lang_column is None:
            raise PydanticCustomError("lang_column", "--train-lang requires a language column; give --lang-column")
        return self


class ClassificationTask(ProbeTask):
    """Measure the accuracy of a linear classifier of texts on frozen embeddings.

    \b
    Example:
      miner eval classification --train news.tsv --test news.tsv --split-column split --lang-column lang --train-lang eng
    """

    task: Literal["classification"] = "classification"
    train: TableFile = pydantic.Field(description="Table of the training rows.")
    text_column: str = pydantic.Field("text", description="Column of the text.")
    samples_per_label: int | None = pydantic.Field(
        None, ge=1, description="Train on this number of texts per label and language, several times, as MTEB does with 8."
    )
    experiments: int = pydantic.Field(
        EXPERIMENTS, ge=1, description="Number of trainings with --samples-per-label; figures are their means."
    )

    @pydantic.model_validator(mode="after")
    def _check_samples(self) -> Self:
        if self.samples_per_label is not None and self.train_langs:
            raise PydanticCustomError("train_langs", "--samples-per-label trains in each language of the test rows; leave out --train-lang")
        return self

    def evaluate(self, encoder: Encoder) -> EvaluationResult:
        """Classify texts by a probe of their embeddings. Raise DataError as `read_rows` does, or for a language without two labels."""
        train, test = read_rows(self, self.text_column)
        if self.samples_per_label is not None:
            return self._evaluate_from_samples(encoder, train, test, self.samples_per_label)
        vectors = encode(encoder, [*train.texts[0], *test.texts[0]], np.float32)
        predicted = predict(vectors[: len(train.labels)], np.array(train.labels), [vectors[len(train.labels) :]])
        return summarise(test, predicted, len(set(train.labels)), len(train.labels))

    def _evaluate_from_samples(self, encoder: Encoder, train: LabelledRows, test: LabelledRows, num_samples: int) -> EvaluationResult:
        predicted, num_trained = np.empty((len(test.labels), self.experiments), object), 0
        for lang in dict.fromkeys(test.langs):
            of_lang, is_tested = _select(train, [other == lang for other in train.langs]), np.array(test.langs) == lang
            if len(set(of_lang.labels)) < 2:
                raise DataError(f"{self.train}: no two labels in {lang!r}, a language of {self.test}; add training rows, or remove it")
            texts, labels = list(compress(test.texts[0], is_tested)), np.array(of_lang.labels)
            predicted[is_tested] = predict_from_samples(
                partial(encode, encoder, dtype=np.float32), of_lang.texts[0], labels, texts, num_samples, self.experiments
            )
            num_trained += sum(min(count, num_samples) for count in Counter(of_lang.labels).values())
        return summarise(test, predicted.astype(np.str_), len(set(train.labels)), num_trained)


def summarise(rows: LabelledRows, predicted: Labels, num_classes: int, trained_on: int | None) -> EvaluationResult:
    """Report accuracy and macro F1 of the labels (n,) or (n, e) that are predicted for rows, by language and their means.

    `trained_on` is the number of training rows, None if the classifier came with the encoder.
    """
    items, langs = label_items(np.array(rows.labels), predicted)[1], np.array(rows.langs)
    languages = {str(lang): items[langs == lang] for lang in dict.fromkeys(rows.langs)}
    scores = {"accuracy": Score(languages, agreement), "macro_f1": Score(languages, macro_f1)}
    figures = {
        lang: {"n": len(items), **{name: score.statistic(items) for name, score in scores.items()}, "majority": majority(items)}
        for lang, items in languages.items()
    }
    mean = {name: score.average(row[name] for row in figures.values()) for name, score in scores.items()}
    head = ("" if trained_on is None else f"trained on {trained_on:,} rows, ") + f"{num_classes} classes"
    columns = {"n": "tested", "accuracy": "accuracy", "macro_f1": "macro F1", "majority": "majority"}
    return EvaluationResult(
        {"trained_on": trained_on, "classes": num_classes, "languages": figures, "mean": mean},
        f"{head}\n{figure_table({**figures, **({'mean': mean} if len(languages) > 1 else {})}, columns)}",
        {"accuracy": scores["accuracy"]},
    )


def majority(items: Items) -> float:
    """True labels and predicted ones (n, 1 + e) -> the accuracy of always predicting the most frequent label."""
    return float(np.unique(items[:, 0], return_counts=True)[1].max() / len(items))


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
    labels, langs, *texts = (list(compress(column, is_selected)) for column in (rows.labels, rows.langs, *rows.texts))
    return LabelledRows(texts, labels, langs)


def label_items(labels: Labels, predicted: Labels) -> tuple[list[str], Items]:
    """Labels (n,), predicted ones (n,) or (n, e) -> their names, and (n, 1 + e) their numbers: these resample faster than strings."""
    names, numbers = np.unique(np.column_stack([labels, predicted]), return_inverse=True)
    return names.tolist(), numbers.reshape(len(labels), -1).astype(np.int32)


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
