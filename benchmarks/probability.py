"""Fit the probability that a pair is right, and compare it with the blended margin on languages and domains it was not fitted on.

    OMP_NUM_THREADS=1 python benchmarks/probability.py --data DATA [--encoder builtin]

In each language, real sentences are mined as those of the demo: one pair in seven has both sides, the others have one. A logistic
regression is fitted on all candidates of some sets and scores the candidates of others. Compared are the best F1 over all thresholds
and, for the mined pairs, the expected calibration error (Guo et al., ICML 2017, equation 3, ten bins) and the precision and recall of
P >= 0.9.

`blend` is the regression over the blended margin alone, whose pairs are those of the blended margin; `all` is that over all features, and
`matched before` scores the pairs of the blended margin with it.
"""

import argparse
import gzip
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from miner.encoders import Encoder, load_encoder
from miner.encoders.base import TokenEncoder
from miner.encoders.token_vectors import SCALE, TokenVectors
from miner.filters.numbers import number_disagreement
from miner.mining.candidates import Candidates, ScoredPairs
from miner.mining.in_memory import find_candidates
from miner.mining.late_scores import TokenSides
from miner.mining.margin import blend, margins
from miner.mining.matching import match, rank
from miner.text.normalise import clean_all

MAX_PAIRS = 1400  # of a language
MIN_ENGLISH_CHARS = 20
K, CANDIDATES = 4, 8
UNMATCHED = 0.5  # similarity of a token to its best match below which it counts as left unmatched
BINS = 10
MIN_PROBABILITY = 0.9
FEATURES = ("M", "R", "L", "cosine", "length ratio", "numbers agree", "numbers disagree", "unmatched")
KINDS: dict[str, Sequence[int] | None] = {
    "blend": None,
    "all": range(8),
    "no texts": range(4),
    "no tokens": range(7),
}  # columns of FEATURES
DENSE, SPARSE = 7, 28  # one pair in so many has both sides
TRAINED = ("nusax", "tico19", "ud_pud")  # openly licensed, and in the training data of the encoder
UNSEEN = ("stsb", "mafand")  # not in its training data, and not openly licensed
TESTS = ("news", "xnli")
LANGUAGES = {  # those of the test sets are in no set that a regression is fitted on, but for `same test`
    "nusax": ("id", "su"),
    "tico19": ("bn", "fr", "ru"),
    "ud_pud": ("de", "ko", "pl", "sv"),
    "stsb": ("es", "it", "nl", "pt"),
    "mafand": ("swa",),
    "news": ("et", "fi", "hi", "ja", "ro", "tr", "uk", "zh"),
    "xnli": ("ar", "bg", "el", "th", "ur", "vi"),
}

Floats = npt.NDArray[np.float64]
Pair = tuple[str, str]  # English, other


@dataclass(frozen=True)
class ScoredCandidates:
    """The candidates (n,) of one language of one set."""

    candidates: Candidates
    features: Floats  # (n, features)
    blended: Floats  # (n,)
    is_true: npt.NDArray[np.bool_]  # (n,)
    num_true: int  # pairs in the corpora

    def mine(self, ranking: Floats, scores: Floats) -> "Outcome":
        """Match one to one by a ranking (n,), and measure the pairs by their scores (n,)."""
        sides = self.candidates
        numbers = {pair: number for number, pair in enumerate(zip(sides.source_ids.tolist(), sides.target_ids.tolist(), strict=True))}
        pairs = ScoredPairs(sides.source_ids, sides.target_ids, sides.similarities, ranking, sides.forward, sides.backward)
        matches = match(rank(pairs), "max")
        mined = np.array([numbers[pair] for pair in zip(matches.source_ids.tolist(), matches.target_ids.tolist(), strict=True)])
        mined = mined[np.argsort(-scores[mined], kind="stable")]
        return Outcome.of(scores[mined], self.is_true[mined], self.num_true)


def rows(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t")


def read_pairs(data: Path, name: str, language: str) -> list[Pair]:
    """Return the pairs of one language of a set, in English and in the other language."""
    if name == "news":
        cells = [row for row in rows(data / "train/newstest_pairs.tsv.gz") if sorted(row[:2]) == sorted(("en", language))]
        return [(row[3], row[4]) if row[0] == "en" else (row[4], row[3]) for row in cells]
    if name == "mafand":
        return [(row[3], row[4]) for row in rows(data / "train/mafand.en_fr-african.tsv.gz") if row[:2] == ["en", language]]
    if name == "xnli":
        by_language: dict[str, list[str]] = {"en": [], language: []}
        for row in rows(data / "nli/xnli.test.tsv.gz"):
            if row[0] in by_language:
                by_language[row[0]].append(row[1])
        return list(zip(by_language["en"], by_language[language], strict=True))
    folder = data / "train" / {"stsb": "stsb_mt_train_MACHINE"}.get(name, name)
    english, other = (dict(rows(folder / f"{code}.tsv.gz")) for code in ("en", language))
    return [(english[key], other[key]) for key in sorted(english.keys() & other.keys())]


def unique_pairs(data: Path, name: str, language: str) -> list[Pair]:
    """Return pairs in random order, each sentence once, without short ones."""
    pairs = list(dict.fromkeys(read_pairs(data, name, language)))
    random.Random(f"{name} {language}").shuffle(pairs)
    cleaned = zip(*(clean_all(side) for side in zip(*pairs, strict=True)), strict=True)
    unique = {other: (english, other) for english, other in {pair[0]: pair for pair in cleaned}.values()}
    return [pair for pair in unique.values() if len(pair[0]) >= MIN_ENGLISH_CHARS and pair[1]][:MAX_PAIRS]


def unmatched_share(source: TokenVectors, target: TokenVectors, sources: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]) -> Floats:
    """Return (n,) the mean of both sides' shares of weight whose best match is below UNMATCHED; 1 for a side without tokens."""

    def of(tokens: TokenVectors) -> list[tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]]:
        parts = [slice(*tokens.bounds[row : row + 2]) for row in range(len(tokens))]
        return [(tokens.table[tokens.rows[part]].astype(np.float32) / SCALE, tokens.weights[part]) for part in parts]

    sides, shares = (of(source), of(target)), np.ones(len(sources))
    for number, (row, column) in enumerate(zip(sources.tolist(), targets.tolist(), strict=True)):
        (u, u_weights), (v, v_weights) = sides[0][row], sides[1][column]
        if len(u) and len(v):
            products = u @ v.T
            source_share = u_weights[products.max(axis=1) < UNMATCHED].sum() / u_weights.sum()
            shares[number] = (source_share + v_weights[products.max(axis=0) < UNMATCHED].sum() / v_weights.sum()) / 2
    return shares


def compute_features(candidates: Candidates, texts: Sequence[Sequence[str]], tokens: TokenSides) -> tuple[Floats, Floats]:
    """Return the features (n, features) of candidates (n,), and their blended margins (n,)."""
    late = candidates.late
    assert late is not None, "the encoder has token vectors"
    margin = margins("ratio", candidates.similarities, candidates.source_means, candidates.target_means)
    late_margin = margins("ratio", late.similarities, late.source_means, late.target_means)
    margin, late_margin = np.nan_to_num(margin), np.nan_to_num(late_margin)
    sources, targets = ([texts[side][row] for row in ids] for side, ids in enumerate((candidates.source_ids, candidates.target_ids)))
    lengths = np.log([[len(text) for text in side] for side in (sources, targets)])
    disagreement = number_disagreement(sources, targets)
    unmatched = unmatched_share(tokens.source, tokens.target, candidates.source_ids, candidates.target_ids)
    length_ratio = np.abs(lengths[0] - lengths[1] - np.median(lengths[0] - lengths[1]))  # scripts differ in characters per word
    agreement = np.nan_to_num(1 - disagreement), np.nan_to_num(disagreement)  # no numbers: neither
    columns = margin, late_margin, late.similarities, candidates.similarities, length_ratio, *agreement, unmatched
    return np.stack(columns, axis=1), blend(margin, late_margin)


def score_set(encoder: Encoder, pairs: Sequence[Pair], parts: int) -> ScoredCandidates:
    """Hide one pair in `parts` among single sentences of the other pairs, and score the candidates."""
    assert isinstance(encoder, TokenEncoder), "the features need token vectors"
    kinds = np.arange(len(pairs)) % parts  # 0 has both sides; of the others the odd ones have English, the even ones the other
    numbers = np.flatnonzero((kinds == 0) | (kinds % 2 == 1)), np.flatnonzero(kinds % 2 == 0)
    texts = [[pairs[number][side] for number in side_numbers] for side, side_numbers in enumerate(numbers)]
    vectors = [encoder.encode(side).astype(np.float16) for side in texts]
    tokens = TokenSides(encoder.token_vectors(texts[0]), encoder.token_vectors(texts[1]), CANDIDATES)
    candidates = find_candidates(vectors[0], vectors[1], K, tokens)
    features, blended = compute_features(candidates, texts, tokens)
    is_true = numbers[0][candidates.source_ids] == numbers[1][candidates.target_ids]
    return ScoredCandidates(candidates, features, blended, is_true, int((kinds == 0).sum()))


def fit(sets: Sequence[ScoredCandidates], columns: Sequence[int] | None) -> Pipeline:
    """Fit the probability that a candidate is a pair to features; None: to the blended margin alone. All sets have the same weight."""
    features = np.concatenate([select(part, columns) for part in sets])
    weights = np.concatenate([np.full(len(part.blended), 1 / len(part.blended)) for part in sets])
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1.0, max_iter=1000))
    return model.fit(features, np.concatenate([part.is_true for part in sets]), logisticregression__sample_weight=weights * 1e5)


def select(part: ScoredCandidates, columns: Sequence[int] | None) -> Floats:
    return part.blended[:, None] if columns is None else part.features[:, list(columns)]


@dataclass(frozen=True)
class Outcome:
    """Figures of the pairs that are mined by one score."""

    f1: float  # the best over all thresholds
    calibration_error: float
    precision: float  # of the pairs with P >= MIN_PROBABILITY; NaN if there are none
    recall: float  # of these

    @classmethod
    def of(cls, scores: Floats, is_true: npt.NDArray[np.bool_], num_true: int) -> "Outcome":
        """Scores (m,) of mined pairs, best first."""
        correct = np.cumsum(is_true)
        f1 = float((2 * correct / (np.arange(1, len(scores) + 1) + num_true)).max())
        bins = np.minimum((scores * BINS).astype(int), BINS - 1)
        gaps = [abs(scores[bins == number].mean() - is_true[bins == number].mean()) * (bins == number).mean() for number in set(bins)]
        likely = scores >= MIN_PROBABILITY
        return cls(f1, sum(gaps), is_true[likely].mean() if likely.any() else np.nan, is_true[likely].sum() / num_true)


def report(title: str, outcomes: Mapping[str, Mapping[str, Outcome]]) -> None:
    """Print a table for each score: a row per language, and the mean."""
    print(f"\n{title}\n{'':>32} {'F1':>6} {'ECE':>6} {'P>=0.9: precision':>18} {'recall':>6}")
    for name in next(iter(outcomes.values())):
        figures = {language: [*vars(by_score[name]).values()] for language, by_score in outcomes.items()}
        figures["mean"] = np.nanmean(list(figures.values()), axis=0).tolist()
        for language, (f1, error, precision, recall) in figures.items():
            print(f"{name:>26} {language:>5} {f1:6.3f} {error:6.3f} {precision:18.3f} {recall:6.3f}")


ScoredSets = Mapping[tuple[str, str, int], ScoredCandidates]  # by set, language and one pair in so many


def compare(scored: ScoredSets, test: str, parts: int) -> dict[str, dict[str, Outcome]]:
    """Return the outcomes of a test set, by language and score. No regression is fitted on the language that it scores."""
    fitted_on = {"open": TRAINED, "unseen": UNSEEN, "other test": tuple(set(TESTS) - {test}), "same test": (test,)}
    tested = {language: scored[test, language, parts] for language in LANGUAGES[test]}
    outcomes = {language: {"blended margin": part.mine(part.blended, part.blended)} for language, part in tested.items()}
    for name, sets in fitted_on.items():
        for kind, columns in KINDS.items():
            model: Pipeline | None = None
            for language, part in tested.items():
                if model is None or test in sets:
                    model = fit([scored[key] for key in scored if key[0] in sets and key[1] != language and key[2] == DENSE], columns)
                probabilities = model.predict_proba(select(part, columns))[:, 1]
                outcomes[language][f"{name}, {kind}"] = part.mine(probabilities, probabilities)
                if kind == "all":  # as without the texts of candidates: matched by margin
                    outcomes[language][f"{name}, matched before"] = part.mine(part.blended, probabilities)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and nli/")
    parser.add_argument("--encoder", default="builtin")
    arguments = parser.parse_args()
    encoder = load_encoder(arguments.encoder)
    scored = {}
    for name, languages in LANGUAGES.items():
        for language in languages:
            pairs = unique_pairs(arguments.data, name, language)
            for parts in (DENSE, SPARSE) if name == "news" else (DENSE,):
                scored[name, language, parts] = score_set(encoder, pairs, parts)
            print(f"{name} {language}: {len(pairs)} pairs", flush=True)
    for sets in (TRAINED, UNSEEN):
        coefficients = fit([part for key, part in scored.items() if key[0] in sets], KINDS["all"])[-1].coef_[0]
        print("coefficients of standardized features, fitted on", *sets, dict(zip(FEATURES, coefficients.round(2).tolist(), strict=True)))
    for test in TESTS:
        for parts in (DENSE, SPARSE) if test == "news" else (DENSE,):
            report(f"{test}, one pair in {parts}", compare(scored, test, parts))


if __name__ == "__main__":
    main()
