"""What exact search is compared with: float32 products, and searches by FAISS whose blocks are chosen for this machine."""

import time
from collections.abc import Callable

import numpy as np
import torch

SearchResult = tuple[np.ndarray, np.ndarray]  # similarities (n, k) and positions (n, k)

FAISS_BLOCKS = ((4096, 1024), (1024, 1024), (1024, 4096), (512, 16384))  # queries and keys of a product; the first ones are its own
TRIAL_QUERIES = 4096  # by which blocks are chosen
PRODUCT_ROWS = 4096
ROUNDS = 5


def product_rates(dim: int) -> dict[str, float]:
    """Return the FLOP/s of float32 products (4096, dim) x (dim, 4096) by library, with all threads: the fastest of some."""
    left = np.random.default_rng(0).standard_normal((PRODUCT_ROWS, dim), dtype=np.float32)
    out = np.empty((PRODUCT_ROWS, PRODUCT_ROWS), dtype=np.float32)
    tensors = torch.from_numpy(left), torch.from_numpy(out)
    products = {"numpy": lambda: np.matmul(left, left.T, out=out), "torch": lambda: torch.mm(tensors[0], tensors[0].T, out=tensors[1])}
    return {name: 2 * PRODUCT_ROWS**2 * dim / min(seconds(product) for _ in range(ROUNDS)) for name, product in products.items()}


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def two_searches(x: np.ndarray, y: np.ndarray, k: int, device: str) -> Callable[[], tuple[SearchResult, SearchResult]]:
    """Return a function that searches once per direction, by FAISS where it is installed for this device."""
    try:
        import faiss
    except ImportError:
        return lambda: (by_torch(x, y, k, device), by_torch(y, x, k, device))
    x, y = x.astype(np.float32), y.astype(np.float32)
    if device == "cpu":
        choose_faiss_blocks(x, y, k)
        return lambda: tuple(faiss.knn(one, other, k, metric=faiss.METRIC_INNER_PRODUCT) for one, other in ((x, y), (y, x)))
    if not hasattr(faiss, "StandardGpuResources"):
        return lambda: (by_torch(x, y, k, device), by_torch(y, x, k, device))
    memory = faiss.StandardGpuResources()
    return lambda: tuple(faiss.knn_gpu(memory, one, other, k, metric=faiss.METRIC_INNER_PRODUCT) for one, other in ((x, y), (y, x)))


def choose_faiss_blocks(x: np.ndarray, y: np.ndarray, k: int) -> None:
    """Set FAISS to the fastest of FAISS_BLOCKS on this machine."""
    import faiss

    def search(blocks: tuple[int, int]) -> float:
        faiss.cvar.distance_compute_blas_query_bs, faiss.cvar.distance_compute_blas_database_bs = blocks
        return seconds(lambda: faiss.knn(x[:TRIAL_QUERIES], y, k, metric=faiss.METRIC_INNER_PRODUCT))

    best = min(FAISS_BLOCKS, key=search)
    faiss.cvar.distance_compute_blas_query_bs, faiss.cvar.distance_compute_blas_database_bs = best


def by_torch(x: np.ndarray, y: np.ndarray, k: int, device: str, tile: int = 8192) -> SearchResult:
    """Search as FAISS does: float32 products of tiles of queries and keys, and the best of each row."""
    queries, keys = (torch.from_numpy(side).to(device).float() for side in (x, y))
    values, places = [], []
    for top in range(0, len(queries), tile):
        best = torch.full((min(tile, len(queries) - top), k), -torch.inf, device=device)
        where = torch.zeros_like(best, dtype=torch.int64)
        for start in range(0, len(keys), 4 * tile):
            found, order = (queries[top : top + tile] @ keys[start : start + 4 * tile].T).topk(k, dim=1)
            best, kept = torch.cat([best, found], 1).topk(k, dim=1)
            where = torch.cat([where, order + start], 1).gather(1, kept)
        values.append(best.cpu())
        places.append(where.cpu())
    return torch.cat(values).numpy(), torch.cat(places).numpy()
