"""Linear probes: what a linear classifier reads off embeddings that stay as they are.

Features are standardised by their mean and deviation in training, so that encoders whose vectors lie close together are not worse
off. The strength of regularisation is what does best on a fifth of the training rows, that the classifier then trains on too: the test rows
decide nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from miner.errors import DataError
from miner.evaluation.inputs import read_columns
from miner.evaluation.scores import Items, Score, agreement, macro_f1, percent, table
from miner.evaluation.settings import ProbeTask

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)  # C: the inverse of regularisation
HELD_OUT = 0.2
TRAIN, TEST = "train", "test"  # what a split column says

Features = npt.NDArray[np.float32]
Labels = npt.NDArray[np.str_]


@dataclass(frozen=True)
class LabelledRows:
    """Some rows of a table: their texts, column by column, their labels and languages."""

    texts: Sequence[Sequence[str]]
    labels: Sequence[str]
    langs: Sequence[str]


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """What a probe found: by language of the test rows, the true label and the predicted one."""

    languages: Mapping[str, Items]  # (n, 2) labels, as numbers
    trained_on: int | None  # rows; None where the classifier came with the encoder
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
                lang: {"n": len(items), **{name: found[lang] for name, found in by_language.items()}, "majority": majority(items)}
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
    """Columns (n, 2): labels and predictions -> the accuracy of always saying the label that most rows have."""
    return float(np.unique(items[:, 0], return_counts=True)[1].max() / len(items))


def read(task: ProbeTask, *text_columns: str) -> tuple[LabelledRows, LabelledRows]:
    """The rows to train on, in the languages chosen, and all rows to test on. DataError where there are none, or of one label alone."""
    assert task.train is not None
    train, test = _read(task, task.train, TRAIN, text_columns), read_test(task, *text_columns)
    if unknown := [lang for lang in task.train_langs if lang not in train.langs]:
        raise DataError(f"{task.train}: no rows to train on in {', '.join(unknown)}; there is {', '.join(dict.fromkeys(train.langs))}")
    if task.train_langs:
        train = _take(train, [lang in task.train_langs for lang in train.langs])
    if len(set(train.labels)) < 2:
        raise DataError(f"{task.train}: all rows to train on are labelled {train.labels[0]!r}; give two labels or more")
    if not set(test.labels) & set(train.labels):
        told = f"{task.test}: no row has a label that is trained on, such as {train.labels[0]!r}"
        raise DataError(f"{told}; give the same labels in both files")
    return train, test


def read_test(task: ProbeTask, *text_columns: str) -> LabelledRows:
    """The rows to test on."""
    return _read(task, task.test, TEST, text_columns)


def _read(task: ProbeTask, uri: str, split: str, text_columns: Sequence[str]) -> LabelledRows:
    labels, langs, splits, *texts = read_columns(uri, task.label_column, task.lang_column, task.split_column, *text_columns)
    rows = LabelledRows(texts, labels, langs)
    if task.split_column is None:
        return rows
    if split not in splits:
        raise DataError(f"{uri}: no row says {split!r} in {task.split_column!r}; name another split column, or give files of their own")
    return _take(rows, [said == split for said in splits])


def _take(rows: LabelledRows, keep: Sequence[bool]) -> LabelledRows:
    def kept(values: Sequence[str]) -> list[str]:
        return [value for value, wanted in zip(values, keep, strict=True) if wanted]

    return LabelledRows([kept(column) for column in rows.texts], kept(rows.labels), kept(rows.langs))


def run(train: Features, test: Iterable[Features], train_rows: LabelledRows, test_rows: LabelledRows) -> ProbeResult:
    """Features (n, f) of the rows to train on, and those to test on in blocks -> what the probe predicts for the latter."""
    predicted = predict(train, np.array(train_rows.labels), test)
    return ProbeResult(by_language(test_rows, predicted), len(train), len(set(train_rows.labels)))


def by_language(rows: LabelledRows, predicted: Labels) -> dict[str, Items]:
    """Rows and the label (n,) predicted for each -> by language (n, 2) the true label and the predicted one, as numbers."""
    items = beside(np.array(rows.labels), predicted)[1]
    langs = np.array(rows.langs)
    return {str(lang): items[langs == lang] for lang in dict.fromkeys(rows.langs)}


def beside(labels: Labels, predicted: Labels) -> tuple[list[str], Items]:
    """(n,) twice -> the names of the labels, and (n, 2) which of them: numbers are compared and drawn faster than strings."""
    names, numbers = np.unique(np.concatenate([labels, predicted]), return_inverse=True)
    return names.tolist(), numbers.reshape(2, -1).T.astype(np.int32)


def predict(train: Features, labels: Labels, test: Iterable[Features]) -> Labels:
    """Features (n, f), their labels (n,), blocks of features (m, f) -> (m,) predicted labels, by multinomial logistic regression."""
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # sums hang on the number of threads, and the figures shall not
        scaler = StandardScaler().fit(train)
        train = scaler.transform(train)
        probe = _fit(train, labels, _strength(train, labels))
        return np.concatenate([probe.predict(scaler.transform(block)) for block in test])


def _strength(train: Features, labels: Labels) -> float:
    """The strength that does best on rows held out, of equally good ones the least; the least where nothing can be held out."""
    from sklearn.model_selection import train_test_split

    fitted, held = train_test_split(np.arange(len(train)), test_size=HELD_OUT, random_state=0) if len(train) > 1 else ([], [])
    if len(np.unique(labels[fitted])) < 2:
        return STRENGTHS[0]
    scores = [float(_fit(train[fitted], labels[fitted], strength).score(train[held], labels[held])) for strength in STRENGTHS]
    return STRENGTHS[int(np.argmax(scores))]


def _fit(train: Features, labels: Labels, strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, max_iter=200, tol=1e-3).fit(train, labels)
