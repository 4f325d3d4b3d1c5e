"""Time both engines on a sample of the vectors of a search, with the arithmetic that it will use.

`miner.search.cost_model` extrapolates to all of them.
"""

import math
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import psutil
import torch

from miner.arrays import Vectors
from miner.devices import available_cores
from miner.search import cost_model, faiss_index
from miner.search.centroids import KMEANS_ITERATIONS, nearest_centroids, train_centroids
from miner.search.cost_model import CANDIDATES_PER_NEIGHBOUR, ExactCosts, FaissCosts, SearchWorkload
from miner.search.device_side import DeviceBlock, DeviceNeighbours, SearchSide
from miner.search.exact import choose_options, search_sides
from miner.search.rescoring import score_candidates

ROWS_DIVISOR = 4  # fewer vectors show what a vector costs than show what a pair costs
INDEX_ROWS, INDEX_QUERIES = 16_384, 1024
FEWER_DIVISOR = 4  # with so many times fewer vectors, the lists to probe show how they grow
MAX_GROWTH = 0.5  # that of the number of lists
CENTROIDS = 2048  # that vectors are compared with
SEED = 5


def idle_seconds(work: Callable[[], object]) -> float:
    """Return the seconds of `work` on this machine without other load: wall time, less the share of the processors that others took."""
    wall, processor, busy = time.perf_counter(), time.process_time(), _busy_seconds()
    work()
    wall, processor, busy = time.perf_counter() - wall, time.process_time() - processor, _busy_seconds() - busy
    others = max(0.0, busy - processor) / psutil.cpu_count()
    seconds: float = min(wall, max(processor / available_cores(), wall - others))
    return seconds


def _busy_seconds() -> float:
    """Return the seconds that all processors of the machine have worked."""
    times = psutil.cpu_times()
    return float(sum(getattr(times, kind, 0.0) for kind in ("user", "nice", "system", "irq", "softirq", "steal")))


def measure_exact(source: Vectors, target: Vectors, k: int, block_rows: int) -> ExactCosts:
    """Time exact search of vectors (n, dim) and (m, dim) on the CPU.

    What a pair costs is shown by a tile whose neighbours are known, so that there are no candidates: as late in a large search. What a
    vector costs is shown by a smaller search that is repeated, when the neighbours of the first limit the candidates of the second.
    """
    x, y = _side(source, k), _side(target, k)
    options = choose_options(x.block, y.block, k)
    for side in (x, y):
        side.neighbours.similarities.fill_(1.0)
    pair = idle_seconds(lambda: search_sides(x, y, options)) / (len(source) * len(target))
    num_sources, num_targets = (math.ceil(len(side) / ROWS_DIVISOR) for side in (source, target))
    x, y = _side(source[:num_sources], k), _side(target[:num_targets], k)
    search_sides(x, y, options)
    seconds = idle_seconds(lambda: search_sides(x, y, options))
    return ExactCosts(pair, max(0.0, seconds - pair * num_sources * num_targets) * 2 / (num_sources + num_targets), block_rows)


def _side(vectors: Vectors, k: int) -> SearchSide:
    block = DeviceBlock(torch.arange(len(vectors)), torch.from_numpy(np.require(vectors, requirements="W")))
    return SearchSide(block, DeviceNeighbours.empty(len(vectors), k, block.vectors.device))


def measure_faiss(keys: Vectors, queries: Vectors, workload: SearchWorkload) -> FaissCosts:
    """Time the steps of an index on keys (n, dim), INDEX_ROWS or more, that queries (m, dim) are searched in.

    The lists of the index that is timed are as long as those of the workload. How many of them have to be probed is shown by the lists that
    an index of n vectors would have: by the rank of those with the true neighbours. They grow with n as they do up to n.
    """
    keys, queries, dim = np.ascontiguousarray(keys[:INDEX_ROWS]), np.ascontiguousarray(queries[:INDEX_QUERIES]), keys.shape[1]
    rows = max(workload.rows)
    list_rows = max(1, min(len(keys) // 16, rows // cost_model.num_lists(rows)))
    lists, code = len(keys) // list_rows, cost_model.choose_factory(rows, dim, rows * dim * 4).partition(",")[2]
    centroids = np.ascontiguousarray(keys[:CENTROIDS].astype(np.float32).T)
    product = idle_seconds(lambda: nearest_centroids(keys, centroids, 1)) / (len(keys) * centroids.shape[1])
    trained = []
    training = idle_seconds(lambda: trained.append(faiss_index.train_index(f"IVF{lists},{code}", dim, keys, SEED)))
    ids = np.arange(len(keys))
    adding = idle_seconds(lambda: faiss_index.add_vectors(trained[0], ids, keys))
    index, count = faiss_index.optimise(trained[0]), CANDIDATES_PER_NEIGHBOUR * workload.k
    few, all_lists = (idle_seconds(partial(index.propose, queries, count, effort)) / len(queries) for effort in (lists // 4, lists))
    candidates = index.propose(queries, count, lists // 4)
    rescoring = idle_seconds(lambda: score_candidates(queries, candidates, ids, lambda positions: keys[positions]))
    probe = max(0.0, all_lists - few) / (lists - lists // 4)
    fewer_keys = max(1, len(keys) // FEWER_DIVISOR)
    probes, fewer_probes = (_probed_lists(part, queries, workload) for part in (keys, keys[:fewer_keys]))
    return FaissCosts(
        product=product,
        add=max(0.0, adding / len(keys) - product * lists),
        codes=max(0.0, training - product * KMEANS_ITERATIONS * lists * len(keys)),
        query=max(0.0, few - lists // 4 * probe - product * lists),
        probe=probe,
        list_rows=list_rows,
        candidate=rescoring / candidates.size,
        probes=probes,
        rows=len(keys),
        growth=min(MAX_GROWTH, max(0.0, math.log(probes / fewer_probes) / math.log(FEWER_DIVISOR))),
    )


def _probed_lists(keys: Vectors, queries: Vectors, workload: SearchWorkload) -> int:
    """Return how many lists of an index of these keys have to be probed to find the target share of the k nearest."""
    lists, k = cost_model.num_lists(len(keys)), min(workload.k, len(keys))
    centroids = np.ascontiguousarray(train_centroids(keys, lists, SEED).T)
    list_of_key = nearest_centroids(keys, centroids, 1)[1][:, 0]
    vectors = torch.from_numpy(queries).float()
    nearest = (vectors @ torch.from_numpy(keys).float().T).topk(k).indices.numpy()
    ranks = np.argsort(nearest_centroids(vectors.numpy(), centroids, lists)[1], axis=1)
    return 1 + int(np.quantile(np.take_along_axis(ranks, list_of_key[nearest], axis=1), workload.target_recall))
