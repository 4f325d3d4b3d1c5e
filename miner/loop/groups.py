"""Groups of sentences that say the same, through the pairs that link them: en-de and en-fr meet at one English sentence."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CONTRADICTED = -1


def link(first: Ints, second: Ints, langs: Ints, strengths: npt.NDArray[np.float64]) -> Ints:
    """m pairs of sentences -> (m,) the group of each pair, numbered from 0, or CONTRADICTED.

    `first` and `second` (m,) are numbers of sentences, `langs` (n,) their languages. The strongest pairs link first, and a pair that
    would bring two sentences of one language into a group is contradicted by stronger ones: it links nothing.
    """
    parent = list(range(len(langs)))
    members = {node: {int(lang): node} for node, lang in enumerate(langs)}  # root -> language -> sentence

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    linked = np.zeros(len(first), dtype=bool)
    for at in np.argsort(-strengths, kind="stable"):
        one, other = root(int(first[at])), root(int(second[at]))
        if one != other:
            small, large = sorted((one, other), key=lambda node: len(members[node]))
            if members[small].keys() & members[large].keys():
                continue
            members[large] |= members.pop(small)
            parent[small] = large
        linked[at] = True
    roots = np.array([root(int(node)) for node in first], dtype=np.int64)
    groups = np.full(len(first), CONTRADICTED, dtype=np.int64)
    groups[linked] = np.unique(roots[linked], return_inverse=True)[1]
    return groups


def held_out(groups: Ints, ids: Ints, share: float, seed: int) -> Bools:
    """(m,) groups of pairs and an id (m,) of each pair -> (m,) whether it is kept for validation: all pairs of groups drawn at random.

    Drawn from all groups alike, whatever their margins: the best pairs alone would be the easiest. What is drawn follows from the
    ids, which are hashes of sentences, so that a group that is found again in the next round is held out again, and never learnt.
    """
    linked = groups != CONTRADICTED
    known, places = np.unique(groups[linked], return_inverse=True)
    lots = ids[linked].view(np.uint64) ^ np.random.default_rng(seed).integers(1 << 64, dtype=np.uint64)
    least = np.full(len(known), np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(least, places, lots)
    drawn = known[np.argsort(least, kind="stable")[: int(share * len(known))]]
    kept: Bools = np.isin(groups, drawn)
    return kept


def touching(held: Bools, columns: Sequence[Ints]) -> Bools:
    """(m,): pairs that share a sentence with a pair that is held out, that pair included; columns (m,) are the pairs' sentences."""
    nodes = np.concatenate([column[held] for column in columns])
    found: Bools = np.any([np.isin(column, nodes) for column in columns], axis=0)
    return found
