"""Measure how an encoder mines, on the texts that ship with miner: the weights of probabilities, and whether rescoring pays.

Some sentences of two languages are translations of each other; the others have none. Such corpora are mined, once small and dense, once
large and sparse, and a logistic regression is fitted to the mined pairs. Probabilities are corrected for the corpora of a run later
(`miner.mining.mixture`). Another one is fitted to pairs of lines, some of which are made wrong.
"""

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from miner.arrays import Bools, Floats, Floats32, Ints
from miner.config.choices import MARGINS, MarginName, default_candidates
from miner.config.probability import ProbabilityWeights
from miner.devices import CPU
from miner.encoders import Encoder, calibration_texts
from miner.encoders.base import LanguageEncoder, TokenEncoder, in_language
from miner.encoders.layer_tokens import LayerTokens, choose_token_encoder
from miner.encoders.mining_profile import MiningProfile, ScoringProbabilities
from miner.encoders.token_vectors import TextTokens, TokenVectors
from miner.filters.pairs import PairTexts
from miner.languages import UNDETERMINED, canonical
from miner.mining.candidates import Candidates, LateScores, ScoredPairs, means_of, score
from miner.mining.in_memory import find_candidates, search_vectors
from miner.mining.late_scores import TokensById, TokenSides, neighbour_means, score_pairs
from miner.mining.logistic_regression import logistic_regression
from miner.mining.margin_sample import MarginSample
from miner.mining.matching import match, rank
from miner.search.dense import pair_similarities

K = 4
WITH_ENGLISH = ["ara", "ben", "deu", "ell", "fin", "fra", "heb", "hun", "jpn", "kor", "rus", "swa", "tha", "tur", "ukr", "vie"]
WITHOUT_ENGLISH = ("deu-kor", "ara-jpn", "fra-rus", "heb-hun")
DENSE, SPARSE = 2, 7  # one pair in 2 or 7 has both sides
SPARSE_MIXTURES = slice(1, None, 2)  # every other one of `read_mixtures`
INTERCEPT_PENALTY = 1e-3
TOTAL_WEIGHT = 1e5  # sum of the weights of a corpus: so large that the penalty of the regression hardly matters
NO_SAMPLE = MarginSample(*np.zeros((3, 0)))
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
    languages: tuple[str, str] = (UNDETERMINED, UNDETERMINED)  # canonical

    @classmethod
    def of(
        cls, pairs: Sequence[Pair], parts: int, others: Sequence[str] = (), languages: tuple[str, str] = (UNDETERMINED, UNDETERMINED)
    ) -> "MixedCorpora":
        """One pair in `parts` has both sides, and one side of the others is left out. `others` are more sentences of the first language."""
        kinds = np.arange(len(pairs)) % parts
        first = [pairs[number][0] for number in np.flatnonzero((kinds == 0) | (kinds % 2 == 1)).tolist()]
        second = [pairs[number][1] for number in np.flatnonzero(kinds % 2 == 0).tolist()]
        sides = list(dict.fromkeys([*first, *others])), second
        row_of = [{text: row for row, text in enumerate(side)} for side in sides]
        return cls(sides, {(row_of[0][source], row_of[1][target]) for source, target in pairs[::parts]}, languages)

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
        sample = MarginSample.of(candidates, margin, (len(self.texts[0]), len(self.texts[1])))
        return self.label(match(rank(score(candidates, margin)), "max"), sample)

    def label(self, pairs: ScoredPairs, sample: MarginSample = NO_SAMPLE) -> LabelledPairs:
        """Return pairs of rows, best first, with their texts, and whether they are translations."""
        ids = pairs.source_ids.tolist(), pairs.target_ids.tolist()
        texts = [[side[row] for row in rows] for side, rows in zip(self.texts, ids, strict=True)]
        table = pa.table([pairs.margins, *map(pa.array, texts)], names=["margin", "source_text", "target_text"])
        is_true = np.array([pair in self.pairs for pair in zip(*ids, strict=True)])
        return LabelledPairs(table, is_true, len(self.pairs), sample)

    def lines(self, encoder: Encoder) -> "MixedCorpora":
        """Return the translations as lines, row i with row i. Half are made wrong, and half of these hard: by the nearest other target."""
        sources, targets = (
            [side[row] for row in rows] for side, rows in zip(self.texts, zip(*sorted(self.pairs), strict=True), strict=True)
        )
        similarities = encoder.encode(sources) @ encoder.encode(targets).T
        np.fill_diagonal(similarities, -np.inf)
        wrong = np.sort(np.random.default_rng(0).permutation(len(targets))[: len(targets) // 2])
        others = np.where(np.arange(len(wrong)) % 2 == 0, np.roll(wrong, 1), similarities.argmax(axis=1)[wrong])
        changed = list(targets)
        for row, other in zip(wrong.tolist(), others.tolist(), strict=True):
            changed[row] = targets[other]
        right = {(row, row) for row, target in enumerate(targets) if changed[row] == target}
        return MixedCorpora((sources, changed), right, self.languages)

    def score_lines(self, encoder: Encoder) -> Candidates:
        """Return the pairs of row i and row i, with the means of their neighbours as `miner score` has them: each text is one neighbour."""
        rows, unique_texts = [], []
        for side in self.texts:
            row_of = {text: row for row, text in enumerate(dict.fromkeys(side))}
            rows.append(np.array([row_of[text] for text in side]))
            unique_texts.append(list(row_of))
        vectors = [encoder.encode(texts).astype(np.float16) for texts in unique_texts]
        neighbours = search_vectors(vectors[0], vectors[1], max(K, default_candidates(map(len, unique_texts))))
        ids = [np.arange(len(texts)) for texts in unique_texts]
        source_means, target_means = (means_of(own, near, K).of(row) for own, near, row in zip(ids, neighbours, rows, strict=True))
        is_own = np.ones(len(rows[0]), dtype=bool)
        similarities = pair_similarities(vectors[0][rows[0]], vectors[1][rows[1]])
        late = None
        if isinstance(encoder, TokenEncoder):
            tokens = [TokensById(number, encoder.token_vectors(texts)) for number, texts in zip(ids, unique_texts, strict=True)]
            sides = zip(tokens, neighbours, reversed(tokens), rows, strict=True)
            late_means = [neighbour_means(own, near, other, K, CPU).of(row) for own, near, other, row in sides]
            late = LateScores(score_pairs(tokens[0].tokens, tokens[1].tokens, rows[0], rows[1], CPU), *late_means)
        lines = np.arange(len(rows[0]))
        return Candidates(lines, lines, similarities, source_means, target_means, is_own, is_own, late)


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


@dataclass(frozen=True)
class EncodedTexts:
    """Texts that were encoded once, as an encoder."""

    row_of: Mapping[str, int]
    vectors: Floats32  # (n, dim)
    fingerprint: str

    @classmethod
    def of(cls, mixtures: Sequence[MixedCorpora], encoder: Encoder) -> "EncodedTexts":
        """Encode the texts of mixtures once, each in its language, with their tokens if the encoder has some: in one pass where it can."""
        lang_of = {text: lang for mixture in mixtures for lang, side in zip(mixture.languages, mixture.texts, strict=True) for text in side}
        if not isinstance(encoder, LanguageEncoder):
            lang_of = dict.fromkeys(lang_of, UNDETERMINED)
        texts = sorted(lang_of, key=lang_of.__getitem__)
        vectors, text_tokens, tokens = list[Floats32](), list[TextTokens](), None
        for lang, group in itertools.groupby(texts, lang_of.__getitem__):
            own, part = in_language(encoder, lang), list(group)
            token_encoder = choose_token_encoder(own, None)
            if isinstance(token_encoder, LayerTokens):
                own_vectors, own_tokens = token_encoder.encode(part)
                text_tokens.append(own_tokens)
            else:
                own_vectors = own.encode(part)
                tokens = None if token_encoder is None else token_encoder.token_vectors(part)
            vectors.append(own_vectors)
        if text_tokens:
            columns = ([getattr(own, name) for own in text_tokens] for name in ("vectors", "counts"))
            tokens = TextTokens(*map(np.concatenate, columns)).to_token_vectors()
        encoded = {text: row for row, text in enumerate(texts)}, np.concatenate(vectors), encoder.fingerprint
        return cls(*encoded) if tokens is None else EncodedTokens(*encoded, tokens)

    @property
    def dim(self) -> int:
        """Return the dimension of vectors."""
        return int(self.vectors.shape[1])

    def encode(self, texts: Sequence[str]) -> Floats32:
        """Return the vectors (m, dim) of these texts (m,)."""
        vectors: Floats32 = self.vectors[self._rows(texts)]
        return vectors

    def _rows(self, texts: Sequence[str]) -> Ints:
        return np.array([self.row_of[text] for text in texts], dtype=np.int64)


@dataclass(frozen=True)
class EncodedTokens(EncodedTexts):
    """Texts that were encoded once with their tokens, as an encoder."""

    tokens: TokenVectors

    def token_vectors(self, texts: Sequence[str]) -> TokenVectors:
        """Return the token vectors of these texts (m,)."""
        return self.tokens.take(self._rows(texts))


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
        codes = canonical(name.split("-")[0]), canonical(name.split("-")[1])
        mixtures += [MixedCorpora.of(pairs, DENSE, languages=codes), MixedCorpora.of(pairs, SPARSE, others, codes)]
    return mixtures


def measure(encoder: Encoder, mixtures: Sequence[MixedCorpora]) -> MiningProfile:
    """Return the weights of probabilities by each margin, of mined pairs and of line pairs, and whether rescoring pays.

    Of the mixtures every other one is sparse, as `read_mixtures` returns them. Lines are the translations of the dense ones.
    """
    encoded = EncodedTexts.of(mixtures, encoder)
    candidates = by_scoring([mixture.search(encoded) for mixture in mixtures])
    lines = [mixture.lines(encoded) for mixture in mixtures[::2]]
    line_pairs = by_scoring([part.score_lines(encoded) for part in lines])
    weights: dict[MarginName, ScoringProbabilities] = {}
    line_weights: dict[MarginName, ScoringProbabilities] = {}
    best_f1 = {}
    for margin in MARGINS:
        mined = {
            name: [mixture.mine(part, margin) for mixture, part in zip(mixtures, parts, strict=True)] for name, parts in candidates.items()
        }
        scored = {
            name: [side.label(score(part, margin)) for side, part in zip(lines, parts, strict=True)] for name, parts in line_pairs.items()
        }
        weights[margin] = ScoringProbabilities(**{name: fit(parts, SPARSE_MIXTURES) for name, parts in mined.items()})
        line_weights[margin] = ScoringProbabilities(**{name: fit(parts) for name, parts in scored.items()})
        best_f1[margin] = {name: np.mean([part.best_f1(part.margins) for part in parts]) for name, parts in mined.items()}
    pays = best_f1["ratio"].get(RESCORED, 0) > best_f1["ratio"][EMBEDDING]
    return MiningProfile(probabilities=weights, line_pair_probabilities=line_weights, rescoring_pays=bool(pays))


def by_scoring(candidates: Sequence[Candidates]) -> dict[str, Sequence[Candidates]]:
    """Return candidates by the names of ScoringProbabilities: without late interaction, and with it if they have it."""
    plain: dict[str, Sequence[Candidates]] = {EMBEDDING: [replace(part, late=None) for part in candidates]}
    return plain if candidates[0].late is None else {**plain, RESCORED: candidates}
