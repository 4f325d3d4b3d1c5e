"""Natural language inference: labels, and triplets of premise, entailed hypothesis and contradicting hypothesis."""

from typing import Literal

import numpy as np
import pydantic

from miner.config.base import Strings
from miner.errors import DataError
from miner.training.data.batches import ANCHOR, POSITIVE, Batch, Ints, View, group_connected_rows, pair_keys
from miner.training.data.datasets import Dataset, SourceSettings
from miner.training.data.multilingual import align_languages
from miner.training.data.strategy import Strategy

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


class NliSettings(SourceSettings):
    """NLI: the premise is the anchor, an entailed hypothesis the positive, a contradicting one the hard negative."""

    REQUIRED_ROLES = ("premise", "hypothesis", "label")
    strategy: Literal["nli"]
    hard_negatives: bool = pydantic.Field(True, description="Use contradictions as hard negatives.")


class NliStrategy(Strategy):
    """A premise, a hypothesis that it entails and one that it contradicts, drawn at random (Gao et al. 2021, section 4)."""

    def number_examples(self) -> Ints:
        self.premises, self.hypotheses = self.dataset.text_rows("premise"), self.dataset.text_rows("hypothesis")
        ids = self.texts.ids
        self.triplets = NliTriplets(ids[self.premises], ids[self.hypotheses], self.dataset, self.settings.hard_negatives)
        langs = np.full(len(self.dataset), -1)
        langs[self.triplets.entailed] = self.dataset.languages()[self.triplets.entailed]
        return langs

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        rows = self.sampler.draw(size, random)
        kept, groups = self.triplets.group_rows(rows, self.triplets.premises[rows], self.triplets.hypotheses[rows])
        rows = rows[kept]
        contradictions = self.triplets.draw_contradictions(rows, random)
        batch = self.pair_batch(self.premises[rows], self.hypotheses[rows], groups)
        if contradictions is None:
            return batch
        id_columns = [self.triplets.premises[rows], self.triplets.hypotheses[rows]]
        return self.add_hard_negatives(batch, self.hypotheses[contradictions], id_columns)


class CrossLingualNliSettings(SourceSettings):
    """NLI in several languages with parallel rows; the language of each text of a triplet is drawn independently."""

    REQUIRED_ROLES = ("lang", "premise", "hypothesis", "label")
    OPTIONAL_ROLES = ()
    SUPPORTS_SMOOTHING = False
    strategy: Literal["cross_lingual_nli"]
    languages: Strings = pydantic.Field((), description="Languages to draw from, as spelled in the column; by default, all.")
    anchors: Literal["random", "every_language"] = pydantic.Field(
        "random", description="An entailed row's anchors in an epoch: one, or one in every language."
    )
    hard_negatives: bool = pydantic.Field(True, description="Use contradictions as hard negatives.")
    positives: int = pydantic.Field(1, ge=1, description="Positives per anchor, each in another language.")


class CrossLingualNliStrategy(Strategy):
    """NLI triplets; the languages of anchor, positives and negative are drawn independently (Wang et al. 2022, section 3.3).

    With anchors in every language, as in the data that the authors released, an example is a row and the language of its anchor.
    """

    def number_examples(self) -> Ints:
        dataset, ids = self.dataset, self.texts.ids
        self.num_positives, self.table = self.settings.positives, align_languages(dataset, self.settings.languages)
        if self.num_positives > len(self.table):
            raise self.error(f"{self.num_positives} positives from {len(self.table)} languages; lower positives")
        self.premises, self.hypotheses = dataset.text_rows("premise"), dataset.text_rows("hypothesis")
        self.columns = np.full(len(dataset), -1)  # row of the first language -> column of the table
        self.columns[self.table[0]] = np.arange(self.table.shape[1])
        self.triplets = NliTriplets(ids[self.premises], ids[self.hypotheses], dataset, self.settings.hard_negatives, self.table[0])
        self.repeats = len(self.table) if self.settings.anchors == "every_language" else 1
        examples = np.full(self.table.shape[1], -1)
        examples[self.columns[self.triplets.entailed]] = 0
        return np.tile(examples, self.repeats)

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        num_languages = len(self.table)
        anchor_langs, columns = np.divmod(self.sampler.draw(size, random), self.table.shape[1])
        kept, groups = self.triplets.group_rows(self.table[0][columns], *self._text_ids(columns))
        columns, size = columns[kept], len(kept)
        anchor_langs = anchor_langs[kept] if self.repeats > 1 else random.integers(0, num_languages, size)
        anchors = self.premises[self.table[anchor_langs, columns]]
        langs = np.argsort(random.random((size, num_languages)), axis=1)[:, : self.num_positives]
        positives = self.hypotheses[self.table[langs, columns[:, None]]].ravel()
        views = {ANCHOR: View(self.texts, anchors), POSITIVE: self.positive_view(positives)}
        owners, id_columns = np.repeat(np.arange(size), self.num_positives), self._text_ids(columns)
        batch = Batch(self.dataset.title, views, groups, owners, translation_ids=tuple(id_columns))
        contradictions = self.triplets.draw_contradictions(self.table[0][columns], random)
        if contradictions is None:
            return batch
        rows = self.table[random.integers(0, num_languages, size), self.columns[contradictions]]
        return self.add_hard_negatives(batch, self.hypotheses[rows], id_columns)

    def _text_ids(self, columns: Ints) -> list[Ints]:
        """Return the ids (n,) of premises and hypotheses of columns (n,) in each language."""
        return [ids[rows[columns]] for ids in (self.triplets.premises, self.triplets.hypotheses) for rows in self.table]
