"""Where an encoder puts the same sentences in several languages: how alike, and drawn on a plane. See docs/evaluation.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from miner.encoders import Encoder
from miner.errors import DataError
from miner.evaluation.inputs import encode, read_columns
from miner.evaluation.scores import Floats, Score, mean, table
from miner.evaluation.settings import MapTask

Vectors = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

DRAWN = 6  # languages on the plane, at most: those with most sentences
POINTS = 40  # sentences on the plane, at most


@dataclass(frozen=True, eq=False)
class Projection:
    """Some sentences in some languages, all of which have all of them, as points."""

    languages: Sequence[str]
    points: Mapping[str, Floats]  # by method: (languages, sentences, 2)

    def figures(self) -> dict[str, Any]:
        return {"languages": list(self.languages), **{method: points.round(4).tolist() for method, points in self.points.items()}}


@dataclass(frozen=True, eq=False)
class LanguageMapResult:
    """What `miner eval map` found, of l languages."""

    closeness: Mapping[str, Floats]  # by language: (n, 1), the cosine of each sentence with the mean of its translations
    translations: Floats  # (l, l) mean cosine of translations, the languages as in `closeness`; NaN for two without a sentence in common
    others: Floats  # (l, l) of sentences that are none
    plane: Projection | None  # None where no two languages have three sentences in common

    def figures(self) -> dict[str, Any]:
        near = {lang: {"n": len(items), "cosine": mean(items)} for lang, items in self.closeness.items()}
        matrices = {"translations": self.translations, "others": self.others}
        told = {name: [[None if np.isnan(cell) else cell for cell in row] for row in matrix.tolist()] for name, matrix in matrices.items()}
        return {"languages": near, **told, "map": self.plane.figures() if self.plane else None}

    def summary(self) -> str:
        rows = {lang: [str(len(items)), f"{mean(items):.4f}"] for lang, items in self.closeness.items()}
        pairs = ~np.eye(len(rows), dtype=bool)
        found = [f"{np.nanmean(matrix[pairs]):.4f}" for matrix in (self.translations, self.others)]
        return f"mean cosine of translations {found[0]}, of others {found[1]}\n{table(['sentences', 'cosine'], rows)}"

    def scores(self) -> dict[str, Score]:
        return {"cosine of translations": Score(self.closeness, mean)}


def evaluate(encoder: Encoder, task: MapTask) -> LanguageMapResult:
    """A table of texts, their languages, and ids that translations share.

    DataError where a language has two texts of one id, no id is in two languages, or the encoder knows no text of such.
    """
    texts, langs, ids = read_columns(task.data, task.text_column, task.lang_column, task.id_column)
    languages, sentences = sorted(set(langs)), _chosen(task, langs, ids)  # as JSON has them, whose matrices have no names
    places = {(lang, name): (row, column) for row, lang in enumerate(languages) for column, name in enumerate(sentences)}
    vectors = np.zeros((len(languages), len(sentences), encoder.dim), dtype=np.float32)
    rows = [row for row, place in enumerate(zip(langs, ids, strict=True)) if place in places]
    for row, vector in zip(rows, encode(encoder, [texts[row] for row in rows], np.float32), strict=True):
        vectors[places[langs[row], ids[row]]] = vector
    there: Bools = (vectors != 0).any(axis=2)
    closeness = _closeness(languages, vectors, there)
    if not closeness:
        raise DataError(f"{task.data}: no text has a translation that the encoder knows; name another --encoder")
    used = [lang in closeness for lang in languages]
    vectors, there = vectors[used], there[used]
    return LanguageMapResult(closeness, *similarities(vectors, there), _plane(task, list(closeness), vectors, there))


def _chosen(task: MapTask, langs: Sequence[str], ids: Sequence[str]) -> list[str]:
    """The ids that at least two languages have, at most `task.sentences` of them drawn by chance."""
    seen: set[tuple[str, str]] = set()
    for lang, name in zip(langs, ids, strict=True):
        if (lang, name) in seen:
            raise DataError(f"{task.data}: two rows have the id {name!r} in {lang!r}; take one out, or name another --id-column")
        seen.add((lang, name))
    times: dict[str, int] = {}
    for name in ids:
        times[name] = times.get(name, 0) + 1
    shared = [name for name, count in times.items() if count > 1]
    if not shared:
        raise DataError(f"{task.data}: no id is in two languages; translations must share theirs")
    rows = np.random.default_rng(task.seed).permutation(len(shared))[: task.sentences]
    return [shared[row] for row in sorted(rows.tolist())]


def similarities(vectors: Vectors, there: Bools) -> tuple[Floats, Floats]:
    """Unit vectors (l, n, dim), 0 where not `there` (l, n) -> (l, l) the mean cosine of translations, and that of all other pairs."""
    flat = vectors.reshape(len(vectors), -1).astype(np.float64)
    same, together = flat @ flat.T, there.astype(np.float64) @ there.T.astype(np.float64)
    sums, counts = vectors.sum(axis=1, dtype=np.float64), there.sum(axis=1, dtype=np.float64)
    every, pairs = sums @ sums.T, np.outer(counts, counts)
    with np.errstate(invalid="ignore", divide="ignore"):
        return same / together, (every - same) / (pairs - together)


def _closeness(languages: Sequence[str], vectors: Vectors, there: Bools) -> dict[str, Floats]:
    total = vectors.sum(axis=0, dtype=np.float64)
    found = {}
    for lang, own, known in zip(languages, vectors, there, strict=True):
        others = total - own
        norms = np.linalg.norm(others, axis=1)
        rows = known & (norms > 0)
        if rows.any():
            found[lang] = (np.einsum("nd,nd->n", own[rows], others[rows]) / norms[rows])[:, None]
    return found


def _plane(task: MapTask, languages: Sequence[str], vectors: Vectors, there: Bools) -> Projection | None:
    """By principal components, and by t-SNE, which keeps neighbours together and says nothing by distances."""
    order = np.argsort(-there.sum(axis=1), kind="stable")
    for count in range(min(DRAWN, len(order)), 1, -1):
        chosen = np.sort(order[:count])
        shared = np.flatnonzero(there[chosen].all(axis=0))[:POINTS]
        if len(shared) >= 3:
            points = vectors[chosen][:, shared].reshape(count * len(shared), -1)
            shape = (count, len(shared), 2)
            drawn = {name: points.reshape(shape) for name, points in _project(points, task.seed).items()}
            return Projection([languages[row] for row in chosen], drawn)
    return None


def _project(points: Vectors, seed: int) -> dict[str, Floats]:
    """(n, dim) -> (n, 2), by method."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # so that every machine adds in the same order
        flat = PCA(2, svd_solver="full").fit_transform(points.astype(np.float64))
        near = TSNE(2, perplexity=min(20.0, (len(points) - 1) / 3), init="pca", random_state=seed).fit_transform(points)
    return {"pca": np.asarray(flat, np.float64), "tsne": np.asarray(near, np.float64)}
