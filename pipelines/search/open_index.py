"""A finished folder of `miner index`, opened to be searched: the FAISS file, and the stored vectors that settle what it proposes."""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from fsspec.implementations.local import LocalFileSystem

from miner import storage
from miner.corpus import EMBEDDINGS, Corpus
from miner.errors import StorageError
from miner.search import cost_model, faiss_index, neighbours, rescoring
from miner.search.exact import VectorBlock, search_for
from miner.search.faiss_index import Index
from miner.search.neighbours import Ids, Neighbours, Similarities
from miner.search.tuning import Setting, tune
from miner.tables import Vectors

VECTORS = "vectors"  # folder
STRETCH = 1 << 15  # stored vectors that are held at a time where all of them are compared
SAMPLE = cost_model.TUNED  # vectors that an index is tuned with
LEAST = 200  # where so many neighbours are wanted of each that a sample takes too much memory
HELD = 1 << 21  # candidates that are held at a time
PROBED = 1 << 20  # lists, or steps of a graph, that are noted for all queries before the first is looked into: 40 MB


@dataclass(frozen=True)
class OpenIndex:
    """An index and the corpus it was made from. Opened in each worker: files are mapped into memory, which workers share."""

    folder: str
    name: str  # of the FAISS file
    corpus: Corpus
    device: str = "cpu"

    @cached_property
    def index(self) -> Index:
        with _local(storage.join(self.folder, self.name)) as path:
            return faiss_index.open_file(path, self.device)

    @cached_property
    def stored_ids(self) -> Ids:
        """(n,), in the order of the vectors, which ascends within each part of the corpus."""
        tables = (storage.read_table(storage.join(self.corpus.folder, EMBEDDINGS, shard.name), ["id"]) for shard in self.corpus.shards)
        return np.concatenate([table["id"].to_numpy() for table in tables])

    @cached_property
    def order(self) -> Ids | None:
        """(n,): where the vectors are, by ascending id; None where they are in that order."""
        ids = self.stored_ids
        return None if (ids[1:] > ids[:-1]).all() else np.argsort(ids)

    @cached_property
    def ids(self) -> Ids:
        """(n,), ascending."""
        return self.stored_ids if self.order is None else self.stored_ids[self.order]

    @cached_property
    def stored(self) -> Sequence[Vectors]:
        """The vectors of each shard, in the order of the ids."""
        parts = []
        for shard in self.corpus.shards:
            with _local(storage.join(self.folder, VECTORS, vectors_name(shard.name))) as path:
                parts.append(_mapped(path))
        return parts

    def gather(self, positions: Ids) -> Vectors:
        """Positions (n,) among all ids -> vectors (n, dim)."""
        rows = positions if self.order is None else self.order[positions]
        order = np.argsort(rows)  # in the order of the files
        rows = rows[order]
        starts = np.cumsum([0, *(len(part) for part in self.stored)])
        bounds = np.searchsorted(rows, starts)
        ordered = np.empty((len(rows), self.corpus.dim), dtype=np.float16)
        for shard in np.flatnonzero(np.diff(bounds)):
            here = slice(bounds[shard], bounds[shard + 1])
            np.take(self.stored[shard], rows[here] - starts[shard], axis=0, out=ordered[here], mode="clip")  # checks would copy
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return ordered.take(back, axis=0)  # for which numpy gives Python's lock away, as it does not for an assignment

    def look(self, queries: Vectors, effort: int, count: int) -> tuple[Ids, Similarities]:
        """Queries (n, dim) -> ids and exact similarities (n, count) of what the index proposes, NaN for none, in its order."""
        proposed = self.index.propose(queries, count, effort)
        return proposed, rescoring.similarities(queries, proposed, self.ids, self.gather)

    def search(self, queries: Vectors, k: int, setting: Setting) -> tuple[Neighbours, int]:
        """The k nearest of queries (n, dim), and how many of these had to be compared with every vector to have k."""
        step = max(1, min(HELD // setting.candidates, PROBED // max(1, setting.effort)))
        parts = (self.look(queries[start : start + step], setting.effort, setting.candidates) for start in range(0, len(queries), step))
        found = neighbours.stack([neighbours.none(0, k), *(rescoring.nearest(*part, k) for part in parts)])
        short = np.flatnonzero(found.found.sum(axis=1) < min(k, len(self.ids)))
        if len(short):
            again = self.search_all(queries[short], k)
            found.ids[short], found.similarities[short] = again.ids, again.similarities
        return found, len(short)

    def search_all(self, queries: Vectors, k: int) -> Neighbours:
        """The k nearest of queries (n, dim), exactly."""
        block, found = VectorBlock(np.arange(len(queries)), queries), neighbours.none(len(queries), k)
        for stretch in self._stretches():
            found = search_for(block, stretch, found, self.device)
        return found

    def tune(self, queries: Vectors, k: int, target: float, own: Ids | None = None) -> Setting:
        """How to search for queries (n, dim) with a recall@k of `target`.

        `own` are the ids of queries that are in the index: none is its own neighbour.
        """
        count = max(LEAST, SAMPLE * 16 // k)
        queries, own = queries[:count], None if own is None else own[:count]
        truth = self.search_all(queries, k if own is None else k + 1)
        if own is not None:
            truth = truth.without(own)

        def look(effort: int, count: int) -> Similarities:
            proposed, similarities = self.look(queries, effort, count)
            return similarities if own is None else np.where(proposed == own[:, None], np.nan, similarities)

        return tune(look, truth, self.index.most, target)

    def _stretches(self) -> Iterator[VectorBlock]:
        start = 0
        for part in self.stored:
            for row in range(0, len(part), STRETCH):
                vectors = np.asarray(part[row : row + STRETCH])
                yield VectorBlock(self.stored_ids[start + row : start + row + len(vectors)], vectors)
            start += len(part)


def vectors_name(shard: str) -> str:
    return shard.removesuffix(".parquet") + ".npy"


def draw(corpus: Corpus, count: int, seed: int) -> tuple[Ids, Vectors]:
    """`count` vectors of a corpus, or all where there are fewer, and their ids; the same for the same seed, however it is sharded."""
    chosen = np.sort(np.random.default_rng(seed).choice(corpus.rows, min(count, corpus.rows), replace=False))
    ids, vectors, start = [np.zeros(0, np.int64)], [np.zeros((0, corpus.dim), np.float16)], 0
    for shard in corpus.shards:
        for some, rows in corpus.vectors(shard.name):
            here = chosen[slice(*np.searchsorted(chosen, [start, start + len(some)]))] - start
            ids.append(some[here])
            vectors.append(rows[here])
            start += len(some)
    return np.concatenate(ids), np.concatenate(vectors)


def _mapped(path: str) -> npt.NDArray[np.float16]:
    try:
        return np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise StorageError(f"{path}: not a whole file of vectors ({str(error).splitlines()[0]}); run `miner index` again") from error


@contextlib.contextmanager
def _local(uri: str) -> Iterator[str]:
    """A path under which a file can be mapped into memory; one that lies elsewhere is fetched, and gone once it is mapped."""
    fs, path = storage.filesystem(uri)
    if isinstance(fs, LocalFileSystem):
        yield str(path)
        return
    with tempfile.TemporaryDirectory(prefix="miner-") as folder:
        fs.get_file(path, f"{folder}/file")
        yield f"{folder}/file"
