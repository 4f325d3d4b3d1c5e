"""An index directory opened for search: the FAISS file, and the stored vectors from which its candidates are rescored."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from miner.arrays import Ids, Vectors, bounds_of
from miner.devices import has_torch
from miner.io.corpus import Corpus
from miner.search import cost_model, dense, faiss_index
from miner.search.faiss_index import FaissIndex
from miner.search.neighbours import Neighbours, Similarities, VectorBlock, empty_neighbours, select_nearest, stack_neighbours
from miner.search.rescoring import score_candidates
from miner.search.tuning import SearchParameters, tune_search
from pipelines.search import index_files
from pipelines.search.index_files import IndexedSide

BLOCK_ROWS = 1 << 15  # stored vectors in memory at a time where a query is compared with all of them
SAMPLE_ROWS = cost_model.TUNING_QUERIES  # vectors that tune an index
MIN_SAMPLE_ROWS = 200  # for a k so large that the candidates of SAMPLE_ROWS take too much memory
MAX_CANDIDATES = 1 << 21  # in memory at a time
MAX_PROBES = 1 << 20  # lists, or steps in a graph, that FAISS keeps for a batch of queries: 40 MB


@dataclass(frozen=True)
class OpenIndex:
    """An index and its corpus. Each worker opens it; files are mapped into memory, which the processes of a host share."""

    side: IndexedSide
    device: str = "cpu"

    @property
    def corpus(self) -> Corpus:
        return self.side.corpus

    @cached_property
    def folder(self) -> str:
        """The local directory of the files."""
        return index_files.local_folder(self.side)

    @cached_property
    def index(self) -> FaissIndex:
        return faiss_index.open_file(f"{self.folder}/{self.side.file}", self.device)

    @cached_property
    def stored_ids(self) -> Ids:
        """(n,) ids in the order of the vectors: ascending within each increment of the corpus."""
        return index_files.read_ids(self.side, self.folder)

    @cached_property
    def id_order(self) -> Ids | None:
        """(n,) positions of the vectors by ascending id; None where they are stored in that order."""
        ids = self.stored_ids
        return None if (ids[1:] > ids[:-1]).all() else np.argsort(ids)

    @cached_property
    def ids(self) -> Ids:
        """(n,) ids, ascending."""
        return self.stored_ids if self.id_order is None else self.stored_ids[self.id_order]

    @cached_property
    def stored_vectors(self) -> Sequence[Vectors]:
        """The vectors of each shard, in the order of `stored_ids`."""
        return [index_files.map_vectors(self.folder, shard.name) for shard in self.corpus.shards]

    def gather(self, positions: Ids) -> Vectors:
        """Return the vectors (n, dim) at positions (n,) in `ids`."""
        rows = positions if self.id_order is None else self.id_order[positions]
        order = np.argsort(rows)  # reads follow the order of the files
        rows = rows[order]
        starts = bounds_of([len(array) for array in self.stored_vectors])
        bounds = np.searchsorted(rows, starts)
        ordered = np.empty((len(rows), self.corpus.dim), dtype=np.float16)
        for shard in np.flatnonzero(np.diff(bounds)).tolist():
            part = slice(bounds[shard], bounds[shard + 1])
            np.take(self.stored_vectors[shard], rows[part] - starts[shard], axis=0, out=ordered[part], mode="clip")  # "raise" would copy
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        return ordered.take(inverse, axis=0)  # take releases Python's lock, which an assignment does not

    def propose(self, queries: Vectors, effort: int, count: int) -> tuple[Ids, Similarities]:
        """Return candidate ids and their exact similarities (n, count) for queries (n, dim), in the order of the index, NaN for none."""
        candidate_ids = self.index.propose(queries, count, effort)
        return candidate_ids, score_candidates(queries, candidate_ids, self.ids, self.gather)

    def search(self, queries: Vectors, k: int, parameters: SearchParameters) -> tuple[Neighbours, int]:
        """Return the k nearest of queries (n, dim), and the number of queries that were searched exhaustively for lack of candidates."""
        step = max(1, min(MAX_CANDIDATES // parameters.candidates, MAX_PROBES // max(1, parameters.effort)))
        batches = (queries[start : start + step] for start in range(0, len(queries), step))
        candidates = (self.propose(batch, parameters.effort, parameters.candidates) for batch in batches)
        neighbours = stack_neighbours([empty_neighbours(0, k), *(select_nearest(*scored, k) for scored in candidates)])
        incomplete = np.flatnonzero(neighbours.is_neighbour.sum(axis=1) < min(k, len(self.ids)))
        if len(incomplete):
            exact = self.search_exhaustively(queries[incomplete], k)
            neighbours.ids[incomplete], neighbours.similarities[incomplete] = exact.ids, exact.similarities
        return neighbours, len(incomplete)

    def search_exhaustively(self, queries: Vectors, k: int) -> Neighbours:
        """Return the exact k nearest of queries (n, dim)."""
        query_block, neighbours = VectorBlock(np.arange(len(queries)), queries), empty_neighbours(len(queries), k)
        if not has_torch():
            for block in self._vector_blocks():
                neighbours = neighbours.merge(dense.search_block(query_block, block, k)[0])
            return neighbours
        from miner.search.exact import SearchOptions, search_forward

        for block in self._vector_blocks():
            neighbours = search_forward(query_block, block, neighbours, SearchOptions(self.device))
        return neighbours

    def tune(self, queries: Vectors, k: int, target_recall: float, own_ids: Ids | None = None) -> SearchParameters:
        """Return the parameters that reach the target recall@k for queries (n, dim).

        `own_ids` are the ids of queries that are in the index themselves: a sentence is not its own neighbour.
        """
        sample_rows = max(MIN_SAMPLE_ROWS, SAMPLE_ROWS * 16 // k)
        queries, own_ids = queries[:sample_rows], None if own_ids is None else own_ids[:sample_rows]
        true_neighbours = self.search_exhaustively(queries, k if own_ids is None else k + 1)
        if own_ids is not None:
            true_neighbours = true_neighbours.without_self(own_ids)

        def search_sample(effort: int, count: int) -> Similarities:
            candidate_ids, similarities = self.propose(queries, effort, count)
            return similarities if own_ids is None else np.where(candidate_ids == own_ids[:, None], np.nan, similarities)

        return tune_search(search_sample, true_neighbours, self.index.max_effort, target_recall)

    def _vector_blocks(self) -> Iterator[VectorBlock]:
        start = 0
        for array in self.stored_vectors:
            for row in range(0, len(array), BLOCK_ROWS):
                vectors = np.asarray(array[row : row + BLOCK_ROWS])
                yield VectorBlock(self.stored_ids[start + row : start + row + len(vectors)], vectors)
            start += len(array)


def draw_sample(corpus: Corpus, count: int, seed: int) -> tuple[Ids, Vectors]:
    """Return ids and vectors of `count` random sentences, or of all if there are fewer; independent of the sharding."""
    rows = np.sort(np.random.default_rng(seed).choice(corpus.rows, min(count, corpus.rows), replace=False))
    sampled_ids, sampled_vectors, start = [np.zeros(0, np.int64)], [np.zeros((0, corpus.dim), np.float16)], 0
    for shard in corpus.shards:
        for ids, vectors in corpus.vectors(shard.name):
            group_rows = rows[slice(*np.searchsorted(rows, [start, start + len(ids)]))] - start
            sampled_ids.append(ids[group_rows])
            sampled_vectors.append(vectors[group_rows])
            start += len(ids)
    return np.concatenate(sampled_ids), np.concatenate(sampled_vectors)
