"""Strategies over translation groups: the texts of a group have the same meaning, in any number of languages."""

import numpy as np

from miner.errors import DataError
from miner.training.data.batches import ANCHOR, POSITIVE, Augmentation, Batch, Ints, View, build_pair_batch, group_source_rows
from miner.training.data.datasets import Dataset
from miner.training.data.sampling import Sampler
from miner.training.data.source_settings import GroupedPairsSettings, MultiPositiveSettings


class TranslationGroups:
    """Rows by group: `group` (n,) numbers groups from 0; the rows of group g are `order[bounds[g]:bounds[g + 1]]`.

    `meaning` (n,) numbers rows of the same meaning: those of groups that share a text, directly or through other groups.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.lang, self.languages = dataset.encode_column("lang")
        self.group = dataset.encode_column("group")[0]
        self.meaning = group_source_rows(dataset.title, dataset.texts.ids, self.group)
        self.order = np.argsort(self.group, kind="stable")
        self.bounds = np.searchsorted(self.group[self.order], np.arange(int(self.group.max()) + 2))
        self.sizes = np.diff(self.bounds)
        if self.sizes.max() < 2:
            raise DataError(
                f"source {dataset.title!r}: no group has two texts, so there are no pairs to learn from; check its column group"
            )

    def rows_of(self, group: int) -> Ints:
        return self.order[self.bounds[group] : self.bounds[group + 1]]


class MultiPositiveStrategy:
    """One text of a group is the anchor, its language drawn uniformly; all others, or some, are its positives (Zhao et al. 2024).

    With `pairs`, the baseline of the paper, the texts of a group are divided into pairs instead, and every text is in one pair.
    """

    def __init__(self, dataset: Dataset, settings: MultiPositiveSettings, seed: int, augmentation: Augmentation | None) -> None:
        self.dataset, self.settings, self.augmentation = dataset, settings, augmentation
        self.groups = TranslationGroups(dataset)
        self.meaning = self.groups.meaning[self.groups.order[self.groups.bounds[:-1]]]  # by group
        self.pairs = self._divide_into_pairs(seed) if settings.pairs else None  # (p, 2) rows
        examples = np.where(self.groups.sizes > 1, 0, -1) if self.pairs is None else np.zeros(len(self.pairs), dtype=np.int64)
        self.sampler = Sampler(examples, 1.0, seed)
        self.num_examples = int((examples == 0).sum())

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        if self.pairs is not None:
            return self._draw_pairs(self.pairs[self.sampler.draw(size, random)])
        groups = self.sampler.draw(size, random)
        anchors, positives = zip(*(self._split(int(group), random) for group in groups), strict=True)
        owners = np.repeat(np.arange(len(groups)), list(map(len, positives)))
        texts = self.dataset.texts
        views = {
            ANCHOR: View(texts, np.array(anchors)),
            POSITIVE: View(texts, np.concatenate(positives), augmentation=self.augmentation),
        }
        return Batch(self.dataset.title, views, self.meaning[groups], owners)

    def _divide_into_pairs(self, seed: int) -> Ints:
        """Return rows (p, 2): the texts of each group in pairs, in random order; the last of an odd number is left out."""
        order = np.lexsort((np.random.default_rng([seed, len(self.dataset)]).permutation(len(self.dataset)), self.groups.group))
        offsets = np.arange(len(order)) - np.repeat(self.groups.bounds[:-1], self.groups.sizes)
        is_paired = offsets < np.repeat(self.groups.sizes // 2 * 2, self.groups.sizes)
        return order[is_paired].reshape(-1, 2)

    def _draw_pairs(self, pairs: Ints) -> Batch:
        texts = self.dataset.texts
        views = View(texts, pairs[:, 0]), View(texts, pairs[:, 1], augmentation=self.augmentation)
        return build_pair_batch(self.dataset.title, *views, self.groups.meaning[pairs[:, 0]])

    def _split(self, group: int, random: np.random.Generator) -> tuple[int, Ints]:
        """Draw the anchor and the positives of a group."""
        rows = self.groups.rows_of(group)
        langs = np.unique(self.groups.lang[rows])
        anchor = random.choice(rows[self.groups.lang[rows] == random.choice(langs)])
        positives = random.permutation(rows[rows != anchor])
        return int(anchor), positives[: self.settings.positives]


class GroupedPairsStrategy:
    """Pairs in blocks whose anchors share one language, so that language does not distinguish positives from negatives.

    Languages are drawn with probability proportional to count ** language_smoothing. The positive is the group's text in the pivot
    language (English by default) or, for a share `1 - pivot_share` of the anchors, a text of the group in any other language. Pivot texts
    are never anchors.
    """

    def __init__(self, dataset: Dataset, settings: GroupedPairsSettings, seed: int, augmentation: Augmentation | None) -> None:
        self.dataset, self.settings, self.augmentation = dataset, settings, augmentation
        self.groups = groups = TranslationGroups(dataset)
        pivot = groups.languages.index(settings.pivot) if settings.pivot in groups.languages else -1
        self.pivot_rows = np.full(len(groups.sizes), -1, dtype=np.int64)  # by group; -1: no text in the pivot language
        rows = np.flatnonzero(groups.lang == pivot)
        self.pivot_rows[groups.group[rows]] = rows
        ordered_langs, starts = groups.lang[groups.order], groups.bounds[:-1]
        is_multilingual = np.minimum.reduceat(ordered_langs, starts) < np.maximum.reduceat(ordered_langs, starts)
        is_anchor = (groups.lang != pivot) & is_multilingual[groups.group]
        if not is_anchor.any():
            raise DataError(f"source {dataset.title!r}: no group has texts in two languages; check its columns group and lang")
        self.sampler = Sampler(np.where(is_anchor, groups.lang, -1), settings.language_smoothing, seed)
        self.num_examples = int(is_anchor.sum())

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        """Draw blocks of up to `block_size` pairs. Pairs within one language are dropped, so a block may be smaller."""
        blocks: list[tuple[Ints, Ints]] = []
        while not blocks:
            for start in range(0, size, self.settings.block_size):
                lang = self.sampler.draw_language(random)
                anchors = self.sampler.take(lang, min(self.settings.block_size, size - start))
                positives = self._draw_positives(anchors, random)
                usable = self.groups.lang[positives] != lang
                if usable.any():
                    blocks.append((anchors[usable], positives[usable]))
        anchors, positives = (np.concatenate(side) for side in zip(*blocks, strict=True))
        texts, sizes = self.dataset.texts, tuple(len(block_anchors) for block_anchors, _ in blocks)
        views = View(texts, anchors), View(texts, positives, augmentation=self.augmentation)
        return build_pair_batch(self.dataset.title, *views, self.groups.meaning[anchors], blocks=sizes)

    def _draw_positives(self, anchors: Ints, random: np.random.Generator) -> Ints:
        group = self.groups.group[anchors]
        pivots = self.pivot_rows[group]
        starts, ends = self.groups.bounds[group], self.groups.bounds[group + 1]
        others = self.groups.order[starts + (random.random(len(anchors)) * (ends - starts)).astype(np.int64)]
        is_translation = self.groups.lang[others] != self.groups.lang[anchors]
        use_other = (random.random(len(anchors)) >= self.settings.pivot_share) & is_translation
        return np.where((pivots < 0) | use_other, others, pivots)
