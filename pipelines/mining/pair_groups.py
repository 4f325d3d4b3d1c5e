"""Groups of sentences that pairs connect, such as paraphrases of each other: OUTPUT/groups.tsv.gz."""

import numpy as np
import pyarrow as pa

from miner.arrays import connected_components
from miner.io import storage, table_files
from miner.mining import writers

GROUPS = "groups.tsv.gz"
COLUMNS = ["text", "file", "line"]


def group_sentences(pairs: pa.Table) -> pa.Table:
    """Return the sentences of pairs (BITEXT), each once: its group, text, file and line.

    Two sentences are in one group if pairs lead from one to the other. Groups are numbered from 1 in the order of their best pairs, and
    their sentences are in that order too.
    """
    ids = np.concatenate([pairs[f"{side}_id"].to_numpy() for side in ("source", "target")])
    unique, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    sources, targets = np.split(inverse, 2)
    components = connected_components(sources, targets, len(unique))
    best_pairs = np.unique(components[sources], return_index=True)[1]  # of each component, as all of them have a pair
    group_of = np.argsort(np.argsort(best_pairs))[components]
    order = np.lexsort((first % max(1, len(pairs)), group_of))
    sides = [pairs.select([f"{side}_{name}" for name in COLUMNS]).rename_columns(COLUMNS) for side in ("source", "target")]
    sentences = pa.concat_tables([side.set_column(1, "file", side["file"].cast(pa.string())) for side in sides])
    return sentences.take(pa.array(first[order])).add_column(0, "group", pa.array(group_of[order] + 1))


def write_groups(output: str) -> int:
    """Write the groups of the pairs in an output, `group<TAB>text<TAB>file<TAB>line`, and return the number of sentences.

    The ids, texts and files of all pairs are in memory.
    """
    names = [f"{side}_{name}" for side in ("source", "target") for name in ("id", *COLUMNS)]
    table = group_sentences(table_files.read_table(storage.join(output, writers.PARQUET), names))
    with writers.text_writer(storage.join(output, GROUPS)) as file:
        file.writelines("\t".join(map(str, row.values())) + "\n" for row in table.to_pylist())
    return len(table)
