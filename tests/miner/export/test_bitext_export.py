"""`miner export`: every format is read back by the tool its users have."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import bitexts
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import error_of, miner, output_of
from hypothesis import given
from hypothesis import strategies as st

from miner.errors import ConfigError
from miner.export.splits import assign_splits
from miner.io import records, storage
from miner.languages import bcp47

PAIRS = [
    (1.5, 'She said "yes" & <left>.', "Sie sagte „ja“ & <ging>."),
    (1.4, "one\u2028two\x0bthree", "eins zwei drei"),
    (1.3, "tab\there", "ein Tab"),
    (1.25, "日本語 ≠ Chinese", "Japanisch ≠ Chinesisch"),
    (1.1, "the last one", "der letzte"),
    (1.05, "first\nsecond\r\nthird", "erste\n\nzweite"),
]


@pytest.fixture
def mined(tmp_path: Path) -> Path:
    return bitexts.write(tmp_path / "mined", PAIRS, margin="ratio", k=4, retrieval="max", threshold=1.06)


def export(mined: Path, name: str, *options: object) -> Path:
    output = mined.parent / f"{name}-export"
    output_of("export", mined, "--output", output, "--format", name, *options)
    return output


def test_moses_has_one_line_per_pair_on_both_sides(mined: Path) -> None:
    output = export(mined, "moses")
    english, german = ((output / f"train.{lang}").read_text(encoding="utf-8") for lang in ("en", "de"))
    assert english.splitlines() == [
        'She said "yes" & <left>.',
        "one two three",
        "tab\there",
        "日本語 ≠ Chinese",
        "the last one",
        "first second third",
    ]
    assert german.splitlines() == [*(target for _, _, target in PAIRS[:-1]), "erste zweite"]
    assert english.count("\n") == german.count("\n") == len(PAIRS)


def test_tmx_is_read_by_translate_toolkit(mined: Path) -> None:
    tmx = pytest.importorskip("translate.storage.tmx")
    output = export(mined, "tmx")
    with (output / "train.tmx").open("rb") as handle:
        store = tmx.tmxfile(handle, "en", "de")
    units = [(str(unit.source), str(unit.target)) for unit in store.units]
    assert units == [(source.replace("\x0b", " ").replace("\r", ""), target) for _, source, target in PAIRS]
    assert [unit.getnotes() for unit in store.units] == [""] * len(PAIRS)


def test_huggingface_is_read_by_datasets(mined: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    output = export(mined, "huggingface", "--dev", 1, "--test", 1)
    loaded = datasets.load_dataset(str(output), cache_dir=str(tmp_path / "cache"))
    assert {split: len(rows) for split, rows in loaded.items()} == {"train": 4, "validation": 1, "test": 1}
    rows = [row for split in loaded.values() for row in split]
    assert sorted((row["margin"], row["translation"]["en"], row["translation"]["de"]) for row in rows) == sorted(PAIRS)
    assert sorted(row["source_line"] for row in rows) == [1, 2, 3, 4, 5, 6]


def test_jsonl_and_tsv_hold_margin_and_texts(mined: Path) -> None:
    lines = (export(mined, "jsonl") / "train.jsonl").read_text(encoding="utf-8").split("\n")
    assert [json.loads(line) for line in lines[:-1]] == [
        {"translation": {"en": source, "de": target}, "margin": margin} for margin, source, target in PAIRS
    ]
    with gzip.open(export(mined, "tsv") / "train.tsv.gz", "rt", encoding="utf-8", newline="\n") as handle:
        rows = [line.rstrip("\n").split("\t") for line in handle]
    assert rows[0] == ["margin", "en", "de"]
    assert rows[3] == ["1.30000000", "tab here", "ein Tab"]
    assert len(rows) == 1 + len(PAIRS)


def test_probabilities_are_exported_and_bounded(mined: Path) -> None:
    probabilities = [0.99, 0.9, 0.8, 0.7, 0.6, 0.4]
    table = pq.read_table(mined / "bitext.parquet").append_column("probability", pa.array(probabilities))
    pq.write_table(table, mined / "bitext.parquet")
    rows = map(json.loads, (export(mined, "jsonl", "--min-probability", 0.8) / "train.jsonl").read_text(encoding="utf-8").split("\n")[:-1])
    assert [(row["margin"], row["probability"]) for row in rows] == [(1.5, 0.99), (1.4, 0.9), (1.3, 0.8)]
    exported = pq.read_table(export(mined, "huggingface") / "data" / "train.parquet")
    assert exported["probability"].to_pylist() == probabilities


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ('=HYPERLINK("x")', '\'=HYPERLINK("x")'),
        ("+1 555", "'+1 555"),
        ("- No.", "'- No."),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1+1", "' =1+1"),
        ("\r\n=1+1", "' =1+1"),
        ('"=1+1"', '\'"=1+1"'),
        ("＝1+1", "'＝1+1"),
        ("2 + 2 = 4", "2 + 2 = 4"),
        ("", ""),
    ],
)
def test_formulas_are_escaped_on_demand(text: str, cell: str, tmp_path: Path) -> None:
    mined = bitexts.write(tmp_path / "mined", [(-0.5, text, "x")])
    for options, expected in (((), cell.removeprefix("'")), (("--escape-formulas",), cell)):
        with gzip.open(export(mined, "tsv", *options) / "train.tsv.gz", "rt", encoding="utf-8", newline="\n") as handle:
            assert handle.read() == f"margin\ten\tde\n-0.50000000\t{expected}\tx\n"
    message = error_of("export", mined, "--output", tmp_path / "out", "--format", "moses", "--escape-formulas")
    assert "--escape-formulas has no effect on this format" in message


def test_a_directory_of_mine_is_read_by_datasets(mined: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    for name in ("source/sentences", "candidates"):  # other tables of a run
        (mined / name).mkdir(parents=True)
        pq.write_table(pa.table({"id": [1, 2]}), mined / name / "part-00000-of-00001.parquet")
    rows = datasets.load_dataset(f"{mined}/", cache_dir=str(tmp_path / "cache"))["train"]
    assert list(zip(rows["margin"], rows["source_text"], rows["target_text"], strict=True)) == PAIRS


@pytest.mark.parametrize("is_exported", [True, False])
def test_datasets_loads_the_files_of_the_last_run(is_exported: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets` caches by the name of the directory and the front matter of its card, not by the content of the files."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    for run, (start, end) in {"a": (0, 3), "a again": (1, 3), "b": (2, 5)}.items():
        output = tmp_path / run[0] / "en-de"
        mined = bitexts.write(tmp_path / run[0] / "mined" if is_exported else output, PAIRS[start:end])
        if is_exported:
            output_of("export", mined, "--output", output)
        rows = datasets.load_dataset(str(output), cache_dir=str(tmp_path / "cache"))["train"]
        assert list(rows["margin"]) == [margin for margin, _, _ in PAIRS[start:end]]


def test_a_readme_of_the_user_is_kept(tmp_path: Path) -> None:
    (tmp_path / "mined").mkdir()
    (tmp_path / "mined" / "README.md").write_text("mine", encoding="utf-8")
    bitexts.write(tmp_path / "mined", PAIRS)
    assert (tmp_path / "mined" / "README.md").read_text(encoding="utf-8") == "mine"
    (tmp_path / "mined" / "README.md").unlink()
    bitexts.write(tmp_path / "mined", PAIRS)
    card = (tmp_path / "mined" / "README.md").read_text(encoding="utf-8").replace("configs:", "license: cc0-1.0\nconfigs:")
    (tmp_path / "mined" / "README.md").write_text(card, encoding="utf-8")
    bitexts.write(tmp_path / "mined", PAIRS[1:])
    assert (tmp_path / "mined" / "README.md").read_text(encoding="utf-8") == card


def test_pairs_that_share_a_sentence_are_exported_to_one_split(tmp_path: Path) -> None:
    pairs = [(2 - number / 100, f"source {number // 2}", f"target {(number + 1) // 3}") for number in range(12)]
    pairs += [(1.5 - number / 100, f"other {number}", f"andere {number}") for number in range(20)]
    output = export(bitexts.write(tmp_path / "mined", pairs), "parquet", "--dev", 5, "--test", 5)
    splits = [pq.read_table(output / f"{name}.parquet").to_pylist() for name in ("train", "dev", "test")]
    assert all(splits)
    assert max(len(splits[1]), len(splits[2])) <= 5  # a group that does not fit is left out
    assert sum(map(len, splits)) == len(pairs)
    for column in ("source_text", "target_text"):
        texts = [{row[column] for row in rows} for rows in splits]
        assert not texts[0] & texts[1] | texts[0] & texts[2] | texts[1] & texts[2]


def test_escape_sequences_are_neither_printed_nor_in_the_card(tmp_path: Path) -> None:
    mined = bitexts.write(tmp_path / "mined", [(1.5, "\x1b]0;title\x07red \u202eevil", "x\x9b31m")])
    output = tmp_path / "out\x1b[31m\u202e"
    printed = output_of("export", mined, "--output", output)
    assert "out\\x1b[31m\\u202e" in printed
    card = (output / "README.md").read_text(encoding="utf-8")
    assert "title" in card
    assert not set("\x1b\x07\x9b\u202e") & set(printed + card)


def test_parquet_keeps_every_column(mined: Path) -> None:
    assert pq.read_table(export(mined, "parquet") / "train.parquet").equals(pq.read_table(mined / "bitext.parquet"))


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (["--threshold", 1.25], [0, 1, 2]),
        (["--top", 2], [0, 1]),
        (["--max-chars", 15], [1, 2, 4]),
        (["--max-chars", 15, "--top", 2], [1, 2]),
    ],
)
def test_bounds_select_pairs(mined: Path, options: list[object], kept: list[int]) -> None:
    table = pq.read_table(export(mined, "parquet", *options) / "train.parquet")
    assert table["margin"].to_pylist() == [PAIRS[number][0] for number in kept]


def test_card_states_languages_settings_and_splits(mined: Path) -> None:
    yaml = pytest.importorskip("yaml")
    card = (export(mined, "huggingface", "--test", 2, "--threshold", 1.05) / "README.md").read_text(encoding="utf-8")
    matter = yaml.safe_load(card.split("---\n")[1])
    assert matter["language"] == ["de", "en"]
    assert matter["configs"][0]["data_files"] == [
        {"split": "train", "path": "data/train.parquet"},
        {"split": "test", "path": "data/test.parquet"},
    ]
    assert "Margin: ratio, k = 4, retrieval: max" in card
    assert "threshold 1.05" in card
    assert "Selection in the mining run: margin > 1.06; filters: none" in card
    assert "\\<left\\>" in card  # texts are no markup


def test_card_states_rescoring_and_probabilities_of_the_run(tmp_path: Path) -> None:
    mined = bitexts.write(
        tmp_path / "mined", PAIRS, margin="ratio", threshold=1.11, min_probability=0.5, rescore="late", rescore_candidates=16
    )
    manifest = records.read(str(mined / "manifest.json"), dict)
    manifest["details"] |= {
        "estimated_precision": 0.9551,
        "choice": {"by": "probability", "min_probability": 0.5, "threshold": 1.11},
    }
    records.write(str(mined / "manifest.json"), manifest)
    card = (export(mined, "huggingface") / "README.md").read_text(encoding="utf-8")
    assert "Rescoring: late, of 16 candidates of each sentence" in card
    assert "Selection in the mining run: probability >= 0.5; filters: none" in card
    assert "Expected precision by the probabilities of the pairs, before the selection of this export: 0.955" in card


def test_card_of_marked_pairs_names_the_evidence(mined: Path) -> None:
    manifest = records.read(str(mined / "manifest.json"), dict)
    manifest["details"] |= {"precision": 0.95, "interval": [0.9, 0.98], "marked": 1200}
    records.write(str(mined / "manifest.json"), manifest)
    assert "By 1,200 pairs that people marked, before the selection of this export: precision 0.950" in (
        export(mined, "huggingface") / "README.md"
    ).read_text(encoding="utf-8")


def test_rerun_replaces_the_files_of_the_export_before(mined: Path) -> None:
    output = mined.parent / "out"
    output_of("export", mined, "--output", output, "--format", "moses", "--test", 1)
    output_of("export", mined, "--output", output, "--format", "jsonl")
    assert sorted(path.name for path in output.iterdir()) == ["README.md", "export.json", "train.jsonl"]


def test_an_output_with_other_files_is_refused_and_kept(mined: Path) -> None:
    output = mined.parent / "theirs"
    output.mkdir()
    (output / "README.md").write_text("mine", encoding="utf-8")
    assert "not empty, and not an export" in error_of("export", mined, "--output", output)
    assert (output / "README.md").read_text(encoding="utf-8") == "mine"


def test_bad_input_is_one_line_and_leaves_no_output(mined: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert "no such file" in error_of("export", tmp_path / "nowhere", "--output", output)
    assert "no pair passes --threshold 9.0, --max-chars 90; relax" in error_of(
        "export", mined, "--output", output, "--threshold", 9, "--max-chars", 90
    )
    assert "no column 'probability'" in error_of("export", mined, "--output", output, "--min-probability", 0.9)
    assert "leave some for training" in error_of("export", mined, "--output", output, "--dev", 3, "--test", 3)
    assert "unknown language code" in error_of("export", mined, "--output", output, "--source-lang", "xx-yy-zz")
    data = (mined / "bitext.parquet").read_bytes()
    (mined / "bitext.parquet").write_bytes(data[: len(data) // 2])
    assert "bitext.parquet" in error_of("export", mined, "--output", output)
    assert not output.exists()
    assert miner("export", mined).exit_code == 2


def test_a_parquet_file_without_manifest_needs_languages(mined: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.parquet"
    moved.write_bytes((mined / "bitext.parquet").read_bytes())
    assert "give --source-lang" in error_of("export", moved, "--output", tmp_path / "out")
    output_of("export", moved, "--output", tmp_path / "out", "--format", "moses", "--source-lang", "eng", "--target-lang", "zh-TW")
    assert (tmp_path / "out" / "train.zh-Hant").exists()


@pytest.mark.parametrize(
    ("code", "tag"),
    [
        ("deu_Latn", "de"),
        ("zho_Hans", "zh-Hans"),
        ("nus_Latn", "nus"),
        ("fuv", "fuv"),
        ("ace_Arab", "ace-Arab"),
        ("zho_Hant", "zh-Hant"),
        ("arb", "ar"),
        ("und", "und"),
    ],
)
def test_languages_are_bcp47_tags(code: str, tag: str) -> None:
    assert bcp47(code) == tag


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=3, max_size=60), st.integers(0, 5))
def test_splits_share_no_sentence(pairs: list[tuple[int, int]], seed: int) -> None:
    import numpy as np

    source_ids, target_ids = np.array(pairs, dtype=np.int64).T
    splits = assign_splits(source_ids, target_ids, (1, 1), seed)
    for ids in (source_ids, target_ids):
        owners = {int(sentence): set(splits[ids == sentence].tolist()) for sentence in ids}
        assert all(len(owner) == 1 for owner in owners.values())
    assert (splits == 1).sum() <= 1
    assert (splits == 2).sum() <= 1


def test_a_group_that_does_not_fit_is_skipped() -> None:
    """Groups of 6, 1, 1, ... pairs: whatever their order, the single pairs fill the splits."""
    import numpy as np

    source_ids = np.array([0] * 6 + list(range(1, 9)))
    for seed in range(20):
        splits = assign_splits(source_ids, np.arange(14), (3, 2), seed)
        assert np.bincount(splits).tolist() == [9, 3, 2]
        assert set(splits[:6].tolist()) == {0}


def test_a_split_that_no_group_fits_is_an_error(tmp_path: Path) -> None:
    pairs = [(2 - number / 100, f"source {number // 3}", f"target {number}") for number in range(30)]
    mined = bitexts.write(tmp_path / "mined", pairs)
    assert "--dev 2: no group of pairs that share a sentence is that small; ask for more pairs" in error_of(
        "export", mined, "--output", tmp_path / "out", "--dev", 2
    )
    result = miner("export", mined, "--output", tmp_path / "out", "--dev", 4)
    assert "dev: 3 of 4 pairs; the other groups of pairs that share a sentence are larger" in result.stderr


def test_splits_of_unrelated_pairs_have_the_sizes_asked_for() -> None:
    import numpy as np

    ids = np.arange(1000)
    splits = assign_splits(ids, ids, (100, 50), 0)
    assert np.bincount(splits).tolist() == [850, 100, 50]
    assert not np.array_equal(splits, assign_splits(ids, ids, (100, 50), 1))
    with pytest.raises(ConfigError, match="leave some"):
        assign_splits(ids, ids, (900, 100), 0)


@pytest.mark.parametrize("name", ["train.jsonl", "README.md"])
def test_a_killed_export_runs_again(name: str, mined: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between the rename of a file and the next step leaves the file, the record and a temporary file."""
    rename = storage.rename

    def die_after(fs: object, source: str, target: str) -> None:
        rename(fs, source, target)  # type: ignore[arg-type]
        if target.endswith(name):
            raise SystemExit(9)

    command = ("export", mined, "--format", "jsonl", "--output", tmp_path / "out")
    monkeypatch.setattr(storage, "rename", die_after)
    assert miner(*command).exit_code == 9
    (tmp_path / "out" / ".train.jsonl.0.tmp").write_text("half")
    monkeypatch.undo()
    output_of(*command)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["README.md", "export.json", "train.jsonl"]


@pytest.mark.parametrize("moment", range(12))
def test_a_killed_export_of_another_format_leaves_no_file_without_an_owner(
    moment: int, mined: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, steps = tmp_path / "out", iter(range(100))
    output_of("export", mined, "--format", "moses", "--output", output)

    def die_before(function: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: object) -> object:
            if next(steps) == moment:
                raise SystemExit(9)
            return function(*arguments)

        return run

    for name in ("rename", "remove"):
        monkeypatch.setattr(storage, name, die_before(getattr(storage, name)))
    assert miner("export", mined, "--format", "jsonl", "--output", output).exit_code in (0, 9)
    monkeypatch.undo()
    written = {path.name for path in output.iterdir() if not path.name.startswith((".", "_"))} - {"export.json", "README.md"}
    assert written <= set(json.loads((output / "export.json").read_text())["files"])
    for held in output.glob("_lock-*"):  # of a process that is not dead
        held.unlink()
    output_of("export", mined, "--format", "tmx", "--output", output)
    assert sorted(path.name for path in output.iterdir()) == ["README.md", "export.json", "train.tmx"]
