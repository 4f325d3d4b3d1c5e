"""The output of `miner score`: a line per pair with its margin, all of them or those that are kept; or a Parquet file of them."""

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from miner.arrays import Floats
from miner.filters.line_pair_filter import KEPT, Codes, LinePairFilter
from miner.io import storage, table_files
from miner.mining import writers
from miner.progress import Progress, report_progress
from miner.text import streams
from miner.text.readers import Lines
from pipelines.mining.line_pairs import LinePairs

PARQUET = ".parquet"
SCORED_LINE = re.compile(rb"(nan|-?\d+\.\d{8})\t[^\t]*\t")
MAX_LINE = 1 << 20  # bytes that are read of the first line of a file
SELECTED = f"selected{PARQUET}"  # file in the work folder
SCORED = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),  # of the input, from 0
        pa.field("margin", pa.float64(), nullable=False),  # NaN where it is undefined
        pa.field("similarity", pa.float64(), nullable=False),
        pa.field("source_text", pa.string()),  # null for a dropped line
        pa.field("target_text", pa.string()),
    ]
)

logger = logging.getLogger(__name__)

ScoreFunction = Callable[[list[str], list[str]], tuple[Floats, Floats]]  # sources and targets (n,) -> similarities and margins (n,)


@dataclass(frozen=True)
class ScoredLines:
    """The margins of n lines, and which are kept."""

    margins: Floats  # (n,), NaN if it is undefined
    codes: Codes  # (n,)


@contextlib.contextmanager
def _open_output(uri: str) -> Iterator[Callable[[pa.Table], None]]:
    """Open an output and yield the function that writes tables of the schema SCORED to it."""
    if uri.endswith(PARQUET):
        with table_files.parquet_writer(uri, SCORED) as writer:
            yield writer.write_table
        return
    with writers.text_writer(uri) as file:

        def write_lines(table: pa.Table) -> None:
            columns = (table[name].to_pylist() for name in ("margin", "source_text", "target_text"))
            file.writelines(f"{margin:.8f}\t{source or ''}\t{target or ''}\n" for margin, source, target in zip(*columns, strict=True))

        yield write_lines


def is_output(uri: str) -> bool:
    """Whether a file is an output of `miner score`, by its columns or its first line."""
    if uri.endswith(PARQUET):
        with table_files.open_parquet(uri) as parquet:
            return bool(parquet.schema_arrow.names == SCORED.names)
    with streams.open_bytes(uri, streams.split_extensions(uri)[1]) as file:
        return SCORED_LINE.match(file.readline(MAX_LINE)) is not None


@dataclass(frozen=True)
class ScoreWriter:
    """Scores the lines of a bitext block by block, and writes those that pass a filter, in their order."""

    bitext: LinePairs
    score: ScoreFunction
    line_filter: LinePairFilter
    block_lines: int

    def write(self, output: str, work: str, num_lines: int) -> ScoredLines:
        """Write the output. Only `num_lines` margins are in memory, and the texts of a block."""
        if self.line_filter.top is None:
            return self._write_blocks(output, num_lines)
        selected = storage.join(work, SELECTED)  # which of these are the best is known after the last one
        scored = self._write_blocks(selected, num_lines)
        codes = self.line_filter.check_top(scored.codes, scored.margins)
        with _open_output(output) as write:
            for table in table_files.read_row_groups(selected):
                write(table.filter(pa.array(codes[table["row"].to_numpy()] == KEPT)))
        return ScoredLines(scored.margins, codes)

    def _write_blocks(self, uri: str, num_lines: int) -> ScoredLines:
        blocks = [ScoredLines(np.zeros(0), np.zeros(0, np.int8))]
        start = 0
        with _open_output(uri) as write:
            for sources, targets in self.bitext.blocks(self.block_lines):
                block, similarities = self._score(sources, targets)
                rows = np.arange(start, start + len(sources))
                table = pa.table([rows, block.margins, similarities, sources, targets], schema=SCORED)
                write(table.filter(pa.array(block.codes == KEPT)) if self.line_filter.drops_pairs else table)
                blocks.append(block)
                start += len(sources)
                report_progress(logger, Progress("score", start, num_lines, "line"))
        return ScoredLines(np.concatenate([block.margins for block in blocks]), np.concatenate([block.codes for block in blocks]))

    def _score(self, sources: Lines, targets: Lines) -> tuple[ScoredLines, Floats]:
        """Return the margins and codes of lines (n,), and their similarities (n,)."""
        codes = self.line_filter.check_sentences(sources, targets)
        rows = np.flatnonzero(codes == KEPT)
        similarities, margins = np.full((2, len(codes)), np.nan)
        similarities[rows], margins[rows] = self.score(*([str(texts[row]) for row in rows] for texts in (sources, targets)))
        return ScoredLines(margins, self.line_filter.check_pairs(codes, margins, sources, targets)), similarities
