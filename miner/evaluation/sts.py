"""Semantic textual similarity: how well cosines rank sentence pairs as humans do. See docs/evaluation.md for the protocol."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from miner.arrays import Floats, Floats32
from miner.encoders import Encoder
from miner.errors import DataError
from miner.evaluation.inputs import encode, read_scored_pairs
from miner.evaluation.label_tasks import StsTask
from miner.evaluation.scores import Score, pearson, percent, spearman, table

Track = Floats  # (n, 2): the human score of each pair, and its cosine

CORRELATIONS: dict[str, Callable[[Track], float]] = {"spearman": spearman, "pearson": pearson}


@dataclass(frozen=True, eq=False)
class StsResult:
    """The result of `miner eval sts`."""

    tracks: Mapping[str, Track]

    def _scores(self) -> dict[str, dict[str, Score]]:
        """Return by correlation the `mean` over tracks, `wmean`, weighted by their pairs, and that of `all` pairs pooled."""
        pooled = {"all": np.concatenate(list(self.tracks.values()))}
        return {
            average: {name: Score(groups, correlation, average == "wmean", lowest=-1) for name, correlation in CORRELATIONS.items()}
            for average, groups in (("mean", self.tracks), ("wmean", self.tracks), ("all", pooled))
        }

    def figures(self) -> dict[str, Any]:
        averages = self._scores()
        by_track = {name: score.by_group for name, score in averages["mean"].items()}
        return {
            "tracks": {name: {"n": len(track), **{key: by_track[key][name] for key in by_track}} for name, track in self.tracks.items()},
            **{average: {name: score.value for name, score in scores.items()} for average, scores in averages.items()},
        }

    def summary(self) -> str:
        figures = self.figures()
        rows = {**figures["tracks"], **{average: figures[average] for average in self._scores() if len(self.tracks) > 1}}
        num_pairs = {"mean": "", "wmean": "", "all": str(sum(map(len, self.tracks.values())))}
        cells = {name: [str(row.get("n", num_pairs.get(name))), *(percent(row[key]) for key in CORRELATIONS)] for name, row in rows.items()}
        return table(["pairs", *CORRELATIONS], cells)

    def scores(self) -> dict[str, Score]:
        averages = self._scores()
        return {f"Spearman, {name}": averages[name]["spearman"] for name in averages if name == "mean" or len(self.tracks) > 1}


def evaluate(encoder: Encoder, task: StsTask) -> StsResult:
    """Correlate the cosines of a table of sentence1, sentence2 and score with the scores, by track.

    Raise DataError if a score is not a number, or all scores of a track are equal.
    """
    pairs = read_scored_pairs(task.data, task.track_columns)
    first, second, scores, track_of_row = pairs.first, pairs.second, pairs.scores, pairs.tracks
    tracks = {name: np.flatnonzero(np.array(track_of_row) == name) for name in dict.fromkeys(track_of_row)}
    for name, rows in tracks.items():
        if (scores[rows] == scores[rows[0]]).all():
            raise DataError(f"{task.data}: all scores of track {name!r} are {scores[rows[0]]:g}, which gives no ranking; remove the track")
    vectors = encode(encoder, first + second, np.float32)
    compared = np.stack([scores, cosines(vectors[: len(first)], vectors[len(first) :])], axis=1)
    return StsResult({name: compared[rows] for name, rows in tracks.items()})


def cosines(first: Floats32, second: Floats32) -> Floats:
    """(n, dim) unit or zero rows, twice -> (n,) in float64; 0 for a zero row."""
    products: Floats = np.einsum("nd,nd->n", first, second, dtype=np.float64)
    return products
