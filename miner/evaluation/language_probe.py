"""How well a linear classifier identifies the language of a text from its embedding. See docs/evaluation.md for the protocol."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from miner.encoders import Encoder
from miner.errors import DataError
from miner.evaluation import probe
from miner.evaluation.inputs import encode, load_columns
from miner.evaluation.label_tasks import LanguageProbeTask
from miner.evaluation.scores import Items, Score, agreement, percent, table


@dataclass(frozen=True, eq=False)
class LanguageProbeResult:
    """The result of `miner eval language-probe`."""

    names: Sequence[str]  # of the languages
    items: Items  # (n, 2) the true language of each test text and the predicted one, as numbers
    trained_on: int  # texts

    def _languages(self) -> dict[str, Items]:
        return {self.names[number]: self.items[self.items[:, 0] == number] for number in np.unique(self.items[:, 0])}

    def scores(self) -> dict[str, Score]:
        return {"accuracy": Score({"all": self.items}, agreement)}

    def figures(self) -> dict[str, Any]:
        languages = self._languages()
        return {
            "n": len(self.items),
            "trained_on": self.trained_on,
            "accuracy": agreement(self.items),
            "chance": 1 / len(languages),
            "languages": {lang: {"n": len(items), "accuracy": agreement(items)} for lang, items in languages.items()},
        }

    def summary(self) -> str:
        figures = self.figures()
        rows = {lang: [str(row["n"]), percent(row["accuracy"])] for lang, row in figures["languages"].items()}
        head = f"trained on {self.trained_on:,} texts; chance {percent(figures['chance'])}"
        return f"{head}\n{table(['tested', 'accuracy'], {**rows, 'all': [str(len(self.items)), percent(figures['accuracy'])]})}"


def evaluate(encoder: Encoder, task: LanguageProbeTask) -> LanguageProbeResult:
    """Train a probe of the language on half of the sample of each language, and test it on the other half.

    Raise DataError if a language has one row only, or there is one language only.
    """
    texts, langs = load_columns(task.data, task.text_column, task.lang_column)
    labels = np.array(langs)
    rows = {lang: np.flatnonzero(labels == lang) for lang in dict.fromkeys(langs)}
    if len(rows) < 2:
        raise DataError(f"{task.data}: all rows are in {langs[0]!r}; give a table of several languages")
    if too_small := [lang for lang, of_language in rows.items() if len(of_language) < 2]:
        raise DataError(f"{task.data}: only one row in {too_small[0]!r}, of two that training and testing need; remove it")
    rng = np.random.default_rng(task.seed)
    samples = [rng.permutation(of_language)[: task.per_language] for of_language in rows.values()]
    train = np.concatenate([sample[len(sample) // 2 :] for sample in samples])
    test = np.concatenate([sample[: len(sample) // 2] for sample in samples])
    vectors = encode(encoder, [texts[row] for row in (*train, *test)], np.float32)
    predicted = probe.predict(vectors[: len(train)], labels[train], [vectors[len(train) :]])
    return LanguageProbeResult(*probe.label_items(labels[test], predicted), len(train))
