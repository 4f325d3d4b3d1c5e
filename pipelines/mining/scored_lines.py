"""The output of `miner score`: a line per pair with its margin, all of them or those that are kept."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from miner.arrays import Floats
from miner.filters.line_pair_filter import KEPT, Codes, LinePairFilter
from miner.io import storage
from miner.mining import writers
from miner.progress import Progress, report_progress
from miner.text.pairs import Lines
from pipelines.mining.line_pairs import LinePairs

SELECTED = "selected"  # file in the work folder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScoredLines:
    """The margins of n lines, and which are kept."""

    margins: Floats  # (n,), NaN if it is undefined
    codes: Codes  # (n,)


@dataclass(frozen=True)
class ScoreWriter:
    """Scores the lines of a bitext block by block, and writes those that pass a filter, in their order."""

    bitext: LinePairs
    margins_of: Callable[[list[str], list[str]], Floats]  # sources (n,), targets (n,) -> (n,)
    line_filter: LinePairFilter
    block_lines: int

    def write(self, output: str, work: str, num_lines: int) -> ScoredLines:
        """Write lines `margin<TAB>source<TAB>target`. Only `num_lines` margins are in memory, and the texts of a block."""
        if self.line_filter.top is None:
            return self._write_blocks(output, num_lines)
        selected = storage.join(work, SELECTED)  # which of these are the best is known after the last one
        scored = self._write_blocks(selected, num_lines)
        codes = self.line_filter.check_top(scored.codes, scored.margins)
        fs, path = storage.filesystem(selected)
        with fs.open(path, "rb") as lines, writers.text_writer(output) as file:
            is_best = (codes == KEPT)[scored.codes == KEPT]
            file.writelines(line.decode() for line, is_kept in zip(lines, is_best, strict=True) if is_kept)
        return ScoredLines(scored.margins, codes)

    def _write_blocks(self, uri: str, num_lines: int) -> ScoredLines:
        blocks = [ScoredLines(np.zeros(0), np.zeros(0, np.int8))]
        num_done = 0
        with writers.text_writer(uri) as file:
            for sources, targets in self.bitext.blocks(self.block_lines):
                block = self._score(sources, targets)
                is_written = block.codes == KEPT if self.line_filter.drops_pairs else np.ones(len(sources), dtype=bool)
                file.writelines(
                    f"{block.margins[row]:.8f}\t{sources[row] or ''}\t{targets[row] or ''}\n" for row in np.flatnonzero(is_written).tolist()
                )
                blocks.append(block)
                num_done += len(sources)
                report_progress(logger, Progress("score", num_done, num_lines, "line"))
        return ScoredLines(np.concatenate([block.margins for block in blocks]), np.concatenate([block.codes for block in blocks]))

    def _score(self, sources: Lines, targets: Lines) -> ScoredLines:
        codes = self.line_filter.check_sentences(sources, targets)
        rows = np.flatnonzero(codes == KEPT)
        scores = np.full(len(codes), np.nan)
        scores[rows] = self.margins_of(*([str(texts[row]) for row in rows] for texts in (sources, targets)))
        return ScoredLines(scores, self.line_filter.check_pairs(codes, scores, sources, targets))
