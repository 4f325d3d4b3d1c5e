"""How well a linear classifier identifies the language of a text from its embedding. See docs/evaluation.md for the protocol."""

from typing import Literal

import numpy as np
import pydantic

from miner.config.datasets import TableFile
from miner.encoders import Encoder
from miner.errors import DataError
from miner.evaluation.inputs import encode
from miner.evaluation.scores import EvaluationResult, Score, agreement, figure_table, percent
from miner.evaluation.task_base import BarChart, TaskSettings
from miner.research.datasets.columns import load_columns
from miner.research.tasks.probe import label_items, predict


class LanguageProbeTask(TaskSettings):
    """Measure how well a linear classifier identifies the language from the embedding: the lower, the more language-neutral the encoder.

    \b
    Example:
      miner eval language-probe --data udhr.tsv.gz
    """

    CHART = BarChart(
        groups="languages",
        value="accuracy",
        caption="Share of the texts whose language is identified",
        is_share=True,
    )

    task: Literal["language-probe"] = "language-probe"
    data: TableFile = pydantic.Field(description="Table of texts and their languages.")
    text_column: str = pydantic.Field("text", description="Column of the text.")
    lang_column: str = pydantic.Field("lang", description="Column of the language.")
    per_language: int = pydantic.Field(200, ge=2, description="Maximum number of rows sampled per language, half of them for training.")
    seed: int = pydantic.Field(0, description="Seed of the sample.")

    def evaluate(self, encoder: Encoder) -> EvaluationResult:
        """Train a probe of the language on half of the sample of each language, and test it on the other half.

        Raise DataError if a language has one row only, or there is one language only.
        """
        texts, langs = load_columns(self.data, self.text_column, self.lang_column)
        labels = np.array(langs)
        rows = {lang: np.flatnonzero(labels == lang) for lang in dict.fromkeys(langs)}
        if len(rows) < 2:
            raise DataError(f"{self.data}: all rows are in {langs[0]!r}; give a table of several languages")
        if too_small := [lang for lang, of_language in rows.items() if len(of_language) < 2]:
            raise DataError(f"{self.data}: only one row in {too_small[0]!r}, of two that training and testing need; remove it")
        rng = np.random.default_rng(self.seed)
        samples = [rng.permutation(of_language)[: self.per_language] for of_language in rows.values()]
        train = np.concatenate([sample[len(sample) // 2 :] for sample in samples])
        test = np.concatenate([sample[: len(sample) // 2] for sample in samples])
        vectors = encode(encoder, [texts[row] for row in (*train, *test)], np.float32)
        names, items = label_items(labels[test], predict(vectors[: len(train)], labels[train], [vectors[len(train) :]]))
        by_language = {names[number]: items[items[:, 0] == number] for number in np.unique(items[:, 0])}
        languages = {lang: {"n": len(of_language), "accuracy": agreement(of_language)} for lang, of_language in by_language.items()}
        all_texts = {"n": len(items), "accuracy": agreement(items)}
        chance = 1 / len(languages)
        head = f"trained on {len(train):,} texts; chance {percent(chance)}"
        return EvaluationResult(
            {**all_texts, "trained_on": len(train), "chance": chance, "languages": languages},
            f"{head}\n{figure_table({**languages, 'all': all_texts}, {'n': 'tested', 'accuracy': 'accuracy'})}",
            {"accuracy": Score({"all": items}, agreement)},
        )
