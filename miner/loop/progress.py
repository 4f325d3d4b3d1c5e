"""Progress of the loop: how two rounds differ, which rounds are kept, and when the loop stops."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from miner.arrays import AnyFloats
from miner.loop.settings import StopSettings


def jaccard(left: Set[object], right: Set[object]) -> float:
    """Return the Jaccard index of two sets; 1 if both are empty."""
    union_size = len(left | right)
    return len(left & right) / union_size if union_size else 1.0


def drift(before: AnyFloats, after: AnyFloats) -> float:
    """Compare embeddings (n, d) and (n, e) of the same sentences: 0 if equal up to rotation and scaling, 1 if unrelated.

    One minus linear CKA: Kornblith et al., "Similarity of Neural Network Representations Revisited", ICML 2019, section 3.
    """
    x, y = (vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64) for vectors in (before, after))
    norms = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return float(1 - np.linalg.norm(x.T @ y) ** 2 / norms) if norms else 1.0


@dataclass(frozen=True)
class RoundOutcome:
    """The figures of a round that decide on the next one."""

    num_pairs: int  # selected, over all language pairs
    jaccard: float | None  # with the selection of the previous round
    dev: float | None  # dev score; None if there were too few pairs to train on
    seconds: float


@dataclass(frozen=True)
class LoopState:
    """The state of the loop after a number of rounds. Rounds are numbered from 0; -1 is the start encoder."""

    latest: int  # the round whose encoder mines next
    best: int
    kept: tuple[bool, ...]  # by round; a round that is not kept is rolled back
    stop_reason: str | None  # why there is no further round


def assess_rounds(start_score: float, rounds: Sequence[RoundOutcome], settings: StopSettings, has_new_text: bool = False) -> LoopState:
    """Decide which encoders are kept and whether the loop continues, from the dev score of the start encoder and all rounds.

    A round is rolled back if its encoder has a lower dev score than the one that mined for it; the next round then mines with the latter
    again. `has_new_text` means that the corpora changed after the last round, so earlier results are no reason to stop.
    """
    scores, kept, latest, best, num_without_gain = [start_score], [], -1, -1, 0
    for number, outcome in enumerate(rounds):
        scores.append(outcome.dev if outcome.dev is not None else float("-inf"))
        kept.append(scores[-1] >= scores[latest + 1])
        latest = number if kept[-1] else latest
        has_gained = scores[-1] > scores[best + 1] + settings.least_gain
        num_without_gain = 0 if has_gained else num_without_gain + (outcome.dev is not None)
        best = number if scores[-1] > scores[best + 1] else best
    stop = None if has_new_text else _explain_no_progress(rounds, kept, num_without_gain, settings)
    return LoopState(latest, best, tuple(kept), stop or _explain_spent_budget(rounds, settings))


def _explain_no_progress(rounds: Sequence[RoundOutcome], kept: Sequence[bool], num_without_gain: int, settings: StopSettings) -> str | None:
    """Return why another round would not improve the encoder, or None."""
    if not rounds:
        return None
    last = rounds[-1]
    if last.dev is None and last.num_pairs < settings.least_pairs:
        return f"mined {last.num_pairs:,} pairs, too few to learn from (stop.least_pairs is {settings.least_pairs:,})"
    if num_without_gain >= settings.patience:
        reason = "the last was rolled back" if not kept[-1] else "the last did not gain"
        return f"dev is no better for {num_without_gain} round{'s' * (num_without_gain > 1)}; {reason}"
    # After a rollback the same encoder mines the same pairs, and training on them may still succeed.
    encoder_changed = len(kept) < 2 or kept[-2]
    if encoder_changed and last.jaccard is not None and last.jaccard >= settings.jaccard:
        return f"the last two rounds selected the same pairs (Jaccard {last.jaccard:.3f})"
    return None


def _explain_spent_budget(rounds: Sequence[RoundOutcome], settings: StopSettings) -> str | None:
    """Return which budget another round would exceed, or None."""
    if len(rounds) >= settings.rounds:
        return f"round {settings.rounds} was the last one"
    seconds = [outcome.seconds for outcome in rounds]
    if settings.hours is not None and sum(seconds) + sum(seconds[-1:]) > settings.hours * 3600:
        return f"another round would end after {settings.hours:g} hours"
    return None
