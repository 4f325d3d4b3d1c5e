"""Vectors as they are stored: of the expected shape, in float16, and finite."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from miner.arrays import Floats32, Vectors
from miner.encoders.base import Encoder
from miner.errors import ModelError
from miner.io.tables import all_finite


def encode_checked(encoder: Encoder, texts: Sequence[str], name: str) -> Floats32:
    """Return the vectors (n, dim) of n texts. Raises ModelError if the encoder `name` returns no array, or one of another shape."""
    vectors = encoder.encode(texts)
    if not isinstance(vectors, np.ndarray):
        raise ModelError(f"{name.lstrip('~')}: returned {type(vectors).__name__} instead of an array of vectors (n, dim); fix the encoder")
    if vectors.shape != (len(texts), encoder.dim):
        raise ModelError(f"{name}: returned vectors of shape {vectors.shape} for {len(texts)} texts x {encoder.dim}; fix the encoder")
    return vectors


def to_float16(vectors: Floats32, texts: Sequence[Any], name: str) -> Vectors:
    """Return vectors (n, dim) in float16. Raises ModelError, with the text, if one is not finite there."""
    # Arrow converts faster than numpy. A value that is too large for float16 becomes infinite.
    stored: Vectors = pa.array(vectors.ravel()).cast(pa.float16()).to_numpy().reshape(vectors.shape)
    if not all_finite(stored):
        text = str(texts[int(np.argmin(np.isfinite(stored).all(axis=1)))])
        raise ModelError(f"{name}: the vector of {text[:60]!r} is not finite; try --dtype float32, or another encoder")
    return stored
