"""Natural language inference: its labels, and triplets made of them."""

import numpy as np

from miner.errors import DataError
from miner.training.batches import Ints, connected
from miner.training.datasets import Dataset

# Spellings of the labels, SimCSE's and XNLI's numbers among them.
LABELS = {
    "entailment": 0, "neutral": 1, "contradiction": 2, "contradictory": 2, "entailed": 0,
    "0": 0, "1": 1, "2": 2, "e": 0, "n": 1, "c": 2,
}  # fmt: skip
ENTAILMENT, CONTRADICTION = 0, 2


def nli_labels(corpus: Dataset) -> Ints:
    """(n,) 0 entailment, 1 neutral, 2 contradiction; DataError where a label is something else."""
    codes, values = corpus.codes("label")
    strange = [value for value in values if value.lower() not in LABELS]
    if strange:
        raise DataError(f"source {corpus.title!r}: label {strange[0]!r}; labels are entailment, neutral and contradiction, or 0, 1 and 2")
    return np.array([LABELS[value.lower()] for value in values])[codes]


def pair_numbers(first: Ints, second: Ints) -> Ints:
    """Ids (n,) and (n,) -> (n,) numbers that tell pairs apart."""
    numbers: Ints = first * np.int64(6364136223846793005) + second
    return numbers


class NliTriplets:
    """Rows that are entailed, and for each the rows that contradict the same premise.

    What one premise entails, another may contradict. So rows do not say the same for sharing a hypothesis with a third; only
    within a batch are those with a text in common taken together, and none of them with a row it is known to contradict.
    """

    def __init__(self, premises: Ints, hypotheses: Ints, corpus: Dataset, hard_negatives: bool, rows: Ints | None = None) -> None:
        """`premises` and `hypotheses` (n,) are ids of the texts of a corpus; only `rows` of it count, where given.

        A pair that is labelled as both entailed and contradicted is neither.
        """
        labels = nli_labels(corpus)
        rows = np.arange(len(labels)) if rows is None else rows
        self.premises, self.hypotheses = premises, hypotheses
        self.numbers = np.unique(premises, return_inverse=True)[1]
        self.hard_negatives = hard_negatives
        entailed, against = rows[labels[rows] == ENTAILMENT], rows[labels[rows] == CONTRADICTION]
        pairs = [pair_numbers(premises[of], hypotheses[of]) for of in (entailed, against)]
        entailed, against = entailed[~np.isin(pairs[0], pairs[1])], against[~np.isin(pairs[1], pairs[0])]
        self.against = np.sort(pair_numbers(premises[against], hypotheses[against]))
        self.contradictions = against[np.argsort(premises[against], kind="stable")]
        self._keys = premises[self.contradictions]
        first, last = self._bounds(entailed)
        self.entailed = entailed[last > first] if hard_negatives else entailed
        if not len(self.entailed):
            what = "is both entailing and contradicting something" if hard_negatives else "entails anything"
            raise DataError(f"source {corpus.title!r}: no premise {what}, so there is nothing to learn from; check its labels")

    def grouped(self, rows: Ints, *columns: Ints) -> tuple[Ints, Ints]:
        """Entailed rows (n,) of a batch, and columns (n,) of the ids of their texts -> the rows to keep (m,) of n, and their groups.

        Groups are of rows that share a text; their numbers are the same in every batch where premises are. Of two rows in a group, one
        of which contradicts what the other entails, the later is left out.
        """
        groups = connected(*columns)
        sharing = np.flatnonzero(np.bincount(groups)[groups] > 1)
        first, second = (sharing[of] for of in np.nonzero(groups[sharing, None] == groups[sharing]))
        contradicting = np.isin(pair_numbers(self.premises[rows[first]], self.hypotheses[rows[second]]), self.against)
        kept = np.setdiff1d(np.arange(len(rows)), np.maximum(first, second)[contradicting])
        least = np.full(len(rows), len(self.premises))
        np.minimum.at(least, groups[kept], self.numbers[rows[kept]])
        return kept, least[groups[kept]]

    def _bounds(self, rows: Ints) -> tuple[Ints, Ints]:
        keys = self.premises[rows]
        return np.searchsorted(self._keys, keys, side="left"), np.searchsorted(self._keys, keys, side="right")

    def contradicted(self, rows: Ints, random: np.random.Generator) -> Ints | None:
        """Entailed rows (n,) -> (n,) rows that contradict the same premises, each drawn of all there are; None where not wanted."""
        if not self.hard_negatives:
            return None
        first, last = self._bounds(rows)
        drawn: Ints = self.contradictions[random.integers(first, last)]
        return drawn
