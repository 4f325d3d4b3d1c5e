"""The data dictionary: the Arrow schema of every table on disk, and vectors in and out of them.

Ids are the 64-bit xxh3 hash of the cleaned text (see `miner.text.normalise`), so a sentence has one id in every
run, shard and machine. Every sharded table is sorted by id, and shard *i* of *n* holds the *i*-th of *n* equal ranges of the ids.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from miner.errors import DataError

Vectors = npt.NDArray[np.float16]

SENTENCES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("count", pa.int32(), nullable=False),  # how often the sentence was seen
        pa.field("source", pa.dictionary(pa.int32(), pa.string()), nullable=False),  # file of the first occurrence
        pa.field("line", pa.int64(), nullable=False),  # its line there, from 1
    ]
)

CANDIDATES = pa.schema(
    [
        pa.field("source_id", pa.int64(), nullable=False),
        pa.field("target_id", pa.int64(), nullable=False),
        pa.field("similarity", pa.float64(), nullable=False),
        pa.field("source_mean", pa.float64(), nullable=False),  # of the source's similarities to its neighbours
        pa.field("target_mean", pa.float64(), nullable=False),
        pa.field("forward", pa.bool_(), nullable=False),  # the target is a neighbour of the source
        pa.field("backward", pa.bool_(), nullable=False),  # the source is a neighbour of the target
    ]
)

BITEXT = pa.schema(
    [
        pa.field("source_id", pa.int64(), nullable=False),
        pa.field("target_id", pa.int64(), nullable=False),
        pa.field("margin", pa.float64(), nullable=False),
        pa.field("similarity", pa.float32(), nullable=False),
        pa.field("source_text", pa.string(), nullable=False),
        pa.field("target_text", pa.string(), nullable=False),
        pa.field("source_file", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("source_line", pa.int64(), nullable=False),
        pa.field("target_file", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("target_line", pa.int64(), nullable=False),
    ]
)

WHY = (pa.field("reason", pa.string(), nullable=False), pa.field("score", pa.float64(), nullable=False))  # of a filter
DROPPED_SENTENCES = pa.schema([*SENTENCES, *WHY])
DROPPED_PAIRS = pa.schema([*BITEXT, *WHY])
DELTA = pa.schema([pa.field("change", pa.string(), nullable=False), *BITEXT])  # added, removed, changed


def embeddings_schema(dim: int, fingerprint: str) -> pa.Schema:
    """The schema of embeddings of `dim` dimensions by the encoder with that fingerprint.

    A vector is `2 * dim` bytes of little-endian float16: fixed-size binary reads ten times as fast as a list column.
    """
    return pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("embedding", pa.binary(2 * dim), nullable=False),
        ],
        metadata={"dim": str(dim), "dtype": "float16", "fingerprint": fingerprint, "normalised": "true"},
    )


def neighbours_schema(k: int) -> pa.Schema:
    """The schema of the `k` nearest neighbours of each id; a missing neighbour has id -1 and is masked by `similarities` NaN.

    Similarities are float64 because there the dot product of float16 vectors is exact (`miner.search.exact`): two that differ
    stay different, and equal ones stay equal, up to the margin.
    """
    return pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("neighbour_ids", pa.list_(pa.int64(), k), nullable=False),
            pa.field("similarities", pa.list_(pa.float64(), k), nullable=False),
        ]
    )


def vectors_to_arrow(vectors: npt.NDArray[np.floating]) -> pa.FixedSizeBinaryArray:
    """(n, dim) floats -> n fixed-size binary values of 2 * dim bytes."""
    data = np.ascontiguousarray(vectors, dtype="<f2")
    rows, dim = data.shape
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(2 * dim), rows, [None, pa.py_buffer(data)])


def arrow_to_vectors(column: pa.ChunkedArray | pa.Array) -> Vectors:
    """n fixed-size binary values -> (n, dim) float16, without a copy where the column is one chunk."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # an empty chunked array combines into one with no chunks
        array = array.chunk(0) if array.num_chunks else pa.array([], column.type)
    if not pa.types.is_fixed_size_binary(array.type):
        raise DataError(f"an embedding column of type {array.type} where fixed-size binary was expected; run `miner embed` again")
    width = array.type.byte_width
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros((0, width // 2), dtype=np.float16)
    start = array.offset * width
    flat = np.frombuffer(buffer, dtype="<f2", count=len(array) * (width // 2), offset=start)
    return flat.reshape(len(array), width // 2)
