"""The base of all strategies, which turn the rows of a source into batches of anchors, positives and negatives."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from miner.errors import DataError
from miner.training.data.batches import (
    ANCHOR,
    NEGATIVE,
    POSITIVE,
    Augmentation,
    Batch,
    Ints,
    View,
    find_groups,
    group_connected_rows,
)
from miner.training.data.datasets import Dataset
from miner.training.data.sampling import Sampler

# Group size, in rows and as a share of a source, above which a warning is logged.
LARGE_GROUP_ROWS, LARGE_GROUP_SHARE = 100, 0.05

logger = logging.getLogger(__name__)


class Strategy(ABC):
    """Draws batches from one source. `sampler` holds its whole state."""

    def __init__(self, dataset: Dataset, settings: Any, seed: int, augmentation: Augmentation | None) -> None:
        """Raises DataError if the source has no examples. `augmentation` is applied to positives."""
        self.dataset, self.texts, self.settings, self.seed, self.augmentation = dataset, dataset.texts, settings, seed, augmentation
        langs = self.number_examples()
        self.sampler = Sampler(langs, settings.language_smoothing, seed)
        self.num_examples = int((langs >= 0).sum())  # per epoch

    @abstractmethod
    def number_examples(self) -> Ints:
        """Prepare the examples; return the language (n,) of each, or -1 for one that is never drawn."""

    @abstractmethod
    def draw(self, size: int, random: np.random.Generator) -> Batch:
        """Draw a batch of `size` examples."""

    def error(self, problem: str) -> DataError:
        """Return an error that names the source."""
        return DataError(f"source {self.dataset.title!r}: {problem}")

    def positive_view(self, rows: Ints, partners: Ints | None = None, translations: Ints | None = None) -> View:
        return View(self.texts, rows, partners, translations, self.augmentation)

    def pair_batch(self, anchors: Ints, positives: Ints | View, groups: Ints, **fields: Any) -> Batch:
        """Build a batch from the rows (n,) of anchors, with one positive each."""
        view = positives if isinstance(positives, View) else self.positive_view(positives)
        return Batch(self.dataset.title, {ANCHOR: View(self.texts, anchors), POSITIVE: view}, groups, np.arange(len(anchors)), **fields)

    def add_hard_negatives(self, batch: Batch, rows: Ints, id_columns: Sequence[Ints]) -> Batch:
        """Add one hard negative per anchor, at rows (n,). `id_columns` (n,) hold the ids of the texts of each anchor's group."""
        negatives, owners = View(self.texts, rows), np.arange(len(batch))
        negative_groups = find_groups(negatives.ids, np.concatenate(id_columns), np.tile(batch.groups, len(id_columns)))
        return replace(batch, views={**batch.views, NEGATIVE: negatives}, negative_owners=owners, negative_groups=negative_groups)

    def group_rows(self, *id_columns: Ints) -> Ints:
        """Group rows as `group_connected_rows`, and warn about large groups, which have no negatives among themselves."""
        groups = group_connected_rows(*id_columns)
        largest = int(np.bincount(groups).max())
        if largest > max(LARGE_GROUP_ROWS, LARGE_GROUP_SHARE * len(groups)):
            message = "source %r: %s of %s rows share texts, directly or through other rows, so they are not negatives of each other"
            logger.warning(message, self.dataset.title, f"{largest:,}", f"{len(groups):,}")
        return groups
