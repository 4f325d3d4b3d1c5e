"""FAISS behind one door: this is the only module that imports it, and only when an index is asked for.

An index answers with sentence ids. It proposes; what it proposes is scored again from the stored vectors, so its own scores are
not even handed out.
"""

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from miner.errors import ConfigError, StorageError
from miner.search import centroids
from miner.search.neighbours import Ids

GPU_LIMIT = 2048  # the greatest k and nprobe there
LEAST_POINTS = 20_000  # a product quantiser of 256 words wants 10,000
EFFORTS = 4096  # the greatest efSearch that is tried

Vectors = npt.NDArray[np.float16]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Index:
    """A FAISS index by inner product, and the parameter by which it finds more in more time."""

    faiss: Any
    effort: str | None  # nprobe or efSearch; None where there is nothing to choose
    most: int  # the greatest effort that makes a difference
    device: str = "cpu"
    original: Any = None  # what `faiss` borrows its quantiser from
    centroids: Tensor | None = None  # (dim, lists) of an inverted file, where this finds the lists of a query

    def propose(self, queries: Vectors, count: int, effort: int) -> Ids:
        """Queries (n, dim) -> (n, count) ids of likely neighbours, best first as far as the index can tell; -1 for none."""
        if self.effort is not None:
            space = _faiss().ParameterSpace() if self.device == "cpu" else _faiss().GpuParameterSpace()
            space.set_index_parameter(self.faiss, self.effort, effort)
        most = min(count, self.faiss.ntotal, self.faiss.ntotal if self.device == "cpu" else GPU_LIMIT)
        given = queries.astype(np.float32)
        ids: Ids
        if self.centroids is None:
            ids = self.faiss.search(given, most)[1]
        else:
            similarities, lists = centroids.nearest(given, self.centroids, effort)
            ids = self.faiss.search_preassigned(given, most, lists, similarities)[1]
        return np.pad(ids, ((0, 0), (0, count - ids.shape[1])), constant_values=-1)


def require() -> None:
    """ConfigError where FAISS is not installed."""
    _faiss()


def available() -> bool:
    """Whether FAISS is installed."""
    try:
        _faiss()
    except ConfigError:
        return False
    return True


def training_rows(factory: str, dim: int) -> int:
    """How many vectors the index wants to be trained on; 0 for one that needs no training.

    ConfigError for an index that cannot be built here.
    """
    index = _empty(factory, dim)
    return 0 if index.is_trained else max(LEAST_POINTS, centroids.POINTS * _lists(index))


def train(factory: str, dim: int, sample: Vectors, seed: int) -> Any:
    """A trained and empty index. ConfigError where the sample (n, dim) is too small for it."""
    index = _empty(factory, dim)
    inverted = _inverted(index)
    if inverted is not None:
        inverted.cp.seed = seed
        if _four_bits(inverted):
            # Codes of the vectors themselves find more than codes of their distance to the centroid, and score sooner.
            inverted.by_residual = False
    if _compares_centroids(index) and len(sample) >= index.nlist:
        index.quantizer.add(centroids.train(sample, index.nlist, seed))
    if not index.is_trained:
        try:
            index.train(sample.astype(np.float32))
        except RuntimeError as error:
            raise ConfigError(
                f"--factory {factory}: cannot be trained on {len(sample):,} vectors ({_reason(error)}); give another"
            ) from error
    return index if _keeps_ids(index) else _faiss().IndexIDMap2(index)


def mergeable(trained: Any) -> bool:
    """Whether parts of this index, built apart, can be put together, with the same bytes each time."""
    # FAISS leaves the padding of merged fast-scan blocks as it finds it in memory.
    if "FastScan" in type(_innermost(trained)).__name__:
        return False
    one, other = load(dump(trained)), load(dump(trained))
    try:
        one.check_compatible_for_merge(other)
    except RuntimeError:
        return False
    return True


def add(index: Any, ids: Ids, vectors: Vectors) -> None:
    """Put vectors (n, dim) with their ids (n,) into an index; the same bytes each time."""
    faiss = _faiss()
    if _compares_centroids(index):
        given, ids = np.ascontiguousarray(vectors, dtype=np.float32), np.ascontiguousarray(ids, dtype=np.int64)
        lists = centroids.nearest(given, _centroids(index), 1)[1]
        index.add_core(len(ids), faiss.swig_ptr(given), faiss.swig_ptr(ids), faiss.swig_ptr(lists))
        return
    threads = faiss.omp_get_max_threads()
    if _is_graph(index):
        faiss.omp_set_num_threads(1)  # threads race when they link a graph
    try:
        index.add_with_ids(vectors.astype(np.float32), ids)
    finally:
        faiss.omp_set_num_threads(threads)


def merge(index: Any, other: Any) -> None:
    """Move what is in `other` into `index`; both come from one training, and every id stays."""
    index.merge_from(other, 0)


def dump(index: Any) -> npt.NDArray[np.uint8]:
    """The bytes of a FAISS file, which `faiss.read_index` reads as well as `load`."""
    data: npt.NDArray[np.uint8] = _faiss().serialize_index(index)
    return data


def load(data: npt.NDArray[np.uint8]) -> Any:
    return _faiss().deserialize_index(data)


def open_file(path: str, device: str = "cpu") -> Index:
    """The index in a local file, mapped into memory; on all GPUs where `device` is one and the index can be there.

    StorageError for a file that FAISS cannot read.
    """
    faiss = _faiss()
    try:
        index = faiss.read_index(path, faiss.IO_FLAG_MMAP)
    except RuntimeError as error:
        raise StorageError(f"{path}: not a whole FAISS file ({_reason(error)}); run `miner index` again") from error
    return _tuned_to(index, device)


def _tuned_to(index: Any, device: str) -> Index:
    """The index as it answers fastest here."""
    inverted = _inverted(index)
    if inverted is not None:
        effort, most = "nprobe", int(inverted.nlist)
    elif isinstance(_innermost(index), _faiss().IndexHNSW):
        effort, most = "efSearch", EFFORTS
    else:
        effort, most = None, 1
    if device != "cpu" and (moved := _on_gpus(index, device)) is not None:
        return Index(moved, effort, min(most, GPU_LIMIT), device)
    known = _centroids(index) if _compares_centroids(index) else None
    if inverted is not None and _four_bits(index):
        # The same codes, laid out so that they are compared in registers.
        return Index(_faiss().IndexIVFPQFastScan(index), effort, most, original=index, centroids=known)
    return Index(index, effort, most, centroids=known)


def _on_gpus(index: Any, device: str) -> Any | None:
    """The index in float16 on `cuda:N`, or shared out over all GPUs; None where FAISS has none, or cannot have this index there."""
    faiss = _faiss()
    if not gpus():
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


def gpus() -> int:
    """How many GPUs FAISS can use."""
    return int(getattr(_faiss(), "get_num_gpus", lambda: 0)()) if available() else 0


def _empty(factory: str, dim: int) -> Any:
    faiss = _faiss()
    try:
        return faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise ConfigError(
            f"--factory {factory!r}: FAISS makes no such index of {dim} dimensions ({_reason(error)});"
            " give auto, or one like Flat, IVF1024,Flat, IVF4096,PQ64x4 or HNSW32"
        ) from error


def _keeps_ids(index: Any) -> bool:
    """Whether the index remembers ids of 64 bits by itself."""
    faiss = _faiss()
    inside = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexPreTransform) else index
    return isinstance(inside, faiss.IndexIVF | faiss.IndexIDMap)


def _innermost(index: Any) -> Any:
    """The index inside of what only wraps it."""
    faiss = _faiss()
    while isinstance(index, faiss.IndexIDMap | faiss.IndexPreTransform | faiss.IndexRefine):
        index = faiss.downcast_index(index.base_index if isinstance(index, faiss.IndexRefine) else index.index)
    return index


def _is_graph(index: Any) -> bool:
    return isinstance(_innermost(index), _faiss().IndexHNSW | _faiss().IndexNSG)


def _inverted(index: Any) -> Any | None:
    """The inverted file inside, if there is one."""
    inside = _innermost(index)
    return inside if isinstance(inside, _faiss().IndexIVF) else None


def _lists(index: Any) -> int:
    inverted = _inverted(index)
    return int(inverted.nlist) if inverted is not None else 0


def _compares_centroids(index: Any) -> bool:
    """Whether this is an inverted file whose lists can be found outside of it: it compares a vector with every centroid."""
    faiss = _faiss()
    kinds = (faiss.IndexIVFFlat, faiss.IndexIVFPQ, faiss.IndexIVFScalarQuantizer)  # the others add in ways of their own
    return type(index) in kinds and isinstance(faiss.downcast_index(index.quantizer), faiss.IndexFlat)


def _centroids(index: Any) -> Tensor:
    """(dim, lists) float32"""
    return torch.from_numpy(index.quantizer.reconstruct_n(0, index.nlist)).T.contiguous()


def _four_bits(index: Any) -> bool:
    """Whether this is an inverted file of product codes that fast scan takes."""
    return isinstance(index, _faiss().IndexIVFPQ) and index.pq.nbits == 4


def _reason(error: Exception) -> str:
    """What FAISS says is wrong, without where in its code."""
    said = str(error).splitlines()[0].partition("Error: ")[2]
    return (said.partition("failed: ")[2] or said).strip()[:160] or "not its language"


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise ConfigError(
            "an index needs FAISS: pip install 'bitext-miner[cpu]' (or [gpu]); `miner mine --engine exact` works without"
        ) from error
    return faiss
