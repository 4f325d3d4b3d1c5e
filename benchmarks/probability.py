"""Fit the probabilities of `mining.json`, and measure them on languages and domains that they were not fitted on.

    OMP_NUM_THREADS=1 python benchmarks/probability.py --data DATA [--encoder builtin]

In each language, real sentences are mined as those of the demo: one pair in 2, 7 or 28 has both sides, the others have one. The
logistic regression is fitted to the mined pairs of NusaX, TICO-19, PUD and the development lines of NLLB-Seed, in languages that the
encoder knows well and little, one pair in 2 or 7, alone and among 12,000 other English sentences of NLLB-Seed and Wikipedia. The last
runs of the built-in encoder left these pairs out. It is tested on WMT news and XNLI, in other languages, on pairs of two languages of
XNLI other than English, and on planted news (`news_data.planted_news`).

Printed are the best F1 over all thresholds of the margin and of the probability; the default F1 by the margin, by the probability with
these weights (fixed), and with intercept and slope of the corpora, as `miner mine` has it; the expected calibration error (Guo et al.,
ICML 2017, equation 3, ten bins) of both; by how much the mean probability of the default pairs differs from their precision; the
precision and recall of the pairs with a probability of 0.9; and those of the pairs whose mean probability is 0.9, as `--threshold auto
--precision 0.9` selects them without known pairs. The last line is the entry `probabilities` of `mining.json`; before it are the
constants of `miner.mining.mixture`, from these sets and from pairs of two other languages of the same text.
"""

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from news_data import planted_news, rows

from miner.config.choices import MARGINS
from miner.config.probability import DEFAULT_MIN_PROBABILITY, ProbabilityWeights
from miner.encoders import Encoder, load_encoder, mining_profile
from miner.encoders.base import TokenEncoder
from miner.encoders.mining_profile import MiningProfile
from miner.errors import NoThresholdError
from miner.evaluation.calibration import LabelledPairs, MixedCorpora, Pair, fit
from miner.evaluation.reliability import measure_reliability
from miner.filters.pairs import fit_to_corpora, probabilities_of
from miner.mining.candidates import Candidates
from miner.mining.mixture import BIN_EDGES, RIGHT_OFFSET, RunnersUp, gumbel_by_quartiles
from miner.mining.thresholds import lowest_probability
from miner.text.normalise import clean_all

MAX_PAIRS = 1400  # of a language
MIN_CHARS = 20  # of the first sentence of a pair
MIN_PROBABILITY = 0.9  # and mean probability
MIN_PAIRS = 100  # right or wrong ones, from which their distribution is measured
PARTS = (2, 7, 28)  # one pair in 2, 7 or 28 has both sides
FITTED_PARTS, OTHER_ENGLISH = (2, 7), 12000
FITTED = {"nusax": ("id", "su"), "tico19": ("bn", "fr", "ru"), "ud_pud": ("de", "ko", "pl", "sv")}
FITTED["nllb_seed"] = ("ltg_Latn", "bam_Latn", "nus_Latn", "taq_Latn")
DEVELOPMENT_ID = "s5593"  # of the first line of NLLB-Seed that the encoder was not trained on
TESTED = {"news": ("et", "fi", "hi", "ja", "ro", "tr", "uk", "zh"), "xnli": ("ar", "bg", "el", "th", "ur", "vi")}
FITTED_OTHER = {
    "nusax": ("id-su", "su-min", "ace-jv"),
    "tico19": ("bn-fr", "ru-bn", "fr-ru"),
    "ud_pud": ("de-ko", "pl-sv", "ko-sv", "ar-ja", "th-tr", "hi-fi", "cs-ru", "is-it"),
}
TESTED_OTHER = {"xnli": ("vi-el", "th-ur", "fr-de", "ru-es", "ar-tr", "hi-zh", "bg-sw", "de-tr", "es-vi", "el-ru", "sw-ur")}
PLANTED = ("hu", "fi", "ja", "de")

Floats = npt.NDArray[np.float64]


def read_pairs(data: Path, name: str, languages: str) -> list[Pair]:
    """Return the pairs of two languages of a set, such as `vi-el`. One code means English and that language."""
    english = "eng_Latn" if name == "nllb_seed" else "en"
    first, second = languages.split("-") if "-" in languages else (english, languages)
    if name == "news":
        cells = [row for row in rows(data / "train/newstest_pairs.tsv.gz") if sorted(row[:2]) == sorted((first, second))]
        return [(row[3], row[4]) if row[0] == first else (row[4], row[3]) for row in cells]
    if name == "xnli":
        by_language: dict[str, list[str]] = {first: [], second: []}
        for row in rows(data / "nli/xnli.test.tsv.gz"):
            if row[0] in by_language:
                by_language[row[0]].append(row[1])
        return list(zip(by_language[first], by_language[second], strict=True))
    firsts, seconds = (dict(rows(data / "train" / name / f"{code}.tsv.gz")) for code in (first, second))
    least = DEVELOPMENT_ID if name == "nllb_seed" else ""
    return [(firsts[key], seconds[key]) for key in sorted(firsts.keys() & seconds.keys()) if key >= least]


def unique_pairs(data: Path, name: str, languages: str) -> list[Pair]:
    """Return pairs in random order, each sentence once, without short ones."""
    pairs = list(dict.fromkeys(read_pairs(data, name, languages)))
    random.Random(f"{name} {languages}").shuffle(pairs)
    cleaned = zip(*(clean_all(side) for side in zip(*pairs, strict=True)), strict=True)
    unique = {other: (english, other) for english, other in {pair[0]: pair for pair in cleaned}.values()}
    return [pair for pair in unique.values() if len(pair[0]) >= MIN_CHARS and pair[1]][:MAX_PAIRS]


def figures(mined: LabelledPairs, margin: str, weights: ProbabilityWeights, threshold: float) -> list[float]:
    """Return the figures of one language of a test set, in the order of COLUMNS."""
    fixed, fitted = (probabilities_of(mined.table, part) for part in (weights, fit_to_corpora(weights, margin, mined.sample)))
    errors = [measure_reliability(values, mined.is_true).error for values in (fixed, fitted)]
    default, likely = fitted >= DEFAULT_MIN_PROBABILITY, fitted >= MIN_PROBABILITY
    bias = fitted[default].mean() - mined.is_true[default].mean()
    precision, recall = mined.is_true[likely].mean() if likely.any() else np.nan, mined.is_true[likely].sum() / mined.num_true
    precisions = [precision, recall, *by_mean_probability(mined, fitted)]
    defaults = mined.f1(mined.margins > threshold), mined.f1(fixed >= DEFAULT_MIN_PROBABILITY), mined.f1(default)
    return [mined.best_f1(mined.margins), mined.best_f1(fitted), *defaults, *errors, bias, *precisions]


def by_mean_probability(mined: LabelledPairs, probabilities: Floats) -> tuple[float, float]:
    """Return the precision and recall of the pairs whose mean probability is MIN_PROBABILITY; NaN where they are too few to choose."""
    try:
        kept = probabilities >= lowest_probability(probabilities, MIN_PROBABILITY)
    except NoThresholdError:
        return np.nan, np.nan
    return float(mined.is_true[kept].mean()), float(mined.is_true[kept].sum() / mined.num_true)


COLUMNS = (
    "best F1: margin",
    "probability",
    "default F1: margin",
    "fixed",
    "probability",
    "ECE: fixed",
    "probability",
    "mean P - precision",
    "P>=0.9: precision",
    "recall",
    "mean P 0.9: precision",
    "recall",
)


def describe_prior(sets: Sequence[LabelledPairs], weights: ProbabilityWeights) -> str:
    """Return the distributions of wrong and right mutual bests in log odds, as `miner.mining.mixture` needs them."""
    right, wrong, predictors = [], [], []
    for mined in sets:
        logits = weights.intercept + weights.margin * mined.margins
        is_mutual = np.isin(mined.margins, mined.sample.mutual_bests)
        if (mined.is_true & is_mutual).sum() >= MIN_PAIRS:
            logarithms = np.log(np.maximum(logits[mined.is_true & is_mutual], BIN_EDGES[0]) + RIGHT_OFFSET)
            right.append((logarithms.mean(), np.log(logarithms.std())))
        if (~mined.is_true & is_mutual).sum() >= MIN_PAIRS:
            own = logits[~mined.is_true & is_mutual]
            (location, log_scale), tail = gumbel_by_quartiles(own), np.quantile(own, [0.8, 0.98])
            sides = (mined.sample.source_runners_up, mined.sample.target_runners_up)
            base = RunnersUp.of([weights.intercept + weights.margin * side for side in sides])
            tail_length = (tail[1] - tail[0]) / np.exp(log_scale) / np.log(10)  # 20 % of the pairs are above its start, 2 % above its end
            wrong.append(((location - base.location) / np.exp(base.log_scale), log_scale - base.log_scale, np.log(tail_length)))
            predictors.append((1.0, base.higher, mined.is_true[is_mutual].mean()))
    values, inputs = np.array(wrong), np.array(predictors)
    slopes = np.linalg.lstsq(inputs, values[:, :2])[0]
    location, log_scale = slopes.T.round(2)
    rests, (mean, deviation) = (values[:, :2] - inputs @ slopes).std(axis=0).round(2), (values[:, 2].mean(), values[:, 2].std())
    return (
        f"wrong pairs by 1, higher, share: location {location}, log scale {log_scale}, deviations {rests};"
        f" log tail {mean:.2f}, deviation {deviation:.2f};"
        f" logarithms of right pairs: mean and log deviation {np.mean(right, axis=0).round(2)}, deviations {np.std(right, axis=0).round(2)}"
    )


@dataclass(frozen=True)
class SearchedSet:
    """Corpora that are mined alike, one of each language."""

    name: str
    mixtures: Sequence[MixedCorpora]
    candidates: Sequence[Candidates]

    @classmethod
    def of(cls, name: str, mixtures: Sequence[MixedCorpora], encoder: TokenEncoder) -> "SearchedSet":
        return cls(name, mixtures, [mixture.search(encoder) for mixture in mixtures])

    def mine(self, margin: str, scoring: str) -> list[LabelledPairs]:
        """Return the pairs of each language, `rescored` or by `embedding`."""
        candidates = self.candidates if scoring == "rescored" else [replace(part, late=None) for part in self.candidates]
        return [mixture.mine(part, margin) for mixture, part in zip(self.mixtures, candidates, strict=True)]


def other_english(data: Path) -> list[str]:
    """Return English sentences of NLLB Seed and Wikipedia."""
    seed = [text for key, text in rows(data / "train/nllb_seed/eng_Latn.tsv.gz") if key < DEVELOPMENT_ID]
    wikipedia = [row[1] for row in rows(data / "train/floresv1_wikipedia.en-xx.tsv.gz")][1:]
    texts = [text for text in dict.fromkeys(clean_all(seed + wikipedia)) if len(text) >= MIN_CHARS]
    return random.Random(0).sample(texts, OTHER_ENGLISH)


def search_fitted(data: Path, encoder: TokenEncoder) -> list[SearchedSet]:
    pairs = {(name, language): unique_pairs(data, name, language) for name, languages in FITTED.items() for language in languages}
    sets = {
        (parts, bool(others)): [MixedCorpora.of(part, parts, others) for part in pairs.values()]
        for parts in FITTED_PARTS
        for others in ([], other_english(data))
    }
    return [SearchedSet.of(f"{parts} {others}", mixtures, encoder) for (parts, others), mixtures in sets.items()]


def search_parts(data: Path, name: str, languages: Sequence[str], encoder: TokenEncoder) -> list[SearchedSet]:
    """Search the pairs of a set, of which one in 2, 7 or 28 has both sides."""
    pairs = [unique_pairs(data, name, part) for part in languages]
    label = f"{name} without English" if "-" in languages[0] else name
    return [SearchedSet.of(f"{label}, 1 in {parts}", [MixedCorpora.of(part, parts) for part in pairs], encoder) for parts in PARTS]


def search_tested(data: Path, encoder: TokenEncoder) -> list[SearchedSet]:
    sets = [
        part
        for tested in (TESTED, TESTED_OTHER)
        for name, languages in tested.items()
        for part in search_parts(data, name, languages, encoder)
    ]
    for language in PLANTED:
        news = planted_news(data, language)
        sets.append(SearchedSet.of(f"planted news, {language}", [MixedCorpora((news.sources, news.targets), news.pairs)], encoder))
    return sets


def read_arguments(description: str | None) -> tuple[Path, Encoder, MiningProfile]:
    """Return the folder of the data, the encoder and its profile."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and nli/")
    parser.add_argument("--encoder", default="builtin")
    arguments = parser.parse_args()
    encoder = load_encoder(arguments.encoder)
    return arguments.data, encoder, mining_profile.of_encoder(encoder, encoder.fingerprint)


def main() -> None:
    data, encoder, profile = read_arguments(__doc__)
    assert isinstance(encoder, TokenEncoder), "the encoder has token vectors"
    fitted, tested = search_fitted(data, encoder), search_tested(data, encoder)
    fitted_other = [part for name, languages in FITTED_OTHER.items() for part in search_parts(data, name, languages, encoder)]
    entries: dict[str, dict[str, dict[str, float]]] = {margin: {} for margin in MARGINS}
    for margin in MARGINS:
        for scoring in ("embedding", "rescored"):
            threshold = getattr(profile.thresholds[margin], scoring)
            mined_pairs = [mined for part in fitted for mined in part.mine(margin, scoring)]
            weights = fit(mined_pairs)
            entries[margin][scoring] = weights.model_dump()
            mined_other = [mined for part in fitted_other for mined in part.mine(margin, scoring)]
            print(f"\n--margin {margin}, {scoring}: {weights}\n{describe_prior([*mined_pairs, *mined_other], weights)}")
            print(" ".join(f"{name:>28}" for name in ("", *COLUMNS)))
            for part in tested:
                cells = [figures(mined, margin, weights, threshold) for mined in part.mine(margin, scoring)]
                print(f"{part.name:>28} " + " ".join(f"{value:28.3f}" for value in np.ma.masked_invalid(cells).mean(axis=0).filled(np.nan)))
    print(f"\n{json.dumps({'probabilities': entries})}")


if __name__ == "__main__":
    main()
