"""The hubs of a bitext, against counts of lists."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from miner.evaluation.hub_counts import CANDIDATES, HubCounts, read_hub_counts
from miner.io import storage, table_files
from miner.io.stages import Stage, shard_name

K = 4
SOURCES = [[7, 7, 7, 3, 3, 8], [8, 8, 8, 8, 5]]  # of the candidates in each shard
BITEXT = [5, 3, 7, 3, 8]  # the source of each pair


@pytest.fixture
def folder(tmp_path: Path) -> str:
    stage = Stage(storage.join(str(tmp_path), CANDIDATES), CANDIDATES, {}, {})
    stage.start()
    keys = {shard_name(number, len(SOURCES)): stage.key() for number in range(len(SOURCES))}
    for (name, key), sources in zip(keys.items(), SOURCES, strict=True):
        table_files.write_table(stage.path(name), pa.table({"source_id": sources, "target_id": range(len(sources))}))
        stage.mark_done(name, len(sources), key, {})
    stage.finish(keys, lambda _: {"k": K})
    with table_files.parquet_writer(f"{tmp_path}/bitext.parquet", pa.schema({"source_text": pa.string()})) as writer:
        writer.write_table(pa.table({"source_text": [f"pair {row}" for row in range(len(BITEXT))]}), row_group_size=2)
    return str(tmp_path)


def top_sources(counts: HubCounts | None, folder: str) -> list[tuple[float, str]]:
    assert counts is not None
    return counts.top("source", np.array(BITEXT), f"{folder}/bitext.parquet")


def test_top_hubs_are_the_sentences_of_pairs_in_most_candidates(folder: str) -> None:
    counts = Counter([*SOURCES[0], *SOURCES[1]])
    expected = [(counts[BITEXT[row]] / K, f"pair {row}") for row in (4, 2, 1, 0)]  # sentence 3 with its first pair
    assert top_sources(read_hub_counts(folder), folder) == expected


def test_of_many_candidates_a_share_of_the_sentences_is_counted(folder: str) -> None:
    counts = read_hub_counts(folder, max_candidates=6)
    assert counts is not None
    assert counts.share == 1 / 2
    assert top_sources(counts, folder) == [(5 / K, "pair 4"), (0, "pair 0"), (0, "pair 1"), (0, "pair 2")]  # only 8 is even


def test_without_candidates_there_are_no_counts(tmp_path: Path) -> None:
    assert read_hub_counts(str(tmp_path)) is None
