"""The output of `miner score`: a line per pair with its margin, all of them or those that are kept; or a Parquet file of them."""

import contextlib
import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from miner.arrays import Floats, Ints
from miner.filters.line_pair_filter import KEPT, REASONS, Codes, LinePairFilter
from miner.filters.pairs import probabilities_of
from miner.io import storage, table_files
from miner.mining import writers
from miner.progress import Progress, report_progress
from miner.text import streams
from miner.text.readers import Lines
from pipelines.mining.line_pairs import LinePairs

PARQUET = ".parquet"
SCORED_LINE = re.compile(rb'(nan|-?\d+\.\d{8})\t[^\t]*\t|\{"line": \d+, "margin": ')
ENDINGS = (".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz", PARQUET)  # of outputs
REASON_NAMES = np.array([*REASONS, None], dtype=object)  # by code; KEPT is the last
SELECTED = f"selected{PARQUET}"  # file in the work folder
SCORED = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),  # of the input, from 0
        pa.field("margin", pa.float64(), nullable=False),  # NaN where it is undefined
        pa.field("similarity", pa.float64(), nullable=False),
        pa.field("probability", pa.float64()),  # that the pair is right; null without a margin, or without weights of the encoder
        pa.field("source_text", pa.string()),  # null for a dropped line
        pa.field("target_text", pa.string()),
        pa.field("reason", pa.string()),  # why the pair is dropped; null for one that is kept
    ]
)

logger = logging.getLogger(__name__)

# Rows, sources and targets (n,) -> similarities and margins (n,).
ScoreFunction = Callable[[Ints, list[str], list[str]], tuple[Floats, Floats]]


@dataclass(frozen=True)
class ScoredLines:
    """The margins of n lines, and which are kept."""

    margins: Floats  # (n,), NaN if it is undefined
    codes: Codes  # (n,)


@contextlib.contextmanager
def _open_output(uri: str) -> Iterator[Callable[[pa.Table], None]]:
    """Open an output and yield the function that writes tables of the schema SCORED to it, in the format of its name."""
    if uri.endswith(PARQUET):
        with table_files.parquet_writer(uri, SCORED) as writer:
            yield writer.write_table
        return
    format_lines = _json_lines if uri.removesuffix(".gz").endswith(".jsonl") else _tsv_lines
    with writers.text_writer(uri) as file:
        yield lambda table: file.writelines(f"{line}\n" for line in format_lines(table))


def _tsv_lines(table: pa.Table) -> Iterator[str]:
    """Yield margin, source, target, probability and the reason, as `cut -f` takes them; what is null is empty."""
    columns = (table[name].to_pylist() for name in ("margin", "source_text", "target_text", "probability", "reason"))
    for margin, source, target, probability, reason in zip(*columns, strict=True):
        shown = "" if probability is None else f"{probability:.4f}"
        yield f"{margin:.8f}\t{source or ''}\t{target or ''}\t{shown}\t{reason or ''}"


def _json_lines(table: pa.Table) -> Iterator[str]:
    """Yield an object for each pair, with its line number from 1; a margin that is undefined is null."""
    for row in table.to_pylist():
        values = {"line": row.pop("row") + 1, **row}
        yield json.dumps({name: None if value != value else value for name, value in values.items()}, ensure_ascii=False)


def is_output(uri: str) -> bool:
    """Whether a file is an output of `miner score`, by its columns or its first line."""
    if uri.endswith(PARQUET):
        with table_files.open_parquet(uri) as parquet:
            return bool(parquet.schema_arrow.names == SCORED.names)
    with streams.open_bytes(uri, streams.split_extensions(uri)[1]) as file:
        return SCORED_LINE.match(file.readline(streams.MAX_LINE_BYTES)) is not None


@dataclass(frozen=True)
class ScoreWriter:
    """Scores the lines of a bitext block by block, and writes those that pass a filter, in their order."""

    bitext: LinePairs
    score: ScoreFunction
    line_filter: LinePairFilter
    block_lines: int
    with_reasons: bool = False  # write the pairs that are dropped too, with the reason

    def write(self, output: str, work: str, num_lines: int) -> ScoredLines:
        """Write the output. Only `num_lines` margins are in memory, and the texts of a block."""
        if self.line_filter.top is None:
            return self._write_blocks(output, num_lines)
        selected = storage.join(work, SELECTED)  # which of these are the best is known after the last one
        scored = self._write_blocks(selected, num_lines)
        codes = self.line_filter.check_top(scored.codes, scored.margins)
        with _open_output(output) as write:
            for table in table_files.read_row_groups(selected):
                write(self._select(table, codes[table["row"].to_numpy()]))
        return ScoredLines(scored.margins, codes)

    def _write_blocks(self, uri: str, num_lines: int) -> ScoredLines:
        blocks = [ScoredLines(np.zeros(0), np.zeros(0, np.int8))]
        start = 0
        with _open_output(uri) as write:
            for sources, targets in self.bitext.blocks(self.block_lines):
                block, similarities = self._score(sources, targets, start)
                rows, reasons = np.arange(start, start + len(sources)), np.full(len(sources), None)
                probabilities = self._probabilities(block.margins, sources, targets)
                table = pa.table([rows, block.margins, similarities, probabilities, sources, targets, reasons], schema=SCORED)
                write(self._select(table, block.codes))
                blocks.append(block)
                start += len(sources)
                report_progress(logger, Progress("score", start, num_lines, "line"))
        return ScoredLines(np.concatenate([block.margins for block in blocks]), np.concatenate([block.codes for block in blocks]))

    def _select(self, table: pa.Table, codes: Codes) -> pa.Table:
        """Return the pairs of a table of SCORED that are kept or, with `with_reasons`, all of them with the reasons of their codes (n,)."""
        if not self.line_filter.drops_pairs:
            return table
        if not self.with_reasons:
            return table.filter(pa.array(codes == KEPT))
        index = table.schema.get_field_index("reason")
        return table.set_column(index, table.schema.field(index), pa.array(REASON_NAMES[codes], pa.string()))

    def _probabilities(self, margins: Floats, sources: Lines, targets: Lines) -> pa.Array:
        """Return the probabilities (n,) of pairs, null without a margin, or without weights."""
        weights, has_margin = self.line_filter.probability.weights, ~np.isnan(margins)
        if weights is None or not has_margin.any():
            return pa.nulls(len(margins), pa.float64())
        sides = {"source_text": [text or "" for text in sources], "target_text": [text or "" for text in targets]}
        return pa.array(probabilities_of(pa.table({"margin": margins, **sides}), weights), mask=~has_margin)

    def _score(self, sources: Lines, targets: Lines, start: int) -> tuple[ScoredLines, Floats]:
        """Return the margins and codes of the lines (n,) from `start`, and their similarities (n,)."""
        codes = self.line_filter.check_sentences(sources, targets)
        rows = np.flatnonzero(codes == KEPT)
        similarities, margins = np.full((2, len(codes)), np.nan)
        similarities[rows], margins[rows] = self.score(start + rows, *([str(texts[row]) for row in rows] for texts in (sources, targets)))
        return ScoredLines(margins, self.line_filter.check_pairs(codes, margins, sources, targets)), similarities
