"""Turn the mined pairs of a round into training data: `ROUND/pairs`, `ROUND/groups.parquet` and `ROUND/validation`.

Runs in one process. Memory holds all pairs above the thresholds with their texts and, for one language pair at a time, its candidates at
some 60 bytes each.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from miner.arrays import Bools, Ints, bounds_of
from miner.evaluation.marks import ReviewMarks
from miner.io import records, stages, storage, table_files
from miner.io.stages import CANDIDATES
from miner.loop.groups import CONTRADICTED, draw_validation, link_pairs, share_sentence
from miner.loop.progress import jaccard
from miner.loop.selection import MinedPairs, select_pairs, template_keys
from miner.loop.settings import LoopConfig
from miner.mining import matching, writers
from miner.mining.gold import GoldPairs
from miner.text.decontaminate import EXACT, NEAR, NONE, EvaluationIndex
from pipelines.mining import candidates

PAIRS, GROUPS, VALIDATION, SELECTION = "pairs", "groups.parquet", "validation", "selection.json"
GROUP_SCHEMA = pa.schema([("group", pa.int64()), ("lang", pa.string()), ("text", pa.string())])
NUM_EXAMPLES = 5  # of the pairs gained between two rounds, and of those lost

LanguagePair = tuple[str, str]


@dataclass(frozen=True)
class MinedFolder:
    """The mined pairs of one language pair."""

    folder: str  # output of `miner mine`
    threshold: float
    gold: GoldPairs | ReviewMarks | None


@dataclass(frozen=True)
class SelectedPairs:
    """The selected pairs of one language pair."""

    langs: LanguagePair
    bitext: pa.Table  # schema BITEXT, strongest first
    strengths: np.ndarray[Any, Any]
    figures: dict[str, Any]  # counts, precision and recall

    @property
    def name(self) -> str:
        return pair_name(self.langs)


def select(config: LoopConfig, folder: str, mined: Mapping[LanguagePair, MinedFolder], evaluation: EvaluationIndex) -> dict[str, Any]:
    """Select, group and split the mined pairs, and write the training data.

    Returns the figures, which are also written to `FOLDER/selection.json` after everything else.
    """
    selections = [_select_language_pair(config, langs, mined_folder, evaluation) for langs, mined_folder in mined.items()]
    sides, langs = _number_sentences(selections)
    strengths = np.concatenate([selection.strengths for selection in selections]) if selections else np.zeros(0)
    groups = link_pairs(*sides, langs, strengths)
    ids = np.concatenate([np.zeros(0, np.int64), *(selection.bitext["source_id"].to_numpy() for selection in selections)])
    is_validation = draw_validation(groups, ids, config.selection.validation, config.selection.seed)
    is_training = ~share_sentence(is_validation, sides)
    for name in (PAIRS, VALIDATION, GROUPS):
        storage.remove(storage.join(folder, name))
    bounds = bounds_of([len(selection.bitext) for selection in selections])
    for number, selection in enumerate(selections):
        rows = slice(bounds[number], bounds[number + 1])
        _write_pairs(folder, selection, is_training[rows], is_validation[rows])
        selection.figures["training"] = int(is_training[rows].sum())
        selection.figures["validation"] = int(is_validation[rows].sum())
        selection.figures["contradicted"] = int((groups[rows] == CONTRADICTED).sum())
        selection.figures.update(_score(selection.bitext.filter(pa.array(is_training[rows])), mined[selection.langs].gold))
    _write_groups(folder, selections, groups, is_training)
    figures = {
        "pairs": {selection.name: selection.figures for selection in selections},
        "training": int(is_training.sum()),
        "groups": _count_group_sizes(groups, sides, is_training),
        "evaluation_sentences": len(evaluation),
    }
    records.write(storage.join(folder, SELECTION), figures)
    return figures


def pair_name(langs: LanguagePair) -> str:
    return "-".join(langs)


def pair_ids(bitext: pa.Table) -> list[tuple[int, int]]:
    """Return the (source id, target id) pairs of a bitext."""
    return list(zip(bitext["source_id"].to_pylist(), bitext["target_id"].to_pylist(), strict=True))


def _select_language_pair(config: LoopConfig, langs: LanguagePair, mined: MinedFolder, evaluation: EvaluationIndex) -> SelectedPairs:
    """Drop pairs with a sentence of the evaluation files, and select from the others."""
    bitext = table_files.read_table(storage.join(mined.folder, writers.PARQUET))
    texts = [bitext[f"{side}_text"].to_pylist() for side in ("source", "target")]
    kinds = np.maximum(*(evaluation.classify(side) for side in texts))
    clean_rows = np.flatnonzero(kinds == NONE)
    bitext = bitext.take(pa.array(clean_rows))
    keys = [template_keys([side[row] for row in clean_rows]) for side in texts]
    pairs = MinedPairs(bitext["margin"].to_numpy(), _find_mutual_pairs(config, mined.folder, bitext), *keys)
    selection = select_pairs(pairs, mined.threshold, config.selection)
    figures = {
        "mined": len(kinds),
        "threshold": mined.threshold if np.isfinite(mined.threshold) else None,
        "in_evaluation_files": {"exact": int((kinds == EXACT).sum()), "near": int((kinds == NEAR).sum())},
        "dropped": selection.num_dropped,
        "filtered": dict(stages.read_manifest(mined.folder).details["dropped"]),
        "selected": len(selection.rows),
        "mutual": int(pairs.is_mutual[selection.rows].sum()),
    }
    return SelectedPairs(langs, bitext.take(pa.array(selection.rows)), selection.strengths, figures)


def _score(bitext: pa.Table, gold: GoldPairs | ReviewMarks | None) -> dict[str, float]:
    """Return the precision and recall of pairs, as far as gold or marks show them."""
    if gold is None:
        return {}
    scorer = gold.scorer()
    scorer.add(pair_ids(bitext))
    scores = scorer.scores().figures()
    return {name: scores[name] for name in ("precision", "recall") if name in scores}


def _find_mutual_pairs(config: LoopConfig, folder: str, bitext: pa.Table) -> Bools:
    """Return a mask (n,) of the pairs whose sentences are each other's best candidate."""
    scored = candidates.read(storage.join(folder, CANDIDATES), config.mining.margin, -np.inf)
    matches = matching.match(matching.rank(scored), "intersection")
    mutual = set(zip(matches.source_ids.tolist(), matches.target_ids.tolist(), strict=True))
    return np.fromiter((pair in mutual for pair in pair_ids(bitext)), dtype=bool, count=len(bitext))


def _number_sentences(selections: Sequence[SelectedPairs]) -> tuple[tuple[Ints, Ints], Ints]:
    """Number the distinct sentences. Returns the numbers of the source and target (m,) of all pairs, and the language of each number."""
    codes = sorted({lang for selection in selections for lang in selection.langs})
    sentence_type = np.dtype([("lang", np.int64), ("id", np.int64)])
    sides = []
    for side, column in enumerate(("source_id", "target_id")):
        parts = [np.zeros(0, sentence_type)]
        for selection in selections:
            part = np.empty(len(selection.bitext), sentence_type)
            part["lang"], part["id"] = codes.index(selection.langs[side]), selection.bitext[column].to_numpy()
            parts.append(part)
        sides.append(np.concatenate(parts))
    sentences, numbers = np.unique(np.concatenate(sides), return_inverse=True)
    return (numbers[: len(sides[0])], numbers[len(sides[0]) :]), sentences["lang"]


def _write_pairs(folder: str, selection: SelectedPairs, is_training: Bools, is_validation: Bools) -> None:
    """Write the training bitext and the validation table of a language pair; neither if it would be empty."""
    if is_training.any():
        table = selection.bitext.filter(pa.array(is_training))
        table = table.take(pc.sort_indices(table, [("margin", "descending"), ("source_id", "ascending")]))
        parts = (table.slice(start, writers.ROW_GROUP_PAIRS) for start in range(0, len(table), writers.ROW_GROUP_PAIRS))
        writers.write_bitext(storage.join(folder, PAIRS, selection.name), parts)
    if is_validation.any():
        table = selection.bitext.filter(pa.array(is_validation))
        rows = zip(table["source_text"].to_pylist(), table["target_text"].to_pylist(), strict=True)
        with writers.text_writer(storage.join(folder, VALIDATION, f"{selection.name}.tsv")) as file:
            file.writelines(f"{source}\t{target}\n" for source, target in [("source", "target"), *rows])


def _write_groups(folder: str, selections: Sequence[SelectedPairs], groups: Ints, is_training: Bools) -> None:
    """Write one row per sentence and group, sorted by group and language."""
    rows: set[tuple[int, str, str]] = set()
    start = 0
    for selection in selections:
        part = slice(start, start + len(selection.bitext))
        start = part.stop
        kept = np.flatnonzero(is_training[part] & (groups[part] != CONTRADICTED))
        for lang, column in zip(selection.langs, ("source_text", "target_text"), strict=True):
            texts = selection.bitext[column].take(pa.array(kept)).to_pylist()
            rows |= set(zip(groups[part][kept].tolist(), [lang] * len(kept), texts, strict=True))
    table = pa.Table.from_pylist([dict(zip(GROUP_SCHEMA.names, row, strict=True)) for row in sorted(rows)], GROUP_SCHEMA)
    table_files.write_table(storage.join(folder, GROUPS), table)


def _count_group_sizes(groups: Ints, sides: tuple[Ints, Ints], is_training: Bools) -> dict[str, int]:
    """Return group size -> number of groups."""
    kept = is_training & (groups != CONTRADICTED)
    members = np.unique(np.concatenate([np.stack([groups[kept], side[kept]], axis=1) for side in sides]), axis=0)
    sizes = Counter(np.unique(members[:, 0], return_counts=True)[1].tolist())
    return {str(size): count for size, count in sorted(sizes.items())}


def compare_selections(folder: str, previous_folder: str | None) -> dict[str, Any]:
    """Compare the training pairs of two rounds: Jaccard index (None for the first round), and pairs gained and lost with examples."""
    pairs, previous = _read_pairs(folder), _read_pairs(previous_folder) if previous_folder else {}
    gained, lost = sorted(pairs.keys() - previous.keys()), sorted(previous.keys() - pairs.keys())
    return {
        "jaccard": jaccard(pairs.keys(), previous.keys()) if previous_folder else None,
        "gained": {"pairs": len(gained), "examples": [pairs[key] for key in _pick_examples(gained)]},
        "lost": {"pairs": len(lost), "examples": [previous[key] for key in _pick_examples(lost)]},
    }


def _pick_examples(keys: list[Any]) -> list[Any]:
    """Return a few evenly spaced keys: ids are hashes, so this is as good as a random sample."""
    return [keys[index] for index in np.unique(np.linspace(0, len(keys) - 1, NUM_EXAMPLES).astype(int))] if keys else []


def _read_pairs(folder: str) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Return (language pair, source id, target id) -> margin and texts."""
    pairs: dict[tuple[str, int, int], dict[str, Any]] = {}
    for name in storage.names_in(storage.join(folder, PAIRS)):
        bitext = table_files.read_table(storage.join(folder, PAIRS, name, writers.PARQUET))
        rows = bitext.select(["margin", "source_text", "target_text"]).to_pylist()
        pairs |= {(name, *ids): {"languages": name, **row} for ids, row in zip(pair_ids(bitext), rows, strict=True)}
    return pairs
