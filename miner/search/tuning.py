"""How hard an approximate index has to look: as little as finds the share of the true neighbours that is asked for."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from miner.search.neighbours import Neighbours, Similarities

ONE_SIDED = 1.645  # standard errors below the mean: 95 in 100 samples of such a mean lie above
FACTORS = (1, 2, 3, 4, 6, 8, 12, 16)  # candidates for each neighbour wanted
WIDE = 8  # times as many, where these are too few however hard one looks
STEPS = 3  # to narrow the effort down between one that is enough and half of it


@dataclass(frozen=True)
class Setting:
    """How an index is searched, and what it finds so."""

    effort: int  # nprobe or efSearch
    candidates: int  # taken from the index, to be scored again
    recall: float  # share of the true k nearest that are found, over a sample
    low: float  # the recall is above, with a confidence of 95 %


# Effort and candidates -> their exact similarities (n, candidates), in the order of the index; NaN for none.
Look = Callable[[int, int], Similarities]


def tune(look: Look, truth: Neighbours, most: int, target: float) -> Setting:
    """The least effort, and with it the fewest candidates, whose recall is surely above the target; else the best there is.

    `truth` are the true k nearest of the sample, `most` the greatest effort.
    """
    reached = None
    for factors in (FACTORS, tuple(factor * WIDE for factor in FACTORS[-1:])):
        count = truth.k * factors[-1]
        efforts = sorted({*(2**power for power in range(int(math.log2(most)) + 1)), most})
        for effort in efforts:
            reached = measure(look(effort, count), truth, effort, count)
            if reached.low >= target:
                return _narrowed(look, truth, reached, factors, target)
    assert reached is not None  # there is an effort
    return reached


def _narrowed(look: Look, truth: Neighbours, enough: Setting, factors: tuple[int, ...], target: float) -> Setting:
    """Between half of an effort that is enough and it; then the candidates."""
    low = enough.effort // 2
    for _ in range(STEPS):
        middle = (low + enough.effort) // 2
        if middle in (low, enough.effort):
            break
        tried = measure(look(middle, enough.candidates), truth, middle, enough.candidates)
        low, enough = (low, tried) if tried.low >= target else (middle, enough)
    similarities = look(enough.effort, enough.candidates)
    settings = (measure(similarities[:, : truth.k * factor], truth, enough.effort, truth.k * factor) for factor in factors)
    return next((setting for setting in settings if setting.low >= target), enough)


def measure(similarities: Similarities, truth: Neighbours, effort: int, candidates: int) -> Setting:
    """The recall of candidates with these similarities (n, c). What ties with the k-th nearest is as good as it."""
    shares = found_shares(similarities, truth)
    recall = float(shares.mean())
    return Setting(effort, candidates, recall, recall - ONE_SIDED * float(shares.std()) / math.sqrt(len(shares)))


def found_shares(similarities: Similarities, truth: Neighbours) -> npt.NDArray[np.float64]:
    """(n, c), n rows of truth -> (n,): of the true nearest of each row, the share that is among the candidates; 1 where there is none."""
    wanted = truth.found.sum(axis=1)
    last = np.where(truth.found, truth.similarities, np.inf).min(axis=1)
    hits = np.nan_to_num(similarities, nan=-np.inf) >= last[:, None]
    shares: npt.NDArray[np.float64] = np.where(wanted > 0, np.minimum(hits.sum(axis=1), wanted) / np.maximum(wanted, 1), 1.0)
    return shares
