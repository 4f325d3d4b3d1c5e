"""Strategies over translation groups: the texts of a group have the same meaning, in any number of languages."""

from typing import Literal, Self

import numpy as np
import pydantic
from pydantic_core import PydanticCustomError

from miner.training.data.batches import ANCHOR, POSITIVE, Batch, Ints, View
from miner.training.data.datasets import SourceSettings
from miner.training.data.strategy import Strategy


class GroupSettings(SourceSettings):
    """Base of both group strategies: the texts of a group are translations or paraphrases of each other."""

    REQUIRED_ROLES = ("group", "lang", "text")
    OPTIONAL_ROLES = ()


class GroupStrategy(Strategy):
    """Rows by group: `group` (n,) numbers groups from 0; the rows of group g are `order[bounds[g]:bounds[g + 1]]`.

    `meaning` (n,) numbers rows of the same meaning: those of groups that share a text, directly or through other groups.
    """

    def number_rows(self) -> None:
        self.lang, self.languages = self.dataset.encode_column("lang")
        self.group = self.dataset.encode_column("group")[0]
        self.meaning = self.group_rows(self.texts.ids, self.group)
        self.order = np.argsort(self.group, kind="stable")
        self.bounds = np.searchsorted(self.group[self.order], np.arange(int(self.group.max()) + 2))
        self.sizes = np.diff(self.bounds)
        if self.sizes.max() < 2:
            raise self.error("no group has two texts, so there are no pairs to learn from; check its column group")


class MultiPositiveSettings(GroupSettings):
    """MPCL: one text of a group is the anchor, its language drawn uniformly; other texts of the group are positives."""

    SUPPORTS_SMOOTHING = False
    strategy: Literal["multi_positive"]
    positives: int | None = pydantic.Field(
        None, ge=1, description="Maximum number of positives per anchor, drawn at random; by default, all."
    )
    pairs: bool = pydantic.Field(
        False, description="Divide each group into pairs at random, by the seed: each is an example with one positive."
    )

    @pydantic.model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if self.pairs and self.positives not in (None, 1):
            raise PydanticCustomError("pairs", "pairs have one positive; remove positives, or pairs")
        return self


class MultiPositiveStrategy(GroupStrategy):
    """One text of a group is the anchor, its language drawn uniformly; all others, or some, are its positives (Zhao et al. 2024).

    With `pairs`, the baseline of the paper, the texts of a group are divided into pairs instead, and every text is in one pair.
    """

    def number_examples(self) -> Ints:
        self.number_rows()
        self.pairs = self._divide_into_pairs() if self.settings.pairs else None  # (p, 2) rows
        return np.where(self.sizes > 1, 0, -1) if self.pairs is None else np.zeros(len(self.pairs), dtype=np.int64)

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        numbers = self.sampler.draw(size, random)
        if self.pairs is not None:
            anchors, positives = self.pairs[numbers].T
            return self.pair_batch(anchors, positives, self.meaning[anchors])
        drawn, positive_rows = zip(*(self._split(int(group), random) for group in numbers), strict=True)
        owners = np.repeat(np.arange(len(numbers)), list(map(len, positive_rows)))
        views = {ANCHOR: View(self.texts, np.array(drawn)), POSITIVE: self.positive_view(np.concatenate(positive_rows))}
        return Batch(self.dataset.title, views, self.meaning[self.order[self.bounds[numbers]]], owners)

    def _divide_into_pairs(self) -> Ints:
        """Return rows (p, 2): the texts of each group in pairs, in random order; the last of an odd number is left out."""
        order = np.lexsort((np.random.default_rng([self.seed, len(self.dataset)]).permutation(len(self.dataset)), self.group))
        offsets = np.arange(len(order)) - np.repeat(self.bounds[:-1], self.sizes)
        is_paired = offsets < np.repeat(self.sizes // 2 * 2, self.sizes)
        return order[is_paired].reshape(-1, 2)

    def _split(self, group: int, random: np.random.Generator) -> tuple[int, Ints]:
        """Draw the anchor and the positives of a group."""
        rows = self.order[self.bounds[group] : self.bounds[group + 1]]
        langs = np.unique(self.lang[rows])
        anchor = random.choice(rows[self.lang[rows] == random.choice(langs)])
        positives = random.permutation(rows[rows != anchor])
        return int(anchor), positives[: self.settings.positives]


class GroupedPairsSettings(GroupSettings):
    """Pairs drawn from groups, in blocks: the anchors of a block share one language, and negatives come from the same block."""

    strategy: Literal["grouped_pairs"]
    pivot: str = pydantic.Field("eng_Latn", description="Preferred language of the positives.")
    pivot_share: float = pydantic.Field(0.75, ge=0, le=1, description="Share of pairs with a pivot positive, where the group has one.")
    block_size: int = pydantic.Field(1024, ge=2, description="Pairs per block.")


class GroupedPairsStrategy(GroupStrategy):
    """Pairs in blocks whose anchors share one language, so that language does not distinguish positives from negatives.

    Languages are drawn with probability proportional to count ** language_smoothing. The positive is the group's text in the pivot
    language (English by default) or, for a share `1 - pivot_share` of the anchors, a text of the group in any other language. Pivot texts
    are never anchors.
    """

    def number_examples(self) -> Ints:
        self.number_rows()
        pivot = self.languages.index(self.settings.pivot) if self.settings.pivot in self.languages else -1
        self.pivot_rows = np.full(len(self.sizes), -1, dtype=np.int64)  # by group; -1: no text in the pivot language
        rows = np.flatnonzero(self.lang == pivot)
        self.pivot_rows[self.group[rows]] = rows
        ordered_langs, starts = self.lang[self.order], self.bounds[:-1]
        is_multilingual = np.minimum.reduceat(ordered_langs, starts) < np.maximum.reduceat(ordered_langs, starts)
        is_anchor = (self.lang != pivot) & is_multilingual[self.group]
        if not is_anchor.any():
            raise self.error("no group has texts in two languages; check its columns group and lang")
        return np.where(is_anchor, self.lang, -1)

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        """Draw blocks of up to `block_size` pairs. Pairs within one language are dropped, so a block may be smaller."""
        blocks: list[tuple[Ints, Ints]] = []
        while not blocks:
            for start in range(0, size, self.settings.block_size):
                lang = self.sampler.draw_language(random)
                anchors = self.sampler.take(lang, min(self.settings.block_size, size - start))
                positives = self._draw_positives(anchors, random)
                usable = self.lang[positives] != lang
                if usable.any():
                    blocks.append((anchors[usable], positives[usable]))
        anchors, positives = (np.concatenate(side) for side in zip(*blocks, strict=True))
        sizes = tuple(len(block_anchors) for block_anchors, _ in blocks)
        return self.pair_batch(anchors, positives, self.meaning[anchors], blocks=sizes)

    def _draw_positives(self, anchors: Ints, random: np.random.Generator) -> Ints:
        group = self.group[anchors]
        pivots, starts, ends = self.pivot_rows[group], self.bounds[group], self.bounds[group + 1]
        others = self.order[starts + (random.random(len(anchors)) * (ends - starts)).astype(np.int64)]
        is_translation = self.lang[others] != self.lang[anchors]
        use_other = (random.random(len(anchors)) >= self.settings.pivot_share) & is_translation
        return np.where((pivots < 0) | use_other, others, pivots)
