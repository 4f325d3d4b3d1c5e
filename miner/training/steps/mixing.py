"""Mixtures of sources: which examples a batch holds, and the join of examples of several sources in one batch."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from miner.arrays import connected_components
from miner.training.data.batches import ANCHOR, NEGATIVE, POSITIVE, SECOND, Batch, Floats, Ints, MixedView, find_groups
from miner.training.data.sampling import Weights, apportion
from miner.training.data.strategy import Strategy
from miner.training.steps.step import LossTerm

GROUPS_PER_SOURCE = 1 << 40  # offset between the group numbers of two sources


class Stream(ABC):
    """Sources that share their losses."""

    def __init__(self, sources: Mapping[str, Strategy], terms: Mapping[str, tuple[float, LossTerm]]) -> None:
        """`sources` by title; `terms` are the weight and the loss by name."""
        self.sources, self.terms = sources, terms
        self.num_drawn = 0  # examples of all sources; with the counts of the samplers the whole state

    @property
    @abstractmethod
    def mean_batch_size(self) -> float:
        """The mean number of examples in a batch."""

    @abstractmethod
    def draw(self, random: np.random.Generator, remaining_batches: int = 1) -> Batch:
        """Draw a batch, the first of `remaining_batches` in its optimizer step."""

    def uses_view(self, view: str) -> bool:
        """Return whether a loss of the stream uses this view."""
        return any(view in term.views for _, term in self.terms.values())

    def _draw_source(self, number: int, size: int, random: np.random.Generator) -> Batch:
        """Draw examples of one source; groups of different sources get different numbers."""
        batch = list(self.sources.values())[number].draw(size, random)
        offset = number * GROUPS_PER_SOURCE
        negative_groups = batch.negative_groups
        if negative_groups is not None:
            negative_groups = np.where(negative_groups < 0, negative_groups, negative_groups + offset)
        return replace(batch, groups=batch.groups + offset, negative_groups=negative_groups)


class OneSourceStream(Stream):
    """Each batch comes from one source, drawn by `shares`."""

    def __init__(
        self, sources: Mapping[str, Strategy], terms: Mapping[str, tuple[float, LossTerm]], shares: Weights, batch_sizes: Sequence[int]
    ) -> None:
        super().__init__(sources, terms)
        self.shares, self.batch_sizes = shares, batch_sizes

    @property
    def mean_batch_size(self) -> float:
        """The mean over the sources, by their shares."""
        return float(np.dot(self.shares, self.batch_sizes))

    def draw(self, random: np.random.Generator, remaining_batches: int = 1) -> Batch:  # noqa: ARG002
        """Draw a batch of the size of its source."""
        number = int(random.choice(len(self.sources), p=self.shares))
        self.num_drawn += self.batch_sizes[number]
        return self._draw_source(number, self.batch_sizes[number], random)


class MixedStream(Stream):
    """Each batch holds examples of all sources, in proportion to `weights`.

    The number of examples of each source is a function of `num_drawn` alone. With `weights` equal to the numbers of examples, an epoch
    therefore holds every example once. The last batches are smaller where `num_examples` is not a multiple of the batch size.
    """

    def __init__(
        self,
        sources: Mapping[str, Strategy],
        terms: Mapping[str, tuple[float, LossTerm]],
        weights: Weights,
        batch_size: int,
        num_examples: int | None = None,
        min_size: int = 1,
    ) -> None:
        """Draw `num_examples` in total, or without end; `min_size` is the smallest batch, one example per process."""
        super().__init__(sources, terms)
        self.weights, self.batch_size, self.num_examples, self.min_size = weights, batch_size, num_examples, min_size

    @property
    def mean_batch_size(self) -> float:
        """The size of all batches but the last."""
        return self.batch_size

    def draw(self, random: np.random.Generator, remaining_batches: int = 1) -> Batch:
        """Draw a batch; the examples that are left are divided evenly among the last batches."""
        size = self.batch_size
        if self.num_examples is not None:
            size = max(self.min_size, min(size, -(-(self.num_examples - self.num_drawn) // remaining_batches)))
        counts = apportion(self.num_drawn + size, self.weights) - apportion(self.num_drawn, self.weights)
        self.num_drawn += size
        return join_batches([self._draw_source(number, int(count), random) for number, count in enumerate(counts) if count])


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Join batches of different sources: the positives and hard negatives of each are negatives of the anchors of all.

    Anchors of different sources with a text in common are one group. A source without weights gets the weight 1.
    """
    if len(batches) == 1:
        return batches[0]
    starts = np.cumsum([0, *map(len, batches)])
    rows, ids = (np.concatenate(columns) for columns in zip(*map(_text_ids, batches, starts), strict=True))
    groups = _join_groups(np.concatenate([batch.groups for batch in batches]), rows, ids)
    batch_negatives = [batch.views[NEGATIVE] for batch in batches if NEGATIVE in batch.views]
    negative_ids = np.concatenate([view.ids for view in batch_negatives]) if batch_negatives else None
    return Batch(
        ", ".join(batch.source for batch in batches),
        _join_views(batches),
        groups,
        np.concatenate([batch.owners + start for batch, start in zip(batches, starts, strict=False)]),
        _join_negative_owners(batches, starts),
        None if negative_ids is None else find_groups(negative_ids, ids, groups[rows]),
        None if batches[0].labels is None else np.concatenate([batch.labels for batch in batches]),
        _join_weights(batches),
    )


def _join_views(batches: Sequence[Batch]) -> dict[str, MixedView]:
    views = {}
    for name in (ANCHOR, POSITIVE, NEGATIVE, SECOND):
        parts = [part for batch in batches if name in batch.views for part in batch.views[name].parts]
        if parts:
            views[name] = MixedView(tuple(parts))
    return views


def _join_negative_owners(batches: Sequence[Batch], starts: Ints) -> Ints | None:
    """Return the anchors (k,) of the hard negatives; None where no batch has any."""
    pairs = zip(batches, starts, strict=False)
    owners = [batch.negative_owners + start for batch, start in pairs if batch.negative_owners is not None]
    return np.concatenate(owners) if owners else None


def _join_weights(batches: Sequence[Batch]) -> Floats | None:
    """Return the weights (n,) of the anchors; None where no batch has any."""
    if all(batch.weights is None for batch in batches):
        return None
    return np.concatenate([np.ones(len(batch), dtype=np.float32) if batch.weights is None else batch.weights for batch in batches])


def _text_ids(batch: Batch, start: int) -> tuple[Ints, Ints]:
    """Return rows (m,) and ids (m,): the ids of the texts with the meaning of each anchor; rows count from `start`."""
    anchors = np.arange(len(batch))
    rows, ids = [anchors, *[anchors] * len(batch.translation_ids)], [batch.views[ANCHOR].ids, *batch.translation_ids]
    if POSITIVE in batch.views:
        rows.append(batch.owners)
        ids.append(batch.views[POSITIVE].ids)
    return np.concatenate(rows) + start, np.concatenate(ids)


def _join_groups(groups: Ints, rows: Ints, ids: Ints) -> Ints:
    """Return groups (n,): rows of one group, or that share an id, directly or through other rows; the number is the smallest.

    `ids` (m,) are those of the texts of `rows` (m,). Numbers are the same in every batch if `groups` are, but for joined groups.
    """
    numbers, group_nodes = np.unique(groups, return_inverse=True)
    texts, text_nodes = np.unique(ids, return_inverse=True)
    components = connected_components(group_nodes[rows], len(numbers) + text_nodes, len(numbers) + len(texts))
    smallest = np.full(int(components.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(smallest, components[: len(numbers)], numbers)
    joined: Ints = smallest[components[group_nodes]]
    return joined
