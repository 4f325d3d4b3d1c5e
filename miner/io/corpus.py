"""An embeddings directory, written by `miner embed`: the sentences of one side and their vectors.

`FOLDER/sentences` and `FOLDER/embeddings` have shards of the same names. Row i of a shard of embeddings is the vector of row i of the
shard of sentences; both are sorted by id. Readers stream row groups, so they need not load a shard.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from miner.arrays import Ids, Ints, Vectors, find_rows
from miner.errors import DamagedError, DataError
from miner.io import stages, storage, table_files
from miner.io.stages import EMBEDDINGS, SENTENCES, TOKENS, Manifest, Shard
from miner.io.tables import SENTENCES as SENTENCES_TABLE
from miner.io.tables import all_finite, check_ids, read_vectors

Span = tuple[int, int]  # first and last id
WITHOUT_TEXTS = "vectors"  # fingerprint of the encoder of vectors that have ids for texts


@dataclass(frozen=True)
class Corpus:
    """One embedded side. `open_corpus` checks that its parts are consistent."""

    folder: str
    lang: str
    dim: int
    fingerprint: str  # of the encoder
    side: str | None  # of an encoder with two sides, the one that embedded the corpus
    encoder: str | None  # its name, folder or hub id when it embedded the corpus; None if that is not recorded
    shards: tuple[Shard, ...]  # of the embeddings
    counts: dict[str, int]  # of input lines: lines, kept, empty, invalid, too_long, duplicate
    skipped: dict[str, str]  # input or shard of sentences -> reason
    tokens: tuple[int, int] | None  # layer and dimensions of the stored tokens; None if there are none
    profile: Mapping[str, Any]  # what was measured of the encoder when it embedded the corpus

    @property
    def rows(self) -> int:
        """Number of unique sentences."""
        return sum(shard.rows for shard in self.shards)

    @property
    def has_texts(self) -> bool:
        """Whether the sentences have texts, not only vectors."""
        return self.fingerprint != WITHOUT_TEXTS

    def count_rows(self, names: Container[str]) -> int:
        """Return the number of sentences in the shards with these names."""
        return sum(shard.rows for shard in self.shards if shard.name in names)

    @property
    def key(self) -> str:
        """Fingerprint of the vectors and their ids."""
        return storage.key([self.fingerprint, [[shard.name, shard.checksum] for shard in self.shards]])

    def vectors(self, name: str) -> Iterator[tuple[Ids, Vectors]]:
        """Yield the row groups of a shard: ids (n,), ascending, and vectors (n, dim). Raises DataError if a value is not finite."""
        uri = storage.join(self.folder, EMBEDDINGS, name)
        with table_files.open_parquet(uri) as file:
            for ids, vectors in read_vectors(file):
                if not all_finite(vectors):
                    raise DataError(f"{uri}: contains vectors that are not finite; delete it and run `miner embed` again")
                yield ids, vectors

    def read_vectors(self, name: str) -> tuple[Ids, Vectors]:
        """Read a whole shard: ids (n,), ascending, and vectors (n, dim)."""
        groups = list(self.vectors(name))
        if len(groups) == 1:
            return groups[0]
        ids = [np.zeros(0, np.int64), *(ids for ids, _ in groups)]
        vectors = [np.zeros((0, self.dim), np.float16), *(vectors for _, vectors in groups)]
        return np.concatenate(ids), np.concatenate(vectors)

    def vectors_of(self, ids: Ids) -> Vectors:
        """Read the vectors of ids (n,), which may repeat -> (n, dim). Raises DataError if an id is missing."""
        order = np.argsort(ids, kind="stable")
        sorted_ids = ids[order]
        vectors = np.empty((len(ids), self.dim), dtype=np.float16)
        is_read = np.zeros(len(ids), dtype=bool)
        for shard in self.shards:
            for group_ids, group_vectors in self.vectors(shard.name) if shard.rows else ():
                start, end = np.searchsorted(sorted_ids, group_ids[0]), np.searchsorted(sorted_ids, group_ids[-1], side="right")
                positions = find_rows(sorted_ids[start:end], group_ids)
                matches = positions >= 0
                rows = order[start:end][matches]
                vectors[rows], is_read[rows] = group_vectors[positions[matches]], True
        if not is_read.all():
            raise self._missing(ids[~is_read][0])
        return vectors

    def _missing(self, sentence_id: int) -> DataError:
        return DataError(f"{self.folder}: no sentence has the id {sentence_id}; it changed while it was read, so run again")

    def sentences(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the sentences of a shard by row group, in the order of its vectors."""
        yield from table_files.read_row_groups(self.sentences_uri(name), columns)

    def sentences_uri(self, name: str) -> str:
        """Return the URI of a shard's sentences."""
        return storage.join(self.folder, SENTENCES, name)

    def spans(self) -> Mapping[str, Span]:
        """Return the id range of every shard that is not empty, from the footers of the files, which are read once."""
        return self._spans

    @cached_property
    def _spans(self) -> dict[str, Span]:
        names = {self.sentences_uri(shard.name): shard.name for shard in self.shards if shard.rows}
        return {names[uri]: span for uri, span in id_spans(list(names)).items()}

    def find(self, ids: Ids, spans: Mapping[str, Span] | None = None) -> "SentenceLookup":
        """Load the sentences with these ids, each once. Raises DataError if an id is missing.

        With `spans` (see `Corpus.spans`), repeated calls need not read the footers of all shards again.
        """
        unique_ids = np.unique(ids)
        lookup = self.find_present(unique_ids, spans)
        if len(lookup.ids) != len(unique_ids):
            raise self._missing(np.setdiff1d(unique_ids, lookup.ids)[0])
        return lookup

    def find_present(self, unique_ids: Ids, spans: Mapping[str, Span] | None = None) -> "SentenceLookup":
        """Load the sentences with these ids, ascending and each once, that the corpus has."""
        tables = [SENTENCES_TABLE.empty_table(), *(self._filter_shard(name, unique_ids) for name in self._names_of(unique_ids, spans))]
        table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        order = np.argsort(table["id"].to_numpy())
        return SentenceLookup(table["id"].to_numpy()[order], order, table)

    def tokens_of(self, ids: Ids, spans: Mapping[str, Span] | None = None) -> pa.ChunkedArray:
        """Read the stored tokens of ids (n,), which may repeat. Raises DataError if an id is missing, StorageError for a damaged shard."""
        unique_ids = np.unique(ids)
        tables = [
            group.filter(pa.array(find_rows(group["id"].to_numpy(), unique_ids) >= 0))
            for name in self._names_of(unique_ids, spans)
            for group in table_files.read_row_groups(self.tokens_uri(name))
        ]
        table = (
            pa.concat_tables(tables) if tables else pa.table({"id": pa.array([], pa.int64()), "tokens": pa.array([], pa.large_binary())})
        )
        order = np.argsort(table["id"].to_numpy())
        if len(order) != len(unique_ids):
            raise self._missing(np.setdiff1d(unique_ids, table["id"].to_numpy())[0])
        return table["tokens"].take(pa.array(order[np.searchsorted(unique_ids, ids)]))

    def tokens_uri(self, name: str) -> str:
        """Return the URI of a shard's tokens."""
        return storage.join(self.folder, TOKENS, name)

    def _names_of(self, unique_ids: Ids, spans: Mapping[str, Span] | None) -> list[str]:
        """Return the shards that may have some of these ids, ascending."""
        spans = self.spans() if spans is None else spans
        return [name for name, (first, last) in spans.items() if len(unique_ids) and first <= unique_ids[-1] and unique_ids[0] <= last]

    def _filter_shard(self, name: str, sorted_ids: Ids) -> pa.Table:
        # np.isin would sort `sorted_ids` for every row group.
        tables = [group.filter(pa.array(find_rows(group["id"].to_numpy(), sorted_ids) >= 0)) for group in self.sentences(name)]
        table = pa.concat_tables(tables)
        check_ids(self.sentences_uri(name), table)
        return table


@dataclass(frozen=True)
class SentenceLookup:
    """Sentences of a corpus, in memory."""

    ids: Ids  # (n,) ascending
    rows: Ints  # (n,) the row of each id in the table
    table: pa.Table  # of the schema SENTENCES

    def of(self, ids: Ids) -> pa.Table:
        """Return a table of the schema SENTENCES whose row i is the sentence of ids[i]; ids (m,) may repeat."""
        return self.table.take(pa.array(self.rows[np.searchsorted(self.ids, ids)]))


def id_spans(uris: Sequence[str]) -> dict[str, Span]:
    """Return the first and the last id of Parquet files whose first column is the id, from their footers; not of files without rows."""
    spans = {}
    for uri, footer in zip(uris, table_files.read_footers(uris), strict=True):
        groups = (footer.row_group(index) for index in range(footer.num_row_groups))
        statistics = [group.column(0).statistics for group in groups if group.num_rows]
        if statistics:
            spans[uri] = min(group.min for group in statistics), max(group.max for group in statistics)
    return spans


def is_corpus(folder: str) -> bool:
    """Whether this is an embeddings directory, finished or not."""
    return any(storage.exists(storage.join(folder, EMBEDDINGS, name)) for name in (stages.MANIFEST, stages.STARTED))


def open_corpus(folder: str) -> Corpus:
    """Open an embeddings directory.

    Raises StorageError if it is unfinished or a shard is missing or truncated, and DataError if it is not an embeddings directory or if
    its sentences and vectors are inconsistent.
    """
    if not storage.is_folder(folder):
        raise DataError(f"{folder}: not an embeddings directory; give the --output of `miner embed`")
    embeddings = stages.read_manifest(storage.join(folder, EMBEDDINGS), EMBEDDINGS)
    sentences = stages.read_manifest(storage.join(folder, SENTENCES), SENTENCES)
    config = embeddings.config
    if dict(embeddings.inputs) != {shard.name: shard.checksum for shard in sentences.shards}:
        raise DataError(f"{folder}: the sentences are not those that were embedded; run `miner embed` again")
    _check_shards(storage.join(folder, SENTENCES), sentences.shards)
    _check_shards(storage.join(folder, EMBEDDINGS), embeddings.shards, config["dim"])
    skipped_shards = embeddings.skipped
    num_sentences = sum(shard.rows for shard in sentences.shards if shard.name not in skipped_shards)
    if embeddings.rows != num_sentences:
        raise DataError(f"{folder}: {embeddings.rows} vectors for {num_sentences} sentences; run `miner embed` again")
    counts = dict(sentences.details.get("counts", {}))
    skipped = {storage.join(folder, EMBEDDINGS, name): reason for name, reason in skipped_shards.items()}
    skipped |= sentences.skipped
    encoder = config["dim"], config["fingerprint"], config.get("side"), embeddings.details.get("encoder")
    tokens = _find_tokens(folder, embeddings)
    profile = embeddings.details.get("profile", {})
    return Corpus(folder, config["lang"], *encoder, tuple(embeddings.shards), counts, skipped, tokens, profile)


def _find_tokens(folder: str, embeddings: Manifest) -> tuple[int, int] | None:
    """Return the layer and the dimensions of the tokens of these sentences, None if there are none; StorageError for a missing shard."""
    tokens = storage.join(folder, TOKENS)
    if not storage.exists(storage.join(tokens, stages.MANIFEST)):
        return None
    manifest = stages.read_manifest(tokens, TOKENS)
    if manifest.inputs != embeddings.inputs or manifest.config["fingerprint"] != embeddings.config["fingerprint"]:
        return None
    _check_shards(tokens, manifest.shards)
    return manifest.config["token_layer"], manifest.config["token_dim"]


def _check_shards(folder: str, shards: Sequence[Shard], dim: int | None = None) -> None:
    """Raise an error unless every shard is there and has the expected number of rows and, if given, dimensions.

    Of an object store, only the names are compared: objects are complete, and their checksums are compared when they are read.
    """
    is_remote = storage.is_on_object_store(folder)
    names = storage.versions(folder).keys()
    for shard in shards:
        uri = storage.join(folder, shard.name)
        if shard.name not in names:
            raise DamagedError(f"{uri}: this shard is missing; run the same `miner embed` again, which writes only missing shards")
        if not is_remote:
            _check_rows(uri, shard.rows, dim)


def _check_rows(uri: str, rows: int, dim: int | None) -> None:
    with table_files.open_parquet(uri) as file:
        schema = file.schema_arrow
        if file.metadata.num_rows != rows:
            raise DataError(f"{uri}: {file.metadata.num_rows} rows, but its manifest says {rows}; run `miner embed` again")
    if dim is not None and schema.field("embedding").type != pa.binary(2 * dim):
        raise DataError(f"{uri}: vectors of {schema.field('embedding').type}, not of {dim} float16; run `miner embed` again")
