"""Fit the probabilities of line pairs of `mining.json`, for `miner score`, and measure them on languages and domains that they were not
fitted on.

    OMP_NUM_THREADS=1 python benchmarks/line_probability.py --data DATA [--encoder builtin]

The line pairs are those of `probability.py`, some of which are made wrong. The target is that of another wrong line, or the nearest
one among the others (hard). The logistic regression is fitted to pairs of which half are wrong, and half of these hard. It is tested on
pairs of which 5, 30 or 80 % are wrong. Printed are the best F1 over all thresholds of the probability; precision, recall and F1 of the
pairs with a probability of at least 0.5, by the weights of mined pairs (mined) and by those of line pairs; and the expected calibration
error. The last line is the entry `line_pair_probabilities` of `mining.json`.
"""

import json
from collections.abc import Sequence

import numpy as np
from probability import FITTED, TESTED, Floats, LabelledPairs, Pair, fit, read_arguments, unique_pairs

import miner
from miner.config.choices import MARGINS
from miner.config.probability import DEFAULT_MIN_PROBABILITY, ProbabilityWeights
from miner.encoders import Encoder
from miner.evaluation.reliability import measure_reliability
from miner.filters.pairs import probabilities_of
from miner.mining.margin_sample import MarginSample

FITTED_SHARE, FITTED_HARD_SHARE = 0.5, 0.5  # of wrong pairs, and of hard ones among them
TESTED_SHARES = (0.05, 0.3, 0.8)
TESTED_HARD_SHARES = {"random": 0.0, "hard": 1.0}
RESCORE = {"embedding": "none", "rescored": "auto"}
NO_SAMPLE = MarginSample(*np.zeros((3, 0)))
COLUMNS = ("best F1", "mined: precision", "recall", "F1", "lines: precision", "recall", "F1", "ECE")


def with_wrong_pairs(pairs: Sequence[Pair], wrong_share: float, hard_share: float, encoder: Encoder) -> tuple[list[str], Floats]:
    """Return the targets of pairs (n,), some of which are wrong, and whether each is right."""
    random, targets = np.random.default_rng(0), [target for _, target in pairs]
    wrong = np.sort(random.permutation(len(pairs))[: round(wrong_share * len(pairs))])
    similarities = encoder.encode([source for source, _ in pairs]) @ encoder.encode(targets).T
    np.fill_diagonal(similarities, -np.inf)
    is_hard = random.random(len(wrong)) < hard_share
    others = np.where(is_hard, similarities.argmax(axis=1)[wrong], np.roll(wrong, 1))
    changed = list(targets)
    for row, other in zip(wrong.tolist(), others.tolist(), strict=True):
        changed[row] = targets[other]
    return changed, np.array([new == old for new, old in zip(changed, targets, strict=True)])


def score(pairs: Sequence[Pair], shares: tuple[float, float], encoder: Encoder, margin: str, scoring: str) -> LabelledPairs:
    """Return the scored line pairs of one language, of which some are wrong and some of these hard."""
    targets, is_right = with_wrong_pairs(pairs, *shares, encoder)
    table = miner.score([source for source, _ in pairs], targets, encoder, margin=margin, rescore=RESCORE[scoring]).to_arrow()
    is_scored = ~np.isnan(table["margin"].to_numpy())
    return LabelledPairs(table.filter(is_scored), is_right[is_scored], int(is_right.sum()), NO_SAMPLE)


def figures(scored: LabelledPairs, weights: dict[str, ProbabilityWeights]) -> list[float]:
    """Return the figures of one language of a test set, in the order of COLUMNS."""
    values = {name: probabilities_of(scored.table, part) for name, part in weights.items()}
    cells = [scored.best_f1(values["lines"])]
    for name in ("mined", "lines"):
        kept = values[name] >= DEFAULT_MIN_PROBABILITY
        cells += [scored.is_true[kept].mean(), scored.is_true[kept].sum() / scored.num_true, scored.f1(kept)]
    return [*cells, measure_reliability(values["lines"], scored.is_true).error]


def main() -> None:
    data, encoder, profile = read_arguments(__doc__)
    fitted, tested = (
        {name: [unique_pairs(data, name, language) for language in languages] for name, languages in sets.items()}
        for sets in (FITTED, TESTED)
    )
    shares = FITTED_SHARE, FITTED_HARD_SHARE
    weights = {
        margin: {
            scoring: fit([score(pairs, shares, encoder, margin, scoring) for part in fitted.values() for pairs in part])
            for scoring in RESCORE
        }
        for margin in MARGINS
    }
    mined, lines = profile.weights("ratio", is_rescored=True), weights["ratio"]["rescored"]
    assert mined is not None, "the encoder has probabilities"
    print(f"--margin ratio, rescored: {lines}\n" + " ".join(f"{name:>18}" for name in ("", *COLUMNS)))
    for name, part in tested.items():
        for kind, hard_share in TESTED_HARD_SHARES.items():
            for share in TESTED_SHARES:
                scored = [score(pairs, (share, hard_share), encoder, "ratio", "rescored") for pairs in part]
                means = np.mean([figures(pairs, {"mined": mined, "lines": lines}) for pairs in scored], axis=0)
                print(f"{f'{name} {kind} {share:g}':>18} " + " ".join(f"{value:18.3f}" for value in means), flush=True)
    entries = {margin: {scoring: part.model_dump() for scoring, part in parts.items()} for margin, parts in weights.items()}
    print(f"\n{json.dumps({'line_pair_probabilities': entries})}")


if __name__ == "__main__":
    main()
