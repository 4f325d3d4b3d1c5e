"""Find lines of a bitext that fit the neighbours of their partners better than their partners: it is shifted there."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from miner.arrays import Floats, Floats32, Ints, Vectors

SHIFTS = (-3, -2, -1, 1, 2, 3)  # lines by which the other side may be late
CHUNK_ROWS = 20  # consecutive pairs that are rated together
MIN_GAIN = 0.1  # of the mean similarity, by a shift that is reported
MAX_REPORTED = 3

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShiftedRange:
    """Lines of the source, from 1, whose translations are `shift` lines later in the target."""

    first: int
    last: int
    shift: int


@dataclass
class ShiftFinder:
    """Compares the pairs of a bitext, block by block, with those of its lines and the next ones of the other side."""

    ranges: list[ShiftedRange] = field(default_factory=list)

    def add(self, rows: Ints, similarities: Floats, source: Vectors, target: Vectors) -> None:
        """Rate the pairs in rows (n,) of the bitext, from 0; a row without a pair is left out.

        `similarities` (n,) are those of the pairs, `source` and `target` (n, dim) their unit vectors.
        """
        count = len(rows) // CHUNK_ROWS
        if not count:
            return
        x, y = source.astype(np.float32), target.astype(np.float32)
        own = _chunk_means(similarities[: count * CHUNK_ROWS])
        gains = np.stack([_chunk_means(_shifted_similarities(x, y, shift, count * CHUNK_ROWS)) for shift in SHIFTS]) - own
        best = gains.argmax(0)
        for chunk in np.flatnonzero(gains.max(0) >= MIN_GAIN).tolist():
            lines = rows[chunk * CHUNK_ROWS : (chunk + 1) * CHUNK_ROWS] + 1
            self._append(ShiftedRange(int(lines[0]), int(lines[-1]), SHIFTS[best[chunk]]))

    def _append(self, following: ShiftedRange) -> None:
        last = self.ranges[-1] if self.ranges else None
        if last is not None and last.shift == following.shift and following.first - last.last <= CHUNK_ROWS:
            self.ranges[-1] = ShiftedRange(last.first, following.last, following.shift)
        else:
            self.ranges.append(following)

    def warn(self, uris: Sequence[str]) -> None:
        """Warn of the longest ranges."""
        longest = sorted(self.ranges, key=lambda part: part.first - part.last)[:MAX_REPORTED]
        for part in sorted(longest, key=lambda part: part.first):
            where = f"{abs(part.shift)} {'later' if part.shift > 0 else 'earlier'}"
            message = "%s: lines %d to %d fit the lines of %s that are %s better than their own; is the bitext shifted there?"
            logger.warning(message, uris[0], part.first, part.last, uris[1], where)


def _shifted_similarities(x: Floats32, y: Floats32, shift: int, num_rows: int) -> Floats:
    """Return the similarities (num_rows,) of x[i] and y[i + shift]; those that a shift leaves out are 0."""
    similarities = np.zeros(num_rows)
    first, end = max(0, -shift), min(num_rows, len(y) - shift)
    similarities[first:end] = np.einsum("nd,nd->n", x[first:end], y[first + shift : end + shift])
    return similarities


def _chunk_means(similarities: Floats) -> Floats:
    """Return the mean of each CHUNK_ROWS similarities."""
    means: Floats = similarities.reshape(-1, CHUNK_ROWS).mean(1)
    return means
