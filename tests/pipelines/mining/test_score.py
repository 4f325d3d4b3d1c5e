"""`miner score`: the margins of line pairs against those of mining, and lines without a sentence."""

import gzip
import itertools
import json
import math
import os
from pathlib import Path

import command
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import miner, output_of

from miner.config.choices import MARGINS
from miner.config.commands import PairTextFilters, ScoreConfig
from miner.filters.line_pair_filter import LinePairFilter
from pipelines.mining import score

EXAMPLES = Path(__file__).parents[3] / "examples"
ENGLISH = ["one two", "three four five", "six seven", "two three", "one two", "nine ten one", "three four five", "one", "four six"]
FRENCH = ["un deux", "trois quatre", "six huit", "deux trois", "neuf dix", "neuf dix un", "trois quatre cinq", "un", "six quatre"]


def scored(output: Path, *arguments: object) -> list[list[str]]:
    output_of("score", *arguments, "--output", output)
    assert not Path(f"{output}.work").exists()
    data = output.read_bytes()
    return [line.split("\t")[:3] for line in (gzip.decompress(data) if output.suffix == ".gz" else data).decode().splitlines()]


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
    output_of("mine", "--filter", "none", *arguments, "--output", output, "--retrieval", "all")
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
        paths = {"source": str(texts[0]), "target": str(texts[1]), "output": str(tmp_path / f"{name}.tsv")}
        score.run(ScoreConfig(**paths, encoder=str(toy_encoder), k=9), block_bytes=block_bytes)
    assert (tmp_path / "two-pairs.tsv").read_bytes() == (tmp_path / "default.tsv").read_bytes()


@pytest.mark.slow
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
    lines = ["fr\tmargin\ten", *(f"{two}\t{at}\t{one}" for at, (one, two) in enumerate(zip(ENGLISH, FRENCH, strict=True)))]
    (tmp_path / "both.tsv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))  # without a last line end
    columns = ("--source-column", "en", "--target-column", "fr")
    for name, given in (("one", (tmp_path / "both.tsv.gz", *columns)), ("two", texts)):
        scored(tmp_path / name / "scored.tsv.gz", *given, "--encoder", toy_encoder)
    one, two = (
        [line.split("\t") for line in gzip.decompress((tmp_path / name / "scored.tsv.gz").read_bytes()).decode().splitlines()]
        for name in ("one", "two")
    )
    assert [cells[:5] for cells in one] == [cells[:5] for cells in two]
    assert [cells[5:] for cells in one] == [[str(number + 2), str(number)] for number in range(len(ENGLISH))]  # after a header
    assert [cells[5:] for cells in two] == [[str(number + 1)] for number in range(len(ENGLISH))]


@pytest.mark.parametrize("top", [(), ("--top", 4)])
def test_columns_of_the_input_are_kept_in_every_format(top: tuple[object, ...], toy_encoder: Path, tmp_path: Path) -> None:
    """TSV, JSON lines and Parquet as input and output, a column of the name of one of the output, nested values, missing ones."""
    rows = [
        {"text": {"en": one, "fr": two}, "id": at, "margin": at / 4, "tags": ["é", at], **({"note": "a\tb"} if at % 2 else {})}
        for at, (one, two) in enumerate(zip(ENGLISH, FRENCH, strict=True))
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(
        pa.Table.from_pylist([{name: row.get(name) for name in ("text", "id", "margin")} for row in rows]), tmp_path / "in.parquet"
    )
    lines = ["en;id;fr;", *(f'"{row["text"]["en"]}";{row["id"]};{row["text"]["fr"]};' for row in rows)]
    (tmp_path / "in.csv").write_text("\n".join(lines))
    nested = ("--source-column", "text.en", "--target-column", "text.fr")
    outputs = {}
    for name, columns in (("in.jsonl", nested), ("in.parquet", nested), ("in.csv", ("--source-column", "en", "--target-column", "fr"))):
        for ending in ("tsv", "jsonl", "parquet"):
            outputs[name, ending] = tmp_path / f"{name}.{ending}"
            options = ("--encoder", toy_encoder, "--output", outputs[name, ending], *top)
            assert miner("score", tmp_path / name, *columns, *options, report=True).exit_code == 0
            assert "Reasons" in Path(f"{outputs[name, ending]}.report.html").read_text(encoding="utf-8")
    records = [json.loads(line) for line in outputs["in.jsonl", "jsonl"].read_text(encoding="utf-8").splitlines()]
    kept = [record["line"] - 1 for record in records]
    assert len(kept) == (4 if top else len(rows))
    assert [(record["id"], record["input_margin"], record["tags"], record["note"]) for record in records] == [
        (rows[at]["id"], rows[at]["margin"], rows[at]["tags"], rows[at].get("note")) for at in kept
    ]
    cells = [line.split("\t") for line in outputs["in.jsonl", "tsv"].read_text(encoding="utf-8").splitlines()]
    assert [row[5:] for row in cells] == [
        [str(at + 1), str(at), str(at / 4), json.dumps(["é", at], ensure_ascii=False), "a b" if at % 2 else ""] for at in kept
    ]
    table = pq.read_table(outputs["in.parquet", "parquet"])
    assert table["id"].to_pylist() == kept
    assert table["input_margin"].to_pylist() == [at / 4 for at in kept]
    assert pq.read_table(outputs["in.csv", "parquet"]).select(["line", "id"]).to_pylist() == [
        {"line": at + 2, "id": str(at)} for at in kept
    ]
    for (name, ending), output in outputs.items():
        exported = tmp_path / f"{name}-{ending}-export"
        output_of("export", output, "--source-lang", "en", "--target-lang", "fr", "--format", "moses", "--output", exported, "--top", 3)
        best = sorted(sorted(kept, key=lambda at: -records[kept.index(at)]["margin"])[:3])
        assert (exported / "train.fr").read_text().splitlines() == [FRENCH[at] for at in best]


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
    assert {name: figures[name] for name in ("lines", "scored", "written", "dropped", "unscored")} == {
        "lines": 6, "scored": 2, "written": 6, "dropped": None, "unscored": {"no_sentence": 3, "no_margin": 1}
    }  # fmt: skip
    assert figures["unique"] == {"source": 4, "target": 5}


class TestFiltering:
    """What stays is compared with a loop over the output of the command without bounds, in which the margins are known to be right."""

    @pytest.fixture(scope="class")
    @staticmethod
    def bitext(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
        """Return two texts with repeated pairs, so that margins are equal, lines without a sentence, a near copy and other numbers."""
        folder = tmp_path_factory.mktemp("bitext")
        english = [*ENGLISH, "", "one two", "one 2 three", "four 7", "unknown", "two three"]
        french = [*FRENCH, "un", "", "one 2 three", "quatre 8", "unknown", "deux trois"]
        for name, lines in (("en.txt", english), ("fr.txt", french)):
            (folder / name).write_text("".join(f"{line}\n" for line in lines))
        return folder / "en.txt", folder / "fr.txt"

    @pytest.fixture(scope="class")
    @staticmethod
    def unfiltered(bitext: tuple[Path, Path], toy_encoder: Path) -> list[list[str]]:
        return scored(bitext[0].with_name("all.tsv"), *bitext, "--encoder", toy_encoder, "--k", 20)

    def kept(self, output: Path, bitext: tuple[Path, Path], encoder: Path, *options: object) -> tuple[list[list[str]], dict[str, object]]:
        figures_file = output.with_suffix(".json")
        rows = scored(output, *bitext, "--encoder", encoder, "--k", 20, *options, "--json", figures_file)
        figures = json.loads(figures_file.read_text())
        assert figures["written"] == len(rows)
        assert figures["written"] + sum(figures["dropped"].values()) == figures["lines"] == 15
        return rows, figures["dropped"]

    def test_threshold_and_top_keep_the_best_in_their_order(
        self, bitext: tuple[Path, Path], unfiltered: list[list[str]], toy_encoder: Path, tmp_path: Path
    ) -> None:
        """Equal margins, here of equal pairs, go by the line."""
        best_first = sorted((-float(row[0]), line) for line, row in enumerate(unfiltered) if row[0] != "nan")
        top = next(n for n in range(1, 9) if best_first[n - 1][0] == best_first[n][0])  # cuts through two equal margins
        threshold = -best_first[9][0] + 1e-6
        above = [line for negative, line in best_first if -negative > threshold]
        rows, dropped = self.kept(tmp_path / "a.tsv.gz", bitext, toy_encoder, "--top", top, "--threshold", threshold)
        assert rows == [unfiltered[line] for line in sorted(above[:top])]
        assert dropped == {"no_sentence": 2, "no_margin": 1, "low_margin": 12 - len(above), "not_in_top": len(above) - top}

    def test_pair_filters_apply_to_what_is_above_the_threshold(
        self, bitext: tuple[Path, Path], unfiltered: list[list[str]], toy_encoder: Path, tmp_path: Path
    ) -> None:
        margin_of_copy = next(float(row[0]) for row in unfiltered if row[1] == "one 2 three")
        rows, dropped = self.kept(tmp_path / "a.tsv", bitext, toy_encoder, "--filter", "copies", "--filter", "numbers")
        gone = {"one 2 three", "four 7", "unknown", ""}
        assert rows == [row for row in unfiltered if row[1] not in gone and row[2]]
        assert dropped == {"no_sentence": 2, "no_margin": 1, "near_copy": 1, "numbers_disagree": 1}
        options = ("--filter", "copies", "--threshold", margin_of_copy + 1e-4)
        assert "near_copy" not in self.kept(tmp_path / "b.tsv", bitext, toy_encoder, *options)[1]

    def test_sentence_filters_give_the_margins_of_mining(self, bitext: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
        options = ("--encoder", toy_encoder, "--k", 20, "--filter", "min_words=2")
        expected = mined(tmp_path / "mined", *bitext, *options)
        rows, dropped = self.kept(tmp_path / "a.tsv", bitext, toy_encoder, "--filter", "min_words=2")
        english, french = (text.read_text().split("\n")[:-1] for text in bitext)
        assert [tuple(row[1:]) for row in rows] == [
            pair for pair in zip(english, french, strict=True) if all(len(side.split()) > 1 for side in pair)
        ]
        assert [row[0] for row in rows] == [expected[row[1], row[2]] for row in rows]
        assert dropped == {"no_sentence": 2, "few_words": 2}

    @pytest.mark.slow
    def test_blocks_and_a_killed_run_give_the_same_bytes(
        self, bitext: tuple[Path, Path], toy_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        paths = {"source": str(bitext[0]), "target": str(bitext[1]), "output": str(tmp_path / "out.tsv"), "encoder": str(toy_encoder)}
        config = ScoreConfig(**paths, top=7, pair_filters=PairTextFilters.none().model_copy(update={"numbers": 0}))
        score.run(config)
        expected = (tmp_path / "out.tsv").read_bytes()
        (tmp_path / "out.tsv").unlink()
        with monkeypatch.context() as patch:
            patch.setattr(LinePairFilter, "check_top", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                score.run(config, block_bytes=4 * 32 * 2)
        assert not (tmp_path / "out.tsv").exists()
        assert (tmp_path / "out.tsv.work" / "selected.parquet").exists()
        shards = {path: path.stat().st_mtime_ns for path in (tmp_path / "out.tsv.work").rglob("part-*.parquet")}
        assert shards
        score.run(config, block_bytes=4 * 32 * 2)
        assert (tmp_path / "out.tsv").read_bytes() == expected
        assert not (tmp_path / "out.tsv.work").exists()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--top", 0], "--top: expected at least 1, not '0'"),
            (["--threshold", "nan"], "--threshold: "),
            (["--filter", "hubs"], "--filter hubs: unknown; one of recommended, "),
            (["--filter", "numbers=x"], "--filter numbers: expected a number, not 'x'"),
            (["--filter", "min_words=9"], "the filters drop every sentence"),
        ],
    )
    def test_invalid_bounds(
        self, options: list[object], message: str, bitext: tuple[Path, Path], toy_encoder: Path, tmp_path: Path
    ) -> None:
        output = tmp_path / "out.tsv"
        assert message in command.error_of("score", *bitext, "--output", output, "--encoder", toy_encoder, *options)
        assert not output.exists()

    def test_output_that_is_no_file_or_the_input_by_another_name(
        self, bitext: tuple[Path, Path], toy_encoder: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "link.txt").symlink_to(bitext[0])
        message = command.error_of("score", tmp_path / "link.txt", bitext[1], "--output", bitext[0], "--encoder", toy_encoder)
        assert "both input and output" in message
        os.mkfifo(tmp_path / "pipe")
        message = command.error_of("score", *bitext, "--output", tmp_path / "pipe", "--encoder", toy_encoder)
        assert "a device or pipe; name a file to write" in message


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

    def test_a_name_and_a_number_of_one_table(self, toy_encoder: Path, tmp_path: Path) -> None:
        """By number, a header is a line; by name it is none: line i of one column would be read with line i + 1 of the other."""
        (tmp_path / "pairs.tsv").write_text("en\tfr\none\tun\ntwo\tdeux\n")
        for columns in (("en", "2"), ("1", "fr")):
            options = ("--source-column", columns[0], "--target-column", columns[1])
            message = self.error_of(tmp_path / "pairs.tsv", *options, output=tmp_path / "out.tsv", encoder=toy_encoder)
            assert f"pairs.tsv: columns {' and '.join(columns)} are a name and a number; give two names, or two numbers" in message
            assert not (tmp_path / "out.tsv").exists()

    def test_one_file_without_its_columns_is_wrong_usage(self, texts: tuple[Path, Path], tmp_path: Path) -> None:
        result = miner("score", texts[0], "--source-column", "1", "--output", tmp_path / "out.tsv")
        assert result.exit_code == 2
        assert "--target-column" in result.stderr


NUMBER_WORDS = [("one", "un"), ("two", "deux"), ("three", "trois"), ("four", "quatre"), ("five", "cinq"), ("six", "six"), ("seven", "sept")]


def number_pairs(count: int) -> tuple[list[str], list[str]]:
    """Different sentences of three number words, and their translations."""
    triples = list(itertools.product(NUMBER_WORDS, repeat=3))[:count]
    return [" ".join(word[0] for word in triple) for triple in triples], [" ".join(word[1] for word in triple) for triple in triples]


def write_sides(folder: Path, sources: list[str], targets: list[str]) -> tuple[Path, Path]:
    paths = folder / "en.txt", folder / "fr.txt"
    for path, lines in zip(paths, (sources, targets), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    return paths


def test_formats_hold_reasons_and_probabilities(tmp_path: Path) -> None:
    english, german = ((EXAMPLES / f"{name}.txt").read_text(encoding="utf-8").splitlines()[:60] for name in ("en", "de"))
    paths = write_sides(tmp_path, [*english, "one", ""], [*german, "2 3 4 5", "zwei"])
    command_line = ("score", *paths, "--source-lang", "en", "--target-lang", "de", "--filter", "letters=0.4", "--reasons", "--output")
    for ending in ("jsonl.gz", "parquet", "tsv"):
        output = tmp_path / f"scored.{ending}"
        assert miner(*command_line, output).exit_code == 0
        assert miner(*command_line, output).exit_code == 0  # which recognises its own output
    rows = [json.loads(line) for line in gzip.decompress((tmp_path / "scored.jsonl.gz").read_bytes()).decode().splitlines()]
    assert [row["line"] for row in rows] == list(range(1, 63))
    assert [row["reason"] for row in rows[-2:]] == ["few_letters", "no_sentence"]
    assert rows[-1]["margin"] is None
    assert all((row["probability"] is None) == (row["margin"] is None) for row in rows)
    table = pq.read_table(tmp_path / "scored.parquet").to_pylist()
    assert [(row["row"] + 1, row["reason"], row["probability"]) for row in table] == [
        (row["line"], row["reason"], row["probability"]) for row in rows
    ]
    lines = [line.split("\t") for line in (tmp_path / "scored.tsv").read_text().splitlines()]
    assert [line[4] or None for line in lines] == [row["reason"] for row in rows]
    assert "name one that ends in .tsv, .tsv.gz, .jsonl" in command.error_of(*command_line, tmp_path / "scored.csv")


def test_reasons_come_with_what_each_filter_found(toy_encoder: Path, tmp_path: Path) -> None:
    rows = ["s,t,id,scores", "one two,un deux,a,x", "three 7,trois 8 9,b,y", ",quatre,c,z", "12.5 a,cinq,d,w"]
    (tmp_path / "pairs.csv").write_text("\n".join(rows) + "\n")
    columns = ("--source-column", "s", "--target-column", "t", "--encoder", toy_encoder)
    bounds = ("--filter", "letters=0.4", "--filter", "numbers=0.1", "--filter", "copies=0.9", "--reasons")
    expected = [
        (None, {"letters": 1.0, "copies": 0.0}),  # no number on either side: `numbers` does not apply
        ("numbers_disagree", {"letters": 0.7143, "copies": 0.0, "numbers": 1.0}),
        ("no_sentence", None),
        ("few_letters", {"letters": 0.2, "copies": 0.0}),
    ]
    for ending in ("jsonl", "parquet", "tsv"):
        assert miner("score", tmp_path / "pairs.csv", *columns, *bounds, "--output", tmp_path / f"scored.{ending}").exit_code == 0
    lines = [json.loads(line) for line in (tmp_path / "scored.jsonl").read_text().splitlines()]
    assert [(line["reason"], line["scores"], line["id"], line["input_scores"]) for line in lines] == [
        (*row, *cells) for row, cells in zip(expected, ["ax", "by", "cz", "dw"], strict=True)
    ]
    table = pq.read_table(tmp_path / "scored.parquet").to_pylist()
    assert [(row["reason"], row["scores"] and json.loads(row["scores"])) for row in table] == expected
    cells = [line.split("\t") for line in (tmp_path / "scored.tsv").read_text().splitlines()]
    assert [(row[4] or None, json.loads(row[6] or "null"), *row[7:]) for row in cells] == [
        (*row, *names) for row, names in zip(expected, ["ax", "by", "cz", "dw"], strict=True)
    ]


def test_lines_without_letters_have_no_margin_and_are_counted(toy_encoder: Path, tmp_path: Path) -> None:
    paths = write_sides(tmp_path, ["one two", "12.5", "three", "***", "four"], ["un deux", "douze", "trois", "", "quatre"])
    summary = output_of("score", *paths, "--encoder", toy_encoder, "--output", tmp_path / "scored.tsv")
    assert "5 line pairs: 3 scored, 1 no sentence, 1 few letters\n" in summary
    assert "source: 3 sentences, 3 unique; of 5 lines, dropped 2 few letters\n" in summary
    rows = [line.split("\t") for line in (tmp_path / "scored.tsv").read_text().splitlines()]
    assert [(row[0] == "nan", row[5]) for row in rows] == [(False, "1"), (True, "2"), (False, "3"), (True, "4"), (False, "5")]
    options = ("--encoder", toy_encoder, "--filter", "none", "--output", tmp_path / "all.tsv")
    assert "1 no sentence" in output_of("score", *paths, *options)


def test_an_output_without_pairs_has_a_report_and_no_export(toy_encoder: Path, texts: tuple[Path, Path], tmp_path: Path) -> None:
    for ending in ("tsv", "parquet"):
        output = tmp_path / f"scored.{ending}"
        options = ("--encoder", toy_encoder, "--threshold", "99", "--output", output)
        assert miner("score", *texts, *options, report=True).exit_code == 0
        assert "0 pairs of 0 lines kept" in Path(f"{output}.report.html").read_text(encoding="utf-8")
        command_line = ("export", output, "--source-lang", "en", "--target-lang", "fr", "--output", tmp_path / "export")
        assert "has no pairs" in command.error_of(*command_line)
    assert output_of("report", tmp_path / "scored.tsv").strip() == f"{tmp_path / 'scored.tsv'}.report.html"
    assert "'un' is not a number; give a file of `miner score`" in command.error_of("report", write_table(tmp_path))


def write_table(folder: Path) -> Path:
    (folder / "table.tsv").write_text("un\tdeux\ttrois\n")
    return folder / "table.tsv"


@pytest.mark.parametrize("shift", [1, -2])
def test_a_shifted_range_is_named(shift: int, toy_encoder: Path, tmp_path: Path) -> None:
    """From line 101 on, the target is late by some lines (or early)."""
    sources, targets = number_pairs(300)
    filler = ["un", "deux"][:shift] if shift > 0 else []
    shifted = [*targets[:100], *filler, *targets[100 + max(0, -shift) :]][:300]
    paths = write_sides(tmp_path, sources[: len(shifted)], shifted)
    result = miner("score", *paths, "--encoder", toy_encoder, "--output", tmp_path / "scored.tsv")
    last, where = (300, "1 later") if shift > 0 else (280, "2 earlier")  # of 298 lines, the last 18 are too few
    assert f"en.txt: lines 101 to {last} fit the lines of {paths[1]} that are {where} better than their own" in result.stderr
    straight = miner("score", *write_sides(tmp_path, sources, targets), "--encoder", toy_encoder, "--output", tmp_path / "scored.tsv")
    assert "shifted" not in straight.stderr


def test_small_sides_need_a_background(toy_encoder: Path, tmp_path: Path) -> None:
    sources, targets = number_pairs(60)
    one = write_sides(tmp_path, sources[:1], targets[:1])
    options = ("--encoder", toy_encoder, "--output", tmp_path / "scored.tsv")
    message = "source: one sentence, so a margin compares a pair with itself alone; give more text of that side as --background-source"
    assert command.error_of("score", *one, *options) == message
    (tmp_path / "more").mkdir()
    more = write_sides(tmp_path / "more", sources, targets)
    backgrounds = ("--background-source", more[0], "--background-target", more[1])
    assert miner("score", *one, *backgrounds, *options).stderr.count("margins compare") == 0
    few = miner("score", *write_sides(tmp_path, sources[:5], targets[:5]), *options)
    assert few.stderr.count("among only 5 sentences; give more text of that side as --background-") == 2
