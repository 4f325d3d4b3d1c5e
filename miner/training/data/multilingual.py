"""Strategies over labelled pairs in several languages whose rows are parallel: row i of each language is the same example."""

import logging
from typing import Literal, Self

import numpy as np
import pydantic
from pydantic_core import PydanticCustomError

from miner.arrays import Bools
from miner.config.base import Strings
from miner.errors import DataError
from miner.training.data.batches import ANCHOR, POSITIVE, SECOND, Batch, Ints, MixedView, View, group_connected_rows, pair_keys
from miner.training.data.datasets import Dataset, SourceSettings
from miner.training.data.strategy import Strategy
from miner.training.settings import TrainSettings

IS_PARAPHRASE = {"0": False, "1": True}  # label -> whether two sentences are paraphrases

logger = logging.getLogger(__name__)


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


class ViewMixSettings(TrainSettings):
    """Number of positives of each sample, by augmentation."""

    full_translation: int = pydantic.Field(0, ge=0, description="Both texts in another language.")
    partial_translation: int = pydantic.Field(0, ge=0, description="One of the two texts in another language.")
    code_switch: int = pydantic.Field(0, ge=0, description="Words replaced by translations, with the lexicons of `code_switch`.")

    @property
    def total(self) -> int:
        return self.full_translation + self.partial_translation + self.code_switch


class LabelledPairsSettings(SourceSettings):
    """Labelled text pairs. With a `lang` column and translations among `views`, the rows of all languages must be parallel."""

    REQUIRED_ROLES = ("first", "second", "label")
    strategy: Literal["labelled_pairs"]
    labels: Strings = pydantic.Field(min_length=2, description="All labels, in the order of the classes.")
    joint: bool = pydantic.Field(True, description="Encode both texts as one sequence; false: separately.")
    languages: Strings = pydantic.Field((), description="Training languages; by default, all.")
    views: ViewMixSettings | None = pydantic.Field(
        None, description="Positives of each pair; by default, one, the pair itself, code-switched if `code_switch` is given."
    )

    @pydantic.model_validator(mode="after")
    def _check_views(self) -> Self:
        if "lang" not in self.columns and (self.languages or self.has_translations):
            raise PydanticCustomError("columns", "languages and views of translations need a column for 'lang'")
        if self.views is None:
            return self
        if not self.joint:
            raise PydanticCustomError("views", "views need texts that are encoded as one sequence; set joint to true, or remove views")
        if not self.views.total:
            raise PydanticCustomError("views", "views has no view; give a number of full_translation, partial_translation or code_switch")
        if (self.views.code_switch > 0) != (self.code_switch is not None):
            raise PydanticCustomError("views", "views.code_switch and code_switch need each other; give both, or neither")
        return self

    @property
    def num_views(self) -> int:
        """Number of positives per pair."""
        return 1 if self.views is None else self.views.total

    @property
    def has_translations(self) -> bool:
        """Whether positives are translations, so that the rows of all languages must be parallel."""
        return self.views is not None and self.views.full_translation + self.views.partial_translation > 0


class LabelledPairsStrategy(Strategy):
    """Two texts and a label; the positives of a row are translations of both texts or of one of them, or the row code-switched."""

    def number_examples(self) -> Ints:
        dataset, settings = self.dataset, self.settings
        codes, values = dataset.encode_column("label")
        if unknown := [value for value in values if value not in settings.labels]:
            raise self.error(f"label {unknown[0]!r} is not among labels ({', '.join(settings.labels)})")
        self.labels = np.array([settings.labels.index(value) for value in values])[codes]
        self.first_rows, self.second_rows = dataset.text_rows("first"), dataset.text_rows("second")
        self.views = settings.views or ViewMixSettings()
        self.table = self._align()
        self.positions = np.arange(len(dataset)) if self.table is None else np.argsort(self.table.ravel())  # (n,) in the table
        keys = pair_keys(self.texts.ids[self.first_rows], self.texts.ids[self.second_rows])
        # Equal pairs of texts and translations of each other are one group.
        self.groups = group_connected_rows(keys, *([] if self.table is None else [self.positions % self.table.shape[1]]))
        langs = dataset.languages()
        if not settings.languages:
            return langs
        _check_pool(dataset, settings.languages)
        pool = [code for code, lang in enumerate(dataset.encode_column("lang")[1]) if lang in settings.languages]
        return np.where(np.isin(langs, pool), langs, -1)

    def _align(self) -> Ints | None:
        """Return the table of `align_languages`; None if no view needs it, and there are no languages or they are not parallel."""
        if self.settings.has_translations:
            table = align_languages(self.dataset)
            if len(table) == 1:
                raise self.error("views of translations, but rows in one language; add rows of another one")
            return table
        try:
            return align_languages(self.dataset) if "lang" in self.dataset.metadata.column_names else None
        except DataError:
            return None

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        rows = self.sampler.draw(size, random)
        first, second = self.first_rows[rows], self.second_rows[rows]
        views: dict[str, View | MixedView]
        if not self.settings.joint:
            views = {ANCHOR: View(self.texts, first), SECOND: self.positive_view(second)}
        else:
            parts = self._draw_views(rows, random)
            views = {ANCHOR: View(self.texts, first, second), POSITIVE: parts[0] if len(parts) == 1 else MixedView(tuple(parts))}
        owners = np.tile(np.arange(size), self.settings.num_views)
        return Batch(self.dataset.title, views, self.groups[rows], owners, labels=self.labels[rows])

    def _draw_views(self, rows: Ints, random: np.random.Generator) -> list[View]:
        """Draw the positives of rows (n,): one view (n,) of all rows after the other."""
        first, second = self.first_rows[rows], self.second_rows[rows]
        if self.table is None or self.settings.views is None:
            num_copies, translations = self.settings.num_views, []
        else:
            num_copies = self.views.code_switch
            translations = [self._draw_translations(self.table, rows, random) for _ in range(self.views.total - num_copies)]
        parts = []
        for number, other in enumerate(translations):
            is_partial = number >= self.views.full_translation
            keeps_first = random.random(len(rows)) < 0.5
            first_rows = np.where(is_partial & keeps_first, first, self.first_rows[other])
            parts.append(View(self.texts, first_rows, np.where(is_partial & ~keeps_first, second, self.second_rows[other])))
        return [*parts, *(self.positive_view(first, second) for _ in range(num_copies))]

    def _draw_translations(self, table: Ints, rows: Ints, random: np.random.Generator) -> Ints:
        """Draw for each row (n,) the row of the same example in another language."""
        num_languages, num_examples = table.shape
        langs, columns = np.divmod(self.positions[rows], num_examples)
        translations: Ints = table[(langs + random.integers(1, num_languages, len(rows))) % num_languages, columns]
        return translations


class ParaphrasesSettings(SourceSettings):
    """Pairs labelled 1 (paraphrases) or 0, detached into sentences with their translations; rows of all languages must be parallel."""

    REQUIRED_ROLES = ("first", "second", "label", "lang")
    OPTIONAL_ROLES = ()
    SUPPORTS_SMOOTHING = False
    strategy: Literal["paraphrases"]
    languages: Strings = pydantic.Field((), description="Languages to draw from, as spelled in the column; by default, all.")
    group_paraphrases: bool = pydantic.Field(
        True, description="Paraphrases have one meaning, as translations do; false: they are negatives of each other."
    )


class ParaphraseStrategy(Strategy):
    """Both sentences of a pair are anchors; the positive of a sentence is its translation (Wang et al. 2022, section 4.1).

    A pair is drawn in two languages: each of its sentences is an anchor in one of them and a positive in the other, drawn by coin. The
    sentences of a paraphrase are in one group: the translation of one, or its text in the same language, is a positive of the other for
    `label_contrast`. The sentences of any other pair are in two groups, so they are hard negatives of each other; without
    `group_paraphrases`, so are those of a paraphrase.
    """

    def number_examples(self) -> Ints:
        dataset = self.dataset
        table = align_languages(dataset, self.settings.languages)
        if len(table) < 2:
            raise self.error("one language, but positives are translations; add rows of another language")
        sentences = np.stack([dataset.text_rows("first"), dataset.text_rows("second")])
        self.rows = sentences[:, table]  # (2, languages, pairs) rows of texts
        codes, values = dataset.encode_column("label")
        if unknown := [value for value in values if value not in IS_PARAPHRASE]:
            raise self.error(f"label {unknown[0]!r}; use 1 for paraphrases and 0 for other pairs, or drop such rows")
        is_paraphrase = np.array([IS_PARAPHRASE[value] for value in values])[codes][table[0]]
        self.groups = self._group_sentences(is_paraphrase)  # (2, pairs)
        is_contradicted = ~is_paraphrase & (self.groups[0] == self.groups[1])
        if is_contradicted.any():
            message = "source %r: dropped %d of %d pairs with label 0 whose sentences are equal, or paraphrases by other pairs"
            logger.warning(message, dataset.title, int(is_contradicted.sum()), len(is_contradicted))
        if is_contradicted.all():
            raise self.error("each pair has label 0 and equal sentences; check its columns first and second")
        return np.where(is_contradicted, -1, 0)

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        """Draw `size` pairs: twice as many anchors, the first sentences before the second ones."""
        pairs = self.sampler.draw(size, random)
        langs = np.argsort(random.random((self.rows.shape[1], size)), axis=0)[:2]  # two languages per pair
        is_swapped = random.random((2, size)) < 0.5  # for each sentence of a pair
        sentences, columns = np.array([[0], [1]]), np.stack([pairs, pairs])
        anchors = self.rows[sentences, np.where(is_swapped, langs[1], langs[0]), columns].ravel()
        positives = self.rows[sentences, np.where(is_swapped, langs[0], langs[1]), columns].ravel()
        translations = tuple(self.texts.ids[self.rows[:, lang, pairs]].ravel() for lang in range(self.rows.shape[1]))
        return self.pair_batch(anchors, positives, self.groups[:, pairs].ravel(), translation_ids=translations)

    def _group_sentences(self, is_paraphrase: Bools) -> Ints:
        """Group sentences (2, pairs): equal texts and their translations are in one group, and paraphrases if they are grouped."""
        num_pairs = len(is_paraphrase)
        first = np.arange(num_pairs)
        is_grouped = is_paraphrase & self.settings.group_paraphrases
        meanings = np.stack([first, np.where(is_grouped, first, num_pairs + first)])  # translations share a number, grouped sentences too
        numbers = np.broadcast_to(meanings[:, None], self.rows.shape).ravel()
        groups = self.group_rows(self.texts.ids[self.rows.ravel()], numbers)
        return groups.reshape(self.rows.shape)[:, 0]
