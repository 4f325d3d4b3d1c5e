"""Estimate the time of both engines for a search, from a trial with vectors of its corpora as far as it can change the choice."""

import math
from dataclasses import dataclass, replace

import numpy as np

from miner.arrays import Vectors
from miner.devices import CPU, available_cores, has_torch
from miner.io.corpus import Corpus
from miner.search import cost_model, dense
from miner.search.cost_model import SearchCosts, SearchEstimate, SearchWorkload
from pipelines.search.exact import FirstPairs, SearchRequest

MIN_TRIAL_SECONDS = 40.0  # of the faster engine as expected, below which the trial would take a large part of it
LONG_SECONDS = 200.0  # of exact search as expected, from which a larger tile is timed
CLEAR_RATIO = 2.5  # of expected times, from which no trial is needed
TOLERANCE = 0.25  # by which an estimate may be exceeded


@dataclass(frozen=True)
class EngineTrial:
    """A search, and where it runs."""

    search: SearchRequest
    target_recall: float
    has_index: tuple[bool, bool]
    cores: int  # of a worker
    searched_share: float = 0.0  # of the pairs of vectors, whose neighbours exact search need not compute again

    @property
    def workload(self) -> SearchWorkload:
        return SearchWorkload((self.search.source.rows, self.search.target.rows), self.search.source.dim, self.search.k, self.target_recall)

    def estimate(self) -> SearchEstimate:
        """Return the time of both engines: exact search is timed first, FAISS if it may be faster."""
        rows, dim = self.workload.rows, self.workload.dim
        if dense.is_small(*rows, dim):  # without torch, whose import takes longer than such a search
            return self._seconds(cost_model.expected_costs(self.workload, self.cores, max(rows)))
        costs = self._expected_costs()
        seconds = self._seconds(costs)
        if not has_torch() or min(seconds.exact, seconds.faiss) < MIN_TRIAL_SECONDS or CLEAR_RATIO * seconds.exact < seconds.faiss:
            return seconds
        from miner.search import trials

        block_rows = costs.exact.block_rows
        tile_rows = block_rows // (2 if seconds.exact >= LONG_SECONDS else 4)
        num_vectors = max(tile_rows, trials.INDEX_ROWS)
        source, target = (_leading_vectors(corpus, num_vectors) for corpus in (self.search.source, self.search.target))
        scale = available_cores() / self.cores
        measured = SearchCosts(trials.measure_exact(source[:tile_rows], target[:tile_rows], self.workload.k, block_rows), costs.faiss)
        costs = SearchCosts(measured.scale(scale).exact, costs.faiss)
        seconds = self._seconds(costs)
        if CLEAR_RATIO * seconds.exact < seconds.faiss or min(rows) <= cost_model.MAX_FLAT_ROWS:
            return seconds
        larger, other = (target, source) if len(target) >= len(source) else (source, target)
        return self._seconds(replace(measured, faiss=trials.measure_faiss(larger, other, self.workload)).scale(scale))

    def correct(self, seconds: SearchEstimate, first: FirstPairs | None) -> SearchEstimate:
        """Return the estimate with the time that exact search still takes, if its first pairs took longer than expected by TOLERANCE."""
        if first is None or first.seconds <= (1 + TOLERANCE) * first.share * seconds.exact:
            return seconds
        return replace(seconds, exact=first.seconds / first.share * (1 - first.share))

    def describe(self, seconds: SearchEstimate) -> str:
        """Return the reason for the choice."""
        rows, dim = self.workload.rows, self.workload.dim
        sizes = f"{rows[0]:,} x {rows[1]:,} vectors x {dim} dimensions"
        return f"{sizes} by exact search in about {seconds.exact:.0f} s, by FAISS at recall {self.target_recall:g} in {seconds.faiss:.0f} s"

    def _seconds(self, costs: SearchCosts) -> SearchEstimate:
        seconds = cost_model.estimate_search(self.workload, costs, self.has_index)
        return replace(seconds, exact=seconds.exact * (1 - self.searched_share))

    def _expected_costs(self) -> SearchCosts:
        """Return the costs that follow from the speed of products, which is measured if torch is installed."""
        if not has_torch():
            pair = cost_model.DENSE_SECONDS / cost_model.SCAN_FACTOR * self.workload.dim / cost_model.REFERENCE_DIM
            return cost_model.expected_costs(self.workload, self.cores, max(self.workload.rows), pair)
        import torch

        from miner.search.blocks import default_block_bytes
        from miner.search.precision import MAX_PROBE_DIM, rank_precisions

        device, dim = torch.device(CPU), self.workload.dim
        seconds = rank_precisions(device, dim)
        scale = dim / min(dim, MAX_PROBE_DIM)
        block_rows = (self.search.block_bytes or default_block_bytes(device)) // (2 * dim)
        return cost_model.expected_costs(
            self.workload, self.cores, block_rows, scale * next(iter(seconds.values())), scale * seconds["float32"]
        )


def _leading_vectors(corpus: Corpus, count: int) -> Vectors:
    """Return about `count` vectors (n, dim): the first of every shard. Ids are hashes, so that these are random sentences."""
    shards = [shard for shard in corpus.shards if shard.rows]
    parts = [np.zeros((0, corpus.dim), np.float16)]
    for shard in shards:
        num_missing = min(shard.rows, math.ceil(count / len(shards)))
        for _, vectors in corpus.vectors(shard.name):
            parts.append(vectors[:num_missing])
            num_missing -= len(parts[-1])
            if num_missing <= 0:
                break
    return np.concatenate(parts)
