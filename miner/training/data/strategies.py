"""Strategies by name: those of single texts, pairs and triplets, and the table of all.

To add a strategy, write its settings and its class side by side, and add an entry to `STRATEGIES`.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Literal, Self

import numpy as np
import pydantic
from pydantic_core import PydanticCustomError

from miner.config.datasets import DatasetFiles
from miner.errors import DataError
from miner.io import storage
from miner.training.data.batches import ANCHOR, NEGATIVE, POSITIVE, Augmentation, Batch, Floats, Ints
from miner.training.data.datasets import Dataset, SourceSettings
from miner.training.data.groups import GroupedPairsSettings, GroupedPairsStrategy, MultiPositiveSettings, MultiPositiveStrategy
from miner.training.data.multilingual import LabelledPairsSettings, LabelledPairsStrategy, ParaphrasesSettings, ParaphraseStrategy
from miner.training.data.nli import CrossLingualNliSettings, CrossLingualNliStrategy, NliSettings, NliStrategy
from miner.training.data.strategy import Strategy

logger = logging.getLogger(__name__)


class UnsupervisedSettings(SourceSettings):
    """SimCSE: the positive of a text is the text itself under another dropout mask. Without `columns`, every line is a text."""

    OPTIONAL_ROLES = ("text", "lang")
    strategy: Literal["unsupervised"]

    @pydantic.model_validator(mode="after")
    def _check_text(self) -> Self:
        if self.columns and "text" not in self.columns:
            raise PydanticCustomError("columns", "no column for 'text'; add it, or remove columns if every line is a text")
        return self


class UnsupervisedStrategy(Strategy):
    """A text is its own positive: two passes, two dropout masks (Gao et al. 2021, section 3)."""

    def number_examples(self) -> Ints:
        self.groups = self.group_rows(self.texts.ids)
        return self.dataset.languages()

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        rows = self.sampler.draw(size, random)
        return self.pair_batch(rows, rows, self.groups[rows])


class ParallelSettings(SourceSettings):
    """Translation pairs. `view` selects the positive: the translation, the text with a span translated, or the unchanged text.

    The unchanged text (`same`) is meant for code switching.
    """

    REQUIRED_ROLES = ("source", "target")
    strategy: Literal["parallel"]
    view: Literal["full_translation", "partial_translation", "same"] = "full_translation"
    swap: bool = pydantic.Field(False, description="Draw the anchor side at random for every example.")


class MinedSettings(SourceSettings):
    """Mined pairs; `files` are output directories of `miner mine`."""

    OPTIONAL_ROLES = ()
    SUPPORTS_SMOOTHING = False
    strategy: Literal["mined"]
    least_margin: float | None = pydantic.Field(None, description="Drop pairs below this margin.")
    weigh_by_margin: bool = pydantic.Field(False, description="Weight pairs by margin, normalised to a mean of 1.")
    swap: bool = pydantic.Field(False, description="Draw the anchor side at random for every example.")
    view: Literal["full_translation", "partial_translation", "same"] = pydantic.Field(
        "full_translation", description="Views of a pair, as for `parallel`."
    )

    @pydantic.model_validator(mode="after")
    def _check_files(self) -> Self:
        if not all(isinstance(name, str) for name in self.files):
            raise PydanticCustomError("files", "mined pairs are output directories of `miner mine`; read a dataset with strategy parallel")
        return self

    @property
    def role_columns(self) -> Mapping[str, str | None]:
        """The columns of a bitext."""
        return {"source": "source_text", "target": "target_text", "margin": "margin"}

    @property
    def tables(self) -> Sequence[str | DatasetFiles]:
        """The bitext of each directory."""
        return [storage.join(str(name), "bitext.parquet") for name in self.files]


class PairStrategy(Strategy):
    """The translation is the positive. Mined pairs are filtered by margin and, if `weigh_by_margin` is set, weighted by it."""

    def number_examples(self) -> Ints:
        self.sources, self.targets = self.dataset.text_rows("source"), self.dataset.text_rows("target")
        self.groups = self.group_rows(self.texts.ids[self.sources], self.texts.ids[self.targets])
        self.weights: Floats | None = None
        if not isinstance(self.settings, MinedSettings):
            return self.dataset.languages()
        margins = self.dataset.metadata["margin"].cast("float64").to_numpy()
        is_kept = margins >= (-np.inf if self.settings.least_margin is None else self.settings.least_margin)
        if not is_kept.any():
            raise DataError(f"{self.settings.files[0]}: no pair has a margin of {self.settings.least_margin}; lower least_margin")
        if self.settings.weigh_by_margin:
            self.weights = (margins / margins[is_kept].mean()).astype(np.float32)
        return np.where(is_kept, self.dataset.languages(), -1)

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        rows = self.sampler.draw(size, random)
        sources, targets = self.sources[rows], self.targets[rows]
        is_swapped = random.random(len(rows)) < (0.5 if self.settings.swap else 0)
        anchors, translations = np.where(is_swapped, targets, sources), np.where(is_swapped, sources, targets)
        spans = translations if self.settings.view == "partial_translation" else None
        is_full = self.settings.view == "full_translation"
        positives = self.positive_view(translations if is_full else anchors, translations=spans)
        weights, ids = None if self.weights is None else self.weights[rows], (self.texts.ids[sources], self.texts.ids[targets])
        return self.pair_batch(anchors, positives, self.groups[rows], weights=weights, translation_ids=ids)


class TripletSettings(SourceSettings):
    """Triplets of anchor, positive and hard negative, one per row."""

    REQUIRED_ROLES = ("anchor", "positive", "negative")
    strategy: Literal["triplets"]


class TripletStrategy(Strategy):
    """Anchor, positive and hard negative from the columns of a row."""

    def number_examples(self) -> Ints:
        self.role_rows = [self.dataset.text_rows(role) for role in (ANCHOR, POSITIVE, NEGATIVE)]
        self.groups = self.group_rows(*(self.texts.ids[rows] for rows in self.role_rows[:2]))
        return self.dataset.languages()

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        rows = self.sampler.draw(size, random)
        anchors, positives, negatives = (role_rows[rows] for role_rows in self.role_rows)
        batch = self.pair_batch(anchors, positives, self.groups[rows])
        return self.add_hard_negatives(batch, negatives, [self.texts.ids[anchors], self.texts.ids[positives]])


STRATEGIES: dict[str, tuple[type[SourceSettings], type[Strategy]]] = {
    "unsupervised": (UnsupervisedSettings, UnsupervisedStrategy),
    "parallel": (ParallelSettings, PairStrategy),
    "mined": (MinedSettings, PairStrategy),
    "triplets": (TripletSettings, TripletStrategy),
    "nli": (NliSettings, NliStrategy),
    "cross_lingual_nli": (CrossLingualNliSettings, CrossLingualNliStrategy),
    "multi_positive": (MultiPositiveSettings, MultiPositiveStrategy),
    "grouped_pairs": (GroupedPairsSettings, GroupedPairsStrategy),
    "labelled_pairs": (LabelledPairsSettings, LabelledPairsStrategy),
    "paraphrases": (ParaphrasesSettings, ParaphraseStrategy),
}


def build_strategy(dataset: Dataset, settings: SourceSettings, seed: int, augmentation: Augmentation | None) -> Strategy:
    """Build the strategy of a source. `augmentation` is applied to positives."""
    strategy = STRATEGIES[settings.strategy][1](dataset, settings, seed, augmentation)
    if settings.limit is not None:
        if settings.limit > strategy.num_examples:
            logger.warning("source %r: limit %d, but only %d examples", dataset.title, settings.limit, strategy.num_examples)
        strategy.num_examples = min(settings.limit, strategy.num_examples)
        strategy.sampler.limit(strategy.num_examples)
    return strategy
