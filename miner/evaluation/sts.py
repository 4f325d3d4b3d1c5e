"""Semantic textual similarity: how well cosines rank pairs of sentences as people do. See docs/evaluation.md for the protocol."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from miner.encoders import Encoder
from miner.errors import DataError
from miner.evaluation.inputs import encode, read_columns
from miner.evaluation.scores import Floats, Score, pearson, percent, spearman, table
from miner.evaluation.settings import StsTask

Track = Floats  # (n, 2): what people said of a pair, and its cosine

CORRELATIONS: dict[str, Callable[[Track], float]] = {"spearman": spearman, "pearson": pearson}
COLUMNS = ("sentence1", "sentence2", "score")


@dataclass(frozen=True, eq=False)
class StsResult:
    """What `miner eval sts` found."""

    tracks: Mapping[str, Track]

    def _scores(self) -> dict[str, dict[str, Score]]:
        """By `mean` over tracks and by `all` pairs at once, whatever their track; each by correlation."""
        everything = {"all": np.concatenate(list(self.tracks.values()))}
        return {
            how: {name: Score(groups, correlation) for name, correlation in CORRELATIONS.items()}
            for how, groups in (("mean", self.tracks), ("all", everything))
        }

    def figures(self) -> dict[str, Any]:
        found = self._scores()
        by_track = {name: score.by_group for name, score in found["mean"].items()}
        return {
            "tracks": {name: {"n": len(track), **{how: by_track[how][name] for how in by_track}} for name, track in self.tracks.items()},
            **{how: {name: score.value for name, score in scores.items()} for how, scores in found.items()},
        }

    def summary(self) -> str:
        figures = self.figures()
        rows = {**figures["tracks"], **{how: figures[how] for how in ("mean", "all") if len(self.tracks) > 1}}
        pairs = {"mean": "", "all": str(sum(map(len, self.tracks.values())))}
        cells = {name: [str(row.get("n", pairs.get(name))), *(percent(row[how]) for how in CORRELATIONS)] for name, row in rows.items()}
        return table(["pairs", *CORRELATIONS], cells)

    def scores(self) -> dict[str, Score]:
        return {f"Spearman, {how}": scores["spearman"] for how, scores in self._scores().items() if how == "mean" or len(self.tracks) > 1}


def evaluate(encoder: Encoder, task: StsTask) -> StsResult:
    """A table of sentence1, sentence2 and score -> cosines beside scores, by track.

    DataError where a score is no number, or a track has one score alone.
    """
    one, other, told, *parts = read_columns(task.data, *COLUMNS, *(task.track_columns or [None]))
    names = ["-".join(values) for values in zip(*parts, strict=True)]
    scores = np.array([_number(task.data, row, cell) for row, cell in enumerate(told, start=1)])
    tracks = {name: np.flatnonzero([other == name for other in names]) for name in dict.fromkeys(names)}
    for name, rows in tracks.items():
        if (scores[rows] == scores[rows[0]]).all():
            raise DataError(f"{task.data}: all scores of track {name!r} are {scores[rows[0]]:g}, which ranks nothing; take the track out")
    vectors = encode(encoder, one + other, np.float32)
    pairs = np.stack([scores, cosines(vectors[: len(one)], vectors[len(one) :])], axis=1)
    return StsResult({name: pairs[rows] for name, rows in tracks.items()})


def cosines(one: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> Floats:
    """(n, dim) unit or zero rows, twice -> (n,) in float64; 0 for a row without a vector."""
    found: Floats = np.einsum("nd,nd->n", one, other, dtype=np.float64)
    return found


def _number(uri: str, row: int, cell: str) -> float:
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise DataError(f"{uri}: score {row} of the table is {cell!r}, which is no number; mend it or take its row out")
    return number
