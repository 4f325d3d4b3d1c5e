"""Train, dev and test splits that keep sentences together."""

import numpy as np
import numpy.typing as npt

from miner.arrays import Ids, connected_components
from miner.errors import ConfigError

SPLITS = ("train", "dev", "test")


def assign_splits(source_ids: Ids, target_ids: Ids, sizes: tuple[int, int], seed: int) -> npt.NDArray[np.int8]:
    """Return the split (n,) of n pairs: 0 train, 1 dev, 2 test. Memory: about 100 bytes per pair.

    Pairs that share a sentence, directly or through other pairs, are in one split. `sizes` are the numbers of pairs in dev and
    test; groups are added in random order, without those that no longer fit, so a split can be smaller. ConfigError if no
    pair is left to train on.
    """
    if sum(sizes) >= len(source_ids):
        raise ConfigError(f"--dev and --test take {sum(sizes):,} of {len(source_ids):,} pairs; leave some for training")
    # The connected component of each pair, sources and targets being the nodes.
    sources, rows = np.unique(source_ids, return_inverse=True)
    targets, columns = np.unique(target_ids, return_inverse=True)
    groups = connected_components(rows, columns + len(sources), len(sources) + len(targets))[rows]
    group_sizes = np.bincount(groups)
    order = np.random.default_rng(seed).permutation(len(group_sizes))
    group_splits = np.zeros(len(group_sizes), dtype=np.int8)
    for split, size in enumerate(sizes, start=1):
        group_splits[_fill(group_sizes, order[group_splits[order] == 0], size)] = split
    splits: npt.NDArray[np.int8] = group_splits[groups]
    return splits


def _fill(group_sizes: Ids, order: Ids, size: int) -> Ids:
    """Return groups that hold at most `size` pairs together: in this order, each that fits beside those before it."""
    chosen = [order[:0]]
    while len(order := order[group_sizes[order] <= size]):
        totals = np.cumsum(group_sizes[order])
        end = int(np.searchsorted(totals, size, side="right"))
        chosen.append(order[:end])
        order, size = order[end:], size - int(totals[end - 1])
    return np.concatenate(chosen)
