"""The only module that imports FAISS, and only when an index is used.

An index returns sentence ids. Its candidates are rescored from the stored vectors, so its own scores are not returned.
"""

import logging
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from miner.arrays import Floats32, Ids, Vectors
from miner.errors import ConfigError, DamagedError, require
from miner.search.centroids import POINTS_PER_LIST, nearest_centroids, train_centroids

GPU_LIMIT = 2048  # largest k and nprobe of faiss-gpu
MIN_TRAINING_ROWS = 20_000  # a product quantiser of 256 centroids needs 10,000
MAX_EF_SEARCH = 4096  # largest efSearch that tuning tries


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FaissIndex:
    """A FAISS index by inner product, and the parameter that trades time for recall."""

    index: Any
    effort_name: str | None  # nprobe or efSearch; None where there is no such parameter
    max_effort: int  # a larger effort makes no difference
    device: str = "cpu"
    quantizer_owner: Any = None  # keeps alive the index whose quantizer `index` uses
    centroids: Floats32 | None = None  # (dim, lists), where the lists of a query are found outside FAISS

    def propose(self, queries: Vectors, count: int, effort: int) -> Ids:
        """Return ids (n, count) of likely neighbours of queries (n, dim), best first by the codes of the index; -1 for none."""
        if self.effort_name is not None:
            space = _faiss().ParameterSpace() if self.device == "cpu" else _faiss().GpuParameterSpace()
            space.set_index_parameter(self.index, self.effort_name, effort)
        max_count = min(count, self.index.ntotal, self.index.ntotal if self.device == "cpu" else GPU_LIMIT)
        queries32 = queries.astype(np.float32)
        ids: Ids
        if self.centroids is None:
            ids = self.index.search(queries32, max_count)[1]
        else:
            similarities, lists = nearest_centroids(queries32, self.centroids, effort)
            ids = self.index.search_preassigned(queries32, max_count, lists, similarities)[1]
        return np.pad(ids, ((0, 0), (0, count - ids.shape[1])), constant_values=-1)


def require_faiss() -> None:
    """Raise ConfigError if FAISS is not installed."""
    _faiss()


def is_available() -> bool:
    """Return whether FAISS is installed, without importing it: most runs are small, and search exactly."""
    return find_spec("faiss") is not None


def num_training_rows(factory: str, dim: int) -> int:
    """Return the number of vectors that the index should be trained on; 0 for one that needs no training.

    Raises ConfigError for an index that FAISS cannot build here.
    """
    index = _empty_index(factory, dim)
    return 0 if index.is_trained else max(MIN_TRAINING_ROWS, POINTS_PER_LIST * _num_lists(index))


def train_index(factory: str, dim: int, sample: Vectors, seed: int) -> Any:
    """Return a trained, empty index. Raises ConfigError where the sample (n, dim) is too small for it."""
    index = _empty_index(factory, dim)
    inverted = _inverted_file(index)
    if inverted is not None:
        inverted.cp.seed = seed
        if _is_fast_scan_pq(inverted):
            # Codes of the vectors themselves reach a higher recall than codes of their residuals, and score faster.
            inverted.by_residual = False
            # Simulated annealing makes codes comparable by their bits, which no search here does. It takes 20 times as long as the codes.
            inverted.do_polysemous_training = False
    if _has_flat_quantizer(index) and len(sample) >= index.nlist:
        index.quantizer.add(train_centroids(sample, index.nlist, seed))
    if not index.is_trained:
        try:
            index.train(sample.astype(np.float32))
        except RuntimeError as error:
            raise ConfigError(
                f"--factory {factory}: cannot be trained on {len(sample):,} vectors ({_reason(error)}); give another"
            ) from error
    return index if _stores_ids(index) else _faiss().IndexIDMap2(index)


def is_mergeable(trained: Any) -> bool:
    """Return whether separately built parts of this index can be merged, and give the same bytes every time."""
    # FAISS leaves the padding of merged fast-scan blocks uninitialised.
    if "FastScan" in type(_innermost(trained)).__name__:
        return False
    first, second = load(dump(trained)), load(dump(trained))
    try:
        first.check_compatible_for_merge(second)
    except RuntimeError:
        return False
    return True


def add_vectors(index: Any, ids: Ids, vectors: Vectors) -> None:
    """Add vectors (n, dim) with ids (n,) to an index; deterministic to the byte."""
    faiss = _faiss()
    if _has_flat_quantizer(index):
        vectors32, ids = np.ascontiguousarray(vectors, dtype=np.float32), np.ascontiguousarray(ids, dtype=np.int64)
        lists = nearest_centroids(vectors32, _centroids(index), 1)[1]
        index.add_core(len(ids), faiss.swig_ptr(vectors32), faiss.swig_ptr(ids), faiss.swig_ptr(lists))
        return
    threads = faiss.omp_get_max_threads()
    if _is_graph(index):
        faiss.omp_set_num_threads(1)  # threads race when they link a graph
    try:
        index.add_with_ids(vectors.astype(np.float32), ids)
    finally:
        faiss.omp_set_num_threads(threads)


def merge_index(index: Any, part: Any) -> None:
    """Move the vectors of `part` into `index`; both have the same training, and ids are kept."""
    index.merge_from(part, 0)


def dump(index: Any) -> npt.NDArray[np.uint8]:
    """Return the bytes of a FAISS file, which `faiss.read_index` and `load` read."""
    data: npt.NDArray[np.uint8] = _faiss().serialize_index(index)
    return data


def load(data: npt.NDArray[np.uint8]) -> Any:
    """Return the index in the bytes of a FAISS file."""
    return _faiss().deserialize_index(data)


def open_file(path: str, device: str = "cpu") -> FaissIndex:
    """Map the index in a local file into memory; move it to the GPUs if `device` is one and FAISS supports the index there.

    Raises StorageError for a file that FAISS cannot read.
    """
    faiss = _faiss()
    try:
        index = faiss.read_index(path, faiss.IO_FLAG_MMAP)
    except RuntimeError as error:
        raise DamagedError(f"{path}: not a complete FAISS file ({_reason(error)}); run `miner index` again") from error
    return optimise(index, device)


def optimise(index: Any, device: str = "cpu") -> FaissIndex:
    """Return the index in the form that is fastest on this device."""
    inverted = _inverted_file(index)
    if inverted is not None:
        effort_name, max_effort = "nprobe", int(inverted.nlist)
    elif isinstance(_innermost(index), _faiss().IndexHNSW):
        effort_name, max_effort = "efSearch", MAX_EF_SEARCH
    else:
        effort_name, max_effort = None, 1
    if device != "cpu" and (gpu_index := _move_to_gpus(index, device)) is not None:
        return FaissIndex(gpu_index, effort_name, min(max_effort, GPU_LIMIT), device)
    centroids = _centroids(index) if _has_flat_quantizer(index) else None
    if inverted is not None and _is_fast_scan_pq(index):
        # The same codes in the layout that is compared in SIMD registers.
        return FaissIndex(_faiss().IndexIVFPQFastScan(index), effort_name, max_effort, quantizer_owner=index, centroids=centroids)
    return FaissIndex(index, effort_name, max_effort, centroids=centroids)


def _move_to_gpus(index: Any, device: str) -> Any | None:
    """Return the index in float16 on `cuda:N`, or sharded over all GPUs; None if FAISS has no GPU or does not support the index."""
    faiss = _faiss()
    if not num_gpus():
        return None
    try:
        if ":" in device:
            options = faiss.GpuClonerOptions()
            options.useFloat16 = True
            return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), int(device.partition(":")[2]), index, options)
        options = faiss.GpuMultipleClonerOptions()
        options.useFloat16, options.shard = True, True
        return faiss.index_cpu_to_all_gpus(index, options)
    except RuntimeError as error:
        logger.info("the index stays on the CPU: %s", _reason(error))
        return None


def has_gpu_search(factory: str) -> bool:
    """Whether FAISS can search an index with this factory string on a GPU: not graphs, codes for SIMD registers, or refined indexes."""
    return not any(part in factory for part in ("HNSW", "NSG", "fs", "RFlat", "Refine"))


def num_gpus() -> int:
    """Return the number of GPUs that FAISS can use."""
    return int(getattr(_faiss(), "get_num_gpus", lambda: 0)()) if is_available() else 0


def _empty_index(factory: str, dim: int) -> Any:
    faiss = _faiss()
    try:
        return faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise ConfigError(
            f"--factory {factory!r}: FAISS cannot build such an index of {dim} dimensions ({_reason(error)});"
            " give auto, or one like Flat, IVF1024,Flat, IVF4096,PQ64x4 or HNSW32"
        ) from error


def _stores_ids(index: Any) -> bool:
    """Return whether the index stores 64-bit ids by itself."""
    faiss = _faiss()
    inner = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexPreTransform) else index
    return isinstance(inner, faiss.IndexIVF | faiss.IndexIDMap)


def _innermost(index: Any) -> Any:
    """Return the index without its wrappers: id map, vector transform, refinement."""
    faiss = _faiss()
    while isinstance(index, faiss.IndexIDMap | faiss.IndexPreTransform | faiss.IndexRefine):
        index = faiss.downcast_index(index.base_index if isinstance(index, faiss.IndexRefine) else index.index)
    return index


def _is_graph(index: Any) -> bool:
    return isinstance(_innermost(index), _faiss().IndexHNSW | _faiss().IndexNSG)


def _inverted_file(index: Any) -> Any | None:
    """Return the inverted file inside the index, if there is one."""
    inner = _innermost(index)
    return inner if isinstance(inner, _faiss().IndexIVF) else None


def _num_lists(index: Any) -> int:
    inverted = _inverted_file(index)
    return int(inverted.nlist) if inverted is not None else 0


def _has_flat_quantizer(index: Any) -> bool:
    """Return whether this inverted file compares a vector with every centroid, so that its lists can be found outside FAISS."""
    faiss = _faiss()
    kinds = (faiss.IndexIVFFlat, faiss.IndexIVFPQ, faiss.IndexIVFScalarQuantizer)  # the other kinds add vectors differently
    return type(index) in kinds and isinstance(faiss.downcast_index(index.quantizer), faiss.IndexFlat)


def _centroids(index: Any) -> Floats32:
    """Return (dim, lists)."""
    return np.ascontiguousarray(index.quantizer.reconstruct_n(0, index.nlist).T)


def _is_fast_scan_pq(index: Any) -> bool:
    """Return whether this is an inverted file of 4-bit product codes, which fast scan supports."""
    return isinstance(index, _faiss().IndexIVFPQ) and index.pq.nbits == 4


def _reason(error: Exception) -> str:
    """Return FAISS's message without its source location."""
    message = str(error).splitlines()[0].partition("Error: ")[2]
    return (message.partition("failed: ")[2] or message).strip()[:160] or "not a factory string"


def _faiss() -> Any:
    return require("faiss", " (or [gpu]); `miner mine --engine exact` works without")
