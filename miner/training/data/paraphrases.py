"""Paraphrase pairs as data for retrieval: each pair is detached into its two sentences (Wang et al. 2022, section 4.1)."""

import logging

import numpy as np
import numpy.typing as npt

from miner.errors import DataError
from miner.training.data.batches import Augmentation, Batch, Ints, View, build_pair_batch, group_source_rows
from miner.training.data.datasets import Dataset
from miner.training.data.multilingual import align_languages
from miner.training.data.sampling import Sampler
from miner.training.data.source_settings import ParaphrasesSettings

LABELS = {"0": False, "1": True}  # whether two sentences are paraphrases

Mask = npt.NDArray[np.bool_]

logger = logging.getLogger(__name__)


class ParaphraseStrategy:
    """Both sentences of a pair are anchors; the positive of a sentence is its translation.

    A pair is drawn in two languages: each of its sentences is an anchor in one of them and a positive in the other, drawn by coin. The
    sentences of a paraphrase are in one group: the translation of one, or its text in the same language, is a positive of the other for
    `label_contrast`. The sentences of any other pair are in two groups, so they are hard negatives of each other.
    """

    def __init__(self, dataset: Dataset, settings: ParaphrasesSettings, seed: int, augmentation: Augmentation | None) -> None:
        self.dataset, self.augmentation = dataset, augmentation
        table = align_languages(dataset, settings.languages)
        if len(table) < 2:
            raise DataError(f"source {dataset.title!r}: one language, but positives are translations; add rows of another language")
        sentences = np.stack([dataset.text_rows("first"), dataset.text_rows("second")])
        self.rows = sentences[:, table]  # (2, languages, pairs) rows of texts
        is_paraphrase = _read_labels(dataset)[table[0]]
        self.groups = self._group_sentences(is_paraphrase)  # (2, pairs)
        is_contradicted = ~is_paraphrase & (self.groups[0] == self.groups[1])
        if is_contradicted.any():
            message = "source %r: dropped %d of %d pairs with label 0 whose sentences are equal, or paraphrases by other pairs"
            logger.warning(message, dataset.title, int(is_contradicted.sum()), len(is_contradicted))
        self.num_examples = int((~is_contradicted).sum())
        if not self.num_examples:
            raise DataError(f"source {dataset.title!r}: each pair has label 0 and equal sentences; check its columns first and second")
        self.sampler = Sampler(np.where(is_contradicted, -1, 0), 1.0, seed)

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        """Draw `size` pairs: twice as many anchors, the first sentences before the second ones."""
        pairs = self.sampler.draw(size, random)
        langs = np.argsort(random.random((self.rows.shape[1], size)), axis=0)[:2]  # two languages per pair
        is_swapped = random.random((2, size)) < 0.5  # for each sentence of a pair
        sentences, columns = np.array([[0], [1]]), np.stack([pairs, pairs])
        anchors = self.rows[sentences, np.where(is_swapped, langs[1], langs[0]), columns].ravel()
        positives = self.rows[sentences, np.where(is_swapped, langs[0], langs[1]), columns].ravel()
        texts = self.dataset.texts
        positive_view = View(texts, positives, augmentation=self.augmentation)
        translations = tuple(texts.ids[self.rows[:, lang, pairs]].ravel() for lang in range(self.rows.shape[1]))
        groups = self.groups[:, pairs].ravel()
        return build_pair_batch(self.dataset.title, View(texts, anchors), positive_view, groups, translation_ids=translations)

    def _group_sentences(self, is_paraphrase: Mask) -> Ints:
        """Group sentences (2, pairs): equal texts and paraphrases, and their translations, are in one group."""
        num_pairs = len(is_paraphrase)
        first = np.arange(num_pairs)
        meanings = np.stack([first, np.where(is_paraphrase, first, num_pairs + first)])  # translations share a number, paraphrases too
        numbers = np.broadcast_to(meanings[:, None], self.rows.shape).ravel()
        groups = group_source_rows(self.dataset.title, self.dataset.texts.ids[self.rows.ravel()], numbers)
        return groups.reshape(self.rows.shape)[:, 0]


def _read_labels(dataset: Dataset) -> Mask:
    """Return whether each row (n,) is a paraphrase. Raises DataError for an unknown label."""
    codes, values = dataset.encode_column("label")
    if unknown := [value for value in values if value not in LABELS]:
        raise DataError(f"source {dataset.title!r}: label {unknown[0]!r}; use 1 for paraphrases and 0 for other pairs, or drop such rows")
    return np.array([LABELS[value] for value in values])[codes]
