"""Increments: mining a growing corpus step by step gives the same bitext as mining it at once, and the deltas give the changes."""

import gzip
import json
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import miner, output_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from miner.config.commands import EmbedConfig, SentenceFilters
from miner.errors import StorageError
from miner.io import stages, storage
from miner.io.corpus import open_corpus
from miner.mining import writers
from miner.text.sharding import IngestSizes
from pipelines.corpus import embed
from pipelines.mining import deltas
from pipelines.search import exact

EXAMPLES = Path(__file__).parents[3] / "examples"
KEY = [("margin", "descending"), ("source_id", "ascending"), ("target_id", "ascending")]
IDS = ("source_id", "target_id")
OUTPUTS = ("bitext.tsv.gz", "bitext.parquet")
FILTERS = {"sentence_filters": SentenceFilters()}  # those of `miner mine`
NUM_LINES = 120  # of each language


def read_lines(language: str) -> list[str]:
    return (EXAMPLES / f"{language}.txt").read_text(encoding="utf-8").splitlines()[:NUM_LINES]


def mine(folder: Path, output: Path, *options: object) -> str:
    """Mine all files of FOLDER/en and FOLDER/de."""
    sides = (f"{folder}/en/*.txt", f"{folder}/de/*.txt", "--source-lang", "en", "--target-lang", "de", "--engine", "exact")
    return output_of("mine", *sides, "--output", output, "--threshold", "1.05", *options)


def mine_small_shards(folder: Path, output: Path, range_bytes: int, *options: object, encoder: str = "builtin") -> str:
    """Embed both sides in id ranges of `range_bytes`, then mine them."""
    for side, lang in (("source", "en"), ("target", "de")):
        config = EmbedConfig(inputs=(f"{folder}/{lang}/*.txt",), output=str(output / side), lang=lang, encoder=encoder, **FILTERS)
        embed.run(config, sizes=IngestSizes(range_bytes=range_bytes))
    return mine(folder, output, "--encoder", encoder, *options)


def add_lines(folder: Path, language: str, number: int, lines: list[str]) -> None:
    """Add a file with the lines of increment `number`, if there are any."""
    (folder / language).mkdir(parents=True, exist_ok=True)
    if lines:
        (folder / language / f"increment-{number}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_bitexts(output: Path) -> dict[str, bytes]:
    return {name: (output / name).read_bytes() for name in OUTPUTS}


def apply_delta(pairs: pa.Table, delta: pa.Table) -> pa.Table:
    """Return the pairs after the changes of a delta."""
    rows = {tuple(row[name] for name in IDS): row for row in without_dictionaries(pairs).to_pylist()}
    for row in without_dictionaries(delta).to_pylist():
        change, ids = row.pop("change"), tuple(row[name] for name in IDS)
        assert (ids in rows) == (change != "added")
        rows[ids] = row
        if change == "removed":
            del rows[ids]
    return pa.Table.from_pylist(list(rows.values()), without_dictionaries(pairs).schema).sort_by(KEY)


def without_dictionaries(table: pa.Table) -> pa.Table:
    return pa.table({name: table[name].cast(pa.string()) if name.endswith("_file") else table[name] for name in table.column_names})


@pytest.fixture
def searched_blocks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The blocks that are searched during the test."""
    names: list[str] = []
    write_shard = exact.SearchGroupPair.write_shard

    def record(self: exact.SearchGroupPair, name: str) -> object:
        names.append(name)
        return write_shard(self, name)

    monkeypatch.setattr(exact.SearchGroupPair, "write_shard", record)
    return names


def count_shards(output: Path) -> list[int]:
    """Return the number of shards of each side."""
    return [len(list((output / f"{side}/embeddings").glob("*.parquet"))) for side in ("source", "target")]


def test_increments_give_the_bitext_of_one_run(tmp_path: Path, searched_blocks: list[str]) -> None:
    """Three increments: of both sides, of the target only, and of both; with some repeated lines."""
    english, german = read_lines("en"), read_lines("de")
    increments = [(english[:80], german[:60]), ([], german[50:90]), (english[70:], german[90:])]
    output, previous, num_shards = tmp_path / "incremental", None, [0, 0]
    for number, sides in enumerate(increments):
        for language, lines in zip(("en", "de"), sides, strict=True):
            add_lines(tmp_path, language, number, lines)
        searched_blocks.clear()
        summary = mine_small_shards(tmp_path, output, 6000)
        bitext, num_previous, num_shards = pq.read_table(output / "bitext.parquet"), num_shards, count_shards(output)
        assert len(searched_blocks) == num_shards[0] * num_shards[1] - num_previous[0] * num_previous[1]
        if previous is not None:
            assert num_previous[0] * num_previous[1] > 0
            delta = pq.read_table(output / f"deltas/{number:05d}.parquet")
            assert apply_delta(previous, delta).equals(without_dictionaries(bitext))
            assert set(delta["change"].to_pylist()) == {"added", "removed", "changed"}
            text = gzip.decompress((output / f"deltas/{number:05d}.tsv.gz").read_bytes()).decode()
            assert [line.split("\t")[0] for line in text.splitlines()] == delta["change"].to_pylist()
            assert "since the previous run: " in summary
        previous = bitext
    mine(tmp_path, tmp_path / "at once")
    assert read_bitexts(output) == read_bitexts(tmp_path / "at once")
    mine(tmp_path, output)  # nothing new
    names = [f"0000{number}.{suffix}" for number in (1, 2) for suffix in ("parquet", "tsv.gz")]
    assert sorted(path.name for path in (output / "deltas").glob("0*")) == names
    assert "intact: " in miner("verify", output).stdout
    mine(tmp_path, output, "--margin", "distance")  # the deltas are of another margin
    assert not (output / "deltas").exists()
    assert sorted(path.name for path in (output / "deltas-1").iterdir()) == names


NUMBERS = (
    ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"],
    ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix"],
)


@pytest.mark.slow
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), num_increments=st.integers(2, 3), range_bytes=st.sampled_from([1000, 10_000]))
def test_random_increments_give_the_bitext_of_one_run(
    seed: int, num_increments: int, range_bytes: int, toy_encoder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Sentences of number words with many repeats, in increments of random sizes, some of them empty."""
    folder, chance = tmp_path_factory.mktemp("increments"), random.Random(seed)
    options = ("--threshold", "0.5", "--engine", "exact")
    previous: pa.Table | None = None
    applied_deltas: set[Path] = set()
    for number in range(num_increments):
        for language, words in zip(("en", "de"), NUMBERS, strict=True):
            num_lines = chance.choice([0, 3, 40]) if number else 20
            add_lines(folder, language, number, [" ".join(chance.choices(words, k=3)) for _ in range(num_lines)])
        mine_small_shards(folder, folder / "incremental", range_bytes, *options, encoder=str(toy_encoder))
        bitext = without_dictionaries(pq.read_table(folder / "incremental/bitext.parquet"))
        for path in sorted(set((folder / "incremental/deltas").glob("*.parquet")) - applied_deltas):
            previous = apply_delta(previous, pq.read_table(path))
            applied_deltas.add(path)
        assert previous is None or previous.equals(bitext)
        previous = bitext
    mine(folder, folder / "at once", "--encoder", toy_encoder, *options)
    assert read_bitexts(folder / "incremental") == read_bitexts(folder / "at once")


class TestOtherChanges:
    """Increments with filters, removed files, embeddings directories and runs. The sentences are number words."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """The files of the first of two increments; those of the second have other names."""
        chance = random.Random(0)
        triples = [chance.sample(range(10), 3) for _ in range(40)]
        for language, words in zip(("en", "de"), NUMBERS, strict=True):
            texts = [" ".join(words[number] for number in triple) for triple in triples]
            add_lines(tmp_path, language, 0, texts[:25])
            (tmp_path / f"{language} later.txt").write_text("".join(f"{text}\n" for text in texts[20:]), encoding="utf-8")
        return tmp_path

    def add_increment(self, folder: Path) -> None:
        for language in ("en", "de"):
            (folder / f"{language} later.txt").rename(folder / language / "increment-1.txt")

    def assert_equal_to_one_run(self, folder: Path, *options: object) -> None:
        mine(folder, folder / "at once", *options)
        assert read_bitexts(folder / "out") == read_bitexts(folder / "at once")

    @pytest.mark.slow
    def test_filters_and_dropped_sentences(self, folder: Path, toy_encoder: Path) -> None:
        options = ("--encoder", toy_encoder, "--filter", "min_chars=13", "--keep-dropped")
        mine(folder, folder / "out", *options)
        self.add_increment(folder)
        mine(folder, folder / "out", *options)
        self.assert_equal_to_one_run(folder, *options)
        sides = [folder / name / "source" for name in ("out", "at once")]
        counts = [json.loads((side / "sentences/manifest.json").read_text())["details"]["counts"] for side in sides]
        assert counts[0] == counts[1]
        dropped = [{text for path in side.glob("dropped/*.parquet") for text in pq.read_table(path)["text"].to_pylist()} for side in sides]
        assert dropped[0] == dropped[1] != set()

    @pytest.mark.slow
    def test_removed_file_removes_its_pairs(self, folder: Path, toy_encoder: Path) -> None:
        """First the files of the last increment, then one of the first."""
        options = ("--encoder", toy_encoder)
        mine(folder, folder / "out", *options)
        mine(folder, folder / "first", *options)
        self.add_increment(folder)
        mine(folder, folder / "out", *options)
        for language in ("en", "de"):
            (folder / language / "increment-1.txt").rename(folder / f"{language} later.txt")
        mine(folder, folder / "out", *options, "--replace")
        assert read_bitexts(folder / "out") == read_bitexts(folder / "first")
        self.add_increment(folder)
        (folder / "en/increment-0.txt").unlink()
        mine(folder, folder / "out", *options, "--replace")
        self.assert_equal_to_one_run(folder, *options)
        assert "removed" in pq.read_table(folder / "out/deltas/00003.parquet")["change"].to_pylist()

    @pytest.mark.slow
    def test_embeddings_directories_and_an_index(self, folder: Path, toy_encoder: Path) -> None:
        """FAISS searches everything again, and finds all neighbours in small corpora."""
        for number in range(2):
            for language in ("en", "de"):
                output = folder / f"embedded-{language}"
                output_of("embed", f"{folder}/{language}/*.txt", "--output", output, "--encoder", toy_encoder)
            for engine in ("exact", "faiss"):
                sides = (folder / "embedded-en", folder / "embedded-de")
                output_of("mine", *sides, "--encoder", toy_encoder, "--output", folder / engine, "--engine", engine, "--threshold", "1.05")
            assert read_bitexts(folder / "exact") == read_bitexts(folder / "faiss")
            if not number:
                self.add_increment(folder)
        mine(folder, folder / "out", "--encoder", toy_encoder)
        assert (folder / "out/bitext.tsv.gz").read_bytes() == (folder / "exact/bitext.tsv.gz").read_bytes()

    @pytest.mark.slow
    def test_runs_of_many_corpora(self, folder: Path, toy_encoder: Path) -> None:
        corpora = {language: [f"{folder}/{language}/*.txt"] for language in ("en", "de")}
        config = {"output": str(folder / "run"), "encoder": str(toy_encoder), "corpora": corpora, "threshold": 1.05, "engine": "exact"}
        (folder / "run.yaml").write_text(json.dumps(config))
        for number in range(2):
            output_of("run", folder / "run.yaml", "--json", folder / "result.json")
            if not number:
                self.add_increment(folder)
        assert json.loads((folder / "result.json").read_text())["pairs"]["en-de"]["delta"]["added"] > 0
        mine(folder, folder / "out", "--encoder", toy_encoder)
        assert read_bitexts(folder / "run/pairs/en-de") == read_bitexts(folder / "out")


FAULTS = {  # when -> object, function, and the call that fails: its number, or a string in its arguments
    "while neighbours are moved": (storage, "move", 2),
    "before the bitext is moved": (stages.Stage, "mark_done", deltas.BEFORE),
    "while the bitext is moved": (storage, "move", deltas.BEFORE),
    "before the first block is searched": (exact.SearchGroupPair, "write_shard", 0),
    "between blocks": (exact.SearchGroupPair, "write_shard", 1),
    "while neighbours are merged": (exact.MergePartialNeighbours, "write_shard", 2),
    "while the bitext is written": (writers, "write_bitext", 0),
    "before the delta is written": (deltas, "write", 0),
    "while the delta is written": (deltas, "compare", 0),
    "at the end": (deltas, "end", 1),
}
FAST_FAULTS = ("while the bitext is moved", "while the delta is written")


@pytest.mark.parametrize("fault", [pytest.param(fault, marks=[] if fault in FAST_FAULTS else pytest.mark.slow) for fault in FAULTS])
def test_resume_gives_the_same_bitext_and_delta(fault: str, two_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(two_runs / "first", tmp_path / "out")
    owner, name, failing_call = FAULTS[fault]
    function, calls = getattr(owner, name), []

    def fail(*arguments: object, **keywords: object) -> object:
        calls.append(name)
        if len(calls) > failing_call if isinstance(failing_call, int) else failing_call in str(arguments):
            raise StorageError("the disk is full; make room")
        return function(*arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        sides = (f"{two_runs}/en/*.txt", f"{two_runs}/de/*.txt", "--source-lang", "en", "--target-lang", "de", "--engine", "exact")
        result = miner("mine", *sides, "--output", tmp_path / "out", "--threshold", "1.05")
        assert (result.exit_code, "the disk is full" in result.stderr) == (1, True)
    mine(two_runs, tmp_path / "out")
    assert read_bitexts(tmp_path / "out") == read_bitexts(two_runs / "second")
    for file in ("00001.parquet", "00001.tsv.gz"):
        assert (tmp_path / "out/deltas" / file).read_bytes() == (two_runs / "second/deltas" / file).read_bytes()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(path.name for path in (two_runs / "second").iterdir())
    assert sorted(path.name for path in (tmp_path / "out/neighbours").iterdir()) == ["backward", "forward"]


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[] if seed < 5 else pytest.mark.slow) for seed in range(30)])
def test_a_flipped_bit_of_the_deltas_is_reported_and_loses_none(seed: int, two_runs: Path, tmp_path: Path) -> None:
    chance, output = random.Random(seed), tmp_path / "out"
    shutil.copytree(two_runs / "second", output)
    files = sorted(path for path in (output / "deltas").rglob("*") if path.is_file())
    damaged = files[seed % len(files)]
    data = bytearray(damaged.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    damaged.write_bytes(data)
    delivered = {path.name: path.read_bytes() for path in files if deltas.DELIVERED.fullmatch(path.name)}
    sides = (f"{two_runs}/en/*.txt", f"{two_runs}/de/*.txt", "--source-lang", "en", "--target-lang", "de", "--engine", "exact")
    result = miner("mine", *sides, "--output", output, "--threshold", "1.05")
    assert result.exit_code == 0
    assert result.stderr.count("earlier deltas are moved to") == 1
    named = output / "deltas" / damaged.name.removesuffix(".json") if damaged.parent.name == "_shards" else damaged
    assert f"{named}: " in result.stderr
    assert {path.name: path.read_bytes() for path in (output / "deltas-1").iterdir()} == delivered
    assert read_bitexts(output) == read_bitexts(two_runs / "second")
    assert miner("verify", output).exit_code == 0
    assert "moved" not in miner("mine", *sides, "--output", output, "--threshold", "1.05").stderr


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of two increments, and the outputs of a run of the first (`first`) and of both (`second`)."""
    folder = tmp_path_factory.mktemp("two_runs")
    for number, rows in enumerate((slice(0, 60), slice(50, 80))):
        for language in ("en", "de"):
            add_lines(folder, language, number, read_lines(language)[rows])
        mine(folder, folder / "out")
        shutil.copytree(folder / "out", folder / ("first", "second")[number])
    return folder


def test_new_file_without_sentences_is_valid(toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two\nthree four\n")
    (tmp_path / "blank.txt").write_text("\n\n\n")
    options = ("--lang", "en", "--encoder", toy_encoder, "--output")
    files = [tmp_path / "a.txt", tmp_path / "blank.txt"]
    assert miner("embed", *files, *options, tmp_path / "at once").exit_code == 0
    for inputs in (files[:1], files, files):
        output_of("embed", *inputs, *options, tmp_path / "incremental")
    counts = [open_corpus(str(tmp_path / name)).counts for name in ("at once", "incremental")]
    assert counts[0] == counts[1]
    assert counts[0]["lines"] == 5


def plant(folder: Path) -> tuple[object, ...]:
    """Write text of both languages and other pairs to plant; return the options of a threshold by them, but its precision."""
    add_lines(folder, "en", 0, read_lines("en")[:80])
    add_lines(folder, "de", 0, read_lines("de")[:90])
    sources, targets = ((EXAMPLES / f"{language}.txt").read_text(encoding="utf-8").splitlines() for language in ("en", "de"))
    gold = [line.split("\t") for line in (EXAMPLES / "gold.en-de.tsv").read_text().splitlines()[-150:]]
    planted = [f"{sources[int(source) - 1]}\t{targets[int(target) - 1]}\n" for source, target in gold]
    (folder / "planted.tsv").write_text("".join(planted), encoding="utf-8")
    return "--threshold", "auto", "--planted", folder / "planted.tsv", "--precision"


def higher_precision(output: Path) -> str:
    """Return a precision that the pairs of an output do not reach."""
    return str(json.loads((output / "manifest.json").read_text())["details"]["choice"]["precision"]["value"] + 0.01)


@pytest.mark.slow
def test_other_precision_removes_the_deltas(tmp_path: Path) -> None:
    """The same text mined with another precision gives other pairs, to which the existing deltas do not lead."""
    auto = plant(tmp_path)
    mine(tmp_path, tmp_path / "out", *auto, "0.01")
    add_lines(tmp_path, "en", 1, read_lines("en")[80:85])
    mine(tmp_path, tmp_path / "out", *auto, "0.01")
    assert list((tmp_path / "out/deltas").glob("*.parquet"))
    bitext = (tmp_path / "out/bitext.parquet").read_bytes()
    mine(tmp_path, tmp_path / "out", *auto, higher_precision(tmp_path / "out"))
    assert (tmp_path / "out/bitext.parquet").read_bytes() != bitext
    assert not (tmp_path / "out/deltas").exists()


def test_each_broken_file_is_skipped_with_its_own_reason(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two three\n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"four five six\n" * 100)[:-8])
    (tmp_path / "c.txt.gz").write_bytes(b"seven eight\n")
    command = ("embed", tmp_path / "a.txt", tmp_path / "b.txt.gz", tmp_path / "c.txt.gz", "--lang", "en")
    for _ in range(2):  # the rerun reads only what was skipped, as an increment
        result = miner(*command, "--output", tmp_path / "out")
        assert result.exit_code == 3
        skipped = [line for line in result.stderr.splitlines() if line.startswith("miner: skipped: ")]
        assert [line.split(": ")[2] for line in skipped] == [str(tmp_path / "b.txt.gz"), str(tmp_path / "c.txt.gz")]
        assert len({line.split(": ", 3)[3] for line in skipped}) == 2


def test_many_small_files_are_read_together(tmp_path: Path) -> None:
    """The sentences are those of one file; files that cannot be read are skipped, each with its reason, and read when they are fixed."""
    lines = read_lines("en")
    for number, text in enumerate(lines):
        (tmp_path / f"{number:03d}.txt").write_text(f"{text}\n")
    (tmp_path / "whole.txt").write_text("".join(f"{text}\n" for text in lines))
    (tmp_path / "big.txt").write_text("\n".join(lines[:1] * 2000))  # read on its own
    broken = {tmp_path / f"broken{number}.txt.gz": gzip.compress(f"another text number {number}\n".encode()) for number in range(3)}
    for path, data in broken.items():
        path.write_bytes(data[:-8])
    command = (
        "embed",
        tmp_path / "[0-9]*.txt",
        tmp_path / "broken*.gz",
        tmp_path / "big.txt",
        "--lang",
        "en",
        "--output",
        tmp_path / "out",
    )
    for _ in range(2):
        result = miner(*command)
        assert result.exit_code == 3
        skipped = [line.split(": ")[2:] for line in result.stderr.splitlines() if line.startswith("miner: skipped: ")]
        assert [path for path, *_ in skipped] == sorted(map(str, broken))
    assert not (tmp_path / "out/.ranges").exists()
    strict = miner(*command[:-1], tmp_path / "strict", "--strict")
    assert strict.exit_code == 1
    assert "broken0.txt.gz" in strict.stderr
    assert miner("embed", tmp_path / "whole.txt", "--lang", "en", "--output", tmp_path / "expected").exit_code == 0
    rows, expected = (
        {row["text"]: row for path in (tmp_path / name / "sentences").glob("*.parquet") for row in pq.read_table(path).to_pylist()}
        for name in ("out", "expected")
    )
    assert rows.keys() == expected.keys()
    for number, text in enumerate(dict.fromkeys(lines)):
        source = str(tmp_path / f"{lines.index(text):03d}.txt")
        count = expected[text]["count"] + 2000 * (number == 0)
        assert (rows[text]["source"], rows[text]["line"], rows[text]["count"]) == (source, 1, count)
    for path, data in broken.items():
        path.write_bytes(data)
    assert miner(*command).exit_code == 0
    assert len(stages.read_manifest(str(tmp_path / "out/sentences")).shards) == 2
    assert sum(shard.rows for shard in stages.read_manifest(str(tmp_path / "out/sentences")).shards) == len(rows) + len(broken)
