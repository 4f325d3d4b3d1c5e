"""Greedy one-to-one matching without walking down the list: as many rounds as the logarithm of its length, at worst.

Down a list of pairs, best first, a pair is taken when neither of its sentences is taken yet. Every pair on the list is the *own* pair of
its source or its target: the one that sentence put there, its best. So a sentence hangs on the other sentence of its own pair, as a child
on its parent, and the pairs of a sentence are its own and those of its children. Let a sentence be *ready* when it is still free as the
list comes to its own pair. Two things follow.

1. Of its children that are ready and whose pairs stand before its own, a sentence gets the first. So it is ready when there is no such
   child. These links lead up the list only, so they form a forest, and readiness is a NOR of what hangs below.
2. The pair of a child is taken when the child is ready, the first of the ready children, and the parent is not taken by its own pair
   before. So this depends on one other pair, further up the list, at most: a chain of NOTs.

Both are evaluated by pointer jumping, which halves a chain at each step; in the forest, branches that end are cut off in rounds, each of
which leaves half the branchings at most (Miller & Reif, "Parallel tree contraction and its application", FOCS 1985).
"""

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Nodes = npt.NDArray[np.intp]
NOWHERE = -1


def greedy(ends: Nodes, own: Nodes) -> Bools:
    """Pairs (n, 2) of nodes, best first, and the own pair (m,) of each node, or NOWHERE -> (n,) whether a pair is taken.

    Every pair is the own pair of one of its ends, or of both.
    """
    parent, own = _hang(ends, own)
    nodes = np.flatnonzero(parent != NOWHERE)
    place = np.where(own == NOWHERE, len(ends), own)  # a root comes after the whole list
    before = nodes[own[nodes] < place[parent[nodes]]]
    above = np.full_like(parent, NOWHERE)
    above[before] = parent[before]
    ready = nodes[_nor(above)[nodes]]
    first = np.full(len(parent), len(ends))
    np.minimum.at(first, parent[ready], own[ready])
    ready = ready[own[ready] == first[parent[ready]]]
    # What is taken for certain, and what is where another pair is not.
    certain = np.zeros(len(parent), dtype=bool)
    certain[ready] = above[ready] != NOWHERE
    unless = np.full_like(parent, NOWHERE)
    rest = ready[above[ready] == NOWHERE]
    unless[rest] = parent[rest]
    end, odd = _jump(unless)
    chosen = np.flatnonzero(certain[end] ^ odd)
    taken = np.zeros(len(ends), dtype=bool)
    taken[own[chosen]] = True
    return taken


def _hang(ends: Nodes, own: Nodes) -> tuple[Nodes, Nodes]:
    """The parent (m,) of each node, NOWHERE for a root, and the own pairs without those of roots.

    Where two sentences have one own pair, the source hangs on the target, which becomes a root.
    """
    parent = np.full_like(own, NOWHERE)
    nodes = np.flatnonzero(own != NOWHERE)
    parent[nodes] = ends[own[nodes]].sum(axis=1) - nodes
    sources = nodes[ends[own[nodes], 0] == nodes]
    mutual = parent[sources[own[parent[sources]] == own[sources]]]
    own = own.copy()
    parent[mutual] = own[mutual] = NOWHERE
    return parent, own


def _nor(parent: Nodes) -> Bools:
    """A forest (m,) of parents -> (m,) values: a node is true where none of its children is."""
    value = np.ones(len(parent), dtype=bool)  # of those without children, which are most
    names = np.flatnonzero(_children(parent) | (parent != NOWHERE))
    parent = _among(names, parent[names])
    while len(names):
        children = _children(parent)
        only = np.full_like(parent, NOWHERE)
        hanging = np.flatnonzero(parent != NOWHERE)
        only[parent[hanging]] = hanging
        only[children != 1] = NOWHERE
        end, odd = _jump(only)
        known = children[end] == 0
        value[names[known]] = ~odd[known]
        refuted = parent[known & ~odd]
        refuted = refuted[refuted != NOWHERE]
        value[names[refuted]] = False
        known[refuted] = True
        left = np.flatnonzero(~known)
        names, parent = names[left], _among(left, parent[left])
    return value


def _children(parent: Nodes) -> npt.NDArray[np.intp]:
    """How many children each node has."""
    return np.bincount(parent[parent != NOWHERE], minlength=len(parent))


def _among(names: Nodes, nodes: Nodes) -> Nodes:
    """Nodes (n,) by their places among ascending `names`, NOWHERE where they are not among them."""
    if not len(names):
        return np.full_like(nodes, NOWHERE)
    places = np.searchsorted(names, nodes).clip(max=len(names) - 1)
    return np.where(names[places] == nodes, places, NOWHERE)


def _jump(following: Nodes) -> tuple[Nodes, Bools]:
    """Chains, as the node (m,) that follows each or NOWHERE -> the last of its chain, and whether an odd number of steps leads there."""
    moving = following != NOWHERE
    end = np.where(moving, following, np.arange(len(following)))
    odd = moving.copy()
    rows = np.flatnonzero(moving)
    while len(rows := rows[end[end[rows]] != end[rows]]):
        odd[rows], end[rows] = odd[rows] ^ odd[end[rows]], end[end[rows]]
    return end, odd
