"""Strategies over groups of translations: the rows of a group say the same, in as many languages as there are."""

import numpy as np

from miner.errors import DataError
from miner.training.batches import ANCHOR, POSITIVE, Batch, Change, Ints, View, kin, paired
from miner.training.datasets import Dataset
from miner.training.sampling import Sampler
from miner.training.settings import GroupedPairsSettings, MultiPositiveSettings


class TranslationGroups:
    """Rows by group: `group` (n,) numbers from 0, and the rows of group g are `order[bounds[g]:bounds[g + 1]]`.

    `same` (n,) numbers what says the same: groups that share a text, directly or through others, do.
    """

    def __init__(self, corpus: Dataset) -> None:
        self.lang, self.languages = corpus.codes("lang")
        self.group = corpus.codes("group")[0]
        self.same = kin(corpus.title, corpus.texts.ids, self.group)
        self.order = np.argsort(self.group, kind="stable")
        self.bounds = np.searchsorted(self.group[self.order], np.arange(int(self.group.max()) + 2))
        self.sizes = np.diff(self.bounds)
        if self.sizes.max() < 2:
            raise DataError(f"source {corpus.title!r}: no group holds two texts, so there is nothing to learn from; check its column group")

    def of(self, group: int) -> Ints:
        return self.order[self.bounds[group] : self.bounds[group + 1]]


class MultiPositiveStrategy:
    """One text of a group is the anchor, every language equally likely; the others, or some, are its positives (Zhao et al. 2024)."""

    def __init__(self, corpus: Dataset, settings: MultiPositiveSettings, seed: int, change: Change | None) -> None:
        self.corpus, self.settings, self.change = corpus, settings, change
        self.groups = TranslationGroups(corpus)
        self.same = self.groups.same[self.groups.order[self.groups.bounds[:-1]]]
        self.sampler = Sampler(np.where(self.groups.sizes > 1, 0, -1), 1.0, seed)
        self.count = int((self.groups.sizes > 1).sum())

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        drawn = self.sampler.draw(size, random)
        anchors, positives = zip(*(self._split(int(group), random) for group in drawn), strict=True)
        owners = np.repeat(np.arange(len(drawn)), list(map(len, positives)))
        texts = self.corpus.texts
        views = {ANCHOR: View(texts, np.array(anchors)), POSITIVE: View(texts, np.concatenate(positives), change=self.change)}
        return Batch(self.corpus.title, views, self.same[drawn], owners)

    def _split(self, group: int, random: np.random.Generator) -> tuple[int, Ints]:
        """The anchor and the positives of a group."""
        rows = self.groups.of(group)
        langs = np.unique(self.groups.lang[rows])
        anchor = random.choice(rows[self.groups.lang[rows] == random.choice(langs)])
        others = random.permutation(rows[rows != anchor])
        return int(anchor), others[: self.settings.positives]


class GroupedPairsStrategy:
    """Pairs of which the anchors of a block are all of one language, so that negatives are told apart by what they say.

    Languages are drawn with probability count ** smoothing. The positive is the group's pivot text (English, mostly) or, for
    `1 - pivot_share` of the anchors, a text of the group in any other language. The pivot itself is never the anchor.
    """

    def __init__(self, corpus: Dataset, settings: GroupedPairsSettings, seed: int, change: Change | None) -> None:
        self.corpus, self.settings, self.change = corpus, settings, change
        self.groups = groups = TranslationGroups(corpus)
        pivot = groups.languages.index(settings.pivot) if settings.pivot in groups.languages else -1
        self.pivots = np.full(len(groups.sizes), -1, dtype=np.int64)
        rows = np.flatnonzero(groups.lang == pivot)
        self.pivots[groups.group[rows]] = rows
        ordered, starts = groups.lang[groups.order], groups.bounds[:-1]
        several = np.minimum.reduceat(ordered, starts) < np.maximum.reduceat(ordered, starts)
        anchors = (groups.lang != pivot) & several[groups.group]
        if not anchors.any():
            raise DataError(f"source {corpus.title!r}: no group holds texts of two languages; check its columns group and lang")
        self.sampler = Sampler(np.where(anchors, groups.lang, -1), settings.language_smoothing, seed)
        self.count = int(anchors.sum())

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        """Blocks of up to `block_size` pairs; a pair drawn within one language is left out, so a block may be smaller."""
        blocks: list[tuple[Ints, Ints]] = []
        while not blocks:
            for start in range(0, size, self.settings.block_size):
                lang = self.sampler.lang(random)
                anchors = self.sampler.take(lang, min(self.settings.block_size, size - start))
                positives = self._positives(anchors, random)
                usable = self.groups.lang[positives] != lang
                if usable.any():
                    blocks.append((anchors[usable], positives[usable]))
        anchors, positives = (np.concatenate(side) for side in zip(*blocks, strict=True))
        texts, sizes = self.corpus.texts, tuple(len(of) for of, _ in blocks)
        views = View(texts, anchors), View(texts, positives, change=self.change)
        return paired(self.corpus.title, *views, self.groups.same[anchors], blocks=sizes)

    def _positives(self, anchors: Ints, random: np.random.Generator) -> Ints:
        group = self.groups.group[anchors]
        pivots = self.pivots[group]
        first, last = self.groups.bounds[group], self.groups.bounds[group + 1]
        others = self.groups.order[first + (random.random(len(anchors)) * (last - first)).astype(np.int64)]
        other = (random.random(len(anchors)) >= self.settings.pivot_share) & (self.groups.lang[others] != self.groups.lang[anchors])
        return np.where((pivots < 0) | other, others, pivots)
