"""Search two sides that are read in blocks: every block of one side with every block of the other, so that memory is bounded."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from miner.search.exact import SearchOptions, search_block
from miner.search.neighbours import Ids, Neighbours, VectorBlock, empty_neighbours, stack_neighbours

RowGroup = tuple[Ids, npt.NDArray[np.float16]]  # ids (n,) ascending, vectors (n, dim)
ReadBlocks = Callable[[], Iterable[VectorBlock]]


def search_blocks(
    read_sources: ReadBlocks, read_targets: ReadBlocks, k: int, options: SearchOptions, report: Callable[[int], object]
) -> tuple[Neighbours, Neighbours]:
    """Return the k nearest targets of every source and the k nearest sources of every target, in the order in which they are read.

    The targets are read once per block of the sources. `report` is called with the number of pairs that a block adds.
    """
    forward, backward = list[Neighbours](), list[Neighbours]()
    for source in read_sources():
        neighbours = empty_neighbours(len(source.ids), k)
        for number, target in enumerate(read_targets()):
            if number == len(backward):
                backward.append(empty_neighbours(len(target.ids), k))
            neighbours, backward[number] = search_block(source, target, k, options, (neighbours, backward[number]))
            report(len(source.ids) * len(target.ids))
        forward.append(neighbours)
    return stack_neighbours(forward), stack_neighbours(backward)


def collect_blocks(groups: Iterable[RowGroup], dim: int, block_bytes: int) -> Iterator[VectorBlock]:
    """Yield row groups in blocks of about `block_bytes` of vectors; one empty block where there are no rows."""
    pending = list[RowGroup]()
    is_empty = True
    for group in groups:
        pending.append(group)
        if sum(vectors.nbytes for _, vectors in pending) >= block_bytes:
            block, pending, is_empty = _concatenate(pending), [], False
            yield block  # while the caller works on it, nothing else is in memory
    if pending or is_empty:
        empty = (np.zeros(0, dtype=np.int64), np.zeros((0, dim), dtype=np.float16))
        block, pending = _concatenate(pending or [empty]), []
        yield block


def _concatenate(groups: list[RowGroup]) -> VectorBlock:
    return VectorBlock(np.concatenate([ids for ids, _ in groups]), np.concatenate([vectors for _, vectors in groups]))
