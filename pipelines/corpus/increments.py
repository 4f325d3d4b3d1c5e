"""The increments of a corpus: the inputs of its first run, and those added later. Each holds the sentences that no earlier one has."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from miner.errors import DamagedError
from miner.io import records, storage

logger = logging.getLogger(__name__)

Signatures = Mapping[str, str]  # input -> its signature, see `readers.input_signature`


@dataclass(frozen=True)
class CorpusIncrement:
    """Inputs that were read together. The field names are keys of `increments.json`."""

    inputs: Signatures
    ranges: int | None = None  # number of shards; None until it is planned
    counts: Mapping[str, int] | None = None  # lines by outcome, see `readers.LINE_COUNTS`; None until they are read


@dataclass(frozen=True)
class IncrementsRecord:
    """The content of `increments.json`."""

    increments: list[CorpusIncrement]


def merge_inputs(increments: Sequence[CorpusIncrement]) -> dict[str, str]:
    """Return the inputs of several increments."""
    return {uri: signature for increment in increments for uri, signature in increment.inputs.items()}


def plan_increments(uri: str, signatures: Signatures, single: bool) -> list[CorpusIncrement]:
    """Return the increments recorded in the file `uri` that are still valid, and one more for all other inputs.

    An increment is valid if its inputs and those of all earlier increments are present and unchanged. With `single`, new inputs
    start over with one increment.
    """
    increments: list[CorpusIncrement] = []
    for increment in _read_increments(uri):
        if any(signatures.get(name) != signature for name, signature in increment.inputs.items()):
            break
        increments.append(increment)
    recorded = merge_inputs(increments)
    new = {name: signature for name, signature in signatures.items() if name not in recorded}
    if new and single:
        return [CorpusIncrement(signatures)]
    return [*increments, CorpusIncrement(new)] if new else increments


def find_absent(uri: str, signatures: Signatures) -> list[str]:
    """Return the inputs that are recorded in the file `uri` and are no longer inputs, under this name or with this signature."""
    recorded, states = merge_inputs(_read_increments(uri)), set(signatures.values())
    return [name for name, signature in recorded.items() if name not in signatures and signature not in states]


def _read_increments(uri: str) -> list[CorpusIncrement]:
    try:
        return records.read(uri, IncrementsRecord).increments if storage.exists(uri) else []
    except DamagedError as error:
        logger.warning("%s: all inputs are read and embedded again", str(error).rpartition("; ")[0])
        return []


def write_increments(uri: str, increments: Sequence[CorpusIncrement]) -> None:
    """Record the increments that have been read."""
    records.write(uri, {"increments": [asdict(increment) for increment in increments if increment.counts is not None]})
