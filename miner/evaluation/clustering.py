"""Clustering: how well k-means over the embeddings recovers the labels of texts. See docs/evaluation.md for the protocol."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from miner.arrays import Floats32, Ints
from miner.encoders import Encoder
from miner.errors import DataError, require
from miner.evaluation.inputs import encode, load_columns
from miner.evaluation.label_tasks import ClusteringTask
from miner.evaluation.scores import Items, Score, percent, table

KMEANS_STARTS = 10  # the one with the smallest sum of squared distances to the centres is used


@dataclass(frozen=True, eq=False)
class ClusteringResult:
    """The result of `miner eval clustering`."""

    languages: Mapping[str, Ints]  # by language: (n, 2) the label and the cluster of each text

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
                    **{name: values[lang] for name, values in by_language.items()},
                }
                for lang, items in self.languages.items()
            },
            "mean": {name: score.value for name, score in scores.items()},
        }

    def summary(self) -> str:
        figures = self.figures()
        counts, shares = ["n", "labels", "clusters"], ["purity", "v_measure"]
        rows = {**figures["languages"], **({"mean": figures["mean"]} if len(self.languages) > 1 else {})}
        cells = {name: [*(str(row.get(key, "")) for key in counts), *(percent(row[key]) for key in shares)] for name, row in rows.items()}
        return table(["texts", "labels", "clusters", "purity", "V-measure"], cells)


def evaluate(encoder: Encoder, task: ClusteringTask) -> ClusteringResult:
    """Cluster the texts of each language by k-means.

    Raise DataError if a language has fewer than two labels, or fewer distinct texts than clusters.
    """
    texts, label_names, langs = load_columns(task.data, task.text_column, task.label_column, task.lang_column)
    numbers = {label: number for number, label in enumerate(dict.fromkeys(label_names))}
    labels = np.array([numbers[label] for label in label_names])
    rows = {lang: np.flatnonzero(np.array(langs) == lang) for lang in dict.fromkeys(langs)}
    num_clusters = {lang: task.clusters or len(np.unique(labels[of_language])) for lang, of_language in rows.items()}
    for lang, of_language in rows.items():
        num_texts = len({texts[row] for row in of_language})
        if len(np.unique(labels[of_language])) < 2:
            raise DataError(f"{task.data}: {lang!r} has only one label, which any clustering recovers; remove its rows")
        if num_texts < num_clusters[lang]:
            sizes = f"{num_texts} different texts for {num_clusters[lang]} clusters"
            raise DataError(f"{task.data}: {lang!r} has {sizes}; remove its rows, or give fewer --clusters")
    vectors = encode(encoder, texts, np.float32)
    clusters = {lang: cluster(vectors[of_language], num_clusters[lang], task.seed) for lang, of_language in rows.items()}
    return ClusteringResult({lang: np.stack([labels[of_language], clusters[lang]], axis=1) for lang, of_language in rows.items()})


def cluster(vectors: Floats32, num_clusters: int, seed: int) -> Ints:
    """(n, dim) -> (n,) the cluster of each row."""
    KMeans = require("sklearn.cluster").KMeans
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # floating-point sums depend on the number of threads
        clusters: Ints = KMeans(num_clusters, n_init=KMEANS_STARTS, random_state=seed).fit_predict(vectors).astype(np.int64)
    return clusters


def purity(items: Items) -> float:
    """Labels and clusters (n, 2) -> the mean over clusters of the share of their most frequent label.

    As in Wang, Wu & Neubig 2022: small clusters count as much as large ones.
    """
    shares = []
    for number in np.unique(items[:, 1]):
        labels = Counter(items[items[:, 1] == number, 0].tolist())
        shares.append(max(labels.values()) / labels.total())
    return float(np.mean(shares))


def v_measure(items: Items) -> float:
    """Labels and clusters (n, 2) -> the harmonic mean of homogeneity and completeness (Rosenberg & Hirschberg 2007)."""
    v_measure_score = require("sklearn.metrics").v_measure_score

    return float(v_measure_score(items[:, 0], items[:, 1]))
