"""Read the parts of a directory of `miner mine` that a report shows.

Memory: the margins of all pairs, 8 bytes each; with gold or marks, the ids too; and the texts of a sample.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from miner.arrays import Floats, Ids, Ints
from miner.evaluation.hub_counts import SIDES, read_candidates
from miner.io import stages, storage, table_files
from miner.io.stages import Manifest
from miner.mining.histogram import Histogram
from miner.mining.writers import PARQUET, candidates_from_arrow


@dataclass(frozen=True, eq=False)
class MinedBitext:
    """A directory of `miner mine`."""

    folder: str
    manifest: Manifest

    @property
    def uri(self) -> str:
        return storage.join(self.folder, PARQUET)

    @property
    def languages(self) -> tuple[str, str]:
        languages = self.manifest.details["languages"]
        return languages["source"], languages["target"]

    @cached_property
    def margins(self) -> Floats:
        """(n,) of all pairs, best first."""
        return self._floats("margin")

    @cached_property
    def probabilities(self) -> Floats | None:
        """(n,) of all pairs, None if the encoder has none."""
        with table_files.open_parquet(self.uri) as file:
            has_probabilities = "probability" in file.schema_arrow.names
        return self._floats("probability") if has_probabilities else None

    def _floats(self, column: str) -> Floats:
        batches = [batch[column].to_numpy() for batch in table_files.read_row_groups(self.uri, [column])]
        return np.concatenate(batches) if batches else np.zeros(0)

    def ids(self) -> tuple[Ids, Ids]:
        """Return the ids of the sources and the targets, (n,) each."""
        table = table_files.read_table(self.uri, [f"{side}_id" for side in SIDES])
        return table["source_id"].to_numpy(), table["target_id"].to_numpy()

    def texts(self, rows: Ints) -> tuple[list[str], list[str]]:
        """Rows (m,), ascending -> the source and target texts of these pairs."""
        table = table_files.read_rows(self.uri, rows, [f"{side}_text" for side in SIDES])
        return table["source_text"].to_pylist(), table["target_text"].to_pylist()

    def best_margins(self) -> Histogram | None:
        """Return the histogram of the largest margin of each source sentence; None without candidates."""
        manifest = read_candidates(self.folder)
        if manifest is None:
            return None
        histogram = Histogram()
        for shard in manifest.shards:
            candidates = candidates_from_arrow(table_files.read_table(storage.join(self.folder, stages.CANDIDATES, shard.name)))
            histogram.add_best(candidates, self.manifest.config.get("margin", "ratio"))
        return histogram if histogram.bins else None
