"""The changes of the input texts of a corpus since they were read."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from miner.errors import MinerError
from miner.io.credentials import hide
from miner.io.stages import Manifest
from miner.text import readers

PATTERNS = "patterns"  # in the details of the manifest of sentences: the patterns by which the inputs were named


@dataclass(frozen=True)
class InputChanges:
    """The inputs that differ. A file that is gone is no change: the corpus no longer needs it."""

    edited: Sequence[str]
    added: Sequence[str]  # files that match the patterns and were not read


def find_changes(manifest: Manifest) -> InputChanges:
    """Compare the inputs of sentences with their state now. Those that cannot be inspected from here count as unchanged."""
    edited, added = [], []
    for uri, signature in manifest.inputs.items():
        with contextlib.suppress(MinerError, OSError):
            if uri != readers.STDIN and readers.input_signature(uri) != signature:
                edited.append(uri)
    for pattern in manifest.details.get(PATTERNS, ()):
        with contextlib.suppress(MinerError, OSError):
            added += [uri for uri in readers.expand([pattern]) if hide(uri) not in {*manifest.inputs, *manifest.skipped}]
    return InputChanges(edited, added)
