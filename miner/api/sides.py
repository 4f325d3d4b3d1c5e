"""The sides of mining and scoring in Python, as files that the pipelines read."""

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from miner import languages
from miner.api.embedding import Embeddings
from miner.api.workspace import TEXT, FilePath, list_texts, write_pairs, write_texts
from miner.arrays import Ids, Ints, Vectors
from miner.config.commands import EmbedConfig, MineConfig, ScoreConfig
from miner.encoders import choose_side
from miner.errors import ConfigError, DataError
from miner.io import stages, storage, table_files
from miner.io.corpus import WITHOUT_TEXTS
from miner.io.stages import Stage
from miner.io.tables import SENTENCES, embeddings_schema, tokens_schema, vectors_to_arrow
from miner.text.normalise import sentence_ids
from miner.text.sharding import range_of
from pipelines.corpus import embed

Side: TypeAlias = FilePath | Iterable[FilePath] | Embeddings | tuple[npt.ArrayLike, npt.ArrayLike]

SIDES = ("source", "target")
SHARD_ROWS = 300_000
ROW_GROUP_ROWS = 1 << 15
MAX_NORM_ERROR = 0.01  # of a vector that counts as unit length: float16 rounds by less
MAX_ID = np.iinfo(np.int64).max


@dataclass(frozen=True)
class SideFile:
    """A side as the pipelines read it."""

    path: str  # of text, or an embeddings or index directory
    column: str | None = None  # with the texts of a list
    is_in_memory: bool = False  # then line numbers are row numbers from 1
    has_texts: bool = True  # otherwise, the texts are the ids of vectors


def is_vectors(side: Side) -> bool:
    """Whether a side is a tuple of ids and vectors."""
    return isinstance(side, tuple) and len(side) == 2 and not any(isinstance(part, str | os.PathLike) for part in side)


@dataclass(frozen=True)
class SideWriter:
    """Writes what is in memory to the workspace of a run, unless it is there."""

    folder: str
    config: MineConfig | ScoreConfig  # of the run

    def write_sides(self, sides: Sequence[Side]) -> tuple[SideFile, SideFile]:
        """Write the source and the target. Raises ConfigError or DataError for invalid ones."""
        if any(map(is_vectors, sides)):
            sides = [_as_vectors(side, role) for side, role in zip(sides, SIDES, strict=True)]
        source, target = (self.write(side, role, role) for side, role in zip(sides, SIDES, strict=True))
        return source, target

    def write_background(self, side: Side, role: str) -> str:
        """Write the background of a side, and return its path. A list is embedded, since the pipelines read its file by another column."""
        name = f"background-{role}"
        file = self.write(side, name, role)
        return self._embed([file.path], name, role, text_column=TEXT) if file.column else file.path

    def write(self, side: Side, name: str, role: str) -> SideFile:
        """Write a side of the role `source` or `target` as `name`."""
        if isinstance(side, str | os.PathLike):
            return SideFile(os.fspath(side))
        folder = storage.join(self.folder, name)
        if isinstance(side, Embeddings):
            _write_embeddings(folder, side)
            return SideFile(folder, is_in_memory=True)
        if is_vectors(side):
            ids, vectors = map(np.asarray, side)
            _write_corpus(folder, _check_vectors(ids, vectors, name), self._lang(role), WITHOUT_TEXTS)
            return SideFile(folder, is_in_memory=True, has_texts=False)
        items = list_texts(side)
        if items and all(isinstance(item, os.PathLike) for item in items):
            return SideFile(self._embed(items, name, role))
        return SideFile(write_texts(items, self.folder, name), TEXT, is_in_memory=True)

    def write_gold(self, pairs: Iterable[Sequence[Any]], sides: Sequence[Side], files: Sequence[SideFile]) -> str:
        """Write pairs of rows of sides in memory, or of line numbers of files, as a file of gold. Raises ConfigError for other pairs."""
        columns = np.array([_as_rows(pair) for pair in pairs], np.int64).reshape(-1, 2).T
        for rows, side, file in zip(columns, sides, files, strict=True):
            if file.is_in_memory:
                if isinstance(side, Embeddings):  # of which a repeated text is stored once
                    first, inverse = np.unique(side.ids, return_index=True, return_inverse=True)[1:]
                    is_row = rows < len(inverse)
                    rows[is_row] = first[inverse[rows[is_row]]]
                rows += 1
        return write_pairs(columns.T.tolist(), self.folder, "gold")

    def _embed(self, inputs: Sequence[FilePath], name: str, role: str, **settings: Any) -> str:
        """Embed texts as a corpus in the workspace, and return its directory."""
        chosen = {key: getattr(self.config, key) for key in self.config.model_fields_set & EmbedConfig.model_fields.keys()}
        paths, output = tuple(os.fspath(path) for path in inputs), storage.join(self.folder, name)
        config = EmbedConfig(**{**chosen, **settings, "inputs": paths, "output": output, "lang": self._lang(role)})
        side = choose_side(config, config.lang, default=role).side
        return embed.run(config.model_copy(update={"side": side})).output

    def _lang(self, role: str) -> str:
        return languages.canonical(getattr(self.config, f"{role}_lang"))


def _as_rows(pair: Any) -> tuple[int, int]:
    """Return a pair of row numbers. Raises ConfigError for anything else."""
    try:
        rows = tuple(map(operator.index, pair))
    except TypeError:
        rows = ()
    if len(rows) != 2 or not 0 <= min(rows) <= max(rows) < MAX_ID:
        raise ConfigError(f"gold: {pair!r} is not a pair of rows such as (0, 3); give a file, or a list of pairs")
    return rows[0], rows[1]


@dataclass(frozen=True)
class _UniqueSentences:
    """n different sentences, ascending by id."""

    ids: Ids  # (n,)
    texts: Sequence[str]
    vectors: Vectors  # (n, dim)
    rows: Ints  # (n,), of the first occurrence of each in the input
    num_kept: int  # texts, repeated ones included


def _unique_sentences(embeddings: Embeddings) -> _UniqueSentences:
    """Return the sentences of embeddings, without the dropped texts."""
    kept = np.flatnonzero([bool(text) for text in embeddings.texts])
    ids, first = np.unique(embeddings.ids[kept], return_index=True)
    rows = kept[first]
    return _UniqueSentences(ids, [embeddings.texts[row] for row in rows], embeddings.vectors[rows], rows, len(kept))


def _as_vectors(side: Side, role: str) -> Side:
    """Return the vectors of a side. Raises ConfigError if it has none yet."""
    if isinstance(side, Embeddings):
        sentences = _unique_sentences(side)
        return sentences.ids, sentences.vectors
    if not is_vectors(side):
        raise ConfigError(f"{role}: vectors on the other side only; give vectors on both, or what `miner.embed` returns")
    return side


def _check_vectors(ids: npt.NDArray[Any], vectors: npt.NDArray[Any], name: str) -> _UniqueSentences:
    """Return vectors as those of sentences whose texts are the ids. Raises DataError for invalid ones."""
    if vectors.ndim != 2 or ids.shape != vectors.shape[:1]:
        raise DataError(f"{name}: ids of shape {ids.shape} and vectors of shape {vectors.shape}; give (n,) ids and (n, dim) vectors")
    if not np.issubdtype(ids.dtype, np.integer) or not np.issubdtype(vectors.dtype, np.floating):
        raise DataError(f"{name}: ids are {ids.dtype} and vectors {vectors.dtype}; give integers and floats")
    if len(ids) and ids.max() > MAX_ID:
        raise DataError(f"{name}: id {ids.max()} needs more than 63 bits; give int64 ids")
    values, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        raise DataError(f"{name}: id {values[counts > 1][0]} occurs twice; give each sentence one id")
    norms = np.linalg.norm(vectors.astype(np.float32), axis=1)
    is_unit = (np.abs(norms - 1) <= MAX_NORM_ERROR) | (norms == 0)
    if not is_unit.all():
        raise DataError(f"{name}: a vector has length {norms[np.argmin(is_unit)]:.4g}, not 1; divide each by its length")
    texts = list(map(str, ids.tolist()))
    hashes = sentence_ids(texts)
    rows = np.argsort(hashes)
    return _UniqueSentences(hashes[rows], [texts[row] for row in rows], vectors[rows].astype(np.float16), rows, len(ids))


def _write_embeddings(folder: str, embeddings: Embeddings) -> None:
    """Write an embeddings directory, with the tokens if there are any."""
    sentences, tokens, fingerprint = _unique_sentences(embeddings), embeddings.tokens, embeddings.fingerprint
    inputs = _write_corpus(folder, sentences, embeddings.lang, fingerprint, {"profile": dict(embeddings.profile)})
    if tokens is not None:
        config = {"fingerprint": fingerprint, "token_layer": tokens.layer, "token_dim": tokens.dim}
        table = pa.table([sentences.ids, tokens.values.take(pa.array(sentences.rows))], schema=tokens_schema(tokens.dim, fingerprint))
        _write_stage(Stage(storage.join(folder, stages.TOKENS), stages.TOKENS, config, inputs), table, {})


def _write_corpus(
    folder: str, sentences: _UniqueSentences, lang: str, fingerprint: str, details: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, str]:
    """Write an embeddings directory; return the checksums of the sentences. Raises DataError if there is no sentence."""
    if not len(sentences.ids):
        raise DataError(f"{folder.rpartition('/')[2]}: no sentence; give texts that are not empty")
    num_kept, dim = sentences.num_kept, sentences.vectors.shape[1]
    counts = {"lines": num_kept, "kept": num_kept, "empty": 0, "invalid": 0, "too_long": 0, "duplicate": num_kept - len(sentences.ids)}
    table = pa.table(
        {
            "id": sentences.ids,
            "text": pa.array(sentences.texts, pa.string()),
            "count": np.ones(len(sentences.ids), np.int32),
            "source": np.repeat("memory", len(sentences.ids)),
            "line": sentences.rows + 1,
        }
    ).cast(SENTENCES)
    content = storage.key([xxhash.xxh3_128_hexdigest(part.tobytes()) for part in (sentences.ids, sentences.vectors)])
    stage = Stage(storage.join(folder, stages.SENTENCES), stages.SENTENCES, {"lang": lang}, {"memory": content})
    checksums = _write_stage(stage, table, {"counts": counts})
    config = {"fingerprint": fingerprint, "dim": dim, "lang": lang}
    vectors = pa.table([table["id"], vectors_to_arrow(sentences.vectors)], schema=embeddings_schema(dim, fingerprint))
    _write_stage(Stage(storage.join(folder, stages.EMBEDDINGS), stages.EMBEDDINGS, config, checksums), vectors, details)
    return checksums


def _write_stage(stage: Stage, table: pa.Table, details: Mapping[str, Any]) -> dict[str, str]:
    """Write a table, sorted by id, as the shards of a stage that are missing. Return the checksums of all shards."""
    count = -(-len(table) // SHARD_ROWS)
    bounds = np.searchsorted(range_of(table["id"].to_numpy(), count), np.arange(count + 1))
    names = [stages.shard_name(index, count) for index in range(count)]
    keys = dict.fromkeys(names, stage.key())
    stage.start()
    for name in stage.reopen(keys):
        start, end = bounds[names.index(name)], bounds[names.index(name) + 1]
        with table_files.parquet_writer(stage.path(name), table.schema) as writer:
            writer.write_table(table.slice(start, end - start), row_group_size=ROW_GROUP_ROWS)
        stage.mark_done(name, int(end - start), keys[name])
    return {shard.name: shard.checksum for shard in stage.finish(keys, lambda _: details).shards}
