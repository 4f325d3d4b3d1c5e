"""What a step learns from: views of examples, and which of them say the same."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from miner.training.augment import partial_translation
from miner.training.corpora import Texts

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Change = Callable[[list[str], np.random.Generator], list[str]]

ANCHOR, POSITIVE, NEGATIVE = "anchor", "positive", "negative"


@dataclass(frozen=True)
class View:
    """n texts, or pairs of texts to be read as one sequence; `spans` and `change` come into play when they are read."""

    texts: Texts
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
    views: Mapping[str, View]  # anchor (n), and maybe positive (p) and negative (n)
    groups: Ints  # (n,)
    owners: Ints  # (p,) the anchor of each positive
    labels: Ints | None = None  # (n,)
    weights: Floats | None = None  # (n,)
    blocks: tuple[int, ...] = field(default=())  # sizes of the runs of anchors that are contrasted apart; none: all together

    def __len__(self) -> int:
        return len(self.groups)


def tower_of(view: str, towers: int) -> int:
    """Which of the encoders a view goes through: anchors have the first, everything else the last."""
    return 0 if view == ANCHOR else towers - 1


def paired(source: str, anchors: View, positives: View, groups: Ints, **more: object) -> Batch:
    """A batch with one positive for each anchor."""
    views = {ANCHOR: anchors, POSITIVE: positives}
    negatives = more.pop("negatives", None)
    if isinstance(negatives, View):
        views[NEGATIVE] = negatives
    return Batch(source, views, groups, np.arange(len(anchors)), **more)  # type: ignore[arg-type]


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
