"""`miner.score`: the pipeline of `miner score` on texts, vectors or files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from miner import encoders
from miner.api.embedding import Embeddings
from miner.api.mining import check_vectors, without_filters
from miner.api.options import with_options
from miner.api.results import TableResult
from miner.api.sides import SIDES, Side, SideFile, SideWriter, is_vectors
from miner.api.workspace import TEXT, EncoderLike, open_workspace, write_texts
from miner.arrays import Floats, Ints
from miner.config.commands import ScoreConfig
from miner.config.filters import FILTERS, settings_from
from miner.io import storage, table_files
from pipelines.mining import score as pipeline
from pipelines.mining.score import ScoreResult


@dataclass(frozen=True, eq=False, repr=False)
class PairScores(TableResult):
    """The margins of n pairs, in the order of the input: of all of them, or of those that the bounds keep.

    Columns: row, margin, similarity, probability, reason, with `reasons` also scores (JSON, filter -> score), but for vectors source_text
    and target_text, null for a dropped text; for a file also line and, of a table with both sides, its other columns.
    """

    table: pa.Table
    result: ScoreResult

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return f"PairScores: {self.result.summary()}"

    @property
    def rows(self) -> Ints:
        """The rows (n,) of the input."""
        return np.asarray(self.table["row"])

    @property
    def margins(self) -> Floats:
        """The margins (n,); NaN if a sentence is empty, too long or without a vector."""
        return np.asarray(self.table["margin"])

    @property
    def similarities(self) -> Floats:
        """The similarities (n,)."""
        return np.asarray(self.table["similarity"])

    @property
    def dropped(self) -> Mapping[str, int]:
        """The pairs that the bounds drop, by reason."""
        return self.result.dropped or {}

    @property
    def figures(self) -> dict[str, Any]:
        """All measurements, as `--json` writes them."""
        return self.result.figures()

    def to_arrow(self) -> pa.Table:
        """Return the table of pairs."""
        return self.table


@with_options(ScoreConfig, without=["output"])
def score(
    source: Side,
    target: Side,
    encoder: EncoderLike = encoders.BUILTIN,
    background_source: Side | None = None,
    background_target: Side | None = None,
    **options: Any,
) -> PairScores:
    """Score pairs by their margin: run the pipeline of `miner score`. Row i of the source and row i of the target are a pair.

    Args:
        source: A list of sentences, or another iterable with an order; the path of a text; the result of `miner.embed`; or a tuple of ids
            (n,) and unit vectors (n, dim).
        target: As many of the other side, in any of these forms.
        encoder: Name of an encoder, or an encoder of `miner.load_encoder`. Vectors need none.
        background_source: More sentences of the source's side among which neighbours are searched, in the forms of `miner.mine`.
        background_target: The same for the other side.
        **options: Those of `miner score` by name, such as `source_lang` and `k`; `filters` is a list of values of `--filter`. With
            `threshold`, `min_probability`, `filters` or `top`, only the pairs that they keep are returned.

    Raises a MinerError for invalid sides or options, or sides of different length.

    Example:
        >>> scores = miner.score(english, german, source_lang="en", target_lang="de", threshold=1.1, filters=["recommended"])
        >>> scores.to_pandas()[["row", "margin", "source_text", "target_text"]]
    """
    with open_workspace(None, encoder) as (folder, name):
        output = storage.join(folder, "scored.parquet")
        options |= {"source": "", "output": output, "encoder": name}
        if is_vectors(source) or is_vectors(target):
            options[FILTERS] = without_filters(options.get(FILTERS, ()))
        config = settings_from(ScoreConfig, options)  # before anything is written
        writer = SideWriter(folder, config)
        sides = writer.write_sides((source, target))
        check_vectors(config, sides)
        embedded = {role: side.path for role, side in zip(SIDES, sides, strict=True) if side.is_in_memory and side.column is None}
        lines = [_write_lines(side, file, folder, role) for side, file, role in zip((source, target), sides, SIDES, strict=True)]
        changes: dict[str, Any] = {role: file.path for role, file in zip(SIDES, lines, strict=True)}
        changes |= {f"{role}_column": file.column for role, file in zip(SIDES, lines, strict=True) if file.column}
        for role, background in zip(SIDES, (background_source, background_target), strict=True):
            if background is not None:
                changes[f"background_{role}"] = writer.write_background(background, role)
        result = pipeline.run(config.model_copy(update=changes), embedded=embedded)
        table = table_files.read_table(output)
    hidden = {"line"} if any(side.is_in_memory for side in sides) else set()
    hidden |= {"source_text", "target_text"} if not all(side.has_texts for side in sides) else set()
    return PairScores(table.select([name for name in table.column_names if name not in hidden]), result)


def _write_lines(side: Side, file: SideFile, folder: str, role: str) -> SideFile:
    """Return the file with the lines of a side. Those of vectors are their ids."""
    texts: Sequence[str]
    if isinstance(side, Embeddings):
        texts = side.texts
    elif is_vectors(side):
        texts = list(map(str, np.asarray(side[0]).tolist()))  # type: ignore[index]
    else:
        return file
    return SideFile(write_texts(texts, folder, role), TEXT, is_in_memory=True)
