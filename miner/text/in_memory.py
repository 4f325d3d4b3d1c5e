"""Unique sentences of texts in memory, cleaned and ordered as those of a corpus."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from miner.arrays import Bools, Ids, Ints
from miner.config.commands import TextSettings
from miner.errors import DataError
from miner.text import readers
from miner.text.normalise import sentence_ids
from miner.text.sharding import DEFAULT_SIZES, IngestSizes, range_of

BLOCK_TEXTS = 1 << 16  # cleaned at a time


@dataclass(frozen=True)
class UniqueSentences:
    """The n different sentences of m texts."""

    ids: Ids  # (n,) ascending
    texts: Sequence[str]  # n cleaned texts
    first_rows: Ints  # (n,) row of the first text with this sentence
    sentence_of: Ints  # (m,) sentence of each text, -1 for one that is empty or too long
    num_ranges: int  # shards of a corpus of these texts

    def encoding_groups(self, kept: Bools, sizes: IngestSizes = DEFAULT_SIZES) -> Iterator[Ints]:
        """Yield the sentences, among the kept (n,), that `miner embed` encodes together.

        Rounding errors of a transformer depend on the batch, so equal vectors need equal batches.
        """
        bounds = np.searchsorted(range_of(self.ids, self.num_ranges), np.arange(self.num_ranges + 1))
        for start, end in pairwise(bounds):
            rows = start + np.flatnonzero(kept[start:end])
            size = sizes.group_rows(len(rows), sum(len(self.texts[row].encode()) for row in rows))
            yield from (rows[first : first + size] for first in range(0, len(rows), size))


def unique_sentences(texts: Sequence[str], settings: TextSettings, sizes: IngestSizes = DEFAULT_SIZES) -> UniqueSentences:
    """Clean m texts and merge equal ones. Raises DataError for two sentences with one id, and as `readers.clean_block`."""
    sentences: list[str] = []
    rows = [np.zeros(0, dtype=np.int64)]
    for start in range(0, len(texts), BLOCK_TEXTS):
        block = readers.clean_block("texts", start + 1, list(texts[start : start + BLOCK_TEXTS]), settings)
        sentences += block.texts
        rows.append(block.lines - 1)
    text_rows = np.concatenate(rows)
    ids, first, inverse = np.unique(sentence_ids(sentences), return_index=True, return_inverse=True)
    if len(set(sentences)) != len(ids):
        raise DataError("two different sentences have the same id; remove one of them")
    sentence_of = np.full(len(texts), -1, dtype=np.int64)
    sentence_of[text_rows] = inverse
    text_bytes = sum(len(text.encode(errors="replace")) + 1 for text in texts)
    return UniqueSentences(
        ids, [sentences[row] for row in first], text_rows[first], sentence_of, max(1, math.ceil(text_bytes / sizes.range_bytes))
    )
