"""Fit the vectors of the pieces of languages with little text to the English vectors of their translations.

    python configs/builtin_rows.py --data build/builtin-data --encoder DIR --output build/builtin-rows

Ridge regression: the sum of the changed vectors of a text's pieces, relative to the length of the sum before, is as close as possible to
the vector of its translation. Each language is centred, so that only differences between its texts count. A vector changes the less, the
more languages with much text (STRONG) use its piece; those that use it most do not change at all, and keep their bytes.
"""

import itertools
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from builtin_balance import PIVOTS
from builtin_vocabulary import SAMPLED_TEXTS, STRONG, parse_arguments
from scipy import sparse

from miner.encoders import mining_profile, static
from miner.encoders.static import StaticEncoder

KEPT = STRONG - {"fas_Arab", "urd_Arab"}  # languages whose vectors are kept; Persian had lost accuracy, and shares pieces with Urdu
MAX_TEXTS = 6_000  # of a language
KNOWN, KNOWN_SHARE = 96.0, 0.25  # accuracy in percent from which a share of a language's texts is enough
MAX_STRONG_SHARE = 0.3  # of strong languages in the use of a piece that changes
MIN_USES = 3  # of a piece that changes, in the sampled texts
MAX_ROWS = 100_000  # that change: git stores all of them again
RIDGE = 0.3  # in texts with the piece, whose vectors are right as they are
STRONG_RIDGE = 100_000  # the same, times the share of the piece among those of each strong language
WORD_WEIGHT = 0.5  # of texts of lexicons
ITERATIONS = 8


def count_pieces(encoder: StaticEncoder, texts: list[str]) -> sparse.csr_matrix:
    """Return (n, pieces), the number of each piece in n texts."""
    ids = encoder.pieces.encode(texts, num_threads=2)
    bounds = np.cumsum([0, *map(len, ids)])
    flat = np.fromiter((piece for row in ids for piece in row), np.int32, bounds[-1])
    counts = sparse.csr_matrix((np.ones(len(flat), np.float32), flat, bounds), shape=(len(ids), encoder.num_tokens))
    counts.sum_duplicates()
    return counts


def strong_uses(table: pa.Table, encoder: StaticEncoder) -> tuple[np.ndarray, np.ndarray]:
    """Return (pieces,) the use of pieces in strong and in other languages, all languages weighing the same, and English three times."""
    uses = np.zeros((2, encoder.num_tokens))
    for lang in pc.unique(table["lang"]).to_pylist():
        texts = table["text"].filter(pc.equal(table["lang"], lang))
        sample = texts.take(np.arange(0, len(texts), max(1, len(texts) // SAMPLED_TEXTS))).to_pylist()
        counts = np.asarray(count_pieces(encoder, sample).sum(axis=0)).ravel()
        uses[int(lang not in KEPT)] += counts / max(1, counts.sum()) * (3 if lang == "eng_Latn" else 1)
    return uses[0], uses[1]


def translations(table: pa.Table, random: np.random.Generator) -> Iterator[tuple[str, list[str], list[str], np.ndarray]]:
    """Yield (language, texts, their translations into English or French, whether they are of a lexicon)."""
    pivots: dict[int, str] = {}
    for lang in reversed(PIVOTS):
        rows = table.filter(pc.equal(table["lang"], lang))
        pivots |= dict(zip(rows["group"].to_pylist(), rows["text"].to_pylist(), strict=True))
    for lang in sorted(set(pc.unique(table["lang"]).to_pylist()) - KEPT):
        rows = table.filter(pc.equal(table["lang"], lang))
        rows = rows.take(np.sort(random.permutation(len(rows))[:MAX_TEXTS]))
        columns = (rows[name].to_pylist() for name in ("group", "text", "source"))
        kept = [
            (text, pivots[group], source.startswith("lexicons/")) for group, text, source in zip(*columns, strict=True) if group in pivots
        ]
        if kept:
            texts, others, is_word = zip(*kept, strict=True)
            yield lang, list(texts), list(others), np.array(is_word)


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def fit(counts: sparse.csr_matrix, residuals: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """Weighted counts (n, pieces), residuals (n, dim), ridge (pieces,) -> changes (pieces, dim), by preconditioned conjugate gradients."""
    transposed = counts.T.tocsr()
    diagonal = np.asarray(counts.multiply(counts).sum(axis=0)).ravel() + ridge

    def solve(columns: np.ndarray) -> np.ndarray:
        remaining = transposed @ columns
        changes, direction = np.zeros_like(remaining), remaining / diagonal[:, None]
        scaled = direction.copy()
        product = (remaining * scaled).sum(axis=0)
        for _ in range(ITERATIONS):
            image = transposed @ (counts @ direction) + ridge[:, None] * direction
            step = product / np.maximum((direction * image).sum(axis=0), 1e-12)
            changes += step * direction
            remaining -= step * image
            scaled = remaining / diagonal[:, None]
            previous, product = product, (remaining * scaled).sum(axis=0)
            direction = scaled + product / np.maximum(previous, 1e-12) * direction
        return changes

    with ThreadPoolExecutor() as pool:
        return np.concatenate(list(pool.map(solve, np.array_split(residuals, 4, axis=1))), axis=1)


def main() -> None:
    arguments = parse_arguments(__doc__)
    encoder, table = StaticEncoder(arguments.encoder), pq.read_table(arguments.data / "groups.parquet")
    accuracies = mining_profile.read(arguments.encoder).accuracies
    known = {lang for lang, accuracy in accuracies.items() if accuracy >= KNOWN} - STRONG
    is_known = pc.is_in(table["lang"], pa.array(sorted(known))).to_numpy()
    sample = table.filter(pa.array(~is_known | (np.random.default_rng(1).random(len(table)) < KNOWN_SHARE)))
    vectors = fit_vectors(sample, encoder, *strong_uses(table, encoder))
    static.save(arguments.output, vectors, encoder.pieces.serialized_model_proto(), encoder.token_dim, encoder.eight_bit_dims)


def fit_vectors(table: pa.Table, encoder: StaticEncoder, strong: np.ndarray, weak: np.ndarray) -> np.ndarray:
    """Return the vectors (pieces, dim) of an encoder, some of them changed, by the use (pieces,) of pieces in both kinds of languages."""
    vectors = encoder.vectors.copy()
    matrices, targets, weights, bounds = [], [], [], [0]
    for _, texts, others, is_word in translations(table, np.random.default_rng(0)):
        matrices.append(count_pieces(encoder, texts))
        targets.append(encoder.encode(others))
        targets[-1] -= targets[-1].mean(axis=0)
        weights.append(np.where(is_word, WORD_WEIGHT, 1))
        bounds.append(bounds[-1] + len(texts))
    counts, target, weight = sparse.vstack(matrices).tocsr(), np.concatenate(targets), np.concatenate(weights).astype(np.float32)
    uses = np.asarray(counts.sum(axis=0)).ravel()
    rows = np.flatnonzero((uses >= MIN_USES) & (strong <= MAX_STRONG_SHARE * (strong + weak)) & (vectors != 0).any(axis=1))
    rows = np.sort(rows[np.argsort(-uses[rows], kind="stable")][:MAX_ROWS])
    print(f"{len(rows)} rows, {counts.shape[0]} texts", file=sys.stderr, flush=True)
    sums = counts @ vectors
    lengths = np.maximum(np.linalg.norm(sums, axis=1), 1e-2)
    current = unit(sums)
    for start, end in itertools.pairwise(bounds):
        current[start:end] -= current[start:end].mean(axis=0)
    scale = weight / lengths
    ridge = ((RIDGE + STRONG_RIDGE * strong[rows]) * np.mean(scale**2)).astype(np.float32)
    vectors[rows] += fit((sparse.diags(scale) @ counts[:, rows]).tocsr(), (target - current) * weight[:, None], ridge)
    return vectors


if __name__ == "__main__":
    main()
