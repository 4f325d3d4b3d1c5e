"""Measure the probabilities of an encoder, or what `miner calibrate` would fit: on planted news, and on news with few translations or none.

    python benchmarks/calibration.py --data DATA [--encoder builtin]

Ratio margin, by the embedding and rescored. Planted news: 1,000 translations among 15,000 English sentences and up to 6,000 of the other
language. Printed are the best F1 over all thresholds of the probability, the default F1, the expected calibration error, and by how much
the mean probability of the default pairs exceeds their precision. Shares: up to 4,000 English lines and as many of the other language, of
which a share are translations.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from news_data import all_news, planted_news
from probability import read_arguments

from miner.config.probability import DEFAULT_MIN_PROBABILITY, ProbabilityWeights
from miner.evaluation import calibration
from miner.evaluation.calibration import LabelledPairs, MixedCorpora
from miner.evaluation.reliability import measure_reliability
from miner.filters.pairs import fit_to_corpora, probabilities_of

LANGUAGES = ("hu", "fi", "ja", "de")
SHARES = (0, 0.01, 0.1, 0.5)
MAX_LINES = 4000
MARGIN = "ratio"


def partly_parallel_news(data: Path, lang: str, share: float) -> MixedCorpora:
    """Return news of English and another language, of which a share are translations."""
    english, other = all_news(data)[lang]
    pairs = list({target: (source, target) for source, target in zip(english, other, strict=True)}.values())
    random.Random(lang).shuffle(pairs)
    size = min(MAX_LINES, len(pairs) // 2)
    num_true = round(size * share)
    sources = list(dict.fromkeys(source for source, _ in pairs[:size]))
    targets = [target for _, target in (*pairs[:num_true], *pairs[size : 2 * size - num_true])]
    return MixedCorpora((sources, targets), {(sources.index(source), row) for row, (source, _) in enumerate(pairs[:num_true])})


def corpora(data: Path) -> Iterator[tuple[str, MixedCorpora]]:
    """Yield the test corpora with their names."""
    for lang in LANGUAGES:
        news = planted_news(data, lang)
        yield f"planted, {lang}", MixedCorpora((news.sources, news.targets), news.pairs)
        for share in SHARES:
            yield f"{100 * share:g} %, {lang}", partly_parallel_news(data, lang, share)


def describe(mined: LabelledPairs, weights: ProbabilityWeights) -> str:
    """Return the figures of one pair of corpora."""
    probabilities = probabilities_of(mined.table, fit_to_corpora(weights, MARGIN, mined.sample))
    default = probabilities >= DEFAULT_MIN_PROBABILITY
    precision = mined.is_true[default].mean() if default.any() else 1.0
    excess = probabilities[default].mean() - precision if default.any() else 0.0
    error = measure_reliability(probabilities, mined.is_true).error
    f1 = f"best F1 {mined.best_f1(probabilities):.3f}, default {mined.f1(default):.3f}"
    return f"{f1}, error {error:.3f}, {default.sum()} pairs, precision {precision:.3f}, mean P - precision {excess:.3f}"


def main() -> None:
    data, encoder, profile = read_arguments(__doc__)
    if not profile.probabilities:
        profile = calibration.measure(encoder, calibration.read_mixtures())
        print(profile.model_dump_json(exclude_unset=True))
    for name, mixed in corpora(data):
        candidates = mixed.search(calibration.EncodedTexts.of([mixed], encoder))
        for scoring, part in (("rescored", candidates), ("embedding", replace(candidates, late=None))):
            weights = getattr(profile.probabilities[MARGIN], scoring)
            if weights is not None:
                print(f"{name}, {scoring}: {describe(mixed.mine(part, MARGIN), weights)}", flush=True)


if __name__ == "__main__":
    main()
