"""The weights that turn the margin and the texts of a pair into the probability that it is right."""

import math
from dataclasses import dataclass

import pydantic

from miner.config.base import Settings

PROBABILITY = "probability"  # column of a bitext, and filter
DEFAULT_MIN_PROBABILITY = 0.5  # of the pairs that are mined, where the encoder has weights


class ProbabilityWeights(Settings):
    """A logistic regression: the logit of the probability is the intercept and the weighted sum of three features.

    Fitted by `benchmarks/probability.py` for one encoder and one margin.
    """

    model_config = pydantic.ConfigDict(allow_inf_nan=False)

    intercept: float
    margin: float = pydantic.Field(gt=0)
    length_ratio: float = pydantic.Field(le=0)  # of the logarithm of the length ratio, see `miner.filters.characters`
    numbers: float = pydantic.Field(le=0)  # of the share of numbers that disagree, see `miner.filters.numbers`
    has_few_right: bool = False  # of corpora with few or no translations, in which probabilities are too high on average

    def lowest_margin(self, min_probability: float) -> float:
        """Return the margin of a pair of this probability, between 0 and 1, whose texts speak for it: no other has a lower one."""
        return (math.log(min_probability) - math.log1p(-min_probability) - self.intercept) / self.margin


@dataclass(frozen=True)
class ProbabilityBound:
    """How the probability of a pair is computed, None if the encoder has no weights for it, and the least that is kept."""

    weights: ProbabilityWeights | None = None
    minimum: float | None = None

    def bounds(self) -> dict[str, float]:
        """Return the bound of the filter, empty if it is off."""
        return {} if self.minimum is None else {PROBABILITY: self.minimum}


NO_BOUND = ProbabilityBound()
