"""One side of a search on its device: the vectors of a block, and the neighbours of each so far."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from miner.devices import read_ahead
from miner.search.neighbours import Neighbours, VectorBlock
from miner.search.precision import Tile
from miner.search.principal_axes import PrincipalAxes

UPLOAD_BYTES = 64 << 20  # of page-locked memory, through which a block is copied to a GPU


TileKey = tuple[str, int, PrincipalAxes | None]  # precision, rows of a tile, axes


@dataclass(frozen=True)
class DeviceBlock:
    """A `VectorBlock` as tensors of a device: ids (n,) int64 and vectors (n, dim) float16. It keeps its tiles for the next search."""

    ids: Tensor
    vectors: Tensor
    tiles: dict[TileKey, list[Tile]] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + self.vectors.nbytes


@dataclass(frozen=True)
class DeviceNeighbours:
    """`Neighbours` as tensors of a device."""

    ids: Tensor  # (n, k) int64
    similarities: Tensor  # (n, k) float64

    @classmethod
    def upload(cls, neighbours: Neighbours, device: torch.device) -> "DeviceNeighbours":
        """Copy neighbours to a device; on a CPU they share their memory."""
        return cls(_to_tensor(neighbours.ids).to(device), _to_tensor(neighbours.similarities).to(device))

    @classmethod
    def empty(cls, num_rows: int, k: int, device: torch.device) -> "DeviceNeighbours":
        """Return the neighbours of `num_rows` sentences before any search."""
        ids = torch.full((num_rows, k), -1, device=device)
        return cls(ids, torch.full((num_rows, k), torch.nan, dtype=torch.float64, device=device))

    def download(self) -> Neighbours:
        """Copy the neighbours to the memory of the CPU."""
        return Neighbours(self.ids.cpu().numpy(), self.similarities.cpu().numpy())

    @property
    def k(self) -> int:
        return int(self.ids.shape[1])

    def take(self, rows: Tensor) -> "DeviceNeighbours":
        """Return the neighbours of these rows."""
        return DeviceNeighbours(self.ids[rows], self.similarities[rows])

    def put(self, rows: Tensor, others: "DeviceNeighbours") -> None:
        """Replace the neighbours of these rows."""
        self.ids[rows], self.similarities[rows] = others.ids, others.similarities

    def merge(self, ids: Tensor, similarities: Tensor) -> "DeviceNeighbours":
        """Return the k nearest of these neighbours and of candidates (n, c), whose similarity is NaN where there is none."""
        ids, order = torch.cat([self.ids, ids], dim=1).sort(dim=1, stable=True)
        similarities = torch.cat([self.similarities, similarities], dim=1).gather(1, order)
        distances = 0 - similarities  # sorts NaN last, and makes -0 and 0 one value
        order = distances.sort(dim=1, stable=True).indices[:, : self.k]
        ids, similarities = ids.gather(1, order), similarities.gather(1, order)
        return DeviceNeighbours(ids.masked_fill_(similarities.isnan(), -1), similarities)


@dataclass
class SearchSide:
    """The vectors of one side, and their nearest neighbours so far, which a search replaces."""

    block: DeviceBlock
    neighbours: DeviceNeighbours


def device_blocks(blocks: Iterable[VectorBlock], device: torch.device) -> Iterator[DeviceBlock]:
    """Yield blocks on their device. For a GPU, the next one is read and copied while the caller works on this one."""
    if device.type == "cpu":
        for block in blocks:
            yield DeviceBlock(_to_tensor(block.ids), _to_tensor(block.vectors))
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    for copied in read_ahead(_copy(block, device, stream) for block in blocks):
        for tensor in (copied.ids, copied.vectors):  # their memory is of `stream`, which must not reuse it before the search has ended
            tensor.record_stream(torch.cuda.current_stream(device))
        yield copied


def _copy(block: VectorBlock, device: torch.device, stream: "torch.cuda.Stream") -> DeviceBlock:
    with torch.cuda.stream(stream):
        vectors = torch.empty(block.vectors.shape, dtype=torch.float16, device=device)
        step = max(1, UPLOAD_BYTES // max(1, vectors.shape[1] * vectors.element_size()))
        for start in range(0, len(vectors), step):
            part = _to_tensor(block.vectors[start : start + step]).pin_memory()
            vectors[start : start + step].copy_(part, non_blocking=True)
        ids = _to_tensor(block.ids).to(device)
        stream.synchronize()
    return DeviceBlock(ids, vectors)


def _to_tensor(array: np.ndarray) -> Tensor:
    # Arrow's buffers are read-only, which torch warns about, so they are copied.
    return torch.from_numpy(np.require(array, requirements="W"))
