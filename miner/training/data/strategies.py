"""Strategies: how the rows of a source become batches of anchors, positives and negatives."""

import logging
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from miner.errors import DataError
from miner.training.data.batches import (
    ANCHOR,
    NEGATIVE,
    POSITIVE,
    Augmentation,
    Batch,
    Floats,
    Ints,
    View,
    add_hard_negatives,
    build_pair_batch,
    group_source_rows,
)
from miner.training.data.datasets import Dataset
from miner.training.data.groups import GroupedPairsStrategy, MultiPositiveStrategy
from miner.training.data.multilingual import CrossLingualNliStrategy, LabelledPairsStrategy
from miner.training.data.nli import NliTriplets
from miner.training.data.paraphrases import ParaphraseStrategy
from miner.training.data.sampling import Sampler
from miner.training.data.source_settings import (
    MinedSettings,
    NliSettings,
    ParallelSettings,
    SourceSettings,
    TripletSettings,
    UnsupervisedSettings,
)

logger = logging.getLogger(__name__)


class Strategy(Protocol):
    """Draws batches from one source. `sampler` holds its whole state."""

    num_examples: int  # per epoch
    sampler: Sampler

    def draw(self, size: int, random: np.random.Generator) -> Batch: ...


class UnsupervisedStrategy:
    """A text is its own positive: two passes, two dropout masks (Gao et al. 2021, section 3)."""

    def __init__(self, dataset: Dataset, settings: UnsupervisedSettings, seed: int, augmentation: Augmentation | None) -> None:
        self.dataset, self.augmentation = dataset, augmentation
        self.groups = group_source_rows(dataset.title, dataset.texts.ids)
        self.sampler = Sampler(dataset.languages(), settings.language_smoothing, seed)
        self.num_examples = len(dataset)

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        rows = self.sampler.draw(size, random)
        texts = self.dataset.texts
        return build_pair_batch(self.dataset.title, View(texts, rows), View(texts, rows, augmentation=self.augmentation), self.groups[rows])


class PairStrategy:
    """The translation is the positive. Mined pairs are filtered by margin and, if `weigh_by_margin` is set, weighted by it."""

    def __init__(self, dataset: Dataset, settings: ParallelSettings | MinedSettings, seed: int, augmentation: Augmentation | None) -> None:
        self.dataset, self.settings, self.augmentation = dataset, settings, augmentation
        self.sources, self.targets = dataset.text_rows("source"), dataset.text_rows("target")
        self.groups = group_source_rows(dataset.title, *(dataset.texts.ids[rows] for rows in (self.sources, self.targets)))
        langs = dataset.languages()
        self.weights: Floats | None = None
        if isinstance(settings, MinedSettings):
            margins = dataset.metadata["margin"].cast("float64").to_numpy()
            kept = margins >= (-np.inf if settings.least_margin is None else settings.least_margin)
            if not kept.any():
                raise DataError(f"{settings.files[0]}: no pair has a margin of {settings.least_margin}; lower least_margin")
            langs = np.where(kept, langs, -1)
            if settings.weigh_by_margin:
                self.weights = (margins / margins[kept].mean()).astype(np.float32)
        self.sampler = Sampler(langs, settings.language_smoothing, seed)
        self.num_examples = int((langs >= 0).sum())

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        rows = self.sampler.draw(size, random)
        sources, targets = self.sources[rows], self.targets[rows]
        is_swapped = random.random(len(rows)) < (0.5 if self.settings.swap else 0)
        anchors, translations = np.where(is_swapped, targets, sources), np.where(is_swapped, sources, targets)
        weights = None if self.weights is None else self.weights[rows]
        anchor_view, positive_view = View(self.dataset.texts, anchors), self._positive_view(anchors, translations)
        ids = (self.dataset.texts.ids[sources], self.dataset.texts.ids[targets])
        fields = {"weights": weights, "translation_ids": ids}
        return build_pair_batch(self.dataset.title, anchor_view, positive_view, self.groups[rows], **fields)

    def _positive_view(self, anchors: Ints, translations: Ints) -> View:
        if self.settings.view == "full_translation":
            return View(self.dataset.texts, translations, augmentation=self.augmentation)
        spans = translations if self.settings.view == "partial_translation" else None
        return View(self.dataset.texts, anchors, translations=spans, augmentation=self.augmentation)


class TripletStrategy:
    """Anchor, positive and hard negative from the columns of a row."""

    def __init__(self, dataset: Dataset, settings: TripletSettings, seed: int, augmentation: Augmentation | None) -> None:
        self.dataset, self.augmentation = dataset, augmentation
        self.role_rows = [dataset.text_rows(role) for role in (ANCHOR, POSITIVE, NEGATIVE)]
        self.groups = group_source_rows(dataset.title, *(dataset.texts.ids[rows] for rows in self.role_rows[:2]))
        self.sampler = Sampler(dataset.languages(), settings.language_smoothing, seed)
        self.num_examples = len(dataset)

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        rows = self.sampler.draw(size, random)
        texts = self.dataset.texts
        anchors, positives, negatives = (role_rows[rows] for role_rows in self.role_rows)
        views = View(texts, anchors), View(texts, positives, augmentation=self.augmentation)
        batch = build_pair_batch(self.dataset.title, *views, self.groups[rows])
        return add_hard_negatives(batch, View(texts, negatives), [texts.ids[anchors], texts.ids[positives]])


class NliStrategy:
    """A premise, a hypothesis that it entails and one that it contradicts, drawn at random (Gao et al. 2021, section 4)."""

    def __init__(self, dataset: Dataset, settings: NliSettings, seed: int, augmentation: Augmentation | None) -> None:
        self.dataset, self.augmentation = dataset, augmentation
        self.premises, self.hypotheses = dataset.text_rows("premise"), dataset.text_rows("hypothesis")
        ids = dataset.texts.ids
        self.triplets = NliTriplets(ids[self.premises], ids[self.hypotheses], dataset, settings.hard_negatives)
        langs = np.full(len(dataset), -1)
        langs[self.triplets.entailed] = dataset.languages()[self.triplets.entailed]
        self.sampler = Sampler(langs, settings.language_smoothing, seed)
        self.num_examples = len(self.triplets.entailed)

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        rows = self.sampler.draw(size, random)
        kept, groups = self.triplets.group_rows(rows, self.triplets.premises[rows], self.triplets.hypotheses[rows])
        rows = rows[kept]
        contradictions = self.triplets.draw_contradictions(rows, random)
        texts = self.dataset.texts
        views = View(texts, self.premises[rows]), View(texts, self.hypotheses[rows], augmentation=self.augmentation)
        batch = build_pair_batch(self.dataset.title, *views, groups)
        if contradictions is None:
            return batch
        id_columns = [self.triplets.premises[rows], self.triplets.hypotheses[rows]]
        return add_hard_negatives(batch, View(texts, self.hypotheses[contradictions]), id_columns)


STRATEGIES: dict[str, Callable[[Dataset, Any, int, Augmentation | None], Strategy]] = {
    "unsupervised": UnsupervisedStrategy,
    "parallel": PairStrategy,
    "mined": PairStrategy,
    "triplets": TripletStrategy,
    "nli": NliStrategy,
    "cross_lingual_nli": CrossLingualNliStrategy,
    "multi_positive": MultiPositiveStrategy,
    "grouped_pairs": GroupedPairsStrategy,
    "labelled_pairs": LabelledPairsStrategy,
    "paraphrases": ParaphraseStrategy,
}


def build_strategy(dataset: Dataset, settings: SourceSettings, seed: int, augmentation: Augmentation | None) -> Strategy:
    """Build the strategy of a source. `augmentation` is applied to positives."""
    strategy = STRATEGIES[str(getattr(settings, "strategy", ""))](dataset, settings, seed, augmentation)
    if settings.limit is not None:
        if settings.limit > strategy.num_examples:
            logger.warning("source %r: limit %d, but only %d examples", dataset.title, settings.limit, strategy.num_examples)
        strategy.num_examples = min(settings.limit, strategy.num_examples)
        strategy.sampler.limit(strategy.num_examples)
    return strategy
