"""Pair filters before matching: dropped candidates make room for the next best ones, and are counted and written."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bitexts import OUTPUTS, read_outputs
from command import error_of, output_of
from dense import one_to_one

from miner.config.commands import PairFilters
from miner.filters.hubs import count_occurrences
from miner.filters.pairs import PAIR_FILTERS, PairTexts, apply_pair_filters
from miner.io.tables import DROPPED_PAIRS

EXAMPLES = Path(__file__).parents[3] / "examples"

# A German text with an untranslated line, and with the same template for other numbers.
ENGLISH = """
Berlin is the capital of Germany.
The train leaves at 9:45 from platform 12.
The cat sleeps on the sofa.
I would like a cup of coffee, please.
""".strip()
GERMAN = """
Berlin is the capital of Germany!
Berlin ist die Hauptstadt von Deutschland.
Der Zug fährt um 10:30 von Gleis 12 ab.
Der Zug, der um 9:45 fährt, steht auf Gleis 12.
Die Katze schläft auf dem Sofa.
Ich hätte gern eine Tasse Kaffee.
""".strip()


def pairs_in(output: Path) -> set[tuple[str, str]]:
    table = pq.read_table(output / "bitext.parquet")
    return set(zip(table["source_text"].to_pylist(), table["target_text"].to_pylist(), strict=True))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mine the two texts without filters."""
    folder = tmp_path_factory.mktemp("filters")
    (folder / "en.txt").write_text(ENGLISH)
    (folder / "de.txt").write_text(GERMAN)
    sides = (folder / "en.txt", folder / "de.txt", "--source-lang", "en", "--target-lang", "de")
    output_of("mine", *sides, "--output", folder / "plain", "--threshold", "0", "--filter", "none")
    return folder / "plain"


def test_dropped_copy_makes_room_for_the_translation(plain: Path, tmp_path: Path) -> None:
    copy, translation = (("Berlin is the capital of Germany.", line) for line in GERMAN.splitlines()[:2])
    assert copy in pairs_in(plain)
    output_of("mine", "--from-candidates", plain, "--output", tmp_path, "--threshold", "0", "--filter", "none", "--filter", "copies")
    assert translation in pairs_in(tmp_path)
    assert copy not in pairs_in(tmp_path)


def test_dropped_candidates_are_counted_and_written(plain: Path, tmp_path: Path) -> None:
    arguments = ("--from-candidates", plain, "--output", tmp_path / "out", "--threshold", "0", "--filter", "none", "--keep-dropped")
    printed = output_of("mine", *arguments, "--filter", "copies", "--filter", "numbers", "--json", tmp_path / "figures.json")
    table = pq.read_table(tmp_path / "out/dropped.parquet")
    assert table.schema.names == DROPPED_PAIRS.names
    dropped = {(row["source_text"], row["target_text"]): (row["reason"], row["score"]) for row in table.to_pylist()}
    assert dropped[ENGLISH.splitlines()[0], GERMAN.splitlines()[0]] == ("near_copy", 1)
    assert dropped[ENGLISH.splitlines()[1], GERMAN.splitlines()[2]] == ("numbers_disagree", 0.5)
    assert not set(dropped) & pairs_in(tmp_path / "out")
    counts = {"near_copy": 1, "numbers_disagree": len(table) - 1}
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["details"]["dropped"] == json.loads((tmp_path / "figures.json").read_text())["dropped"] == counts
    assert manifest["config"]["filters"] == {"copies": 0.7, "numbers": 0}
    assert {shard["name"]: shard["rows"] for shard in manifest["shards"]}["dropped.parquet"] == len(table)
    assert f"dropped: 1 near copy, {len(table) - 1} numbers disagree" in printed
    before = read_outputs(tmp_path / "out")
    output_of("mine", *arguments, "--filter", "copies", "--filter", "numbers")
    assert read_outputs(tmp_path / "out") == before
    output_of("mine", *arguments[:-1])  # without --keep-dropped and filters
    assert set(read_outputs(tmp_path / "out")) == set(OUTPUTS)


def test_filters_that_drop_nothing_give_the_same_bitext(plain: Path, tmp_path: Path) -> None:
    output_of(
        *("mine", "--from-candidates", plain, "--output", tmp_path, "--threshold", "0"),
        *("--filter", "none", "--filter", "length_ratio=100", "--keep-dropped"),
    )
    for name in ("bitext.tsv.gz", "bitext.parquet"):
        assert (tmp_path / name).read_bytes() == (plain / name).read_bytes()
    assert pq.read_table(tmp_path / "dropped.parquet").schema.names == DROPPED_PAIRS.names
    assert pq.read_metadata(tmp_path / "dropped.parquet").num_rows == 0


@pytest.mark.parametrize("option", ["letters=0.2", "colour", "length_ratio=inf"])
def test_invalid_filter_is_an_error(option: str, plain: Path, tmp_path: Path) -> None:
    message = error_of("mine", "--from-candidates", plain, "--output", tmp_path / "out", "--filter", option)
    assert option.partition("=")[0] in message
    assert not (tmp_path / "out").exists()


def best_of_both(ranked: list[tuple[float, int, int]], folder: Path) -> list[tuple[float, int, int]]:
    """Return the best target of each source among its neighbours, and the reverse, from sorted (-margin, source, target)."""
    table = pa.concat_tables(pq.read_table(path) for path in sorted(folder.glob("part-*.parquet")))
    pairs = zip(table["source_id"].to_pylist(), table["target_id"].to_pylist(), strict=True)
    directions = dict(zip(pairs, zip(table["forward"].to_pylist(), table["backward"].to_pylist(), strict=True), strict=True))
    best: dict[tuple[str, int], tuple[float, int, int]] = {}
    for row in ranked:
        forward, backward = directions[row[1:]]
        if forward:
            best.setdefault(("source", row[1]), row)
        if backward:
            best.setdefault(("target", row[2]), row)
    return sorted(set(best.values()))


def test_pairs_equal_those_of_filtering_all_candidates_first(tmp_path: Path) -> None:
    """Bounds that drop many candidates of real sentences; selected from candidates, and mined from text in shards."""
    for name in ("en", "de"):
        lines = (EXAMPLES / f"{name}.txt").read_text(encoding="utf-8").splitlines()[:400]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    sides = (tmp_path / "en.txt", tmp_path / "de.txt", "--source-lang", "en", "--target-lang", "de")
    output_of("mine", *sides, "--output", tmp_path / "all", "--retrieval", "all", "--filter", "none")
    table = pq.read_table(tmp_path / "all/bitext.parquet")
    bounds = {"copies": 0.1, "junk": 0.3, "numbers": 0.0, "length_ratio": 1.3, "hubs": 2.5}
    ids = [table[name].to_numpy() for name in ("source_id", "target_id")]
    hub_counts = np.maximum(*(count_occurrences(side).of(side) for side in ids)) / 16  # neighbours that are candidates
    texts = (table[name].to_pylist() for name in ("source_text", "target_text"))
    decisions = apply_pair_filters(PairTexts(*texts, ("eng_Latn", "deu_Latn"), hub_counts), bounds)
    assert all(decisions.counts()[pair_filter.reason] for name, pair_filter in PAIR_FILTERS.items() if name in bounds)
    rows = zip(-table["margin"].to_numpy(), *(side.tolist() for side in ids), strict=True)
    ranked = sorted(row for row, kept in zip(rows, decisions.kept, strict=True) if kept and -row[0] > 0.9)
    expected = {(source, target) for _, source, target in one_to_one(best_of_both(ranked, tmp_path / "all/candidates"))}
    options = [word for name, bound in bounds.items() for word in ("--filter", f"{name}={bound}")]
    runs = {"selected": ("--from-candidates", tmp_path / "all"), "sharded": (*sides, "--shards", 3)}
    for name, arguments in runs.items():
        output_of("mine", *arguments, "--output", tmp_path / name, "--threshold", "0.9", *options)
        bitext = pq.read_table(tmp_path / name / "bitext.parquet")
        assert set(zip(bitext["source_id"].to_pylist(), bitext["target_id"].to_pylist(), strict=True)) == expected
    selected, sharded = (gzip.decompress((tmp_path / name / "bitext.tsv.gz").read_bytes()) for name in runs)
    assert selected == sharded


def test_usual_bounds_keep_the_true_pairs_of_the_examples() -> None:
    """At most one true pair in 200 of any language is dropped."""
    for lang, code in (("de", "deu_Latn"), ("ru", "rus_Cyrl"), ("hi", "hin_Deva")):
        lines = {name: (EXAMPLES / f"{name}.txt").read_text(encoding="utf-8").splitlines() for name in ("en", lang)}
        gold = [tuple(map(int, line.split())) for line in (EXAMPLES / f"gold.en-{lang}.tsv").read_text().splitlines()]
        sides = [lines["en"][source - 1] for source, _ in gold], [lines[lang][target - 1] for _, target in gold]
        decisions = apply_pair_filters(PairTexts(*sides, ("eng_Latn", code), np.ones(len(gold))), PairFilters.usual())
        assert decisions.kept.mean() > 0.995, decisions.counts()
