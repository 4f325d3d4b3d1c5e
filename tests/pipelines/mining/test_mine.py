"""`miner mine` from two sides to pairs: against the dense reference and gold, on reruns, and for invalid sides."""

import gzip
import itertools
import json
import random
import shutil
from pathlib import Path
from typing import Any

import dense
import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny
from bitexts import OUTPUTS, read_outputs
from click.testing import CliRunner
from command import error_of, miner, output_of

from miner.cli.main import main
from miner.config.choices import FALLBACK_RATIO, MARGINS, RETRIEVALS
from miner.config.commands import EncoderSettings
from miner.encoders import ENCODERS, STATIC, Encoder, find_folder

ENGLISH = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
FRENCH = ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix"]


def pairs_in(output: Path) -> list[tuple[float, int, int]]:
    table = pq.read_table(output / "bitext.parquet")
    return list(zip(*(table[name].to_pylist() for name in ("margin", "source_id", "target_id")), strict=True))


def rows_in(output: Path) -> list[list[str]]:
    data = gzip.decompress((output / "bitext.tsv.gz").read_bytes()).decode()
    assert data.endswith("\n")
    return [line.split("\t") for line in data[:-1].split("\n")]


def random_sides() -> tuple[np.ndarray, np.ndarray]:
    return dense.unit(130, 16, 0), dense.unit(170, 16, 1)


def adversarial_sides() -> tuple[np.ndarray, np.ndarray]:
    """Return true pairs, some repeated on one side or both, and sentences without a vector."""
    x, y = random_sides()
    y[:60] = x[:60]
    y[60:80] = x[0]
    x[100:110] = x[1]
    x[120:], y[160:] = 0, 0
    return x, y


SIDES = {
    "random": random_sides,
    "adversarial": adversarial_sides,
    "one sentence a side": lambda: (dense.unit(1, 8, 0), dense.unit(1, 8, 0)),
    "one sentence against many": lambda: (dense.unit(1, 8, 0), dense.unit(9, 8, 1)),
    "fewer sentences than k": lambda: (dense.unit(3, 8, 0), dense.unit(2, 8, 1)),
    "nothing but zero vectors": lambda: (np.zeros((5, 8), np.float16), np.zeros((6, 8), np.float16)),
    "all the same vector": lambda: (np.tile(dense.unit(1, 8, 0), (30, 1)), np.tile(dense.unit(1, 8, 0), (40, 1))),
}


@pytest.mark.parametrize("sides", SIDES)
def test_pairs_equal_the_dense_reference(sides: str, tmp_path: Path) -> None:
    x, y = SIDES[sides]()
    x_ids, y_ids = dense.text_ids(len(x), 2), dense.text_ids(len(y), 3)
    source, target = dense.write_corpus(tmp_path / "x", x_ids, x), dense.write_corpus(tmp_path / "y", y_ids, y)
    output_of("mine", source, target, "--output", tmp_path / "out", "--threshold", "-5")
    assert pairs_in(tmp_path / "out") == dense.mine(x, y, x_ids, y_ids, threshold=-5)


@pytest.mark.parametrize("margin", MARGINS)
def test_every_margin_and_retrieval_equals_the_dense_reference(margin: str, tmp_path: Path) -> None:
    """All in one output folder, which is searched once. The sides have several shards."""
    x, y = adversarial_sides()
    x_ids, y_ids = dense.text_ids(len(x), 2), dense.text_ids(len(y), 3)
    source, target = dense.write_corpus(tmp_path / "x", x_ids, x, shards=3), dense.write_corpus(tmp_path / "y", y_ids, y, shards=2)
    for retrieval in RETRIEVALS:
        options = ("--margin", margin, "--retrieval", retrieval, "--k", 3)
        threshold = -np.inf if retrieval == "all" else {"ratio": 1.17, "distance": 0.065, "absolute": 0.48}[margin]
        bound = () if retrieval == "all" else ("--threshold", threshold)
        output_of("mine", source, target, "--output", tmp_path / "out", *options, *bound)
        assert pairs_in(tmp_path / "out") == dense.mine(x, y, x_ids, y_ids, 3, margin, retrieval, threshold)


def test_empty_shards_are_mined(tmp_path: Path) -> None:
    x, y = adversarial_sides()
    x_ids, y_ids = dense.text_ids(len(x), 2), dense.text_ids(len(y), 3)
    source = dense.write_corpus(tmp_path / "x", x_ids, x, shards=2, row_group_rows=7)
    target = dense.write_corpus(tmp_path / "y", y_ids[:3], y[:3], shards=5, row_group_rows=7)
    output_of("mine", source, target, "--output", tmp_path / "out", "--threshold", "-5")
    assert pairs_in(tmp_path / "out") == dense.mine(x, y[:3], x_ids, y_ids[:3], threshold=-5)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return sentences of three number words in English and French, 50 true pairs among 60 and 70 lines, and gold."""
    chosen = random.Random(0).sample(list(itertools.combinations(range(10), 3)), 80)
    shuffled = random.Random(1)
    english, french = chosen[:60], chosen[:50] + chosen[60:]
    shuffled.shuffle(english)
    shuffled.shuffle(french)
    # The first English sentence with a translation is repeated at the end with other spaces, and gold has only the copy.
    first = next(row for row, sentence in enumerate(english) if sentence in french)
    lines = [" ".join(ENGLISH[word] for word in sentence) for sentence in english]
    lines.append(f"  {lines[first]}\t")
    gold = {row: french.index(sentence) for row, sentence in enumerate(english) if sentence in french}
    gold[len(english)] = gold.pop(first)
    folder = tmp_path_factory.mktemp("texts")
    files = {name: folder / name for name in ("en.txt", "fr.txt", "gold.tsv")}
    files["en.txt"].write_text("".join(f"{line}\n" for line in lines))
    files["fr.txt"].write_text("".join(" ".join(FRENCH[word] for word in sentence) + "\n" for sentence in french))
    files["gold.tsv"].write_text("".join(f"{source + 1}\t{target + 1}\n" for source, target in gold.items()))
    return files


@pytest.fixture(scope="module")
def text_run(texts: dict[str, Path], toy_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """Return the output folder, the figures and the summary."""
    folder = tmp_path_factory.mktemp("text-run")
    options = ("--gold", texts["gold.tsv"], "--json", folder / "figures.json", "--source-lang", "en", "--target-lang", "fr")
    printed = output_of("mine", texts["en.txt"], texts["fr.txt"], "--output", folder / "out", "--encoder", toy_encoder, *options)
    return folder / "out", json.loads((folder / "figures.json").read_text()), printed


def test_text_with_gold_is_scored(text_run: tuple[Path, dict[str, Any], str]) -> None:
    output, figures, _ = text_run
    assert figures.keys() - {"written_by"} == {
        "lines",
        "sentences",
        "unique",
        "pairs",
        "threshold",
        "choice",
        "dropped",
        "skipped",
        "engine",
        "seconds",
        "precision",
        "recall",
        "f1",
    }
    assert figures["sentences"] == {"source": 61, "target": 70}
    assert figures["unique"] == {"source": 60, "target": 70}
    outcomes = {"lines": 61, "kept": 61, "empty": 0, "invalid": 0, "too_long": 0, "duplicate": 1}
    assert figures["lines"]["source"] == outcomes | {"few_letters": 0, "other_script": 0, "repetitive": 0}
    assert figures["threshold"] == FALLBACK_RATIO
    assert figures["choice"] == {"threshold": FALLBACK_RATIO, "by": "fallback"}
    num_correct = sum([FRENCH[ENGLISH.index(word)] for word in row[1].split()] == row[2].split() for row in rows_in(output))
    assert num_correct >= 40
    assert figures["recall"] == num_correct / 50
    assert figures["precision"] == num_correct / figures["pairs"]
    assert figures["f1"] == pytest.approx(2 * num_correct / (figures["pairs"] + 50))
    assert {"sentences", "embeddings", "search", "mine"} <= set(figures["seconds"])


def test_summary_has_figures_and_example_pairs(text_run: tuple[Path, dict[str, Any], str]) -> None:
    output, figures, printed = text_run
    for line in (
        "source: 61 sentences, 60 unique",
        f"{figures['pairs']} pairs (margin > 1.06)",
        "threshold a fallback",
        f"F1 {figures['f1']:.4f}",
        str(output / OUTPUTS[0]),
    ):
        assert line in printed
    examples = [float(line.split()[0]) for line in printed.splitlines() if "  |  " in line]
    assert len(examples) == 10
    assert examples == sorted(examples, reverse=True)
    margins = [margin for margin, _, _ in pairs_in(output)]
    np.testing.assert_allclose([examples[0], examples[-1]], [margins[0], margins[-1]], atol=1e-4)


def test_options_without_an_effect_are_reported(toy_encoder: Path, tmp_path: Path) -> None:
    for lang, words in (("en", ENGLISH), ("fr", FRENCH)):
        (tmp_path / f"{lang}.txt").write_text("\n".join(words))
        output_of("embed", tmp_path / f"{lang}.txt", "--lang", lang, "--encoder", toy_encoder, "--output", tmp_path / lang)
    command = ("mine", tmp_path / "en", tmp_path / "fr", "--output", tmp_path / "out", "--encoder", toy_encoder)
    for option in (["--max-chars", 10], ["--split"], ["--text-column", "text"], ["--shards", 2], ["--strict"]):
        assert f"{option[0]} has no effect on embeddings directories; give it to `miner embed`" in error_of(*command, *option)
    assert "--lang-id-model has no effect without --filter language or --filter languages" in error_of(*command, "--lang-id-model", "x")
    assert f"--source-lang de: {tmp_path}/en was embedded as eng_Latn" in error_of(*command, "--source-lang", "de")
    assert not (tmp_path / "out").exists()
    result = miner(*command, "--source-lang", "eng", "--threshold", 1.1, "--precision", 0.8)
    assert result.exit_code == 0
    assert "the precision 0.8 has no effect on this threshold; threshold auto chooses one for it" in result.stderr
    assert "the precision" not in miner(*command).stderr


@pytest.mark.parametrize("num_latin", [1, 3])
def test_lines_that_are_not_utf8_are_reported(num_latin: int, toy_encoder: Path, tmp_path: Path) -> None:
    """1 % of the lines is dropped with a count in the summary, more with a warning too."""
    lines = [f"{first} {second} {third}" for first, second, third in itertools.permutations(FRENCH[:6], 3)][: 100 - num_latin]
    (tmp_path / "fr.txt").write_bytes("\n".join(lines).encode() + b"\nd\xe9j\xe0" * num_latin)
    (tmp_path / "en.txt").write_text("one two three\n")
    options = ("--encoder", toy_encoder, "--source-lang", "en", "--target-lang", "fr", "--json", tmp_path / "figures.json")
    for _ in range(2):  # a rerun that reads no text reports them too
        result = miner("mine", tmp_path / "en.txt", tmp_path / "fr.txt", "--output", tmp_path / "out", *options)
        counts = f"of 100 lines, dropped {num_latin} invalid"
        assert f"target: {100 - num_latin} sentences, {100 - num_latin} unique; {counts}" in result.stdout
        assert (f"fr.txt: {counts}; --strict stops at the first" in result.stderr) == (num_latin > 1)
        assert json.loads((tmp_path / "figures.json").read_text())["lines"]["target"]["invalid"] == num_latin


def test_bitext_is_sorted_and_has_files_and_lines(texts: dict[str, Path], text_run: tuple[Path, dict[str, Any], str]) -> None:
    rows, table = rows_in(text_run[0]), pq.read_table(text_run[0] / "bitext.parquet").to_pylist()
    assert [row[1:] for row in rows] == [[row["source_text"], row["target_text"]] for row in table]
    np.testing.assert_allclose([float(row[0]) for row in rows], [row["margin"] for row in table], atol=1e-8)
    order = [(-row["margin"], row["source_id"], row["target_id"]) for row in table]
    assert order == sorted(order)
    for side, name in (("source", "en.txt"), ("target", "fr.txt")):
        lines = texts[name].read_text().splitlines()
        assert {row[f"{side}_file"] for row in table} == {str(texts[name])}
        assert all(" ".join(lines[row[f"{side}_line"] - 1].split()) == row[f"{side}_text"] for row in table)


def test_text_keeps_quotes_and_loses_tabs(toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text('one "two, ""three\tfour"\none two\n')
    (tmp_path / "b.txt").write_text("un 'deux trois quatre\nsept huit\n")
    output_of("mine", tmp_path / "a.txt", tmp_path / "b.txt", "--output", tmp_path / "out", "--encoder", toy_encoder, "--threshold", "1")
    assert rows_in(tmp_path / "out")[0][1:] == ['one "two, ""three four"', "un 'deux trois quatre"]


def test_terminal_charset_without_a_letter_is_no_error(toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two \N{SNOWMAN}\n", encoding="utf-8")
    text = str(tmp_path / "a.txt")
    options = ["--output", str(tmp_path / "out"), "--threshold", "0", "--filter", "none", "--encoder", str(toy_encoder), "--no-report"]
    result = CliRunner(charset="latin-1").invoke(main, ["mine", text, text, *options])
    assert result.exit_code == 0
    assert "one two ?  |  one two ?" in result.stdout


def test_embedded_and_indexed_sides_give_the_pairs_of_their_text(
    texts: dict[str, Path], text_run: tuple[Path, dict[str, Any], str], toy_encoder: Path, tmp_path: Path
) -> None:
    embedded, indexed = tmp_path / "embedded", tmp_path / "indexed"
    assert miner("embed", texts["en.txt"], "--output", embedded, "--encoder", toy_encoder, "--shards", 3).exit_code == 0
    assert miner("index", text_run[0] / "target", "--output", indexed).exit_code == 0
    output_of("mine", embedded, indexed, "--output", tmp_path / "out", "--encoder", toy_encoder)
    assert pairs_in(tmp_path / "out") == pairs_in(text_run[0])


def test_standard_input_can_be_a_side(
    texts: dict[str, Path], text_run: tuple[Path, dict[str, Any], str], toy_encoder: Path, tmp_path: Path
) -> None:
    output_of(
        "mine", "-", text_run[0] / "target", "--output", tmp_path / "out", "--encoder", toy_encoder, stdin=texts["en.txt"].read_bytes()
    )
    assert pairs_in(tmp_path / "out") == pairs_in(text_run[0])


def test_standard_input_cannot_be_both_sides(tmp_path: Path) -> None:
    assert "both standard input" in error_of("mine", "-", "-", "--output", tmp_path / "out")


def test_corpus_mined_against_itself_pairs_each_sentence_with_itself(tmp_path: Path) -> None:
    ids = dense.text_ids(40, 0)
    corpus = dense.write_corpus(tmp_path / "x", ids, dense.unit(40, 16, 0))
    output_of("mine", corpus, corpus, "--output", tmp_path / "out")
    assert {(source, target) for _, source, target in pairs_in(tmp_path / "out")} == {
        (sentence_id, sentence_id) for sentence_id in ids.tolist()
    }


class TestRerun:
    """A second run into the same folder."""

    @pytest.fixture(scope="class")
    def run(self, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
        """Return source, target and the output of a first run."""
        folder, vectors = tmp_path_factory.mktemp("first"), zip("xy", adversarial_sides(), strict=True)
        sides = [dense.write_corpus(folder / name, dense.text_ids(len(v), i), v, shards=2) for i, (name, v) in enumerate(vectors)]
        output_of("mine", *sides, "--output", folder / "out")
        return sides[0], sides[1], folder / "out"

    @pytest.fixture
    def first(self, run: tuple[Path, Path, Path], tmp_path: Path) -> tuple[Path, Path, Path]:
        """Return the same, with a copy of the output for one test."""
        return *run[:2], shutil.copytree(run[2], tmp_path / "out")

    def test_same_settings_give_the_same_bytes_and_keep_shards(self, first: tuple[Path, Path, Path], tmp_path: Path) -> None:
        source, target, output = first
        before = read_outputs(output)
        shards = {path: path.stat().st_mtime_ns for path in output.rglob("part-*.parquet")}
        output_of("mine", source, target, "--output", output)
        assert read_outputs(output) == before
        assert {path: path.stat().st_mtime_ns for path in output.rglob("part-*.parquet")} == shards
        output_of("mine", source, target, "--output", tmp_path / "elsewhere")
        assert read_outputs(tmp_path / "elsewhere") == before

    def test_other_settings_of_the_selection_give_the_bytes_of_a_new_run(self, first: tuple[Path, Path, Path], tmp_path: Path) -> None:
        source, target, output = first
        options = ("--margin", "distance", "--retrieval", "intersection", "--threshold", "0.01")
        output_of("mine", source, target, "--output", output, *options)
        output_of("mine", source, target, "--output", tmp_path / "fresh", *options)
        assert read_outputs(output) == read_outputs(tmp_path / "fresh")

    def test_stopped_run_resumes(self, first: tuple[Path, Path, Path]) -> None:
        source, target, output = first
        before = read_outputs(output)
        for name in ("manifest.json", "bitext.tsv.gz", "candidates/manifest.json", "neighbours/forward/manifest.json"):
            (output / name).unlink()
        for name in ("candidates/part-00001-of-00002.parquet", "neighbours/forward/part-00000-of-00002.parquet"):
            (output / name).write_bytes((output / name).read_bytes()[:100])
        output_of("mine", source, target, "--output", output)
        assert read_outputs(output) == before

    def test_another_k_is_an_error_that_names_both_values(self, first: tuple[Path, Path, Path]) -> None:
        source, target, output = first
        before = read_outputs(output)
        assert "k 4, now 5" in error_of("mine", source, target, "--output", output, "--k", 5)
        assert read_outputs(output) == before

    def test_other_sides_are_mined_again(self, first: tuple[Path, Path, Path], tmp_path: Path) -> None:
        source, _, output = first
        y = dense.unit(50, 16, 8)
        other = dense.write_corpus(tmp_path / "other", dense.text_ids(50, 9), y)
        output_of("mine", source, other, "--output", output, "--threshold", "0.5", "--replace")
        x = adversarial_sides()[0]
        assert pairs_in(output) == dense.mine(x, y, dense.text_ids(len(x), 0), dense.text_ids(50, 9), threshold=0.5)


WARNING = "default threshold"


@pytest.mark.slow
def test_the_default_threshold_of_an_encoder_that_recommends_none_is_a_warning(tmp_path: Path) -> None:
    model = tiny.save_transformer(tmp_path / "model")
    (tmp_path / "a.txt").write_text("one two\nthree four\n")
    (tmp_path / "b.txt").write_text("eins zwei\ndrei vier\n")
    sides = ("mine", tmp_path / "a.txt", tmp_path / "b.txt", "--output")
    by_model = ("--encoder", model, "--pooling", "mean")
    warned = miner(*sides, tmp_path / "default", *by_model)
    lines = [line for line in warned.stderr.splitlines() if WARNING in line]
    assert warned.exit_code == 0
    assert len(lines) == 1
    assert all(part in lines[0] for part in ("1.06 is a fallback", "too few pairs", "--threshold auto --planted known.tsv"))
    again = miner("mine", "--from-candidates", tmp_path / "default", "--output", tmp_path / "again", "--margin", "distance")
    assert WARNING in again.stderr
    assert "default threshold 1.06" not in again.stderr  # a ratio
    explicit = miner(*sides, tmp_path / "explicit", *by_model, "--threshold", FALLBACK_RATIO)
    assert WARNING not in explicit.stderr
    assert pairs_in(tmp_path / "explicit") == pairs_in(tmp_path / "default")
    assert WARNING not in miner(*sides, tmp_path / "all", *by_model, "--retrieval", "all").stderr
    assert WARNING not in miner(*sides, tmp_path / "builtin").stderr


def test_an_encoder_is_loaded_once(texts: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides, the probabilities of its profile and rescoring share it."""
    (tmp_path / "encoder").symlink_to(find_folder("builtin"))  # which no other test has loaded
    loaded, load = [], ENCODERS[STATIC]

    def count(folder: str, settings: EncoderSettings) -> Encoder:
        loaded.append(folder)
        return load(folder, settings)

    monkeypatch.setitem(ENCODERS, STATIC, count)
    output_of("mine", texts["en.txt"], texts["fr.txt"], "--encoder", tmp_path / "encoder", "--output", tmp_path / "out")
    assert loaded == [str(tmp_path / "encoder")]


def test_lines_of_paragraphs_against_sentences_get_a_hint(toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "en.txt").write_text("one two three four five six seven eight two one\none three five seven eight two four six three\n")
    (tmp_path / "fr.txt").write_text("un deux trois\ntrois cinq sept\n")
    sides = (tmp_path / "en.txt", tmp_path / "fr.txt")
    result = miner("mine", *sides, "--encoder", toy_encoder, "--threshold", "1", "--output", tmp_path / "out")
    assert "out/source: its lines are 3.3 times as long as those of the other side; --split cuts them into sentences" in result.stderr
    same = miner("mine", sides[1], sides[1], "--encoder", toy_encoder, "--threshold", "1", "--output", tmp_path / "same")
    assert "times as long" not in same.stderr
