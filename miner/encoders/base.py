"""The one seam between text and vectors."""

import threading
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt


@runtime_checkable
class Encoder(Protocol):
    """What every encoder is to the rest of the library.

    `fingerprint` names the mapping from text to vector: it changes with the weights, the pooling and the
    preprocessing, and with nothing else (not with the device, the batch size or the folder's path).
    """

    @property
    def dim(self) -> int: ...

    @property
    def fingerprint(self) -> str: ...

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """n texts -> (n, dim) float32 rows of length 1, in the order of the texts; a text with nothing to encode is a zero row."""
        ...


class EncodeCounts(threading.local):
    """How many tokens a thread has had encoded."""

    tokens = 0


@runtime_checkable
class CountsTokens(Protocol):
    """An encoder that counts its tokens, as those of this library do."""

    tally: EncodeCounts
