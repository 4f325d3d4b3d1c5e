"""How similar languages are to an encoder, by the same sentences in all of them, and a map of these. See docs/evaluation.md."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pydantic

from miner.arrays import Bools, Floats, Floats32
from miner.config.datasets import TableFile
from miner.encoders import Encoder
from miner.errors import ConfigError, DataError, require
from miner.evaluation.inputs import encode
from miner.evaluation.scores import EvaluationResult, Score, mean, table
from miner.evaluation.task_base import BarChart, TaskSettings
from miner.research.datasets.columns import load_columns

MAX_MAP_LANGUAGES = 6  # those with most sentences
MAX_MAP_SENTENCES = 40
MIN_MAP_SENTENCES = 3


class MapTask(TaskSettings):
    """Compare languages by the same sentences in all of them: mean cosines, and a map that the report draws.

    With --pair-column, the map shows the two texts of each row, such as the pairs of an STS table in one language.

    \b
    Example:
      miner eval map --data udhr.tsv.gz --json map/udhr.json
      miner eval map --data klue-sts.tsv --text-column sentence1 --pair-column sentence2 --json map/klue.json
    """

    CHART = BarChart(
        groups="languages",
        value="cosine",
        caption="Mean cosine with the mean of the translations, or with the other text of the pair",
        details="language_map",
    )

    task: Literal["map"] = "map"
    data: TableFile = pydantic.Field(description="Table of texts, their languages, and ids that translations share.")
    text_column: str = pydantic.Field("text", description="Column of the text.")
    lang_column: str = pydantic.Field("lang", description="Column of the language.")
    id_column: str = pydantic.Field("id", description="Column of the id, which translations share.")
    pair_column: str | None = pydantic.Field(None, description="Column of the second text of a pair; languages and ids are not read.")
    sentences: int = pydantic.Field(1000, ge=3, description="Maximum number of sentences sampled from those in two languages or more.")
    seed: int = pydantic.Field(0, description="Seed of the sample and of t-SNE.")

    def evaluate(self, encoder: Encoder) -> EvaluationResult:
        """Compare the languages of a table of texts, languages, and ids that translations share.

        Raise DataError if a language has two texts with one id, no id is in two languages, or no such text has a vector.
        """
        texts, langs, ids = _read_rows(self)
        languages, sentences = sorted(set(langs)), _sample_ids(self, langs, ids)  # sorted, as JSON objects are: the matrices have no labels
        cells = {(lang, name): (row, column) for row, lang in enumerate(languages) for column, name in enumerate(sentences)}
        vectors = np.zeros((len(languages), len(sentences), encoder.dim), dtype=np.float32)
        rows = [row for row, key in enumerate(zip(langs, ids, strict=True)) if key in cells]
        for row, vector in zip(rows, encode(encoder, [texts[row] for row in rows], np.float32), strict=True):
            vectors[cells[langs[row], ids[row]]] = vector
        has_vector: Bools = (vectors != 0).any(axis=2)
        cosines = _cosines(languages, vectors, has_vector)
        if not cosines:
            raise DataError(f"{self.data}: no text with a translation has a vector; name another --encoder")
        used = [lang in cosines for lang in languages]
        return _summarise(self, cosines, vectors[used], has_vector[used])


def _summarise(task: MapTask, cosines: Mapping[str, Floats], vectors: Floats32, has_vector: Bools) -> EvaluationResult:
    """Report the cosine of each sentence with the mean of its translations (n, 1) by language, the matrices, and the map."""
    translations, others = similarities(vectors, has_vector)
    off_diagonal = ~np.eye(len(cosines), dtype=bool)
    means = [f"{np.nanmean(matrix[off_diagonal]):.4f}" for matrix in (translations, others)]
    compared = "translations" if task.pair_column is None else "pairs"
    rows = {lang: [str(len(items)), f"{mean(items):.4f}"] for lang, items in cosines.items()}
    figures = {
        "languages": {lang: {"n": len(items), "cosine": mean(items)} for lang, items in cosines.items()},
        "translations": _as_lists(translations),
        "non_translations": _as_lists(others),
        "map": _find_map(list(cosines), vectors, has_vector, task.seed),
        "has_pairs": task.pair_column is not None,
    }
    summary = f"mean cosine of {compared} {means[0]}, of others {means[1]}\n{table(['sentences', 'cosine'], rows)}"
    return EvaluationResult(figures, summary, {"cosine of translations": Score(cosines, mean)})


def _as_lists(matrix: Floats) -> list[list[float | None]]:
    return [[None if np.isnan(cell) else cell for cell in row] for row in matrix.tolist()]


def _read_rows(task: MapTask) -> list[list[str]]:
    """Return texts, languages and ids. Texts of a pair share the number of their row, and their columns are the languages."""
    if task.pair_column is None:
        return load_columns(task.data, task.text_column, task.lang_column, task.id_column)
    if task.pair_column == task.text_column:
        raise ConfigError(f"--pair-column {task.pair_column}: the same as --text-column; name the column of the other text")
    first, second = load_columns(task.data, task.text_column, task.pair_column)
    rows = list(map(str, range(len(first))))
    return [first + second, [task.text_column] * len(rows) + [task.pair_column] * len(rows), rows + rows]


def _sample_ids(task: MapTask, langs: Sequence[str], ids: Sequence[str]) -> list[str]:
    """Return at most `task.sentences` random ids of those in two languages or more."""
    seen: set[tuple[str, str]] = set()
    for lang, name in zip(langs, ids, strict=True):
        if (lang, name) in seen:
            raise DataError(f"{task.data}: two rows have the id {name!r} in {lang!r}; remove one, or name another --id-column")
        seen.add((lang, name))
    shared = [name for name, num_languages in Counter(ids).items() if num_languages > 1]
    if not shared:
        raise DataError(f"{task.data}: no id is in two languages; translations must share their id, or name a --pair-column")
    rows = np.random.default_rng(task.seed).permutation(len(shared))[: task.sentences]
    return [shared[row] for row in sorted(rows.tolist())]


def similarities(vectors: Floats32, has_vector: Bools) -> tuple[Floats, Floats]:
    """Unit or zero vectors (l, n, dim), and which are unit (l, n) -> (l, l) mean cosine of translations, and that of all other pairs."""
    flat = vectors.reshape(len(vectors), -1).astype(np.float64)
    counts = has_vector.astype(np.float64)
    translation_sums, num_translations = flat @ flat.T, counts @ counts.T
    sums, num_sentences = vectors.sum(axis=1, dtype=np.float64), counts.sum(axis=1)
    all_sums, num_pairs = sums @ sums.T, np.outer(num_sentences, num_sentences)
    with np.errstate(invalid="ignore", divide="ignore"):
        return translation_sums / num_translations, (all_sums - translation_sums) / (num_pairs - num_translations)


def _cosines(languages: Sequence[str], vectors: Floats32, has_vector: Bools) -> dict[str, Floats]:
    """Return by language (n, 1) the cosine of each sentence with the mean of its translations; without languages that have none."""
    total = vectors.sum(axis=0, dtype=np.float64)
    cosines = {}
    for lang, own, has_own in zip(languages, vectors, has_vector, strict=True):
        others = total - own
        norms = np.linalg.norm(others, axis=1)
        rows = has_own & (norms > 0)
        if rows.any():
            cosines[lang] = (np.einsum("nd,nd->n", own[rows], others[rows]) / norms[rows])[:, None]
    return cosines


def _find_map(languages: Sequence[str], vectors: Floats32, has_vector: Bools, seed: int) -> dict[str, Any] | None:
    """Place the sentences that as many languages as possible, of those with most sentences, have in common on a plane.

    Vectors (l, n, dim), and which there are (l, n) -> the languages, and by method points (languages, sentences, 2); None if no two
    languages have MIN_MAP_SENTENCES in common.
    """
    order = np.argsort(-has_vector.sum(axis=1), kind="stable")
    for num_languages in range(min(MAX_MAP_LANGUAGES, len(order)), 1, -1):
        rows = np.sort(order[:num_languages])
        shared = np.flatnonzero(has_vector[rows].all(axis=0))[:MAX_MAP_SENTENCES]
        if len(shared) >= MIN_MAP_SENTENCES:
            flat = vectors[rows][:, shared].reshape(num_languages * len(shared), -1)
            shape = (num_languages, len(shared), 2)
            points = {method: plane.reshape(shape).round(4).tolist() for method, plane in _project(flat, seed).items()}
            return {"languages": [languages[row] for row in rows], **points}
    return None


def _project(vectors: Floats32, seed: int) -> dict[str, Floats]:
    """(n, dim) -> by method (n, 2): principal components, and t-SNE, which preserves neighbourhoods but not distances."""
    PCA = require("sklearn.decomposition").PCA
    TSNE = require("sklearn.manifold").TSNE
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # floating-point sums depend on the number of threads
        pca = PCA(2, svd_solver="full").fit_transform(vectors.astype(np.float64))
        tsne = TSNE(2, perplexity=min(20.0, (len(vectors) - 1) / 3), init="pca", random_state=seed).fit_transform(vectors)
    return {"pca": np.asarray(pca, np.float64), "tsne": np.asarray(tsne, np.float64)}
