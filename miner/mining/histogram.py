"""Histograms of margins, filled batch by batch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from miner.arrays import Floats, Ids, run_bounds
from miner.mining.candidates import Candidates, score

BIN_WIDTH = 0.002
FEW_PAIRS = 0.01  # of the sentences of the smaller side
SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)  # of quantiles


@dataclass(frozen=True)
class MarginBins:
    """The numbers of margins in the bins [edges[i], edges[i + 1])."""

    edges: Floats  # (n + 1,)
    counts: Ids  # (n,)


class Histogram:
    """A histogram of margins in bins of BIN_WIDTH, filled batch by batch."""

    def __init__(self) -> None:
        self.bins: dict[int, int] = {}
        self.largest = -np.inf

    def add(self, margins: Floats) -> None:
        margins = margins[np.isfinite(margins)]
        self.largest = max(self.largest, float(margins.max(initial=-np.inf)))
        numbers, counts = np.unique(np.floor(margins / BIN_WIDTH).astype(np.int64), return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self.bins[number] = self.bins.get(number, 0) + count

    def add_best(self, candidates: Candidates, margin: str) -> None:
        """Add the largest margin of each source of candidates (n,), which are all of these sources, sorted by source."""
        pairs = score(candidates, margin)
        if len(pairs):
            self.add(np.maximum.reduceat(pairs.margins, run_bounds(pairs.source_ids)[:-1]))

    def quantiles(self, shares: Sequence[float] = SHARES) -> dict[str, float]:
        """Return the margin below which each share of the margins is, to BIN_WIDTH; of all, the largest. Nothing without margins."""
        numbers = sorted(self.bins)
        if not numbers:
            return {}
        counts = np.cumsum([self.bins[number] for number in numbers])
        rows = np.searchsorted(counts, np.ceil(np.array(shares) * counts[-1]))
        below = ((numbers[row] + 1) * BIN_WIDTH for row in rows.tolist())
        return {f"{share:g}": round(min(margin, self.largest), 4) for share, margin in zip(shares, below, strict=True)}

    def bounds(self) -> tuple[float, float]:
        """Return the ends of the range of all margins."""
        return min(self.bins) * BIN_WIDTH, (max(self.bins) + 1) * BIN_WIDTH

    def rebin(self, edges: Floats) -> MarginBins:
        """Return the counts in other bins; a bin belongs to the one that contains its centre."""
        centres = (np.array(list(self.bins), dtype=np.float64) + 0.5) * BIN_WIDTH
        counts = np.histogram(centres, edges, weights=np.array(list(self.bins.values()), dtype=np.int64))[0]
        return MarginBins(edges, counts.astype(np.int64))


def few_pair_quantiles(blocks: Iterable[Candidates], margin: str, num_pairs: int, num_sentences: Iterable[int]) -> dict[str, float]:
    """Return quantiles of the best margins of the sources if the pairs are so few that the threshold may be wrong, otherwise nothing.

    `blocks` are all candidates, each with all those of its sources, sorted by source; `num_sentences` the unique sentences of both sides.
    """
    if num_pairs >= FEW_PAIRS * min(num_sentences):
        return {}
    histogram = Histogram()
    for candidates in blocks:
        histogram.add_best(candidates, margin)
    return histogram.quantiles()


def describe_quantiles(quantiles: Mapping[str, float]) -> str:
    """Return the quantiles of a histogram as text."""
    below = [f"{100 * float(share):.4g}% below {margin:g}" for share, margin in quantiles.items() if float(share) < 1]
    return ", ".join([*below, f"the largest {quantiles['1']:g}"])
