"""The parts of a corpus: what the first run read, and what came later. The sentences of a part are those that no part before has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from miner import storage
from miner.errors import StorageError

Signatures = Mapping[str, str]  # input -> what changes when it does


@dataclass(frozen=True)
class CorpusIncrement:
    """Inputs that were read together."""

    inputs: Signatures
    ranges: int | None = None  # shards; None as long as nobody has looked
    counts: Mapping[str, int] | None = None  # of the lines, once they are read


def inputs(parts: Sequence[CorpusIncrement]) -> dict[str, str]:
    """Those of several parts."""
    return {uri: signature for part in parts for uri, signature in part.inputs.items()}


def planned(uri: str, signatures: Signatures, whole: bool) -> list[CorpusIncrement]:
    """The parts that the file `uri` tells of, and one more of what is not in them.

    A part counts as long as all that it and those before were read from is there, and as it was. `whole` leaves it at one part.
    """
    parts: list[CorpusIncrement] = []
    for part in _told(uri):
        if any(signatures.get(name) != told for name, told in part.inputs.items()):
            break
        parts.append(part)
    known = inputs(parts)
    rest = {name: told for name, told in signatures.items() if name not in known}
    if rest and whole:
        return [CorpusIncrement(signatures)]
    return [*parts, CorpusIncrement(rest)] if rest else parts


def _told(uri: str) -> list[CorpusIncrement]:
    try:
        return [CorpusIncrement(**part) for part in storage.read_json(uri)] if storage.exists(uri) else []
    except (StorageError, TypeError):
        return []
