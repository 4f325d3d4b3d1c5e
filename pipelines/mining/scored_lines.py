"""The output of `miner score`: a line per pair with its margin, all of them or those that are kept; or a Parquet file of them."""

import contextlib
import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat

import numpy as np
import pyarrow as pa

from miner.arrays import Floats, Ints
from miner.filters.line_pair_filter import KEPT, REASONS, Codes, LinePairFilter
from miner.filters.pairs import probabilities_of
from miner.io import storage, table_files
from miner.io.tables import SCORED, SCORED_TSV
from miner.mining import writers
from miner.progress import Progress, report_progress
from miner.text import streams
from miner.text.readers import Lines
from miner.text.records import IS_JSON
from pipelines.mining.line_pairs import LinePairs

PARQUET = ".parquet"
CELL_BREAKS = re.compile(r"[\t\n\r]+")
SCORED_LINE = re.compile(rb'(nan|-?\d+\.\d{8})\t[^\t]*\t[^\t]*\t(\d\.\d{4})?\t[^\t]*\t\d+[\t\n]|\{"line": \d+, "margin": ')
ENDINGS = (".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz", PARQUET)  # of outputs
REASON_NAMES = np.array([*REASONS, None], dtype=object)  # by code; KEPT is the last
SCORES = pa.field("scores", pa.string(), metadata=IS_JSON)  # filter -> score, after SCORED; null without a sentence
SELECTED = f"selected{PARQUET}"  # file in the work folder
logger = logging.getLogger(__name__)

# Rows, sources and targets (n,) -> similarities and margins (n,).
ScoreFunction = Callable[[Ints, list[str], list[str]], tuple[Floats, Floats]]


@dataclass(frozen=True)
class ScoredLines:
    """The margins of n lines, and which are kept."""

    margins: Floats  # (n,), NaN if it is undefined
    codes: Codes  # (n,)


@contextlib.contextmanager
def _open_output(uri: str, schema: pa.Schema, keeps_json: bool = False) -> Iterator[Callable[[pa.Table], None]]:
    """Open an output and yield the function that writes tables of a schema that begins with SCORED, in the format of its name.

    Columns of JSON are decoded, to text where the format has no other values; with `keeps_json`, they are written as they are.
    """
    if uri.endswith(PARQUET):
        with table_files.parquet_writer(uri, schema) as writer:
            yield writer.write_table if keeps_json else lambda table: writer.write_table(_json_as_text(table))
        return
    format_lines = _json_lines if uri.removesuffix(".gz").endswith(".jsonl") else _tsv_lines
    with writers.text_writer(uri) as file:
        yield lambda table: file.writelines(f"{line}\n" for line in format_lines(table))


def _tsv_lines(table: pa.Table) -> Iterator[str]:
    """Yield the columns of TSV and the other columns of the input, as `cut -f` takes them; what is null is empty."""
    table = _json_as_text(table)
    columns = (table[name].to_pylist() for name in (*SCORED_TSV, *table.column_names[len(SCORED) :]))
    for margin, source, target, probability, reason, line, *others in zip(*columns, strict=True):
        shown = "" if probability is None else f"{probability:.4f}"
        cells = ["" if other is None else CELL_BREAKS.sub(" ", str(other)) for other in others]
        yield "\t".join([f"{margin:.8f}", source or "", target or "", shown, reason or "", str(line), *cells])


def _json_lines(table: pa.Table) -> Iterator[str]:
    """Yield an object for each pair; a margin that is undefined is null."""
    encoded = _json_columns(table)
    for row in table.drop_columns("row").to_pylist():
        row |= {name: json.loads(row[name]) for name in encoded if row[name] is not None}
        yield json.dumps({name: None if value != value else value for name, value in row.items()}, ensure_ascii=False, default=str)


def _json_columns(table: pa.Table) -> list[str]:
    return [field.name for field in table.schema if field.metadata == IS_JSON]


def _json_as_text(table: pa.Table) -> pa.Table:
    """Return a table with the strings of JSON in place of columns of JSON; other values remain JSON."""
    for name in _json_columns(table):
        texts = [json.loads(value) if value is not None and value.startswith('"') else value for value in table[name].to_pylist()]
        table = table.set_column(table.column_names.index(name), table.schema.field(name), pa.array(texts, pa.string()))
    return table


def is_output(uri: str) -> bool:
    """Whether a file is an output of `miner score`, by its columns or its first line."""
    if uri.endswith(PARQUET):
        with table_files.open_parquet(uri) as parquet:
            return bool(parquet.schema_arrow.names[: len(SCORED)] == SCORED.names)
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
        scored = self._write_blocks(selected, num_lines, keeps_json=True)
        codes = self.line_filter.check_top(scored.codes, scored.margins)
        with _open_output(output, self._schema) as write:
            for table in table_files.read_row_groups(selected):
                write(self._select(table, codes[table["row"].to_numpy()]))
        return ScoredLines(scored.margins, codes)

    @cached_property
    def _schema(self) -> pa.Schema:
        """SCORED, what each filter found if reasons are written, and the other columns of the input."""
        return pa.schema([*SCORED, *([SCORES] if self.with_reasons else []), *self.bitext.other_schema])

    def _write_blocks(self, uri: str, num_lines: int, keeps_json: bool = False) -> ScoredLines:
        blocks = [ScoredLines(np.zeros(0), np.zeros(0, np.int8))]
        start = 0
        with _open_output(uri, self._schema, keeps_json) as write:
            for lines in self.bitext.blocks(self.block_lines):
                size = len(lines.sources)
                block, similarities = self._score(lines.sources, lines.targets, start)
                rows, reasons = np.arange(start, start + size), np.full(size, None)
                probabilities = self._probabilities(block.margins, lines.sources, lines.targets)
                columns = [
                    rows,
                    rows - start + lines.first,
                    block.margins,
                    similarities,
                    probabilities,
                    lines.sources,
                    lines.targets,
                    reasons,
                    *([self._scores(lines.sources, lines.targets)] if self.with_reasons else []),
                ]
                others = [] if lines.others is None else lines.others.columns
                write(self._select(pa.table([*columns, *others], schema=self._schema), block.codes))
                blocks.append(block)
                start += size
                report_progress(logger, Progress("score", start, num_lines, "line"))
        return ScoredLines(np.concatenate([block.margins for block in blocks]), np.concatenate([block.codes for block in blocks]))

    def _select(self, table: pa.Table, codes: Codes) -> pa.Table:
        """Return the pairs of a table of SCORED that are kept or, with `with_reasons`, all of them with the reasons of their codes (n,)."""
        if not self.with_reasons:
            return table.filter(pa.array(codes == KEPT)) if self.line_filter.drops_pairs else table
        index = table.schema.get_field_index("reason")
        return table.set_column(index, table.schema.field(index), pa.array(REASON_NAMES[codes], pa.string()))

    def _scores(self, sources: Lines, targets: Lines) -> pa.Array:
        """Return what each filter finds in pairs (n,), as JSON; null where a side has no sentence."""
        scores = self.line_filter.scores(sources, targets)
        rows = zip(*(np.round(column, 4).tolist() for column in scores.values()), strict=True) if scores else repeat((), len(sources))
        texts = (json.dumps({name: score for name, score in zip(scores, row, strict=True) if score == score}) for row in rows)
        return pa.array([text if all(pair) else None for text, *pair in zip(texts, sources, targets, strict=True)], pa.string())

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
