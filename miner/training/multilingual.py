"""Strategies over labelled data in several languages, the rows of each language standing in the same order."""

import numpy as np
import numpy.typing as npt

from miner.errors import DataError
from miner.training.batches import ANCHOR, POSITIVE, SECOND, Batch, Change, Ints, View, connected, with_negatives
from miner.training.datasets import Dataset
from miner.training.nli import NliTriplets, pair_numbers
from miner.training.sampling import Sampler
from miner.training.settings import CrossLingualNliSettings, LabelledPairsSettings

Mask = npt.NDArray[np.bool_]


def aligned(corpus: Dataset, pool: tuple[str, ...] = ()) -> tuple[Ints, tuple[str, ...]]:
    """A table (languages, n) of rows that are translations of one another, column by column, and the languages.

    Raises DataError where languages differ in their rows or labels, or one of the pool is missing.
    """
    codes, known = corpus.codes("lang")
    labels, _ = corpus.codes("label")
    languages = pool or known
    _check_pool(corpus, pool)
    rows = [np.flatnonzero(codes == known.index(lang)) for lang in languages]
    for lang, of in zip(languages, rows, strict=True):
        if len(of) != len(rows[0]) or (labels[of] != labels[rows[0]]).any():
            raise DataError(
                f"source {corpus.title!r}: {lang} has other rows or labels than {languages[0]}; give all the same rows in one order"
            )
    return np.stack(rows), languages


def _check_pool(corpus: Dataset, pool: tuple[str, ...]) -> None:
    """DataError where no row of a corpus is in one of the languages of a pool."""
    known = corpus.codes("lang")[1] if pool else ()
    if missing := [lang for lang in pool if lang not in known]:
        raise DataError(f"source {corpus.title!r}: no row in language {missing[0]!r}; its languages are {', '.join(known)}")


def _parallel(corpus: Dataset) -> Ints | None:
    """The table of `aligned`, or None where the rows of the languages, if it has several, are not translations of one another."""
    if "lang" not in corpus.marks.column_names:
        return None
    try:
        return aligned(corpus)[0]
    except DataError:
        return None


class CrossLingualNliStrategy:
    """NLI triplets; the languages of anchor, positives and negative are drawn independently (Wang et al. 2022, section 3.3)."""

    def __init__(self, corpus: Dataset, settings: CrossLingualNliSettings, seed: int, change: Change | None) -> None:
        self.corpus, self.change, self.positives = corpus, change, settings.positives
        self.table, languages = aligned(corpus, settings.languages)
        if settings.positives > len(languages):
            raise DataError(f"source {corpus.title!r}: {settings.positives} positives of {len(languages)} languages; lower positives")
        self.premises, self.hypotheses = corpus.rows("premise"), corpus.rows("hypothesis")
        self.column = np.full(len(corpus), -1)
        self.column[self.table[0]] = np.arange(self.table.shape[1])
        ids = corpus.texts.ids
        self.triplets = NliTriplets(ids[self.premises], ids[self.hypotheses], corpus, settings.hard_negatives, self.table[0])
        examples = np.full(self.table.shape[1], -1)
        examples[self.column[self.triplets.entailed]] = 0
        self.sampler = Sampler(examples, 1.0, seed)
        self.count = len(self.triplets.entailed)

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        columns, groups = self._grouped(self.sampler.draw(size, random))
        count, size = len(self.table), len(columns)
        anchors = self.premises[self.table[random.integers(0, count, size), columns]]
        langs = np.argsort(random.random((size, count)), axis=1)[:, : self.positives]
        positives = self.hypotheses[self.table[langs, columns[:, None]]].ravel()
        texts = self.corpus.texts
        views = {ANCHOR: View(texts, anchors), POSITIVE: View(texts, positives, change=self.change)}
        batch = Batch(self.corpus.title, views, groups, np.repeat(np.arange(size), self.positives))
        contradicted = self.triplets.contradicted(self.table[0][columns], random)
        if contradicted is None:
            return batch
        rows = self.table[random.integers(0, count, size), self.column[contradicted]]
        return with_negatives(batch, View(texts, self.hypotheses[rows]), self._texts(columns))

    def _grouped(self, columns: Ints) -> tuple[Ints, Ints]:
        """Columns (n,) of the table -> those to keep, and their groups: of what shares a text in any of the languages."""
        kept, groups = self.triplets.grouped(self.table[0][columns], *self._texts(columns))
        return columns[kept], groups

    def _texts(self, columns: Ints) -> list[Ints]:
        """Columns (n,) of the table -> the ids (n,) of premises and of hypotheses in each of the languages."""
        return [ids[rows[columns]] for ids in (self.triplets.premises, self.triplets.hypotheses) for rows in self.table]


class LabelledPairsStrategy:
    """Two texts and a label; the positive view of a row is the row itself, or a translation of both texts or of one of them."""

    def __init__(self, corpus: Dataset, settings: LabelledPairsSettings, seed: int, change: Change | None) -> None:
        self.corpus, self.settings, self.change = corpus, settings, change
        codes, values = corpus.codes("label")
        if strange := [value for value in values if value not in settings.labels]:
            raise DataError(f"source {corpus.title!r}: label {strange[0]!r} is not among labels ({', '.join(settings.labels)})")
        self.labels = np.array([settings.labels.index(value) for value in values])[codes]
        self.sides = corpus.rows("first"), corpus.rows("second")
        langs = corpus.codes("lang")[0] if "lang" in corpus.marks.column_names else np.zeros(len(corpus), dtype=np.int64)
        self.table = aligned(corpus)[0] if settings.view != "same" else _parallel(corpus)
        self.column = None if self.table is None else np.argsort(self.table.ravel()) % self.table.shape[1]
        self.groups = self._groups()
        if settings.languages:
            _check_pool(corpus, settings.languages)
            known = corpus.codes("lang")[1]
            langs = np.where(np.isin(langs, [place for place, lang in enumerate(known) if lang in settings.languages]), langs, -1)
        self.sampler = Sampler(langs, settings.language_smoothing, seed)
        self.count = int((langs >= 0).sum())

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        rows = self.sampler.draw(size, random)
        first, second = (side[rows] for side in self.sides)
        texts = self.corpus.texts
        if not self.settings.joint:
            views = {ANCHOR: View(texts, first), SECOND: View(texts, second, change=self.change)}
        else:
            other = self._translations(rows, random)
            keep_first, keep_second = self._kept(size, random)
            view_rows = np.where(keep_first, first, self.sides[0][other]), np.where(keep_second, second, self.sides[1][other])
            views = {ANCHOR: View(texts, first, second), POSITIVE: View(texts, view_rows[0], view_rows[1], change=self.change)}
        return Batch(self.corpus.title, views, self.groups[rows], np.arange(size), labels=self.labels[rows])

    def _groups(self) -> Ints:
        """(n,) numbers of the rows: the same for the same two texts, and for translations of them."""
        ids = self.corpus.texts.ids
        pairs = pair_numbers(ids[self.sides[0]], ids[self.sides[1]])
        return connected(pairs) if self.column is None else connected(pairs, self.column)

    def _translations(self, rows: Ints, random: np.random.Generator) -> Ints:
        """Rows (n,) -> the same rows in any of the languages."""
        if self.settings.view == "same" or self.table is None or self.column is None:
            return rows
        translations: Ints = self.table[random.integers(0, len(self.table), len(rows)), self.column[rows]]
        return translations

    def _kept(self, size: int, random: np.random.Generator) -> tuple[Mask, Mask]:
        """Which of the two texts stay as they are in the other view: of a partial translation, one."""
        if self.settings.view != "partial_translation":
            return np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
        first = random.random(size) < 0.5
        return first, ~first
