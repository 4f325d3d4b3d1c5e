"""FAISS behind one door: this is the only module that imports it, and only when an index is asked for."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from miner.errors import ConfigError
from miner.search.neighbours import Ids

FACTORIES = ("Flat",)


def check(factory: str) -> None:
    """ConfigError for an index that cannot be built here."""
    if factory not in FACTORIES:
        raise ConfigError(f"unknown --factory {factory!r}; one of {', '.join(FACTORIES)}")
    _faiss()


def build(vectors: Iterable[tuple[Ids, npt.NDArray[np.float16]]], dim: int, factory: str = "Flat") -> Any:
    """A stream of ids (n,) and vectors (n, dim) -> a FAISS index by inner product that answers with these ids."""
    faiss = _faiss()
    index = faiss.IndexIDMap2(faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT))
    for ids, rows in vectors:
        index.add_with_ids(rows.astype(np.float32), ids)
    return index


def dump(index: Any) -> npt.NDArray[np.uint8]:
    """The bytes of a FAISS file, which `faiss.read_index` reads as well as `load`."""
    data: npt.NDArray[np.uint8] = _faiss().serialize_index(index)
    return data


def load(data: npt.NDArray[np.uint8]) -> Any:
    return _faiss().deserialize_index(data)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise ConfigError("an index needs FAISS: pip install 'bitext-miner[cpu]' (or [gpu]); `miner mine` works without") from error
    return faiss
