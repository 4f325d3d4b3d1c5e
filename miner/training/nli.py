"""Natural language inference: its labels, and triplets made of them."""

import numpy as np

from miner.errors import DataError
from miner.training.batches import Ints
from miner.training.corpora import Corpus

# Spellings of the labels, SimCSE's and XNLI's numbers among them.
LABELS = {
    "entailment": 0, "neutral": 1, "contradiction": 2, "contradictory": 2, "entailed": 0,
    "0": 0, "1": 1, "2": 2, "e": 0, "n": 1, "c": 2,
}  # fmt: skip
ENTAILMENT, CONTRADICTION = 0, 2


def nli_labels(corpus: Corpus) -> Ints:
    """(n,) 0 entailment, 1 neutral, 2 contradiction; DataError where a label is something else."""
    codes, values = corpus.codes("label")
    strange = [value for value in values if value.lower() not in LABELS]
    if strange:
        raise DataError(f"source {corpus.title!r}: label {strange[0]!r}; labels are entailment, neutral and contradiction, or 0, 1 and 2")
    return np.array([LABELS[value.lower()] for value in values])[codes]


class Triplets:
    """Rows that are entailed, and for each the rows that contradict the same premise."""

    def __init__(self, premises: Ints, corpus: Corpus, hard_negatives: bool, rows: Ints | None = None) -> None:
        """`premises` (n,) ids of the premises of a corpus; only `rows` of it count, where given."""
        labels = nli_labels(corpus)
        rows = np.arange(len(labels)) if rows is None else rows
        self.premises = premises
        self.hard_negatives = hard_negatives
        against = rows[labels[rows] == CONTRADICTION]
        self.contradictions = against[np.argsort(premises[against], kind="stable")]
        self._keys = premises[self.contradictions]
        entailed = rows[labels[rows] == ENTAILMENT]
        first, last = self._bounds(entailed)
        self.entailed = entailed[last > first] if hard_negatives else entailed
        if not len(self.entailed):
            what = "is both entailing and contradicting something" if hard_negatives else "entails anything"
            raise DataError(f"source {corpus.title!r}: no premise {what}, so there is nothing to learn from; check its labels")

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
