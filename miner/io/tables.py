"""The Arrow schema of every table on disk, and conversions between vectors and Arrow columns.

Ids are the 64-bit xxh3 hash of the cleaned text (see `hash_ids` and `miner.text.normalise`), so a sentence has the same id in every run
and shard and on every machine. Sharded tables are sorted by id; shard *i* of *n* holds the *i*-th of *n* equal id ranges.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from miner.arrays import AnyFloats, Ids, Ints, Vectors
from miner.errors import DataError

SENTENCES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("count", pa.int32(), nullable=False),  # number of occurrences
        pa.field("source", pa.dictionary(pa.int32(), pa.string()), nullable=False),  # file of the first occurrence
        pa.field("line", pa.int64(), nullable=False),  # line number in that file, from 1
    ]
)

CANDIDATES = pa.schema(
    [
        pa.field("source_id", pa.int64(), nullable=False),
        pa.field("target_id", pa.int64(), nullable=False),
        pa.field("similarity", pa.float64(), nullable=False),
        pa.field("source_mean", pa.float64(), nullable=False),  # mean similarity of the source to its neighbours
        pa.field("target_mean", pa.float64(), nullable=False),
        pa.field("forward", pa.bool_(), nullable=False),  # the target is a neighbour of the source
        pa.field("backward", pa.bool_(), nullable=False),  # the source is a neighbour of the target
    ]
)

RESCORED_CANDIDATES = pa.schema(  # with late interaction, see `miner.mining.late_interaction`
    [
        *CANDIDATES,
        pa.field("late_similarity", pa.float64(), nullable=False),
        pa.field("source_late_mean", pa.float64(), nullable=False),  # of the k largest among the neighbours of the source
        pa.field("target_late_mean", pa.float64(), nullable=False),
    ]
)

BITEXT = pa.schema(  # a bitext by an encoder with probabilities has the column PROBABILITY besides
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

PROBABILITY = pa.field("probability", pa.float64(), nullable=False)

REASON = (
    pa.field("reason", pa.string(), nullable=False),
    pa.field("score", pa.float64(), nullable=False),
)  # of the filter that dropped the row
DROPPED_SENTENCES = pa.schema([*SENTENCES, *REASON])
DROPPED_PAIRS = pa.schema([*BITEXT, *REASON])
DELTA = pa.schema([pa.field("change", pa.string(), nullable=False), *BITEXT])  # added, removed, changed

SCORED = pa.schema(  # the line pairs of `miner score`, before the other columns of the input
    [
        pa.field("row", pa.int64(), nullable=False),  # of the input, from 0
        pa.field("line", pa.int64(), nullable=False),  # of the input, from 1, where a header counts
        pa.field("margin", pa.float64(), nullable=False),  # NaN where it is undefined
        pa.field("similarity", pa.float64(), nullable=False),
        pa.field("probability", pa.float64()),  # that the pair is right; null without a margin, or without weights of the encoder
        pa.field("source_text", pa.string()),  # null for a dropped line
        pa.field("target_text", pa.string()),
        pa.field("reason", pa.string()),  # why the pair is dropped; null for one that is kept
    ]
)
SCORED_TSV = ("margin", "source_text", "target_text", "probability", "reason", "line")  # columns of TSV, before those of the input


def embeddings_schema(dim: int, fingerprint: str) -> pa.Schema:
    """Return the schema of embeddings with `dim` dimensions from the encoder with this fingerprint.

    A vector is `2 * dim` bytes of little-endian float16. Fixed-size binary columns read ten times as fast as list columns.
    """
    return pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("embedding", pa.binary(2 * dim), nullable=False),
        ],
        metadata={"dim": str(dim), "dtype": "float16", "fingerprint": fingerprint, "normalised": "true"},
    )


def tokens_schema(dim: int, fingerprint: str) -> pa.Schema:
    """Return the schema of the tokens of sentences: `dim` signed bytes for each token of a sentence."""
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("tokens", pa.large_binary(), nullable=False)]
    return pa.schema(fields, metadata={"dim": str(dim), "fingerprint": fingerprint})


def neighbours_schema(k: int) -> pa.Schema:
    """Return the schema of the `k` nearest neighbours of each id. A missing neighbour has id -1 and similarity NaN.

    Similarities are float64, in which the dot product of float16 vectors is exact (`miner.search.exact`), so margins have exact ties.
    """
    return pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("neighbour_ids", pa.list_(pa.int64(), k), nullable=False),
            pa.field("similarities", pa.list_(pa.float64(), k), nullable=False),
        ]
    )


def vectors_to_arrow(vectors: AnyFloats) -> pa.FixedSizeBinaryArray:
    """Convert (n, dim) floats to n fixed-size binary values of 2 * dim bytes."""
    data = np.ascontiguousarray(vectors, dtype="<f2")
    rows, dim = data.shape
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(2 * dim), rows, [None, pa.py_buffer(data)])


def arrow_to_vectors(column: pa.ChunkedArray | pa.Array) -> Vectors:
    """Convert n fixed-size binary values to (n, dim) float16, without a copy if the column has one chunk."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # an empty chunked array combines into an array without chunks
        array = array.chunk(0) if array.num_chunks else pa.array([], column.type)
    if not pa.types.is_fixed_size_binary(array.type):
        raise DataError(f"the embedding column has type {array.type}, not fixed-size binary; run `miner embed` again")
    width = array.type.byte_width
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros((0, width // 2), dtype=np.float16)
    start = array.offset * width
    flat = np.frombuffer(buffer, dtype="<f2", count=len(array) * (width // 2), offset=start)
    return flat.reshape(len(array), width // 2)


def read_vectors(file: pq.ParquetFile) -> Iterator[tuple[Ints, Vectors]]:
    """Yield the row groups of a shard of embeddings: ids (n,) and vectors (n, dim)."""
    for group in range(file.num_row_groups):
        table = file.read_row_group(group)
        yield table["id"].to_numpy(), arrow_to_vectors(table["embedding"])


def all_finite(vectors: Vectors) -> bool:
    """Whether no value of a float16 array is NaN or infinite (all exponent bits set). Ten times as fast as np.isfinite."""
    return not bool(np.any((vectors.view(np.uint16) & 0x7C00) == 0x7C00))


def concat_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables without their metadata into one chunk, with common dictionaries."""
    return pa.concat_tables([table.replace_schema_metadata(None) for table in tables]).unify_dictionaries().combine_chunks()


def hash_ids(encoded: Sequence[bytes]) -> Ids:
    """Return (n,) ids of n cleaned texts in UTF-8: the xxh3-64 of the bytes, reinterpreted as signed."""
    import xxhash  # here, since a search needs torch, numpy and pyarrow only

    return np.fromiter(map(xxhash.xxh3_64_intdigest, encoded), dtype=np.uint64, count=len(encoded)).view(np.int64)


def check_ids(uri: str, sentences: pa.Table) -> None:
    """Raise DataError if an id in a table with the columns id and text is not the hash of its text: one of them has changed.

    The checksum of a file cannot show this where it was computed after the change.
    """
    encoded = sentences["text"].cast(pa.binary()).to_pylist()
    is_changed = hash_ids(encoded) != sentences["id"].to_numpy()
    if is_changed.any():
        text = encoded[int(np.argmax(is_changed))].decode(errors="replace")
        problem = f"the id of {text[:60]!r} is not the hash of the text, so one of them has changed"
        raise DataError(f"{uri}: {problem}; delete {uri.rpartition('/')[0]} and run `miner embed` again")
