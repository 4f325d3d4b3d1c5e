"""How well a linear classifier tells the language of a text from its embedding. See docs/evaluation.md for the protocol."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from miner.encoders import Encoder
from miner.errors import DataError
from miner.evaluation import probe
from miner.evaluation.inputs import encode, read_columns
from miner.evaluation.scores import Items, Score, agreement, percent, table
from miner.evaluation.settings import LanguageProbeTask


@dataclass(frozen=True, eq=False)
class LanguageProbeResult:
    """What `miner eval language-probe` found: the language of each text tested, and the predicted one."""

    names: Sequence[str]  # of the languages
    items: Items  # (n, 2) which of them
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
    """A table of texts and languages -> how well a probe tells them: half of what is drawn of each is to train on, half to test on.

    DataError where a language has one row alone, or there is one language.
    """
    texts, langs = read_columns(task.data, task.text_column, task.lang_column)
    rows = {lang: np.flatnonzero([other == lang for other in langs]) for lang in dict.fromkeys(langs)}
    if len(rows) < 2:
        raise DataError(f"{task.data}: all rows are in {langs[0]!r}; give a table of several languages")
    if short := [lang for lang, where in rows.items() if len(where) < 2]:
        raise DataError(f"{task.data}: one row alone in {short[0]!r}, where one is to train on and one to test on; take it out")
    chance = np.random.default_rng(task.seed)
    drawn = [chance.permutation(where)[: task.per_language] for where in rows.values()]
    train = np.concatenate([some[len(some) // 2 :] for some in drawn])
    test = np.concatenate([some[: len(some) // 2] for some in drawn])
    vectors = encode(encoder, [texts[row] for row in (*train, *test)], np.float32)
    labels = np.array(langs)
    predicted = probe.predict(vectors[: len(train)], labels[train], [vectors[len(train) :]])
    return LanguageProbeResult(*probe.beside(labels[test], predicted), len(train))
