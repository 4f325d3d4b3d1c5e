"""Cleaning of training data: rows with an evaluation sentence, and repeated rows, are dropped and counted."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

import xxhash

from miner.research.datasets.columns import expand_files, file_fingerprints, read_texts
from miner.text.decontaminate import EXACT, NEAR, EvaluationIndex
from miner.training.settings import CleaningSettings

Columns = Mapping[str, Sequence[str]]  # role -> cells

EVALUATION, NEAR_EVALUATION, REPEATED = "evaluation", "near_evaluation", "repeated"  # reasons


class Cleaning:
    """The settings, and the evaluation sentences that all sources share, read when the first source needs them."""

    def __init__(self, settings: CleaningSettings) -> None:
        self.settings = settings

    @cached_property
    def index(self) -> EvaluationIndex:
        """Index the evaluation sentences; raise DataError for a file that cannot be read."""
        files = expand_files(self.settings.decontaminate)
        return EvaluationIndex((text for file in files for text in read_texts(file)), self.settings.near)

    def cache_key(self) -> list[object]:
        """Return what the rows that are kept depend on, besides the source: settings and evaluation files."""
        return [self.settings.model_dump(mode="json"), file_fingerprints(self.settings.decontaminate)]


class RowFilter:
    """Selects the rows of one source, block by block. Memory: 100 bytes per row where rows are deduplicated."""

    def __init__(self, cleaning: Cleaning, text_roles: Sequence[str]) -> None:
        self.cleaning, self.text_roles = cleaning, text_roles
        self.dropped: Counter[str] = Counter()  # reason -> rows
        self._seen: set[int] = set()  # hashes of rows

    def select(self, columns: Columns) -> dict[str, list[str]]:
        """Return the columns without the rows that are dropped."""
        reasons = self._find_evaluation_rows(columns)
        if self.cleaning.settings.deduplicate:
            for row, cells in enumerate(zip(*columns.values(), strict=True)):
                digest = xxhash.xxh3_64_intdigest("\0".join(cells).encode())
                if row not in reasons and digest in self._seen:
                    reasons[row] = REPEATED
                self._seen.add(digest)
        self.dropped.update(reasons.values())
        return {role: [cell for row, cell in enumerate(cells) if row not in reasons] for role, cells in columns.items()}

    def _find_evaluation_rows(self, columns: Columns) -> dict[int, str]:
        """Return the rows with an evaluation sentence in any text, with the reason; exact matches come before near ones."""
        reasons: dict[int, str] = {}
        if not self.cleaning.settings.decontaminate:
            return reasons
        kinds = [self.cleaning.index.classify(columns[role]) for role in self.text_roles]
        for kind, reason in ((EXACT, EVALUATION), (NEAR, NEAR_EVALUATION)):
            for column_kinds in kinds:
                for row in (column_kinds == kind).nonzero()[0].tolist():
                    reasons.setdefault(row, reason)
        return reasons
