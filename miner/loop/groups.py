"""Translation groups: sentences that mined pairs connect. An en-de pair and an en-fr pair with one English sentence form a group."""

from collections.abc import Sequence

import numpy as np

from miner.arrays import Bools, Floats, Ints

CONTRADICTED = -1


def link_pairs(sources: Ints, targets: Ints, langs: Ints, strengths: Floats) -> Ints:
    """Return the group (m,) of each of m pairs, numbered from 0, or CONTRADICTED.

    `sources` and `targets` (m,) are sentence numbers, `langs` (n,) the language of each sentence. Pairs are linked in order of strength. A
    pair that would put two sentences of one language into a group contradicts stronger pairs and is not linked.
    """
    parents = list(range(len(langs)))  # union-find
    members = {node: {int(lang): node} for node, lang in enumerate(langs)}  # root -> language -> sentence

    def find_root(node: int) -> int:
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = parents[node]
        return node

    is_linked = np.zeros(len(sources), dtype=bool)
    for pair in np.argsort(-strengths, kind="stable"):
        source_root, target_root = find_root(int(sources[pair])), find_root(int(targets[pair]))
        if source_root != target_root:
            small, large = sorted((source_root, target_root), key=lambda node: len(members[node]))
            if members[small].keys() & members[large].keys():
                continue
            members[large] |= members.pop(small)
            parents[small] = large
        is_linked[pair] = True
    roots = np.array([find_root(int(node)) for node in sources], dtype=np.int64)
    groups = np.full(len(sources), CONTRADICTED, dtype=np.int64)
    groups[is_linked] = np.unique(roots[is_linked], return_inverse=True)[1]
    return groups


def draw_validation(groups: Ints, ids: Ints, share: float, seed: int) -> Bools:
    """Return a mask (m,) of the pairs held out for validation: all pairs of a random share of the groups.

    `groups` (m,) are those of `link_pairs`, `ids` (m,) a sentence id of each pair. Groups are drawn whatever their margins: the best pairs
    alone would be the easiest. The draw depends on the ids, which are hashes of the text, so a group that is mined again in a later round
    is nearly always held out again. At least one group is held out, unless there is only one or the share is 0.
    """
    is_linked = groups != CONTRADICTED
    distinct, group_index = np.unique(groups[is_linked], return_inverse=True)
    keys = ids[is_linked].view(np.uint64) ^ np.random.default_rng(seed).integers(1 << 64, dtype=np.uint64)
    group_keys = np.full(len(distinct), np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(group_keys, group_index, keys)
    num_drawn = max(int(share * len(distinct)), int(share > 0 and len(distinct) > 1))
    drawn = distinct[np.argsort(group_keys, kind="stable")[:num_drawn]]
    is_held_out: Bools = np.isin(groups, drawn)
    return is_held_out


def share_sentence(is_held_out: Bools, columns: Sequence[Ints]) -> Bools:
    """Return a mask (m,) of the pairs that share a sentence with a held-out pair; `columns` (m,) are the sentences of each pair."""
    sentences = np.concatenate([column[is_held_out] for column in columns])
    mask: Bools = np.any([np.isin(column, sentences) for column in columns], axis=0)
    return mask
