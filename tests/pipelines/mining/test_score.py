"""`miner score`: the margins of line pairs against those of mining, and lines without a sentence."""

import gzip
import json
import math
from pathlib import Path

import command
import pytest
from command import miner, output_of

from miner.choices import MARGINS
from miner.config.commands import ScoreConfig
from pipelines.mining import score

ENGLISH = ["one two", "three four five", "six seven", "two three", "one two", "nine ten one", "three four five", "one", "four six"]
FRENCH = ["un deux", "trois quatre", "six huit", "deux trois", "neuf dix", "neuf dix un", "trois quatre cinq", "un", "six quatre"]


def scored(output: Path, *arguments: object) -> list[list[str]]:
    output_of("score", *arguments, "--output", output)
    assert not Path(f"{output}.work").exists()
    data = output.read_bytes()
    return [line.split("\t") for line in (gzip.decompress(data) if output.suffix == ".gz" else data).decode().splitlines()]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the two texts, which tests do not change."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "en.txt").write_text("".join(f"{line}\n" for line in ENGLISH))
    (folder / "fr.txt").write_text("".join(f"{line}\n" for line in FRENCH))
    return folder / "en.txt", folder / "fr.txt"


@pytest.fixture(scope="module")
def candidates(texts: tuple[Path, Path], toy_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mine the texts with k as large as they are."""
    output = tmp_path_factory.mktemp("candidates") / "mined"
    output_of("mine", *texts, "--output", output, "--encoder", toy_encoder, "--k", 9)
    return output


def mined(output: Path, *arguments: object) -> dict[tuple[str, str], str]:
    """Return the margin of every pair, as `miner mine` computes it."""
    output_of("mine", *arguments, "--output", output, "--retrieval", "all")
    rows = [line.split("\t") for line in gzip.decompress((output / "bitext.tsv.gz").read_bytes()).decode().splitlines()]
    return {(row[1], row[2]): row[0] for row in rows}


@pytest.mark.parametrize("margin", MARGINS)
def test_every_line_has_the_margin_of_mining(
    margin: str, texts: tuple[Path, Path], candidates: Path, toy_encoder: Path, tmp_path: Path
) -> None:
    expected = mined(tmp_path / "mined", "--from-candidates", candidates, "--margin", margin)
    rows = scored(tmp_path / "scored.tsv", *texts, "--encoder", toy_encoder, "--k", "9", "--margin", margin, "--shards", "3")
    assert [tuple(row[1:]) for row in rows] == list(zip(ENGLISH, FRENCH, strict=True))
    assert [row[0] for row in rows] == [expected[row[1], row[2]] for row in rows]


def test_small_blocks_give_the_same_bytes(texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
    for name, block_bytes in (("default", score.BLOCK_BYTES), ("two-pairs", 4 * 32 * 2)):
        paths = {"source": str(texts[0]), "target": str(texts[1]), "output": str(tmp_path / name)}
        score.run(ScoreConfig(**paths, encoder=str(toy_encoder), k=9), block_bytes=block_bytes)
    assert (tmp_path / "two-pairs").read_bytes() == (tmp_path / "default").read_bytes()


def test_background_is_searched_for_neighbours(texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
    """A background is text or a folder, and may contain sentences of the bitext. The margins are those of mining both together."""
    more = {"en": ["three four five", "one ten ten", "five six"], "fr": ["un dix dix", "deux trois", "cinq cinq six", "huit"]}
    wide = []
    for text, (name, lines) in zip(texts, more.items(), strict=True):
        (tmp_path / f"more.{name}.txt").write_text("".join(f"{line}\n" for line in lines))
        wide.append(tmp_path / f"wide.{name}.txt")
        wide[-1].write_text(text.read_text() + (tmp_path / f"more.{name}.txt").read_text())
    assert miner("embed", tmp_path / "more.fr.txt", "--encoder", toy_encoder, "--output", tmp_path / "fr").exit_code == 0
    expected = mined(tmp_path / "mined", *wide, "--encoder", toy_encoder, "--k", "20")
    backgrounds = ("--background-source", tmp_path / "more.en.txt", "--background-target", tmp_path / "fr")
    rows = scored(tmp_path / "scored.tsv.gz", *texts, *backgrounds, "--encoder", toy_encoder, "--k", "20")
    assert [row[0] for row in rows] == [expected[row[1], row[2]] for row in rows]


def test_one_file_of_two_columns_gives_the_bytes_of_two_files(texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
    lines = ["fr\tid\ten", *(f"{two}\t{at}\t{one}" for at, (one, two) in enumerate(zip(ENGLISH, FRENCH, strict=True)))]
    (tmp_path / "both.tsv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))  # without a last line end
    columns = ("--source-column", "en", "--target-column", "fr")
    for name, given in (("one", (tmp_path / "both.tsv.gz", *columns)), ("two", texts)):
        scored(tmp_path / name / "scored.tsv.gz", *given, "--encoder", toy_encoder)
    assert (tmp_path / "one/scored.tsv.gz").read_bytes() == (tmp_path / "two/scored.tsv.gz").read_bytes()


def test_lines_without_a_sentence_keep_their_position(toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "en.txt").write_bytes(b"one two\n\nthree\xff\n  four\tfive \nsix\nunknown\n")
    (tmp_path / "fr.txt").write_bytes(b"un deux\nun\ntrois\nquatre cinq\n \nunknown\n")
    options = ("--encoder", toy_encoder, "--json", tmp_path / "figures.json")
    rows = scored(tmp_path / "scored.tsv", tmp_path / "en.txt", tmp_path / "fr.txt", *options)
    assert [row[1:] for row in rows] == [
        ["one two", "un deux"], ["", "un"], ["", "trois"], ["four five", "quatre cinq"], ["six", ""], ["unknown", "unknown"]
    ]  # fmt: skip
    assert [math.isnan(float(row[0])) for row in rows] == [False, True, True, False, True, True]
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert {name: figures[name] for name in ("lines", "scored", "dropped", "without_margin")} == {
        "lines": 6, "scored": 2, "dropped": 3, "without_margin": 1
    }  # fmt: skip
    assert figures["unique"] == {"source": 4, "target": 5}


class TestErrors:
    def error_of(self, *arguments: object, output: Path, encoder: Path) -> str:
        """Return the error message; nothing is written."""
        message = command.error_of("score", *arguments, "--output", output, "--encoder", encoder)
        assert not list(output.parent.glob(f"{output.name}*"))
        return message

    @pytest.mark.parametrize("longer", [0, 1])
    def test_sides_of_different_length(self, longer: int, texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
        sides = list(texts)
        sides[longer] = tmp_path / "longer.txt"
        sides[longer].write_text(texts[longer].read_text() + "six\n")
        message = self.error_of(*sides, output=tmp_path / "out.tsv", encoder=toy_encoder)
        assert f"{sides[1 - longer]}: ends after 9 lines, and {sides[longer]} continues" in message

    def test_missing_or_empty_text(self, texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
        message = self.error_of(texts[0], tmp_path / "no.txt", output=tmp_path / "out.tsv", encoder=toy_encoder)
        assert "no.txt: no such file" in message
        (tmp_path / "empty.txt").write_text("")
        message = self.error_of(tmp_path / "empty.txt", tmp_path / "empty.txt", output=tmp_path / "out.tsv", encoder=toy_encoder)
        assert "no sentence in" in message

    def test_output_that_is_a_folder(self, texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
        assert "a folder; name a file to write" in command.error_of("score", *texts, "--output", tmp_path, "--encoder", toy_encoder)
        assert not tmp_path.with_name(f"{tmp_path.name}.work").exists()

    def test_output_that_is_an_input_or_has_foreign_work(self, texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
        (tmp_path / "pairs.tsv").write_text("one\teins\n")
        columns = ("--source-column", "1", "--target-column", "2", "--output", tmp_path / "pairs.tsv")
        assert "both input and output" in command.error_of("score", tmp_path / "pairs.tsv", *columns, "--encoder", toy_encoder)
        assert (tmp_path / "pairs.tsv").read_text() == "one\teins\n"
        (tmp_path / "out.tsv.work").mkdir()
        (tmp_path / "out.tsv.work" / "theirs").write_text("x")
        message = command.error_of("score", *texts, "--output", tmp_path / "out.tsv", "--encoder", toy_encoder)
        assert "contains theirs, which `miner score` did not write" in message
        assert (tmp_path / "out.tsv.work" / "theirs").read_text() == "x"

    def test_several_files_or_standard_input(self, texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
        message = self.error_of(texts[0].with_name("*.txt"), texts[1], output=tmp_path / "out.tsv", encoder=toy_encoder)
        assert "matches 2 files" in message
        assert "standard input cannot be scored" in self.error_of("-", texts[1], output=tmp_path / "out.tsv", encoder=toy_encoder)

    def test_background_that_is_missing_or_of_another_encoder(self, texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
        background = ("--background-target", tmp_path / "background")
        assert "background: no such file" in self.error_of(*texts, *background, output=tmp_path / "out.tsv", encoder=toy_encoder)
        assert miner("embed", texts[1], "--output", tmp_path / "background").exit_code == 0
        message = self.error_of(*texts, *background, output=tmp_path / "out.tsv", encoder=toy_encoder)
        assert "background was embedded by static-" in message

    def test_one_file_without_its_columns_is_wrong_usage(self, texts: tuple[Path, Path], tmp_path: Path) -> None:
        result = miner("score", texts[0], "--source-column", "1", "--output", tmp_path / "out.tsv")
        assert result.exit_code == 2
        assert "--target-column" in result.stderr
