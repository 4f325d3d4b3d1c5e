"""Strategies over labelled data in several languages whose rows are parallel: row i of each language is the same example."""

import numpy as np

from miner.errors import DataError
from miner.training.data.batches import (
    ANCHOR,
    POSITIVE,
    SECOND,
    Augmentation,
    Batch,
    Ints,
    MixedView,
    View,
    add_hard_negatives,
    group_connected_rows,
    pair_keys,
)
from miner.training.data.datasets import Dataset
from miner.training.data.nli import NliTriplets
from miner.training.data.sampling import Sampler
from miner.training.data.source_settings import CrossLingualNliSettings, LabelledPairsSettings, ViewMixSettings


def align_languages(dataset: Dataset, pool: tuple[str, ...] = ()) -> Ints:
    """Return a table (languages, n) of rows; a column holds the translations of one example.

    Raises DataError if languages differ in their number of rows or labels, or if one of the pool is missing.
    """
    codes, values = dataset.encode_column("lang")
    labels, _ = dataset.encode_column("label")
    languages = pool or values
    _check_pool(dataset, pool)
    table = [np.flatnonzero(codes == values.index(lang)) for lang in languages]
    for lang, rows in zip(languages, table, strict=True):
        if len(rows) != len(table[0]) or (labels[rows] != labels[table[0]]).any():
            raise DataError(
                f"source {dataset.title!r}: {lang} has other rows or labels than {languages[0]};"
                " give the same rows in the same order for each language"
            )
    return np.stack(table)


def _check_pool(dataset: Dataset, pool: tuple[str, ...]) -> None:
    """Raise DataError if the dataset has no row in a language of the pool."""
    languages = dataset.encode_column("lang")[1] if pool else ()
    if missing := [lang for lang in pool if lang not in languages]:
        raise DataError(f"source {dataset.title!r}: no row in language {missing[0]!r}; its languages are {', '.join(languages)}")


def _align_if_parallel(dataset: Dataset) -> Ints | None:
    """Return the table of `align_languages`, or None if the dataset has no languages or they are not parallel."""
    if "lang" not in dataset.metadata.column_names:
        return None
    try:
        return align_languages(dataset)
    except DataError:
        return None


class CrossLingualNliStrategy:
    """NLI triplets; the languages of anchor, positives and negative are drawn independently (Wang et al. 2022, section 3.3).

    With anchors in every language, as in the data that the authors released, an example is a row and the language of its anchor.
    """

    def __init__(self, dataset: Dataset, settings: CrossLingualNliSettings, seed: int, augmentation: Augmentation | None) -> None:
        self.dataset, self.augmentation, self.num_positives = dataset, augmentation, settings.positives
        self.table = align_languages(dataset, settings.languages)
        if settings.positives > len(self.table):
            raise DataError(f"source {dataset.title!r}: {settings.positives} positives from {len(self.table)} languages; lower positives")
        self.premises, self.hypotheses = dataset.text_rows("premise"), dataset.text_rows("hypothesis")
        self.columns = np.full(len(dataset), -1)  # row of the first language -> column of the table
        self.columns[self.table[0]] = np.arange(self.table.shape[1])
        ids = dataset.texts.ids
        self.triplets = NliTriplets(ids[self.premises], ids[self.hypotheses], dataset, settings.hard_negatives, self.table[0])
        self.repeats = len(self.table) if settings.anchors == "every_language" else 1
        examples = np.full(self.table.shape[1], -1)
        examples[self.columns[self.triplets.entailed]] = 0
        self.sampler = Sampler(np.tile(examples, self.repeats), 1.0, seed)
        self.num_examples = len(self.triplets.entailed) * self.repeats

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        num_languages = len(self.table)
        anchor_langs, columns = np.divmod(self.sampler.draw(size, random), self.table.shape[1])
        kept, groups = self.triplets.group_rows(self.table[0][columns], *self._text_ids(columns))
        columns, size = columns[kept], len(kept)
        anchor_langs = anchor_langs[kept] if self.repeats > 1 else random.integers(0, num_languages, size)
        anchors = self.premises[self.table[anchor_langs, columns]]
        langs = np.argsort(random.random((size, num_languages)), axis=1)[:, : self.num_positives]
        positives = self.hypotheses[self.table[langs, columns[:, None]]].ravel()
        texts = self.dataset.texts
        views = {ANCHOR: View(texts, anchors), POSITIVE: View(texts, positives, augmentation=self.augmentation)}
        owners, id_columns = np.repeat(np.arange(size), self.num_positives), self._text_ids(columns)
        batch = Batch(self.dataset.title, views, groups, owners, translation_ids=tuple(id_columns))
        contradictions = self.triplets.draw_contradictions(self.table[0][columns], random)
        if contradictions is None:
            return batch
        rows = self.table[random.integers(0, num_languages, size), self.columns[contradictions]]
        return add_hard_negatives(batch, View(texts, self.hypotheses[rows]), id_columns)

    def _text_ids(self, columns: Ints) -> list[Ints]:
        """Return the ids (n,) of premises and hypotheses of columns (n,) in each language."""
        return [ids[rows[columns]] for ids in (self.triplets.premises, self.triplets.hypotheses) for rows in self.table]


class LabelledPairsStrategy:
    """Two texts and a label; the positives of a row are translations of both texts or of one of them, or the row code-switched."""

    def __init__(self, dataset: Dataset, settings: LabelledPairsSettings, seed: int, augmentation: Augmentation | None) -> None:
        self.dataset, self.settings, self.augmentation = dataset, settings, augmentation
        codes, values = dataset.encode_column("label")
        if unknown := [value for value in values if value not in settings.labels]:
            raise DataError(f"source {dataset.title!r}: label {unknown[0]!r} is not among labels ({', '.join(settings.labels)})")
        self.labels = np.array([settings.labels.index(value) for value in values])[codes]
        self.first_rows, self.second_rows = dataset.text_rows("first"), dataset.text_rows("second")
        self.views = settings.views or ViewMixSettings()
        has_translations = self.views.full_translation + self.views.partial_translation > 0
        self.table = align_languages(dataset) if has_translations else _align_if_parallel(dataset)
        if has_translations and self.table is not None and len(self.table) == 1:
            raise DataError(f"source {dataset.title!r}: views of translations, but rows in one language; add rows of another one")
        self.positions = np.arange(len(dataset)) if self.table is None else np.argsort(self.table.ravel())  # of rows in the table
        self.groups = self._group_rows()
        langs = dataset.languages()
        if settings.languages:
            _check_pool(dataset, settings.languages)
            languages = dataset.encode_column("lang")[1]
            pool = [code for code, lang in enumerate(languages) if lang in settings.languages]
            langs = np.where(np.isin(langs, pool), langs, -1)
        self.sampler = Sampler(langs, settings.language_smoothing, seed)
        self.num_examples = int((langs >= 0).sum())

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        rows = self.sampler.draw(size, random)
        first, second = self.first_rows[rows], self.second_rows[rows]
        texts = self.dataset.texts
        views: dict[str, View | MixedView]
        if not self.settings.joint:
            views = {ANCHOR: View(texts, first), SECOND: View(texts, second, augmentation=self.augmentation)}
        else:
            parts = self._draw_views(rows, random)
            views = {ANCHOR: View(texts, first, second), POSITIVE: parts[0] if len(parts) == 1 else MixedView(tuple(parts))}
        owners = np.tile(np.arange(size), self.settings.num_views)
        return Batch(self.dataset.title, views, self.groups[rows], owners, labels=self.labels[rows])

    def _group_rows(self) -> Ints:
        """Group the rows (n,) of the dataset: equal pairs of texts and translations of each other are one group."""
        ids = self.dataset.texts.ids
        keys = pair_keys(ids[self.first_rows], ids[self.second_rows])
        return group_connected_rows(keys) if self.table is None else group_connected_rows(keys, self.positions % self.table.shape[1])

    def _draw_views(self, rows: Ints, random: np.random.Generator) -> list[View]:
        """Draw the positives of rows (n,): one view (n,) of all rows after the other."""
        texts, first, second = self.dataset.texts, self.first_rows[rows], self.second_rows[rows]
        if self.table is None or self.settings.views is None:
            num_copies, translations = self.settings.num_views, []
        else:
            num_copies = self.views.code_switch
            translations = [self._draw_translations(rows, random) for _ in range(self.views.total - num_copies)]
        parts = []
        for number, other in enumerate(translations):
            is_partial = number >= self.views.full_translation
            keeps_first = random.random(len(rows)) < 0.5
            parts.append(
                View(
                    texts,
                    np.where(is_partial & keeps_first, first, self.first_rows[other]),
                    np.where(is_partial & ~keeps_first, second, self.second_rows[other]),
                )
            )
        return [*parts, *(View(texts, first, second, augmentation=self.augmentation) for _ in range(num_copies))]

    def _draw_translations(self, rows: Ints, random: np.random.Generator) -> Ints:
        """Draw for each row (n,) the row of the same example in another language."""
        assert self.table is not None  # there are views of translations
        num_languages, num_examples = self.table.shape
        langs, columns = np.divmod(self.positions[rows], num_examples)
        translations: Ints = self.table[(langs + random.integers(1, num_languages, len(rows))) % num_languages, columns]
        return translations
