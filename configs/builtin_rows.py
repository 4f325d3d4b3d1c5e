"""Fit the vectors of the pieces of languages with little text to the English vectors of their translations.

    python configs/builtin_rows.py --data build/builtin-data --encoder DIR --output build/builtin-rows

Ridge regression: the sum of the changed vectors of a text's pieces, relative to the length of the sum before, is as close as possible to
the vector of its translation. The sentences of a language are centred, so that only differences between them count; words and phrases
of lexicons are fitted to the sum of their translation's pieces, so that words with little meaning stay short. The better a language is
known, the smaller is the step. The vectors of texts in languages that are known well are to stay as they are; pieces that those use most
do not change at all, and keep their bytes.
"""

import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from builtin_balance import PIVOTS
from builtin_spellings import SPELLINGS, Spelling
from builtin_vocabulary import STRONG, parse_arguments
from scipy import sparse

from miner.encoders import mining_profile, static
from miner.encoders.static import StaticEncoder

REFITTED = {"fas_Arab"}  # known well, but its vectors had lost accuracy in an earlier training
KNOWN, UNMEASURED = 96.0, 60.0  # accuracy in percent of a language that is known well; accuracy of a language without a measured one
FULL_STEP, MIN_STEP = 15.0, 0.05  # missing accuracy in percent from which the step to the translations is whole; the smallest step
FULL_RANK, MIN_RANK = 20.0, 0.1  # the same of the weight of a language in the choice of pieces that change
MAX_SENTENCES, MAX_WORDS = 10_000, 5_000  # of a language; words are the texts of lexicons
MAX_KEPT_TEXTS, MAX_ENGLISH_TEXTS = 1_300, 3_000  # of a language that is known well
COUNTED_TEXTS = 30_000  # of a language, to count its pieces: vectors of pieces that it does not use there may change
MAX_KNOWN_SHARE = 0.3  # of languages that are known well in the use of a piece that changes
MIN_USES = 3  # of a piece that changes, in the sampled texts
MAX_ROWS = 130_000  # that change: git stores all of them again
RIDGE = 2.0  # in texts with the piece, whose vectors are right as they are
KNOWN_RIDGE = 1_000_000  # the same, times the share of the piece among those of each language that is known well
WORD_WEIGHT, KEPT_WEIGHT = 0.5, 4.0  # of words, and of texts that are to keep their vectors; 1 of sentences
MIN_LENGTH = 3.0  # of the sum of a text's vectors: a shorter one, such as 0 of unknown letters, would outweigh all others
ITERATIONS = 8


class Texts:
    """The pieces of texts, one language after the other, and how far the vector of each text is from that of its translation."""

    def __init__(self, encoder: StaticEncoder, vectors: np.ndarray) -> None:
        self.encoder, self.vectors = encoder, vectors
        self.counts: list[sparse.csr_matrix] = []
        self.residuals: list[np.ndarray] = []
        self.scales: list[np.ndarray] = []
        self.ranks: list[float] = []  # weight of the language of each part

    def add(self, texts: list[str]) -> None:
        """Add texts that are to keep their vectors, of one language."""
        if texts:
            counts = count_pieces(self.encoder, texts)
            sums = counts @ self.vectors
            self._append(counts, np.zeros_like(sums), np.linalg.norm(sums, axis=1), KEPT_WEIGHT, 0)

    def add_pairs(self, pairs: list[tuple[str, str]], are_words: bool, accuracy: float) -> None:
        """Add texts with their translations. Words are to have the sum of their translation's vectors, sentences only its direction."""
        if not pairs:
            return
        texts, translations = ([pair[side] for pair in pairs] for side in (0, 1))
        counts = count_pieces(self.encoder, texts)
        sums = counts @ self.vectors
        target = count_pieces(self.encoder, translations) @ self.vectors
        lengths, target_lengths = np.linalg.norm(sums, axis=1), np.linalg.norm(target, axis=1)
        if are_words:
            lengths, weight = target_lengths, WORD_WEIGHT
            residuals = (target - sums) / np.maximum(lengths, MIN_LENGTH)[:, None]
        else:
            weight, residuals = 1.0, centred(target, target_lengths) - centred(sums, lengths)
        step = np.clip((100 - accuracy) / FULL_STEP, MIN_STEP, 1)
        rank = float(np.clip((100 - accuracy) / FULL_RANK, MIN_RANK, 1))
        self._append(counts, (step * weight * residuals).astype(np.float32), lengths, weight, rank)

    def _append(self, counts: sparse.csr_matrix, residuals: np.ndarray, lengths: np.ndarray, weight: float, rank: float) -> None:
        self.counts.append(counts)
        self.residuals.append(residuals)
        self.scales.append((weight / np.maximum(lengths, MIN_LENGTH)).astype(np.float32))
        self.ranks.append(rank)

    def fit(self, known: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return the vectors (pieces, dim), some of them changed, by the use (pieces,) of pieces in languages known well and in others."""
        uses = sum(np.asarray(counts.sum(axis=0)).ravel() for counts in self.counts)
        ranks = sum(rank * np.asarray(counts.sum(axis=0)).ravel() for rank, counts in zip(self.ranks, self.counts, strict=True))
        is_free = (uses >= MIN_USES) & (ranks > 0) & (known <= MAX_KNOWN_SHARE * (known + other)) & (self.vectors != 0).any(axis=1)
        rows = np.flatnonzero(is_free)
        rows = np.sort(rows[np.argsort(-ranks[rows], kind="stable")][:MAX_ROWS])
        print(f"{len(rows)} rows, {sum(map(len, self.scales))} texts", file=sys.stderr, flush=True)
        counts, scale = sparse.vstack([counts[:, rows] for counts in self.counts]).tocsr(), np.concatenate(self.scales)
        is_used = counts.astype(bool)
        squares = (is_used.T @ scale**2) / np.maximum(np.asarray(is_used.sum(axis=0)).ravel(), 1)  # mean of the texts with a piece
        ridge = ((RIDGE + KNOWN_RIDGE * known[rows]) * squares).astype(np.float32)
        vectors = self.vectors.copy()
        vectors[rows] += fit((sparse.diags(scale) @ counts).tocsr(), np.concatenate(self.residuals), ridge)
        return vectors


def centred(sums: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the vectors (n, dim) of length 1 of sums (n, dim) with these lengths (n,), less their mean."""
    vectors = sums / np.maximum(lengths, 1e-6)[:, None]
    return vectors - vectors.mean(axis=0)


def count_pieces(encoder: StaticEncoder, texts: list[str]) -> sparse.csr_matrix:
    """Return (n, pieces), the number of each piece in n texts."""
    ids = encoder.pieces.encode(texts, num_threads=2)
    bounds = np.cumsum([0, *map(len, ids)])
    flat = np.fromiter((piece for row in ids for piece in row), np.int32, bounds[-1])
    counts = sparse.csr_matrix((np.ones(len(flat), np.float32), flat, bounds), shape=(len(ids), encoder.num_tokens))
    counts.sum_duplicates()
    return counts


def spellings(lang: str) -> list[Spelling]:
    """Return the functions that write a text of a language as it is, and as in SPELLINGS."""
    return [str, *(spell for languages, _, spell in SPELLINGS if lang in languages)]


def count_uses(table: pa.Table, encoder: StaticEncoder, known: frozenset[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return (pieces,) the use of pieces in the known and in other languages, all languages weighing the same, and English three times."""
    uses = np.zeros((2, encoder.num_tokens))
    for lang in pc.unique(table["lang"]).to_pylist():
        texts = table["text"].filter(pc.equal(table["lang"], lang))
        sample = texts.take(np.arange(0, len(texts), max(1, len(texts) // COUNTED_TEXTS))).to_pylist()
        for spell in spellings(lang):
            counts = np.asarray(count_pieces(encoder, [spell(text) for text in sample]).sum(axis=0)).ravel()
            uses[int(lang not in known)] += counts / max(1, counts.sum()) * (3 if lang == "eng_Latn" else 1)
    return uses[0], uses[1]


def find_pivots(table: pa.Table) -> dict[int, str]:
    """Return the English text of each group, French where there is none."""
    pivots: dict[int, str] = {}
    for lang in reversed(PIVOTS):
        rows = table.filter(pc.equal(table["lang"], lang))
        pivots |= dict(zip(rows["group"].to_pylist(), rows["text"].to_pylist(), strict=True))
    return pivots


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


def fit_vectors(table: pa.Table, encoder: StaticEncoder, accuracies: Mapping[str, float]) -> np.ndarray:
    """Return the vectors (pieces, dim) of an encoder with these accuracies of languages, in percent, some of them changed."""
    known = STRONG | {lang for lang, accuracy in accuracies.items() if accuracy >= KNOWN}
    accuracies = {lang: accuracy for lang, accuracy in accuracies.items() if lang not in REFITTED}
    pivots, random, texts = find_pivots(table), np.random.default_rng(0), Texts(encoder, encoder.vectors)
    for lang in sorted(pc.unique(table["lang"]).to_pylist()):
        rows = table.filter(pc.equal(table["lang"], lang))
        rows = rows.take(random.permutation(len(rows)))
        if lang in known - REFITTED:
            limit = MAX_ENGLISH_TEXTS if lang == "eng_Latn" else MAX_KEPT_TEXTS
            sample = rows["text"].slice(0, limit).to_pylist()
            for spell in spellings(lang):
                texts.add([spell(text) for text in sample])
            continue
        columns = (rows[name].to_pylist() for name in ("group", "text", "source"))
        pairs: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
        for group, text, source in zip(*columns, strict=True):
            if group in pivots:
                pairs[source.startswith("lexicons/")].append((text, pivots[group]))
        accuracy = accuracies.get(lang, UNMEASURED)
        for spell in spellings(lang):
            texts.add_pairs([(spell(text), other) for text, other in pairs[False][:MAX_SENTENCES]], False, accuracy)
        texts.add_pairs(pairs[True][:MAX_WORDS], True, accuracy)
    return texts.fit(*count_uses(table, encoder, known))


def main() -> None:
    arguments = parse_arguments(__doc__)
    encoder, table = StaticEncoder(arguments.encoder), pq.read_table(arguments.data / "groups.parquet")
    vectors = fit_vectors(table, encoder, mining_profile.read(arguments.encoder).accuracies)
    static.save(arguments.output, vectors, encoder.pieces.serialized_model_proto(), encoder.token_dim, encoder.eight_bit_dims)


if __name__ == "__main__":
    main()
