"""Measure how an encoder mines, on the texts that ship with miner: the weights of probabilities, and whether rescoring pays.

Some sentences of two languages are translations of each other; the others have none. Such corpora are mined, once small and dense, once
large and sparse, and a logistic regression is fitted to the mined pairs. Probabilities are corrected for the corpora of a run later
(`miner.mining.mixture`).
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from miner.arrays import Bools, Floats, Floats32, Ints
from miner.config.choices import MARGINS, default_candidates
from miner.config.probability import ProbabilityWeights
from miner.encoders import Encoder, calibration_texts
from miner.encoders.base import TokenEncoder
from miner.encoders.layer_tokens import LayerTokens, choose_token_encoder
from miner.encoders.mining_profile import MiningProfile, ScoringProbabilities
from miner.encoders.token_vectors import TokenVectors
from miner.filters.pairs import PairTexts
from miner.mining.candidates import Candidates, score
from miner.mining.in_memory import find_candidates
from miner.mining.late_scores import TokenSides
from miner.mining.margin_sample import MarginSample
from miner.mining.matching import match, rank

K = 4
WITH_ENGLISH = ["ara", "ben", "deu", "ell", "fin", "fra", "heb", "hun", "jpn", "kor", "rus", "swa", "tha", "tur", "ukr", "vie"]
WITHOUT_ENGLISH = ("deu-kor", "ara-jpn", "fra-rus", "heb-hun")
DENSE, SPARSE = 2, 7  # one pair in 2 or 7 has both sides
SPARSE_MIXTURES = slice(1, None, 2)  # every other one of `read_mixtures`
INTERCEPT_PENALTY = 1e-3
MAX_STEP, TOLERANCE = 2.0, 1e-8  # of a parameter
TOTAL_WEIGHT = 1e5  # of the pairs of a corpus, so that the penalty of the regression hardly matters
EMBEDDING, RESCORED = "embedding", "rescored"  # fields of ScoringProbabilities

Pair = tuple[str, str]


@dataclass(frozen=True)
class LabelledPairs:
    """The pairs (n,) of two corpora, best first."""

    table: pa.Table  # margin, source_text, target_text
    is_true: Bools  # (n,)
    num_true: int  # pairs in the corpora
    sample: MarginSample

    @property
    def margins(self) -> Floats:
        """(n,)"""
        margins: Floats = self.table["margin"].to_numpy()
        return margins

    def features(self) -> Floats:
        """Return (n, 3): margin, logarithm of the length ratio, share of numbers that disagree."""
        texts = [self.table[f"{side}_text"].to_pylist() for side in ("source", "target")]
        pairs = PairTexts(texts[0], texts[1], ("und", "und"), np.zeros(0))
        return np.stack([self.margins, np.log(pairs.length_ratios), np.nan_to_num(pairs.number_disagreement)], axis=1)

    def f1(self, kept: Bools) -> float:
        """Return the F1 of the pairs that are kept (n,)."""
        return float(2 * self.is_true[kept].sum() / (kept.sum() + self.num_true))

    def best_f1(self, scores: Floats) -> float:
        """Return the F1 of the best threshold of scores (n,)."""
        correct = np.cumsum(self.is_true[np.argsort(-scores, kind="stable")])
        return float((2 * correct / (np.arange(1, len(scores) + 1) + self.num_true)).max(initial=0.0))


@dataclass(frozen=True)
class MixedCorpora:
    """Sentences of two languages, some of which are translations."""

    texts: tuple[list[str], list[str]]
    pairs: set[tuple[int, int]]  # rows of translations

    @classmethod
    def of(cls, pairs: Sequence[Pair], parts: int, others: Sequence[str] = ()) -> "MixedCorpora":
        """One pair in `parts` has both sides, and one side of the others is left out. `others` are more sentences of the first language."""
        kinds = np.arange(len(pairs)) % parts
        first = [pairs[number][0] for number in np.flatnonzero((kinds == 0) | (kinds % 2 == 1)).tolist()]
        second = [pairs[number][1] for number in np.flatnonzero(kinds % 2 == 0).tolist()]
        sides = list(dict.fromkeys([*first, *others])), second
        row_of = [{text: row for row, text in enumerate(side)} for side in sides]
        return cls(sides, {(row_of[0][source], row_of[1][target]) for source, target in pairs[::parts]})

    def search(self, encoder: Encoder) -> Candidates:
        """Return the candidates, rescored if the encoder has token vectors."""
        vectors = [encoder.encode(side).astype(np.float16) for side in self.texts]
        tokens = None
        if isinstance(encoder, TokenEncoder):
            source, target = map(encoder.token_vectors, self.texts)
            tokens = TokenSides(source, target, default_candidates(map(len, self.texts)))
        return find_candidates(vectors[0], vectors[1], K, tokens)

    def mine(self, candidates: Candidates, margin: str) -> LabelledPairs:
        """Return the one-to-one pairs, whatever their margin."""
        pairs = match(rank(score(candidates, margin, -np.inf)), "max")
        ids = pairs.source_ids.tolist(), pairs.target_ids.tolist()
        texts = [[side[row] for row in rows] for side, rows in zip(self.texts, ids, strict=True)]
        table = pa.table([pairs.margins, *map(pa.array, texts)], names=["margin", "source_text", "target_text"])
        is_true = np.array([pair in self.pairs for pair in zip(*ids, strict=True)])
        sample = MarginSample.of(candidates, margin, (len(self.texts[0]), len(self.texts[1])))
        return LabelledPairs(table, is_true, len(self.pairs), sample)


def fit(sets: Sequence[LabelledPairs], typical: slice = slice(None)) -> ProbabilityWeights:
    """Fit the weights to mined pairs. All sets weigh the same, and each has an intercept. The result has the mean of those of typical sets.

    With one intercept, sets in which translations are common and rare would flatten the slope of the margin.
    """
    features = np.concatenate([part.features() for part in sets])
    mean, deviation = features.mean(axis=0), features.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1)
    sizes = [len(part.is_true) for part in sets]
    inputs = np.concatenate([np.repeat(np.eye(len(sets)), sizes, axis=0), (features - mean) / scale], axis=1)
    penalties = np.repeat([INTERCEPT_PENALTY, 1.0], [len(sets), len(mean)])
    sample_weights = np.repeat(TOTAL_WEIGHT / np.array(sizes), sizes)
    parameters = logistic_regression(inputs, np.concatenate([part.is_true for part in sets]), sample_weights, penalties)
    slopes = parameters[len(sets) :] / scale
    intercept = parameters[: len(sets)][typical].mean() - slopes @ mean
    margin, length_ratio, numbers = slopes.round(2).tolist()
    # A pair is never likelier because its lengths or numbers differ.
    return ProbabilityWeights(
        intercept=round(float(intercept), 2),
        margin=max(margin, 0.01),
        length_ratio=min(length_ratio, 0.0),
        numbers=min(numbers, 0.0),
    )


def logistic_regression(inputs: Floats, is_true: Bools, weights: Floats, penalties: Floats, max_steps: int = 100) -> Floats:
    """Inputs (n, p), labels (n,) and weights (n,) -> parameters (p,), by Newton's method.

    They maximise the log-likelihood less half of their squares times `penalties` (p,).
    """
    parameters = np.zeros(len(penalties))
    for _ in range(max_steps):
        expected = 1 / (1 + np.exp(-np.clip(inputs @ parameters, -30, 30)))
        gradient = inputs.T @ (weights * (is_true - expected)) - penalties * parameters
        information = (inputs * (weights * expected * (1 - expected))[:, None]).T @ inputs + np.diag(penalties)
        step = np.clip(np.linalg.solve(information, gradient), -MAX_STEP, MAX_STEP)
        parameters += step
        if np.abs(step).max() < TOLERANCE:
            break
    return parameters


@dataclass(frozen=True)
class EncodedTexts:
    """Texts that were encoded once, as an encoder."""

    row_of: Mapping[str, int]
    vectors: Floats32  # (n, dim)
    tokens: TokenVectors
    fingerprint: str

    @classmethod
    def of(cls, texts: Sequence[str], encoder: Encoder, token_encoder: TokenEncoder) -> "EncodedTexts":
        """Encode n different texts and their tokens, in one pass where the encoder can."""
        if isinstance(token_encoder, LayerTokens):
            vectors, text_tokens = token_encoder.encode(texts)
            tokens = text_tokens.to_token_vectors()
        else:
            vectors, tokens = encoder.encode(texts), token_encoder.token_vectors(texts)
        return cls({text: row for row, text in enumerate(texts)}, vectors, tokens, encoder.fingerprint)

    @property
    def dim(self) -> int:
        """Return the dimension of vectors."""
        return int(self.vectors.shape[1])

    def encode(self, texts: Sequence[str]) -> Floats32:
        """Return the vectors (m, dim) of these texts (m,)."""
        vectors: Floats32 = self.vectors[self._rows(texts)]
        return vectors

    def token_vectors(self, texts: Sequence[str]) -> TokenVectors:
        """Return the token vectors of these texts (m,)."""
        return self.tokens.take(self._rows(texts))

    def _rows(self, texts: Sequence[str]) -> Ints:
        return np.array([self.row_of[text] for text in texts], dtype=np.int64)


def read_mixtures() -> list[MixedCorpora]:
    """Return the corpora that are mined: with English, dense and small, and sparse and large; without English, dense and sparse."""
    table = calibration_texts.read()
    by_language: dict[str, dict[int, str]] = {}
    for lang, group, text in zip(*(table[name].to_pylist() for name in ("lang", "group", "text")), strict=True):
        by_language.setdefault(lang.partition("_")[0], {})[group] = text
    english = by_language["eng"]
    mixtures = []
    for name in (*(f"eng-{lang}" for lang in WITH_ENGLISH), *WITHOUT_ENGLISH):
        first, second = (by_language[lang] for lang in name.split("-"))
        pairs = [(first[group], second[group]) for group in sorted(first.keys() & second.keys())]
        random.Random(name).shuffle(pairs)
        paired = {source for source, _ in pairs}
        others = [text for text in english.values() if text not in paired] if first is english else []
        mixtures += [MixedCorpora.of(pairs, DENSE), MixedCorpora.of(pairs, SPARSE, others)]
    return mixtures


def measure(encoder: Encoder, mixtures: Sequence[MixedCorpora]) -> MiningProfile:
    """Return the weights of probabilities by each margin, with and without rescoring, and whether rescoring pays.

    Of the mixtures every other one is sparse, as `read_mixtures` returns them.
    """
    token_encoder = choose_token_encoder(encoder, None)
    if token_encoder is not None:
        texts = list(dict.fromkeys(text for mixture in mixtures for side in mixture.texts for text in side))
        encoder = EncodedTexts.of(texts, encoder, token_encoder)
    candidates = [mixture.search(encoder) for mixture in mixtures]
    by_scoring = {EMBEDDING: [replace(part, late=None) for part in candidates]}
    if token_encoder is not None:
        by_scoring[RESCORED] = candidates
    mined = {
        (margin, scoring): [mixture.mine(part, margin) for mixture, part in zip(mixtures, parts, strict=True)]
        for margin in MARGINS
        for scoring, parts in by_scoring.items()
    }
    weights = {
        margin: ScoringProbabilities(**{scoring: fit(mined[margin, scoring], SPARSE_MIXTURES) for scoring in by_scoring})
        for margin in MARGINS
    }
    best = {scoring: np.mean([part.best_f1(part.margins) for part in mined["ratio", scoring]]) for scoring in by_scoring}
    return MiningProfile(probabilities=weights, rescoring_pays=bool(best.get(RESCORED, 0) > best[EMBEDDING]))
