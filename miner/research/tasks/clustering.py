"""Clustering: how well k-means over the embeddings recovers the labels of texts. See docs/evaluation.md for the protocol."""

from collections import Counter
from collections.abc import Mapping
from typing import Literal

import numpy as np
import pydantic

from miner.arrays import Floats32, Ints
from miner.config.datasets import TableFile
from miner.encoders import Encoder
from miner.errors import DataError, require
from miner.evaluation.inputs import encode
from miner.evaluation.scores import EvaluationResult, Items, Score, figure_table
from miner.evaluation.task_base import BarChart, TaskSettings
from miner.research.datasets.columns import load_columns

KMEANS_STARTS = 10  # the one with the smallest sum of squared distances to the centres is used


class ClusteringTask(TaskSettings):
    """Measure how well k-means recovers the labels of texts: purity and V-measure.

    \b
    Example:
      miner eval clustering --data news.tsv.gz --text-column headline --label-column category
    """

    CHART = BarChart(groups="languages", value="purity", caption="Purity of the clusters")

    task: Literal["clustering"] = "clustering"
    data: TableFile = pydantic.Field(description="Table of texts and labels.")
    text_column: str = pydantic.Field("text", description="Column of the text.")
    label_column: str = pydantic.Field("label", description="Column of the label.")
    lang_column: str | None = pydantic.Field(None, description="Column of the language; each language is clustered by itself.")
    clusters: int | None = pydantic.Field(None, ge=2, description="Number of clusters; default: the number of labels.")
    seed: int = pydantic.Field(0, description="Seed of k-means.")

    def evaluate(self, encoder: Encoder) -> EvaluationResult:
        """Cluster the texts of each language by k-means.

        Raise DataError if a language has fewer than two labels, or fewer distinct texts than clusters.
        """
        texts, label_names, langs = load_columns(self.data, self.text_column, self.label_column, self.lang_column)
        numbers = {label: number for number, label in enumerate(dict.fromkeys(label_names))}
        labels = np.array([numbers[label] for label in label_names])
        rows = {lang: np.flatnonzero(np.array(langs) == lang) for lang in dict.fromkeys(langs)}
        num_clusters = {lang: self.clusters or len(np.unique(labels[of_language])) for lang, of_language in rows.items()}
        for lang, of_language in rows.items():
            num_texts = len({texts[row] for row in of_language})
            if len(np.unique(labels[of_language])) < 2:
                raise DataError(f"{self.data}: {lang!r} has only one label, which any clustering recovers; remove its rows")
            if num_texts < num_clusters[lang]:
                sizes = f"{num_texts} different texts for {num_clusters[lang]} clusters"
                raise DataError(f"{self.data}: {lang!r} has {sizes}; remove its rows, or give fewer --clusters")
        vectors = encode(encoder, texts, np.float32)
        return _summarise(
            {
                lang: np.stack([labels[of_language], cluster(vectors[of_language], num_clusters[lang], self.seed)], axis=1)
                for lang, of_language in rows.items()
            }
        )


def _summarise(languages: Mapping[str, Ints]) -> EvaluationResult:
    """Languages with the label and the cluster of each text (n, 2) -> purity and V-measure, by language and their means."""
    scores = {"purity": Score(languages, purity), "v_measure": Score(languages, v_measure)}
    figures = {
        lang: {
            "n": len(items),
            "labels": len(np.unique(items[:, 0])),
            "clusters": len(np.unique(items[:, 1])),
            **{name: score.statistic(items) for name, score in scores.items()},
        }
        for lang, items in languages.items()
    }
    mean = {name: score.average(row[name] for row in figures.values()) for name, score in scores.items()}
    columns = {"n": "texts", "labels": "labels", "clusters": "clusters", "purity": "purity", "v_measure": "V-measure"}
    rows = {**figures, **({"mean": mean} if len(languages) > 1 else {})}
    return EvaluationResult({"languages": figures, "mean": mean}, figure_table(rows, columns), {"purity": scores["purity"]})


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
