"""Training batches: views of examples, and groups of examples with the same meaning, which are not negatives of each other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from miner.arrays import connected_components
from miner.training.data.augment import partial_translation
from miner.training.data.datasets import TextColumn

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Augmentation = Callable[[Sequence[list[str]], np.random.Generator], list[list[str]]]  # the first and, for pairs, second texts

HASH_MULTIPLIER = np.int64(6364136223846793005)

ANCHOR, POSITIVE, NEGATIVE, SECOND = "anchor", "positive", "negative", "second"


@dataclass(frozen=True)
class View:
    """n texts, or n pairs of texts to encode as one sequence. Augmentation happens on `read`."""

    texts: TextColumn
    rows: Ints  # (n,)
    partners: Ints | None = None  # (n,) rows of the second texts of pairs
    translations: Ints | None = None  # (n,) rows of translations, from which a span replaces part of the text
    augmentation: Augmentation | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def parts(self) -> tuple["View", ...]:
        """The view itself: encoders in training read views part by part."""
        return (self,)

    @property
    def ids(self) -> Ints:
        """The ids (n,) of the texts or pairs, before augmentation."""
        ids = self.texts.ids[self.rows]
        return ids if self.partners is None else pair_keys(ids, self.texts.ids[self.partners])

    def take(self, positions: Ints) -> list[str]:
        """Return the texts, or first texts of pairs, at positions (m,), before augmentation."""
        return self.texts.take(self.rows[positions])

    def select(self, rows: slice) -> "View":
        """Return a part of the view."""
        partners = None if self.partners is None else self.partners[rows]
        translations = None if self.translations is None else self.translations[rows]
        return replace(self, rows=self.rows[rows], partners=partners, translations=translations)

    @property
    def is_augmented(self) -> bool:
        """Whether `read` changes the texts."""
        return self.augmentation is not None or self.translations is not None

    def read(self, random: np.random.Generator) -> tuple[list[str], list[str] | None]:
        """Return the texts and, for pairs, the second texts."""
        first = self.texts.take(self.rows)
        second = None if self.partners is None else self.texts.take(self.partners)
        if self.translations is not None:
            first = partial_translation(first, self.texts.take(self.translations), random)
        if self.augmentation is not None:
            columns = [first] if second is None else [first, second]
            first, *others = self.augmentation(columns, random)
            second = others[0] if others else None
        return first, second


@dataclass(frozen=True)
class MixedView:
    """n texts of several views, one after the other."""

    parts: tuple[View, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def ids(self) -> Ints:
        """The ids (n,) of the texts or pairs, before augmentation."""
        return np.concatenate([part.ids for part in self.parts])

    def take(self, positions: Ints) -> list[str]:
        """Return the texts, or first texts of pairs, at positions (m,), before augmentation."""
        ends = np.cumsum([len(part) for part in self.parts])
        numbers = np.searchsorted(ends, positions, side="right")
        return [
            self.parts[number].take(np.array([position - ends[number]]))[0]  # a negative offset counts from the end of the part
            for number, position in zip(numbers, positions, strict=True)
        ]

    def select(self, rows: slice) -> "MixedView":
        """Return a part of the view; `rows` has a start and a stop."""
        parts, start = [], 0
        for part in self.parts:
            parts.append(part.select(slice(max(0, rows.start - start), max(0, rows.stop - start))))
            start += len(part)
        return MixedView(tuple(part for part in parts if len(part)))


@dataclass(frozen=True)
class Batch:
    """n anchors with their positives and hard negatives.

    Anchors with the same number in `groups` have the same meaning: neither they nor their positives are negatives of each other.
    """

    source: str
    views: Mapping[str, View | MixedView]  # anchor (n); optional: positive (p), negative (k), second (n), a text of another meaning
    groups: Ints  # (n,)
    owners: Ints  # (p,) the anchor of each positive
    negative_owners: Ints | None = None  # (k,) the anchor of each hard negative; None: no hard negatives
    negative_groups: Ints | None = None  # (k,) group that contains the text of each hard negative, or -1; None: no hard negatives
    labels: Ints | None = None  # (n,)
    weights: Floats | None = None  # (n,)
    blocks: tuple[int, ...] = ()  # sizes of runs of anchors that are contrasted separately; empty: one block
    translation_ids: tuple[Ints, ...] = ()  # (n,) each: ids of translations of anchors and positives that are in no view

    def __len__(self) -> int:
        return len(self.groups)


def tower_index(view: str, num_towers: int) -> int:
    """Return the index of the encoder of a view: the first for anchors and second texts, the last for positives and negatives."""
    return 0 if view in (ANCHOR, SECOND) else num_towers - 1


def find_groups(ids: Ints, grouped_ids: Ints, groups: Ints) -> Ints:
    """Return for ids (m,) the group (m,) of the same id among `grouped_ids` (n,) with `groups` (n,), or -1."""
    order = np.argsort(grouped_ids)
    positions = order[np.searchsorted(grouped_ids, ids, sorter=order).clip(max=len(grouped_ids) - 1)]
    return np.where(grouped_ids[positions] == ids, groups[positions], -1)


def pair_keys(first: Ints, second: Ints) -> Ints:
    """Return one hash (n,) per pair of ids (n,) and (n,)."""
    keys: Ints = first * HASH_MULTIPLIER + second
    return keys


def group_connected_rows(*id_columns: Ints) -> Ints:
    """Return group numbers (n,) from id columns (n,): rows that share an id, directly or through other rows, form a group."""
    _, nodes = np.unique(np.concatenate(id_columns), return_inverse=True)
    columns = nodes.reshape(len(id_columns), -1)
    num_nodes = int(nodes.max()) + 1
    edges = [(columns[0], column) for column in columns[1:]] or [(columns[0], columns[0])]
    starts, ends = (np.concatenate(endpoints) for endpoints in zip(*edges, strict=True))
    groups: Ints = connected_components(starts, ends, num_nodes)[columns[0]]
    return groups
