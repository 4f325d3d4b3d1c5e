"""The schemas of the small files of a loop. Keys that are not listed are only shown; they are kept when a file is read."""

from typing import NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

CorpusSignature = dict[str, dict[str, str]]  # language -> file -> signature
StageSeconds = dict[str, float]  # stage -> duration

_OPEN = ConfigDict(extra="allow")


@with_config(_OPEN)
class LanguagePairSelection(TypedDict):
    """What a round selected from the pairs of two languages."""

    training: int  # of the selected pairs, without those for validation and their sentences
    precision: NotRequired[float]  # of these


@with_config(_OPEN)
class SelectionFigures(TypedDict):
    """What a round selected: `selection.json`."""

    pairs: dict[str, LanguagePairSelection]
    training: int


@with_config(_OPEN)
class EvaluationFigures(TypedDict):
    """The scores of an encoder by task: `evaluation.json`."""

    dev: dict[str, float]
    test: dict[str, float]


@with_config(_OPEN)
class SelectionChanges(TypedDict):
    """How a selection differs from that of the previous round."""

    jaccard: float | None


@with_config(_OPEN)
class RoundFigures(TypedDict):
    """The figures of a finished round: `round.json`."""

    selection: SelectionFigures
    dev: NotRequired[dict[str, float]]
    test: NotRequired[dict[str, float]]
    changes: SelectionChanges
    seconds: StageSeconds
    corpora: CorpusSignature
