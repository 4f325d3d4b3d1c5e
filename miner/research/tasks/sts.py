"""Semantic textual similarity: how well cosines rank sentence pairs as humans do. See docs/evaluation.md for the protocol."""

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import pydantic

from miner.arrays import Floats, Floats32
from miner.config.base import Strings
from miner.config.datasets import DatasetFiles, TableFile
from miner.encoders import Encoder
from miner.errors import DataError
from miner.evaluation.inputs import encode, read_scored_pairs
from miner.evaluation.scores import EvaluationResult, Score, figure_table, pearson, spearman
from miner.evaluation.task_base import BarChart, TaskSettings
from miner.research.datasets.file_groups import find_groups
from miner.research.datasets.registry import get_layout

TRACK = "track"  # column of public datasets with several tracks
Track = Floats  # (n, 2): the human score of each pair, and its cosine

CORRELATIONS: dict[str, Callable[[Track], float]] = {"spearman": spearman, "pearson": pearson}


class StsTask(TaskSettings):
    """Measure the correlation of cosines with human similarity scores, by track and over all pairs.

    \b
    Example:
      miner eval sts --data sts17.tsv.gz --track-column track
      miner eval sts --data '{dataset: sts17, path: STS2017}'
    """

    CHART = BarChart(
        groups="tracks",
        value="spearman",
        caption="Spearman's correlation with human scores",
        axis="Spearman's correlation",
    )

    task: Literal["sts"] = "sts"
    data: TableFile = pydantic.Field(description="Table with the columns sentence1, sentence2 and score.")
    track_columns: Strings = pydantic.Field(
        (), description="Rows equal in this column form a track; may be repeated. By default, `track` of a dataset."
    )

    def evaluate(self, encoder: Encoder) -> EvaluationResult:
        """Correlate cosines with scores. Raise DataError if a score is not a number, or all scores of a track are equal."""
        pairs = read_scored_pairs(self.data, self.track_columns or _tracks_of(self.data))
        tracks = {name: np.flatnonzero(np.array(pairs.tracks) == name) for name in dict.fromkeys(pairs.tracks)}
        for name, rows in tracks.items():
            if (pairs.scores[rows] == pairs.scores[rows[0]]).all():
                score = f"{pairs.scores[rows[0]]:g}"
                raise DataError(f"{self.data}: all scores of track {name!r} are {score}, which gives no ranking; remove the track")
        vectors = encode(encoder, pairs.first + pairs.second, np.float32)
        compared = np.stack([pairs.scores, cosines(*np.split(vectors, 2))], axis=1)
        return summarise({name: compared[rows] for name, rows in tracks.items()})


def _tracks_of(data: str | DatasetFiles) -> tuple[str, ...]:
    """Return the column of the tracks of a public dataset, if its files have any."""
    if not isinstance(data, DatasetFiles):
        return ()
    _, groups = find_groups(get_layout(data.dataset), data.path, data.languages, data.split)
    return (TRACK,) if any(group.track for group in groups) else ()


def summarise(tracks: Mapping[str, Track]) -> EvaluationResult:
    """Report the correlations by track, their `mean`, `wmean`, weighted by pairs, and those of `all` pairs pooled."""
    pooled = {"all": np.concatenate(list(tracks.values()))}
    averages = {
        average: {name: Score(groups, correlation, average == "wmean", lowest=-1) for name, correlation in CORRELATIONS.items()}
        for average, groups in (("mean", tracks), ("wmean", tracks), ("all", pooled))
    }
    by_track = {name: score.by_group for name, score in averages["mean"].items()}
    figures = {name: {"n": len(track), **{key: by_track[key][name] for key in by_track}} for name, track in tracks.items()}
    values = {average: {name: score.value for name, score in scores.items()} for average, scores in averages.items()}
    rows = {**figures, **({**values, "all": {"n": len(pooled["all"]), **values["all"]}} if len(tracks) > 1 else {})}
    return EvaluationResult(
        {"tracks": figures, **values},
        figure_table(rows, {"n": "pairs", **{name: name for name in CORRELATIONS}}),
        {f"Spearman, {name}": scores["spearman"] for name, scores in averages.items() if name == "mean" or len(tracks) > 1},
    )


def cosines(first: Floats32, second: Floats32) -> Floats:
    """(n, dim) unit or zero rows, twice -> (n,) in float64; 0 for a zero row."""
    products: Floats = np.einsum("nd,nd->n", first, second, dtype=np.float64)
    return products
