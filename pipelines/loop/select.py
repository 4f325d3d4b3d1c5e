"""From what a round mined to what it learns from: `ROUND/pairs`, `ROUND/groups.parquet` and `ROUND/validation`.

One process does it: all pairs above the thresholds are held in memory, with their texts, and of one pair of languages at a time its
candidates, some 60 bytes each.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from miner import storage
from miner.loop.decontaminate import EXACT, NEAR, EvaluationIndex
from miner.loop.groups import CONTRADICTED, held_out, link, touching
from miner.loop.selection import Bools, MinedPairs, choose, template_keys
from miner.loop.settings import LoopConfig
from miner.mining import matching, writers
from miner.mining.gold import Pairs
from miner.training.datasets import Ints
from pipelines.mining import candidates

PAIRS, GROUPS, VALIDATION, SELECTION = "pairs", "groups.parquet", "validation", "selection.json"
GROUP_SCHEMA = pa.schema([("group", pa.int64()), ("lang", pa.string()), ("text", pa.string())])

Pair = tuple[str, str]  # of languages


@dataclass(frozen=True)
class MinedFolder:
    """What one pair of languages gave."""

    folder: str  # of `miner mine`
    threshold: float
    gold: Pairs | None  # the true pairs, where they are known


@dataclass(frozen=True)
class SelectedPairs:
    """The pairs of one pair of languages that were chosen."""

    pair: Pair
    bitext: pa.Table  # of the schema BITEXT, the strongest first
    strengths: np.ndarray[Any, Any]
    figures: dict[str, Any]


def select(config: LoopConfig, folder: str, found: Mapping[Pair, MinedFolder], forbidden: EvaluationIndex) -> dict[str, Any]:
    """Choose, group, split and write; the figures, which also go to `FOLDER/selection.json` when all else is there."""
    picked = [_pick(config, pair, of, forbidden) for pair, of in found.items()]
    sides, langs = _nodes(picked)
    strengths = np.concatenate([of.strengths for of in picked]) if picked else np.zeros(0)
    groups = link(*sides, langs, strengths)
    ids = np.concatenate([np.zeros(0, np.int64), *(of.bitext["source_id"].to_numpy() for of in picked)])
    held = held_out(groups, ids, config.selection.validation, config.selection.seed)
    learnt = ~touching(held, sides)
    for name in (PAIRS, VALIDATION, GROUPS):
        storage.remove(storage.join(folder, name))
    bounds = np.cumsum([0, *(len(of.bitext) for of in picked)])
    for number, of in enumerate(picked):
        rows = slice(bounds[number], bounds[number + 1])
        _write_pairs(folder, of, learnt[rows], held[rows])
        told = {"learnt": int(learnt[rows].sum()), "validation": int(held[rows].sum())}
        of.figures.update(told, contradicted=int((groups[rows] == CONTRADICTED).sum()))
    _write_groups(folder, picked, groups, learnt)
    figures = {
        "pairs": {name_of(of.pair): of.figures for of in picked},
        "learnt": int(learnt.sum()),
        "groups": _sizes(groups, sides, learnt),
        "forbidden": len(forbidden),
    }
    storage.write_json(storage.join(folder, SELECTION), figures)
    return figures


def name_of(pair: Pair) -> str:
    return "-".join(pair)


def _pick(config: LoopConfig, pair: Pair, found: MinedFolder, forbidden: EvaluationIndex) -> SelectedPairs:
    """What is clean, and strong enough."""
    bitext = storage.read_table(storage.join(found.folder, writers.PARQUET))
    texts = [bitext[f"{side}_text"].to_pylist() for side in ("source", "target")]
    kinds = np.maximum(*(forbidden.matches(side) for side in texts))
    clean = np.flatnonzero(kinds == 0)
    bitext = bitext.take(pa.array(clean))
    keys = [template_keys([side[row] for row in clean]) for side in texts]
    mined = MinedPairs(bitext["margin"].to_numpy(), _mutual(config, found.folder, bitext), *keys)
    chosen = choose(mined, found.threshold, config.selection)
    figures = {
        "mined": len(kinds),
        "threshold": found.threshold if np.isfinite(found.threshold) else None,
        "in evaluation files": {"exact": int((kinds == EXACT).sum()), "near": int((kinds == NEAR).sum())},
        "left out": chosen.left_out,
        "selected": len(chosen.rows),
        "both ways": int(mined.mutual[chosen.rows].sum()),
    }
    kept = bitext.take(pa.array(chosen.rows))
    if found.gold is not None:
        right = sum(pair in found.gold for pair in ids_of(kept))
        figures |= {"precision": right / max(1, len(kept)), "recall": right / len(found.gold)}
    return SelectedPairs(pair, kept, chosen.strengths, figures)


def ids_of(bitext: pa.Table) -> list[tuple[int, int]]:
    """The pairs of ids of a bitext."""
    return list(zip(bitext["source_id"].to_pylist(), bitext["target_id"].to_pylist(), strict=True))


def _mutual(config: LoopConfig, folder: str, bitext: pa.Table) -> Bools:
    """(n,): pairs whose sentences are each the best candidate of the other."""
    scored = candidates.read(storage.join(folder, candidates.STAGE), config.mining.margin, -np.inf)
    best = matching.match(matching.rank(scored), "intersection")
    known = set(zip(best.source_ids.tolist(), best.target_ids.tolist(), strict=True))
    return np.fromiter((pair in known for pair in ids_of(bitext)), dtype=bool, count=len(bitext))


def _nodes(picked: Sequence[SelectedPairs]) -> tuple[tuple[Ints, Ints], Ints]:
    """The sentences of all pairs, numbered: those of either side (m,), and the language of each number."""
    codes = sorted({lang for of in picked for lang in of.pair})
    kind = np.dtype([("lang", np.int64), ("id", np.int64)])
    sides = []
    for place, side in enumerate(("source_id", "target_id")):
        parts = [np.zeros(0, kind)]
        for of in picked:
            part = np.empty(len(of.bitext), kind)
            part["lang"], part["id"] = codes.index(of.pair[place]), of.bitext[side].to_numpy()
            parts.append(part)
        sides.append(np.concatenate(parts))
    nodes, numbers = np.unique(np.concatenate(sides), return_inverse=True)
    return (numbers[: len(sides[0])], numbers[len(sides[0]) :]), nodes["lang"]


def _write_pairs(folder: str, picked: SelectedPairs, learnt: Bools, held: Bools) -> None:
    """A bitext to learn from, and a table of source and target to validate on; none where it would be empty."""
    name = name_of(picked.pair)
    if learnt.any():
        table = picked.bitext.filter(pa.array(learnt))
        table = table.take(pc.sort_indices(table, [("margin", "descending"), ("source_id", "ascending")]))
        parts = (table.slice(at, writers.ROWS) for at in range(0, len(table), writers.ROWS))
        writers.write_bitext(storage.join(folder, PAIRS, name), parts)
    if held.any():
        table = picked.bitext.filter(pa.array(held))
        rows = zip(table["source_text"].to_pylist(), table["target_text"].to_pylist(), strict=True)
        with writers.tsv_writer(storage.join(folder, VALIDATION, f"{name}.tsv")) as file:
            file.writelines(f"{one}\t{other}\n" for one, other in [("source", "target"), *rows])


def _write_groups(folder: str, picked: Sequence[SelectedPairs], groups: Ints, learnt: Bools) -> None:
    """A row for each sentence of each group, by group and language."""
    rows: set[tuple[int, str, str]] = set()
    start = 0
    for of in picked:
        here = slice(start, start + len(of.bitext))
        start = here.stop
        kept = np.flatnonzero(learnt[here] & (groups[here] != CONTRADICTED))
        for lang, side in zip(of.pair, ("source_text", "target_text"), strict=True):
            texts = of.bitext[side].take(pa.array(kept)).to_pylist()
            rows |= set(zip(groups[here][kept].tolist(), [lang] * len(kept), texts, strict=True))
    records = [dict(zip(GROUP_SCHEMA.names, row, strict=True)) for row in sorted(rows)]
    storage.write_table(storage.join(folder, GROUPS), pa.Table.from_pylist(records, GROUP_SCHEMA))


def _sizes(groups: Ints, sides: tuple[Ints, Ints], learnt: Bools) -> dict[str, int]:
    """How many groups have so many sentences."""
    kept = learnt & (groups != CONTRADICTED)
    members = np.unique(np.concatenate([np.stack([groups[kept], side[kept]], axis=1) for side in sides]), axis=0)
    sizes = Counter(np.unique(members[:, 0], return_counts=True)[1].tolist())
    return {str(size): count for size, count in sorted(sizes.items())}
