"""Sentence filters and the collapse of near-duplicates in `miner embed`: what is kept, counted and written."""

import json
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import error_of, output_of

from miner.config.commands import Filters, PairFilters, SentenceFilters
from miner.config.probability import PROBABILITY
from miner.filters.language import load_identifier
from miner.filters.pairs import PAIR_FILTERS
from miner.filters.sentences import SENTENCE_FILTERS
from miner.io import stages
from miner.text.near_duplicates import skeleton

LINES = {
    "a.txt": ["one two three", "12345 67890", "One two three!", "four five six", "", "one two three"],
    "b.txt": ["four five six", "ONE TWO THREE", "seven eight", "12345 67890", "one one one one one one one one", "12345 67890"],
}
FILTERS = ("--filter", "letters=0.5", "--filter", "repeats=0.5")
SHARDS = (1, 2, 7)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("inputs")
    for name, lines in LINES.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return sorted(folder.iterdir())


def embed(inputs: list[Path], output: Path, encoder: Path, *options: object) -> str:
    """Run `miner embed` and return its summary."""
    return output_of("embed", *inputs, "--output", output, "--encoder", encoder, *options)


def rows(folder: Path) -> list[tuple[object, ...]]:
    """Return the rows of all shards: text, count, file name, line, and all other columns but the id."""
    tables = [pq.read_table(path) for path in sorted(folder.glob("part-*.parquet"))]
    table = pa.concat_tables([table.set_column(3, "source", table["source"].cast(pa.string())) for table in tables]).drop_columns("id")
    return sorted((row["text"], row["count"], Path(row["source"]).name, *list(row.values())[3:]) for row in table.to_pylist())


def counts(output: Path) -> dict[str, int]:
    details: dict[str, dict[str, int]] = json.loads((output / "sentences" / "manifest.json").read_text())["details"]
    return details["counts"]


def shard_bytes(output: Path) -> dict[str, bytes]:
    """Return the bytes of every shard by path."""
    return {str(path.relative_to(output)): path.read_bytes() for path in sorted(output.rglob("part-*.parquet"))}


@pytest.mark.parametrize("shards", SHARDS)
def test_dropped_sentences_are_counted_by_reason_and_written(inputs: list[Path], toy_encoder: Path, shards: int, tmp_path: Path) -> None:
    summary = embed(inputs, tmp_path, toy_encoder, *FILTERS, "--keep-dropped", "--shards", shards)
    assert rows(tmp_path / "sentences") == [
        ("ONE TWO THREE", 1, "b.txt", 2),
        ("One two three!", 1, "a.txt", 3),
        ("four five six", 2, "a.txt", 4),
        ("one two three", 2, "a.txt", 1),
        ("seven eight", 1, "b.txt", 3),
    ]
    assert rows(tmp_path / "dropped") == [
        ("12345 67890", 3, "a.txt", 2, "few_letters", 0.0),
        ("one one one one one one one one", 1, "b.txt", 5, "repetitive", pytest.approx(20 / 24)),
    ]
    outcomes = counts(tmp_path)
    assert outcomes == {
        "lines": 12, "kept": 7, "empty": 1, "invalid": 0, "too_long": 0, "few_letters": 3, "repetitive": 1, "duplicate": 2,
    }  # fmt: skip
    assert outcomes["lines"] == sum(count for name, count in outcomes.items() if name not in ("lines", "duplicate"))
    assert "3 few letters, 1 repetitive" in summary
    assert stages.read_manifest(str(tmp_path / "dropped"), "dropped").rows == 2
    assert {path.name for path in tmp_path.iterdir()} == {"sentences", "embeddings", "dropped"}


@pytest.mark.parametrize("shards", SHARDS)
def test_near_duplicates_become_the_first_with_the_sum_of_counts(
    inputs: list[Path], toy_encoder: Path, shards: int, tmp_path: Path
) -> None:
    embed(inputs, tmp_path, toy_encoder, *FILTERS, "--collapse", "--keep-dropped", "--shards", shards)
    assert rows(tmp_path / "sentences") == [
        ("four five six", 2, "a.txt", 4),
        ("one two three", 4, "a.txt", 1),
        ("seven eight", 1, "b.txt", 3),
    ]
    assert [row[:5] for row in rows(tmp_path / "dropped")] == [
        ("12345 67890", 3, "a.txt", 2, "few_letters"),
        ("ONE TWO THREE", 1, "b.txt", 2, "near_duplicate"),
        ("One two three!", 1, "a.txt", 3, "near_duplicate"),
        ("one one one one one one one one", 1, "b.txt", 5, "repetitive"),
    ]
    outcomes = counts(tmp_path)
    assert (outcomes["kept"], outcomes["near_duplicate"], outcomes["duplicate"]) == (7, 2, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"sentences", "embeddings", "dropped"}


@pytest.mark.slow
def test_collapse_does_not_depend_on_the_number_of_shards(toy_encoder: Path, tmp_path: Path) -> None:
    words = ["one", "One", "ONE!", "two", "Two.", "three", "Three", "four"]
    lines = [f"{words[n % 8]} {words[n * 3 % 8]}{'.' * (n % 3)}" for n in range(60)]
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{line}\n" for line in lines))
    expected: dict[str, tuple[str, int, int]] = {}
    form_counts = Counter(skeleton(line) for line in lines)
    for number, line in enumerate(lines, start=1):
        expected.setdefault(skeleton(line), (line, form_counts[skeleton(line)], number))
    for shards in SHARDS:
        embed([text], tmp_path / str(shards), toy_encoder, "--collapse", "--shards", shards)
        assert [(row[0], row[1], row[3]) for row in rows(tmp_path / str(shards) / "sentences")] == sorted(expected.values())


@pytest.mark.parametrize("options", [(), ("--collapse",)], ids=["filtered", "collapsed"])
class TestRerun:
    def test_resumed_run_gives_the_same_bytes(
        self, options: tuple[str, ...], inputs: list[Path], toy_encoder: Path, tmp_path: Path
    ) -> None:
        all_options = (*FILTERS, "--keep-dropped", "--shards", 3, *options)
        embed(inputs, tmp_path, toy_encoder, *all_options)
        shards_before, counts_before = shard_bytes(tmp_path), counts(tmp_path)
        (tmp_path / "sentences/manifest.json").unlink()
        (tmp_path / "sentences/part-00001-of-00003.parquet").unlink()
        (tmp_path / "dropped/manifest.json").unlink()
        (tmp_path / "dropped/part-00002-of-00003.parquet").write_bytes(b"half")
        embed(inputs, tmp_path, toy_encoder, *all_options)
        assert (shard_bytes(tmp_path), counts(tmp_path)) == (shards_before, counts_before)

    def test_dropped_sentences_can_be_requested_later(
        self, options: tuple[str, ...], inputs: list[Path], toy_encoder: Path, tmp_path: Path
    ) -> None:
        all_options = (*FILTERS, "--shards", 3, *options)
        embed(inputs, tmp_path / "a", toy_encoder, *all_options)
        assert not (tmp_path / "a/dropped").exists()
        embed(inputs, tmp_path / "a", toy_encoder, *all_options, "--keep-dropped")
        embed(inputs, tmp_path / "b", toy_encoder, *all_options, "--keep-dropped")
        assert shard_bytes(tmp_path / "a") == shard_bytes(tmp_path / "b")


class TestErrors:
    """Exit status 1 and one line on stderr."""

    @pytest.mark.parametrize(
        ("option", "message"),
        [
            ("colour", "--filter colour: unknown; one of recommended, none, min_chars"),
            ("numbers", "--filter numbers: unknown"),
            ("letters=much", "--filter letters: expected a number, not 'much'"),
            ("letters=1.5", "--filter letters: expected at most 1"),
            ("letters=nan", "--filter letters: expected a finite number"),
            ("min_chars=2.5", "--filter min_chars: expected an integer, not '2.5'"),
            ("min_chars", "--filter min_chars: needs a number for a bound"),
            ("recommended=0.5", "--filter recommended=0.5: recommended names several filters; set the bound of a filter by its name"),
            ("none=off", "--filter none=off: none names several filters"),
            ("", "--filter : unknown"),
        ],
    )
    def test_invalid_filter_option(self, option: str, message: str, inputs: list[Path], tmp_path: Path) -> None:
        assert message in error_of("embed", *inputs, "--output", tmp_path / "out", "--filter", option)
        assert not (tmp_path / "out").exists()

    def test_output_of_other_filters_is_refused(self, inputs: list[Path], toy_encoder: Path, tmp_path: Path) -> None:
        embed(inputs, tmp_path / "out", toy_encoder, "--filter", "letters=0.5")
        command = ("embed", *inputs, "--output", tmp_path / "out", "--encoder", toy_encoder)
        assert "made with filter letters 0.5, now 0.01" in error_of(*command)
        assert "made with filter letters 0.5, now 0.4" in error_of(*command, "--filter", "letters")
        assert "made with collapse False, now True" in error_of(*command, "--filter", "letters=0.5", "--collapse")

    def test_filters_that_drop_every_sentence(self, inputs: list[Path], toy_encoder: Path, tmp_path: Path) -> None:
        options = ("--encoder", toy_encoder, "--filter", "min_words=20", "--keep-dropped")
        message = error_of("embed", *inputs, "--output", tmp_path / "out", *options)
        assert "the filters drop every sentence (12 lines, 1 empty, 11 few words); relax their bounds" in message
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["embed", "mine"])
def test_missing_language_identifier_is_reported_before_any_work(
    command: str, inputs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)  # as if the extra were not installed
    load_identifier.cache_clear()
    name = "language" if command == "embed" else "languages"
    assert "pip install 'bitext-miner[langid]'" in error_of(command, *inputs, "--output", tmp_path / "out", "--filter", name)
    assert not (tmp_path / "out").exists()


def test_language_filters_apply_only_to_a_known_language(toy_encoder: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Das ist ein deutscher Satz.\nThis is an English sentence.\nЭто русское предложение.\n")
    for lang, kept in (("de", 1), ("und", 3)):
        embed([text], tmp_path / lang, toy_encoder, "--lang", lang, "--filter", "script", "--filter", "language")
        assert counts(tmp_path / lang)["kept"] == kept


@pytest.mark.parametrize(
    ("settings", "filters"), [(SentenceFilters, SENTENCE_FILTERS), (PairFilters, PAIR_FILTERS)], ids=["sentences", "pairs"]
)
def test_every_filter_has_a_setting_and_a_valid_usual_bound(settings: type[Filters], filters: dict[str, object]) -> None:
    assert list(settings.model_fields) == [name for name in filters if name != PROBABILITY]  # which has an option of its own
    assert settings.none().bounds() == {}
    assert settings.check(**dict.fromkeys(settings.usual(), True)).bounds() == settings.usual()
