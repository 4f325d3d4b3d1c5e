"""Clustering: how well k-means over the embeddings finds the labels of texts. See docs/evaluation.md for the protocol."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from miner.encoders import Encoder
from miner.errors import DataError
from miner.evaluation.inputs import encode, read_columns
from miner.evaluation.scores import Items, Score, percent, table
from miner.evaluation.settings import ClusteringTask

Labels = npt.NDArray[np.int64]

STARTS = 10  # of k-means; the best of them by its own measure, the distance to the centres, counts


@dataclass(frozen=True, eq=False)
class ClusteringResult:
    """What `miner eval clustering` found: by language, the label and the cluster of each text."""

    languages: Mapping[str, Labels]  # (n, 2)

    def scores(self) -> dict[str, Score]:
        return {"purity": Score(self.languages, purity)}

    def figures(self) -> dict[str, Any]:
        scores = {"purity": Score(self.languages, purity), "v_measure": Score(self.languages, v_measure)}
        by_language = {name: score.by_group for name, score in scores.items()}
        return {
            "languages": {
                lang: {
                    "n": len(items),
                    "labels": len(np.unique(items[:, 0])),
                    "clusters": len(np.unique(items[:, 1])),
                    **{name: found[lang] for name, found in by_language.items()},
                }
                for lang, items in self.languages.items()
            },
            "mean": {name: score.value for name, score in scores.items()},
        }

    def summary(self) -> str:
        figures = self.figures()
        heads = ["n", "labels", "clusters", "purity", "v_measure"]
        rows = {**figures["languages"], **({"mean": figures["mean"]} if len(self.languages) > 1 else {})}
        cells = {
            name: [str(row.get(head, "")) if head in heads[:3] else percent(row[head]) for head in heads] for name, row in rows.items()
        }
        return table(["texts", "labels", "clusters", "purity", "V-measure"], cells)


def evaluate(encoder: Encoder, task: ClusteringTask) -> ClusteringResult:
    """A table of texts and labels -> the clusters of k-means, each language by itself.

    DataError where a language has fewer than two labels, or fewer different texts than clusters.
    """
    texts, labels, langs = read_columns(task.data, task.text_column, task.label_column, task.lang_column)
    known = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    numbers = np.array([known[label] for label in labels])
    rows = {lang: np.flatnonzero([other == lang for other in langs]) for lang in dict.fromkeys(langs)}
    clusters = {lang: task.clusters or len(np.unique(numbers[where])) for lang, where in rows.items()}
    for lang, where in rows.items():
        _check(task.data, lang, len(np.unique(numbers[where])), clusters[lang], len({texts[row] for row in where}))
    vectors = encode(encoder, texts, np.float32)
    found = {lang: cluster(vectors[where], clusters[lang], task.seed) for lang, where in rows.items()}
    return ClusteringResult({lang: np.stack([numbers[where], found[lang]], axis=1) for lang, where in rows.items()})


def _check(uri: str, lang: str, labels: int, clusters: int, texts: int) -> None:
    if labels < 2:
        raise DataError(f"{uri}: {lang!r} has one label alone, which no clustering can miss; take its rows out")
    if texts < clusters:
        raise DataError(f"{uri}: {lang!r} has {texts} different texts for {clusters} clusters; take its rows out, or give fewer clusters")


def cluster(vectors: npt.NDArray[np.float32], clusters: int, seed: int) -> Labels:
    """(n, dim) -> (n,) the cluster of each row."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # sums hang on the number of threads, and the figures shall not
        found: Labels = KMeans(clusters, n_init=STARTS, random_state=seed).fit_predict(vectors).astype(np.int64)
    return found


def purity(items: Items) -> float:
    """Columns (n, 2): label and cluster -> the mean over clusters of the share of the label that most of a cluster have.

    As in Wang, Wu & Neubig 2022: a small cluster counts as much as a large one.
    """
    shares = []
    for number in np.unique(items[:, 1]):
        labels = Counter(items[items[:, 1] == number, 0].tolist())
        shares.append(max(labels.values()) / labels.total())
    return float(np.mean(shares))


def v_measure(items: Items) -> float:
    """Columns (n, 2): label and cluster -> the harmonic mean of homogeneity and completeness (Rosenberg & Hirschberg 2007)."""
    from sklearn.metrics import v_measure_score

    return float(v_measure_score(items[:, 0], items[:, 1]))
