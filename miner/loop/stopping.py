"""Whether a round stands, and whether another is worth its time."""

from collections.abc import Sequence
from dataclasses import dataclass

from miner.loop.settings import StopSettings


@dataclass(frozen=True)
class RoundOutcome:
    """What a round came to."""

    pairs: int  # selected, of all languages
    jaccard: float | None  # with the selection of the round before
    dev: float | None  # None where too little was mined to train on
    seconds: float


@dataclass(frozen=True)
class LoopState:
    """Where the loop stands after some rounds. The encoder that is to mine next is `latest`; round -1 is the start."""

    latest: int
    best: int
    kept: tuple[bool, ...]  # by round
    stop: str | None  # why no other round begins


def judge(start: float, rounds: Sequence[RoundOutcome], settings: StopSettings, new_text: bool = False) -> LoopState:
    """The dev score of the first encoder and what each round came to -> which encoders stand, and whether to go on.

    A round whose encoder is worse on dev than the one that mined it is rolled back: that one stays in its place. `new_text` says
    that the corpora changed after the last round: what was mined without it is then no reason to stop.
    """
    scores, kept, latest, best, without = [start], [], -1, -1, 0
    for number, ran in enumerate(rounds):
        scores.append(ran.dev if ran.dev is not None else float("-inf"))
        kept.append(scores[-1] >= scores[latest + 1])
        latest = number if kept[-1] else latest
        without = 0 if scores[-1] > scores[best + 1] + settings.least_gain else without + (ran.dev is not None)
        best = number if scores[-1] > scores[best + 1] else best
    stop = None if new_text else _idle(rounds, kept, without, settings)
    return LoopState(latest, best, tuple(kept), stop or _spent(rounds, settings))


def _idle(rounds: Sequence[RoundOutcome], kept: Sequence[bool], without: int, settings: StopSettings) -> str | None:
    """Why another round would not gain, if so."""
    if not rounds:
        return None
    last = rounds[-1]
    if last.dev is None and last.pairs < settings.least_pairs:
        return f"mined {last.pairs:,} pairs, too few to learn from (stop.least_pairs is {settings.least_pairs:,})"
    if without >= settings.patience:
        told = "the last was rolled back" if not kept[-1] else "the last did not gain"
        return f"dev is no better for {without} round{'s' * (without > 1)}; {told}"
    by_another = len(kept) < 2 or kept[-2]  # after a rollback, the same encoder mines the same pairs, and may learn better from them
    if by_another and last.jaccard is not None and last.jaccard >= settings.jaccard:
        return f"the last two rounds selected the same pairs (Jaccard {last.jaccard:.3f})"
    return None


def _spent(rounds: Sequence[RoundOutcome], settings: StopSettings) -> str | None:
    """Why there is no room for another round, if so."""
    if len(rounds) >= settings.rounds:
        return f"all {settings.rounds} rounds are done"
    seconds = [ran.seconds for ran in rounds]
    if settings.hours is not None and sum(seconds) + sum(seconds[-1:]) > settings.hours * 3600:
        return f"another round would end after {settings.hours:g} hours"
    return None
