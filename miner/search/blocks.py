"""Search two sides that are read in blocks: every block of one side with every block of the other, so that memory is bounded.

As many source blocks as fit stay in memory while all target blocks are read once.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from miner.devices import free_memory
from miner.search.device_side import DeviceBlock, DeviceNeighbours, SearchSide, device_blocks
from miner.search.exact import SearchOptions, search_sides
from miner.search.neighbours import Neighbours, stack_neighbours
from miner.search.readers import ShardReader, collect_blocks

CPU_BLOCK_BYTES = 32 << 20  # of the vectors of one side that are in memory at a time
MAX_GPU_BLOCK_BYTES = 2 << 30
BLOCK_SHARE = 1 / 16  # of the free memory of a GPU, for one block: both sides, the block that is read meanwhile, and their candidates
CACHE_SHARE = 1 / 4  # of it, for the blocks of the shards that were read last
RESIDENT_SHARE = 1 / 8  # of it, for the source blocks that stay there
CPU_RESIDENT_SHARE = 1 / 6  # of the free memory of a core; with their tiles in 8 bits, the blocks take half as much again
MAX_RESIDENT_BYTES = 4 << 30


def default_block_bytes(device: torch.device) -> int:
    """Return the bytes of the vectors of one side that are searched at a time on this device."""
    return CPU_BLOCK_BYTES if device.type == "cpu" else min(MAX_GPU_BLOCK_BYTES, int(BLOCK_SHARE * free_memory(device)))


def default_resident_bytes(device: torch.device) -> int:
    """Return the bytes of source vectors that stay on this device while the targets are read."""
    share = CPU_RESIDENT_SHARE if device.type == "cpu" else RESIDENT_SHARE
    return min(MAX_RESIDENT_BYTES, int(share * free_memory(device)))


@dataclass
class BlockCache:
    """Reads shards in blocks, and keeps those that were read last on the device, as far as they fit: a GPU is faster than a disk."""

    device: torch.device
    block_bytes: int
    cache_bytes: int = 0
    resident_bytes: int = 0  # of source vectors; at least one block is resident
    options: SearchOptions | None = None  # of the last search, with the arithmetic that it chose
    shards: OrderedDict[Hashable, list[DeviceBlock]] = field(default_factory=OrderedDict)

    @classmethod
    def of(cls, device: torch.device, block_bytes: int | None = None) -> "BlockCache":
        """Return a cache for this device; `block_bytes` are chosen by its free memory unless stated. On a CPU nothing is kept."""
        cache_bytes = 0 if device.type == "cpu" else int(CACHE_SHARE * free_memory(device))
        return cls(device, block_bytes or default_block_bytes(device), cache_bytes, default_resident_bytes(device))

    def blocks(self, shard: ShardReader) -> Iterator[DeviceBlock]:
        """Yield the blocks of a shard, in order."""
        if shard.name in self.shards:
            self.shards.move_to_end(shard.name)
            yield from self.shards[shard.name]
            return
        kept, num_bytes = list[DeviceBlock](), 0
        for block in device_blocks(collect_blocks(shard.read(), shard.dim, self.block_bytes), self.device):
            num_bytes += block.nbytes
            kept = [*kept, block] if num_bytes <= self.cache_bytes else []
            yield block
        if num_bytes <= self.cache_bytes:
            while self.shards and num_bytes + self._used_bytes() > self.cache_bytes:
                self.shards.popitem(last=False)
            self.shards[shard.name] = kept

    def _used_bytes(self) -> int:
        return sum(block.nbytes for blocks in self.shards.values() for block in blocks)


def search_shards(
    sources: Sequence[ShardReader], targets: Sequence[ShardReader], k: int, cache: BlockCache, report: Callable[[int], object]
) -> tuple[list[Neighbours], list[Neighbours]]:
    """Return the k nearest among all targets of each source shard, and the reverse, in the order in which vectors are read.

    The targets are read once for every `cache.resident_bytes` of the sources. `report` is called with the number of pairs of vectors that a
    pair of blocks adds.
    """
    options, forward = cache.options or SearchOptions(str(cache.device)), [list[Neighbours]() for _ in sources]
    backward = [list[DeviceNeighbours]() for _ in targets]
    for residents in _resident_blocks(sources, k, cache):
        for target, target_neighbours in zip(targets, backward, strict=True):
            for number, block in enumerate(cache.blocks(target)):
                if number == len(target_neighbours):
                    target_neighbours.append(DeviceNeighbours.empty(len(block), k, cache.device))
                keys = SearchSide(block, target_neighbours[number])
                for _, queries in residents:
                    options = search_sides(queries, keys, options)
                    report(len(queries.block) * len(block))
                target_neighbours[number] = keys.neighbours
        for shard, queries in residents:
            forward[shard].append(queries.neighbours.download())
    cache.options = options
    return [stack_neighbours(parts) for parts in forward], [stack_neighbours(part.download() for part in parts) for parts in backward]


def _resident_blocks(sources: Sequence[ShardReader], k: int, cache: BlockCache) -> Iterator[list[tuple[int, SearchSide]]]:
    """Yield the blocks of shards, with the number of each block's shard, as many at a time as are resident. Each list is cleared."""
    residents, num_bytes = list[tuple[int, SearchSide]](), 0
    for number, source in enumerate(sources):
        for block in cache.blocks(source):
            if residents and num_bytes + block.nbytes > cache.resident_bytes:
                yield residents
                residents.clear()
                num_bytes = 0
            residents.append((number, SearchSide(block, DeviceNeighbours.empty(len(block), k, cache.device))))
            num_bytes += block.nbytes
    yield residents
