"""Groups of translations, and the blocks of pairs drawn from them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from miner import storage
from miner.errors import DataError

Ints = npt.NDArray[np.int64]

COLUMNS = ("group", "lang", "text")


@dataclass(frozen=True)
class Groups:
    """Texts by row: `group` (n,) numbers from 0, `lang` (n,) indices into `languages`, `texts` (n,). A group's texts say the same."""

    group: Ints
    lang: Ints
    languages: tuple[str, ...]
    texts: pa.ChunkedArray

    def __len__(self) -> int:
        return len(self.group)


def read_groups(uri: str) -> Groups:
    """Read a Parquet table with the columns group, lang and text; DataError where a column is missing or there is no pair."""
    table = storage.read_table(uri)
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise DataError(f"{uri}: no column {missing[0]!r}; training wants {', '.join(COLUMNS)}, one row a text")
    langs = table["lang"].combine_chunks().dictionary_encode()
    _, group = np.unique(table["group"].to_numpy(), return_inverse=True)
    groups = Groups(group.astype(np.int64), langs.indices.to_numpy().astype(np.int64), tuple(langs.dictionary.to_pylist()), table["text"])
    if len(groups) == 0 or np.bincount(group).max() < 2:
        raise DataError(f"{uri}: no group holds two texts, so there is nothing to learn from; rows of one group must share its number")
    return groups


def smoothed(counts: npt.NDArray[np.integer], smoothing: float) -> npt.NDArray[np.float64]:
    """Counts (n,) -> probabilities (n,) proportional to count ** smoothing: 1 keeps the shares, 0 makes them equal."""
    weights = np.where(counts > 0, counts.astype(np.float64), 1.0) ** smoothing * (counts > 0)
    shares: npt.NDArray[np.float64] = weights / weights.sum()
    return shares


@dataclass(frozen=True)
class Block:
    """Pairs to be contrasted with one another: `anchors` (n,) and `positives` (n,) are rows of the groups."""

    anchors: Ints
    positives: Ints


class BlockSampler:
    """Draws blocks of pairs: the anchors of a block are all of one language, so that negatives are told apart by what they say.

    Languages are drawn with probability count ** smoothing. The positive is the group's pivot text (English, mostly) or, for
    `1 - pivot_share` of the anchors, a text of the group in any other language. Every anchor of a language is seen before one returns.
    """

    def __init__(self, groups: Groups, pivot: str, smoothing: float, pivot_share: float, seed: int) -> None:
        self.groups = groups
        self.pivot_share = pivot_share
        self.random = np.random.default_rng(seed)
        self.order = np.argsort(groups.group, kind="stable")
        self.bounds = np.searchsorted(groups.group[self.order], np.arange(int(groups.group.max()) + 2))
        self.pivots = np.full(len(self.bounds) - 1, -1, dtype=np.int64)
        self.pivot = groups.languages.index(pivot) if pivot in groups.languages else -1
        rows = np.flatnonzero(groups.lang == self.pivot)
        self.pivots[groups.group[rows]] = rows
        sizes = np.diff(self.bounds)[groups.group]
        anchors = (groups.lang != self.pivot) & (sizes > 1)
        self.rows = [np.flatnonzero(anchors & (groups.lang == lang)) for lang in range(len(groups.languages))]
        self.waiting: list[Ints] = [np.empty(0, dtype=np.int64) for _ in self.rows]
        self.shares = smoothed(np.array([len(rows) for rows in self.rows]), smoothing)

    def blocks(self, size: int) -> Iterator[Block]:
        """Blocks of up to `size` pairs, without end; a pair drawn within one language is left out, so a block may be smaller."""
        while True:
            lang = int(self.random.choice(len(self.shares), p=self.shares))
            anchors = self._next(lang, size)
            positives = self._positives(anchors)
            usable = self.groups.lang[positives] != lang
            yield Block(anchors[usable], positives[usable])

    def _next(self, lang: int, size: int) -> Ints:
        while len(self.waiting[lang]) < size:
            self.waiting[lang] = np.concatenate([self.waiting[lang], self.random.permutation(self.rows[lang])])
        taken, self.waiting[lang] = np.split(self.waiting[lang], [size])
        return taken

    def _positives(self, anchors: Ints) -> Ints:
        group = self.groups.group[anchors]
        pivots = self.pivots[group]
        first, last = self.bounds[group], self.bounds[group + 1]
        others = self.order[first + (self.random.random(len(anchors)) * (last - first)).astype(np.int64)]
        other = (self.random.random(len(anchors)) >= self.pivot_share) & (self.groups.lang[others] != self.groups.lang[anchors])
        return np.where((pivots < 0) | other, others, pivots)
