"""What a step learns from: views of examples, and which of them say the same."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from miner.training.augment import partial_translation
from miner.training.datasets import TextColumn

MANY, MOST = 100, 0.05  # rows of one group, and their share of a source, above which a word is said of it

logger = logging.getLogger(__name__)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Change = Callable[[list[str], np.random.Generator], list[str]]

ANCHOR, POSITIVE, NEGATIVE, SECOND = "anchor", "positive", "negative", "second"


@dataclass(frozen=True)
class View:
    """n texts, or pairs of texts to be read as one sequence; `spans` and `change` come into play when they are read."""

    texts: TextColumn
    rows: Ints  # (n,)
    partners: Ints | None = None  # (n,) the second of each pair
    spans: Ints | None = None  # (n,) their translations, of which a span replaces one of the text
    change: Change | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, of: slice) -> "View":
        parts = {name: rows[of] for name in ("rows", "partners", "spans") if (rows := getattr(self, name)) is not None}
        return replace(self, **parts)

    @property
    def as_it_stands(self) -> bool:
        """Whether what is read is what the rows hold."""
        return self.change is None and self.spans is None

    def read(self, random: np.random.Generator) -> tuple[list[str], list[str] | None]:
        """The texts and, of pairs, the second texts."""
        first = self.texts.take(self.rows)
        second = None if self.partners is None else self.texts.take(self.partners)
        if self.spans is not None:
            first = partial_translation(first, self.texts.take(self.spans), random)
        if self.change is not None:
            first = self.change(first, random)
            second = None if second is None else self.change(second, random)
        return first, second


@dataclass(frozen=True)
class Batch:
    """n anchors with what belongs to them.

    Anchors with one number in `groups` are known to say the same: neither they nor what belongs to them are negatives of each other.
    """

    source: str
    views: Mapping[str, View]  # anchor (n), and maybe positive (p) and negative (n), or second (n), which may say something else
    groups: Ints  # (n,)
    owners: Ints  # (p,) the anchor of each positive
    negative_groups: Ints | None = None  # (n,) the group that has the text of a hard negative, -1 for none; None: there are none
    labels: Ints | None = None  # (n,)
    weights: Floats | None = None  # (n,)
    blocks: tuple[int, ...] = field(default=())  # sizes of the runs of anchors that are contrasted apart; none: all together

    def __len__(self) -> int:
        return len(self.groups)


def tower_of(view: str, towers: int) -> int:
    """Which of the encoders a view goes through: what belongs to an anchor has the last, everything else the first."""
    return 0 if view in (ANCHOR, SECOND) else towers - 1


def paired(source: str, anchors: View, positives: View, groups: Ints, **more: Any) -> Batch:
    """A batch with one positive for each anchor."""
    return Batch(source, {ANCHOR: anchors, POSITIVE: positives}, groups, np.arange(len(anchors)), **more)


def with_negatives(batch: Batch, negatives: View, known: Sequence[Ints]) -> Batch:
    """A batch with a hard negative for each anchor; `known` are columns (n,) of the ids of the texts that its groups have."""
    of = groups_of(negatives.texts.ids[negatives.rows], known, batch.groups)
    return replace(batch, views={**batch.views, NEGATIVE: negatives}, negative_groups=of)


def groups_of(ids: Ints, known: Sequence[Ints], groups: Ints) -> Ints:
    """Ids (m,) -> (m,) the group of a row that has it in one of its columns `known` (n,); -1 where none has."""
    every, of = np.concatenate(known), np.tile(groups, len(known))
    order = np.argsort(every)
    places = order[np.searchsorted(every, ids, sorter=order).clip(max=len(every) - 1)]
    return np.where(every[places] == ids, of[places], -1)


def connected(*columns: Ints) -> Ints:
    """Columns (n,) of ids -> (n,) numbers of groups: rows that share an id, directly or through other rows, are one group."""
    _, places = np.unique(np.concatenate(columns), return_inverse=True)
    nodes = places.reshape(len(columns), -1)
    count = int(places.max()) + 1
    edges = [(nodes[0], other) for other in nodes[1:]] or [(nodes[0], nodes[0])]
    begin, end = (np.concatenate(ends) for ends in zip(*edges, strict=True))
    graph = coo_array((np.ones(len(begin), dtype=np.int8), (begin, end)), shape=(count, count))
    groups: Ints = connected_components(graph, directed=False)[1][nodes[0]].astype(np.int64)
    return groups


def kin(title: str, *columns: Ints) -> Ints:
    """`connected`, of all rows of a source; a warning where many hang together, and are no negatives of each other."""
    groups = connected(*columns)
    most = int(np.bincount(groups).max())
    if most > max(MANY, MOST * len(groups)):
        told = "source %r: %s of %s rows share texts, directly or through other rows, so they are nobody's negatives among themselves"
        logger.warning(told, title, f"{most:,}", f"{len(groups):,}")
    return groups
