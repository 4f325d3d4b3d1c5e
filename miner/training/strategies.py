"""The strategies: how each turns the rows of a source into batches of anchors, positives and negatives."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from miner.errors import DataError
from miner.training.batches import ANCHOR, NEGATIVE, POSITIVE, Batch, Change, Floats, Ints, View, kin, paired, with_negatives
from miner.training.datasets import Dataset
from miner.training.groups import GroupedPairsStrategy, MultiPositiveStrategy
from miner.training.multilingual import CrossLingualNliStrategy, LabelledPairsStrategy
from miner.training.nli import NliTriplets as NliTriplets
from miner.training.sampling import Sampler
from miner.training.settings import (
    MinedSettings,
    NliSettings,
    ParallelSettings,
    SourceSettings,
    TripletSettings,
    UnsupervisedSettings,
)


class Strategy(Protocol):
    """Examples of one source. `sampler` holds all that changes as they are drawn."""

    count: int  # examples in an epoch
    sampler: Sampler

    def draw(self, size: int, random: np.random.Generator) -> Batch: ...


def languages(corpus: Dataset) -> Ints:
    """(n,) the language of each row of a corpus; all alike where no column tells."""
    return corpus.codes("lang")[0] if "lang" in corpus.marks.column_names else np.zeros(len(corpus), dtype=np.int64)


class UnsupervisedStrategy:
    """A text is its own positive: two passes, two dropout masks (Gao et al. 2021, section 3)."""

    def __init__(self, corpus: Dataset, settings: UnsupervisedSettings, seed: int, change: Change | None) -> None:
        self.corpus, self.change = corpus, change
        self.groups = kin(corpus.title, corpus.texts.ids)
        self.sampler = Sampler(languages(corpus), settings.language_smoothing, seed)
        self.count = len(corpus)

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        rows = self.sampler.draw(size, random)
        texts = self.corpus.texts
        return paired(self.corpus.title, View(texts, rows), View(texts, rows, change=self.change), self.groups[rows])


class PairStrategy:
    """A translation is the positive; of mined pairs those above a margin, weighted by it if asked."""

    def __init__(self, corpus: Dataset, settings: ParallelSettings | MinedSettings, seed: int, change: Change | None) -> None:
        self.corpus, self.change, self.swap, self.view = corpus, change, settings.swap, settings.view
        self.sides = corpus.rows("source"), corpus.rows("target")
        self.groups = kin(corpus.title, *(corpus.texts.ids[rows] for rows in self.sides))
        langs = languages(corpus)
        self.weights: Floats | None = None
        if isinstance(settings, MinedSettings):
            margins = corpus.marks["margin"].cast("float64").to_numpy()
            kept = margins >= (-np.inf if settings.least_margin is None else settings.least_margin)
            if not kept.any():
                raise DataError(f"{settings.files[0]}: no pair has a margin of {settings.least_margin}; lower least_margin")
            langs = np.where(kept, langs, -1)
            if settings.weigh_by_margin:
                self.weights = (margins / margins[kept].mean()).astype(np.float32)
        self.sampler = Sampler(langs, settings.language_smoothing, seed)
        self.count = int((langs >= 0).sum())

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        rows = self.sampler.draw(size, random)
        swapped = random.random(len(rows)) < (0.5 if self.swap else 0)
        anchors, others = (np.where(swapped, a[rows], b[rows]) for a, b in (self.sides[::-1], self.sides))
        weights = None if self.weights is None else self.weights[rows]
        return paired(self.corpus.title, View(self.corpus.texts, anchors), self._view(anchors, others), self.groups[rows], weights=weights)

    def _view(self, anchors: Ints, translations: Ints) -> View:
        """The positives of anchors."""
        if self.view == "full_translation":
            return View(self.corpus.texts, translations, change=self.change)
        spans = translations if self.view == "partial_translation" else None
        return View(self.corpus.texts, anchors, spans=spans, change=self.change)


class TripletStrategy:
    """Anchor, positive and hard negative as the rows have them."""

    def __init__(self, corpus: Dataset, settings: TripletSettings, seed: int, change: Change | None) -> None:
        self.corpus, self.change = corpus, change
        self.roles = [corpus.rows(role) for role in (ANCHOR, POSITIVE, NEGATIVE)]
        self.groups = kin(corpus.title, *(corpus.texts.ids[rows] for rows in self.roles[:2]))
        self.sampler = Sampler(languages(corpus), settings.language_smoothing, seed)
        self.count = len(corpus)

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        rows = self.sampler.draw(size, random)
        anchors, positives, negatives = (View(self.corpus.texts, of[rows]) for of in self.roles)
        positives = View(self.corpus.texts, positives.rows, change=self.change)
        batch = paired(self.corpus.title, anchors, positives, self.groups[rows])
        return with_negatives(batch, negatives, [self.corpus.texts.ids[of[rows]] for of in self.roles[:2]])


class NliStrategy:
    """A premise, a hypothesis it entails and, of those it contradicts, one drawn anew each time (Gao et al. 2021, section 4)."""

    def __init__(self, corpus: Dataset, settings: NliSettings, seed: int, change: Change | None) -> None:
        self.corpus, self.change = corpus, change
        self.premises, self.hypotheses = corpus.rows("premise"), corpus.rows("hypothesis")
        ids = corpus.texts.ids
        self.triplets = NliTriplets(ids[self.premises], ids[self.hypotheses], corpus, settings.hard_negatives)
        langs = np.full(len(corpus), -1)
        langs[self.triplets.entailed] = languages(corpus)[self.triplets.entailed]
        self.sampler = Sampler(langs, settings.language_smoothing, seed)
        self.count = len(self.triplets.entailed)

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        rows = self.sampler.draw(size, random)
        kept, groups = self.triplets.grouped(rows, self.triplets.premises[rows], self.triplets.hypotheses[rows])
        rows = rows[kept]
        contradicted = self.triplets.contradicted(rows, random)
        texts = self.corpus.texts
        anchors, positives = View(texts, self.premises[rows]), View(texts, self.hypotheses[rows], change=self.change)
        batch = paired(self.corpus.title, anchors, positives, groups)
        if contradicted is None:
            return batch
        known = [self.triplets.premises[rows], self.triplets.hypotheses[rows]]
        return with_negatives(batch, View(texts, self.hypotheses[contradicted]), known)


STRATEGIES: dict[str, Callable[[Dataset, Any, int, Change | None], Strategy]] = {
    "unsupervised": UnsupervisedStrategy,
    "parallel": PairStrategy,
    "mined": PairStrategy,
    "triplets": TripletStrategy,
    "nli": NliStrategy,
    "cross_lingual_nli": CrossLingualNliStrategy,
    "multi_positive": MultiPositiveStrategy,
    "grouped_pairs": GroupedPairsStrategy,
    "labelled_pairs": LabelledPairsStrategy,
}


def strategy(corpus: Dataset, settings: SourceSettings, seed: int, change: Change | None) -> Strategy:
    """The strategy a source asks for, on what its files hold; `change` is done to positives."""
    return STRATEGIES[str(getattr(settings, "strategy", ""))](corpus, settings, seed, change)
