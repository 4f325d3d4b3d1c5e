"""Natural language inference: labels, and triplets of premise, entailed hypothesis and contradicting hypothesis."""

import numpy as np

from miner.errors import DataError
from miner.training.data.batches import Ints, group_connected_rows, pair_keys
from miner.training.data.datasets import Dataset

# Accepted spellings, including the numbers of SimCSE and XNLI.
LABELS = {
    "entailment": 0, "neutral": 1, "contradiction": 2, "contradictory": 2, "entailed": 0,
    "0": 0, "1": 1, "2": 2, "e": 0, "n": 1, "c": 2,
}  # fmt: skip
ENTAILMENT, CONTRADICTION = 0, 2


def encode_nli_labels(dataset: Dataset) -> Ints:
    """Return labels (n,): 0 entailment, 1 neutral, 2 contradiction. Raises DataError for an unknown label."""
    codes, values = dataset.encode_column("label")
    unknown = [value for value in values if value.lower() not in LABELS]
    if unknown:
        raise DataError(
            f"source {dataset.title!r}: unknown label {unknown[0]!r}; labels are entailment, neutral and contradiction, or 0, 1 and 2"
        )
    return np.array([LABELS[value.lower()] for value in values])[codes]


class NliTriplets:
    """Entailed rows, and for each the rows that contradict the same premise.

    One premise may entail what another contradicts, so two rows do not have the same meaning because both share a hypothesis with a
    third. Rows are grouped by shared texts only within a batch, and never with a row that they are known to contradict.
    """

    def __init__(self, premises: Ints, hypotheses: Ints, dataset: Dataset, hard_negatives: bool, rows: Ints | None = None) -> None:
        """`premises` and `hypotheses` (n,) are text ids of the dataset; `rows` restricts it to a subset.

        A pair that is labelled both as entailed and as contradicted is used as neither.
        """
        labels = encode_nli_labels(dataset)
        rows = np.arange(len(labels)) if rows is None else rows
        self.premises, self.hypotheses = premises, hypotheses
        self.premise_numbers = np.unique(premises, return_inverse=True)[1]
        self.hard_negatives = hard_negatives
        entailed, contradicted = rows[labels[rows] == ENTAILMENT], rows[labels[rows] == CONTRADICTION]
        entailed_keys, contradicted_keys = (pair_keys(premises[subset], hypotheses[subset]) for subset in (entailed, contradicted))
        entailed = entailed[~np.isin(entailed_keys, contradicted_keys)]
        contradicted = contradicted[~np.isin(contradicted_keys, entailed_keys)]
        self.contradicted_keys = np.sort(pair_keys(premises[contradicted], hypotheses[contradicted]))
        self.contradictions = contradicted[np.argsort(premises[contradicted], kind="stable")]  # rows by premise
        self._contradiction_premises = premises[self.contradictions]
        starts, ends = self._contradiction_bounds(entailed)
        self.entailed = entailed[ends > starts] if hard_negatives else entailed
        if not len(self.entailed):
            lacking = "both an entailed and a contradicting hypothesis" if hard_negatives else "an entailed hypothesis"
            raise DataError(f"source {dataset.title!r}: no premise has {lacking}, so there are no examples; check its labels")

    def group_rows(self, rows: Ints, *id_columns: Ints) -> tuple[Ints, Ints]:
        """Group the entailed rows (n,) of a batch by shared texts; `id_columns` (n,) hold the text ids of each row.

        Returns the positions (m,) of the rows to keep and their groups (m,). Group numbers are derived from premises and are the same in
        every batch. If one row of a group contradicts what another entails, the later one is dropped.
        """
        groups = group_connected_rows(*id_columns)
        grouped = np.flatnonzero(np.bincount(groups)[groups] > 1)
        first, second = (grouped[positions] for positions in np.nonzero(groups[grouped, None] == groups[grouped]))
        contradicting = np.isin(pair_keys(self.premises[rows[first]], self.hypotheses[rows[second]]), self.contradicted_keys)
        kept = np.setdiff1d(np.arange(len(rows)), np.maximum(first, second)[contradicting])
        numbers = np.full(len(rows), len(self.premises))
        np.minimum.at(numbers, groups[kept], self.premise_numbers[rows[kept]])
        return kept, numbers[groups[kept]]

    def draw_contradictions(self, rows: Ints, random: np.random.Generator) -> Ints | None:
        """Draw for each entailed row (n,) a row that contradicts the same premise; None without hard negatives."""
        if not self.hard_negatives:
            return None
        starts, ends = self._contradiction_bounds(rows)
        contradictions: Ints = self.contradictions[random.integers(starts, ends)]
        return contradictions

    def _contradiction_bounds(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the ranges of `contradictions` (n,), (n,) with the premises of rows (n,)."""
        premises = self.premises[rows]
        starts = np.searchsorted(self._contradiction_premises, premises, side="left")
        return starts, np.searchsorted(self._contradiction_premises, premises, side="right")
