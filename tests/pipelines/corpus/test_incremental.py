"""Corpora that grow: what is mined of the first files, and then of all, is what mining all at once gives; the delta tells the rest."""

import gzip
import json
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import miner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from miner import stages, storage
from miner.config.commands import EmbedConfig
from miner.corpus import open_corpus
from miner.errors import StorageError
from miner.mining import writers
from miner.text.sharding import IngestSizes
from pipelines.corpus import embed
from pipelines.mining import deltas
from pipelines.search import exact

EXAMPLES = Path(__file__).parents[3] / "examples"
KEY = [("margin", "descending"), ("source_id", "ascending"), ("target_id", "ascending")]
IDS = ("source_id", "target_id")
OUTPUTS = ("bitext.tsv.gz", "bitext.parquet")
LINES = 120  # of each language


def lines(language: str) -> list[str]:
    return (EXAMPLES / f"{language}.txt").read_text(encoding="utf-8").splitlines()[:LINES]


def mined(*arguments: object) -> str:
    """The summary `miner mine` prints."""
    result = miner("mine", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def mine(folder: Path, output: Path, *options: object) -> str:
    """Mine all files of FOLDER/en and FOLDER/de."""
    sides = (f"{folder}/en/*.txt", f"{folder}/de/*.txt", "--source-lang", "en", "--target-lang", "de", "--engine", "exact")
    return mined(*sides, "--output", output, "--threshold", "1.05", *options)


def mine_small_shards(folder: Path, output: Path, range_bytes: int, *options: object, encoder: str = "builtin") -> str:
    """Embed both sides in id ranges of `range_bytes`, then mine them."""
    for side, lang in (("source", "en"), ("target", "de")):
        config = EmbedConfig(inputs=(f"{folder}/{lang}/*.txt",), output=str(output / side), lang=lang, encoder=encoder)
        embed.run(config, sizes=IngestSizes(range_bytes=range_bytes))
    return mine(folder, output, "--encoder", encoder, *options)


def add(folder: Path, language: str, night: int, some: list[str]) -> None:
    (folder / language).mkdir(parents=True, exist_ok=True)
    if not some:
        return
    (folder / language / f"night-{night}.txt").write_text("".join(f"{line}\n" for line in some), encoding="utf-8")


def contents(output: Path) -> dict[str, bytes]:
    return {name: (output / name).read_bytes() for name in OUTPUTS}


def applied(pairs: pa.Table, delta: pa.Table) -> pa.Table:
    """The pairs without those that the delta removes or changes, and with those that it adds or changes."""
    known = {tuple(row[name] for name in IDS): row for row in plain(pairs).to_pylist()}
    for row in plain(delta).to_pylist():
        change, pair = row.pop("change"), tuple(row[name] for name in IDS)
        assert (pair in known) == (change != "added")
        known[pair] = row
        if change == "removed":
            del known[pair]
    return pa.Table.from_pylist(list(known.values()), plain(pairs).schema).sort_by(KEY)


def plain(table: pa.Table) -> pa.Table:
    return pa.table({name: table[name].cast(pa.string()) if name.endswith("_file") else table[name] for name in table.column_names})


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The blocks that are searched from now on."""
    seen: list[str] = []
    write_shard = exact.SearchShardPair.write_shard

    def watched(self: exact.SearchShardPair, name: str) -> object:
        seen.append(name)
        return write_shard(self, name)

    monkeypatch.setattr(exact.SearchShardPair, "write_shard", watched)
    return seen


def shards(output: Path) -> list[int]:
    return [len(list((output / f"{side}/embeddings").glob("*.parquet"))) for side in ("source", "target")]


def test_nights_give_what_mining_everything_gives(tmp_path: Path, blocks: list[str]) -> None:
    """Three nights: first both sides, then the target alone, then both; some lines come again."""
    english, german = lines("en"), lines("de")
    nights = [(english[:80], german[:60]), ([], german[50:90]), (english[70:], german[90:])]
    pairs, sizes = None, [0, 0]
    for night, both in enumerate(nights):
        for language, some in zip(("en", "de"), both, strict=True):
            add(tmp_path, language, night, some)
        blocks.clear()
        told = mine_small_shards(tmp_path, tmp_path / "nightly", 6000)
        now, before, sizes = pq.read_table(tmp_path / "nightly/bitext.parquet"), sizes, shards(tmp_path / "nightly")
        assert len(blocks) == sizes[0] * sizes[1] - before[0] * before[1]
        if pairs is not None:
            assert before[0] * before[1] > 0
            delta = pq.read_table(tmp_path / f"nightly/deltas/{night:05d}.parquet")
            assert applied(pairs, delta).equals(plain(now))
            assert set(delta["change"].to_pylist()) == {"added", "removed", "changed"}
            text = gzip.decompress((tmp_path / f"nightly/deltas/{night:05d}.tsv.gz").read_bytes()).decode()
            assert [line.split("\t")[0] for line in text.splitlines()] == delta["change"].to_pylist()
            assert "since the previous run: " in told
        pairs = now
    mine(tmp_path, tmp_path / "at once")
    assert contents(tmp_path / "nightly") == contents(tmp_path / "at once")
    mine(tmp_path, tmp_path / "nightly")  # nothing new
    names = [f"0000{night}.{kind}" for night in (1, 2) for kind in ("parquet", "tsv.gz")]
    assert sorted(path.name for path in (tmp_path / "nightly/deltas").glob("0*")) == names
    assert "are whole" in miner("verify", tmp_path / "nightly").stdout
    mine(tmp_path, tmp_path / "nightly", "--margin", "distance")  # the deltas of another margin tell nothing of it
    assert not (tmp_path / "nightly/deltas").exists()


NUMBERS = (
    ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"],
    ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix"],
)


@pytest.mark.slow
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), nights=st.integers(2, 3), size=st.sampled_from([1000, 10_000]))
def test_any_nights_give_what_mining_everything_gives(
    seed: int, nights: int, size: int, toy_encoder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Sentences of number words, some of them many times, on random nights, in shards of random sizes; some nights bring nothing."""
    folder, chance = tmp_path_factory.mktemp("nights"), random.Random(seed)
    options = ("--threshold", "0.5", "--engine", "exact")
    pairs: pa.Table | None = None
    applied_already: set[Path] = set()
    for night in range(nights):
        for language, words in zip(("en", "de"), NUMBERS, strict=True):
            some = [" ".join(chance.choices(words, k=3)) for _ in range(chance.choice([0, 3, 40]) if night else 20)]
            add(folder, language, night, some)
        mine_small_shards(folder, folder / "nightly", size, *options, encoder=str(toy_encoder))
        now = pq.read_table(folder / "nightly/bitext.parquet")
        for delta in sorted(set((folder / "nightly/deltas").glob("*.parquet")) - applied_already):
            pairs = applied(pairs, pq.read_table(delta))
            applied_already.add(delta)
        assert pairs is None or pairs.equals(plain(now))
        pairs = plain(now)
    mine(folder, folder / "at once", "--encoder", toy_encoder, *options)
    assert contents(folder / "nightly") == contents(folder / "at once")


class TestWhatElseMayChange:
    """With number words, whose translations are known."""

    @pytest.fixture
    def nights(self, tmp_path: Path) -> Path:
        """The first of two nights, as files."""
        chance = random.Random(0)
        some = [chance.sample(range(10), 3) for _ in range(40)]
        for language, words in zip(("en", "de"), NUMBERS, strict=True):
            texts = [" ".join(words[at] for at in three) for three in some]
            add(tmp_path, language, 0, texts[:25])
            (tmp_path / f"{language} later.txt").write_text("".join(f"{text}\n" for text in texts[20:]), encoding="utf-8")
        return tmp_path

    def next_night(self, nights: Path) -> None:
        for language in ("en", "de"):
            (nights / f"{language} later.txt").rename(nights / language / "night-1.txt")

    def same(self, nights: Path, *options: object) -> None:
        """As if all had been mined at once."""
        mine(nights, nights / "at once", *options)
        assert contents(nights / "out") == contents(nights / "at once")

    @pytest.mark.slow
    def test_filters_and_what_they_drop(self, nights: Path, toy_encoder: Path) -> None:
        options = ("--encoder", toy_encoder, "--filter", "min_chars=13", "--keep-dropped")
        mine(nights, nights / "out", *options)
        self.next_night(nights)
        mine(nights, nights / "out", *options)
        self.same(nights, *options)
        sides = [nights / name / "source" for name in ("out", "at once")]
        one, other = (json.loads((side / "sentences/manifest.json").read_text())["details"]["counts"] for side in sides)
        assert one == other
        one, other = (
            {text for path in side.glob("dropped/*.parquet") for text in pq.read_table(path)["text"].to_pylist()} for side in sides
        )
        assert one == other != set()

    def test_a_file_that_is_gone_takes_its_pairs_with_it(self, nights: Path, toy_encoder: Path) -> None:
        """First one of the last night, then one of the first."""
        options = ("--encoder", toy_encoder)
        mine(nights, nights / "out", *options)
        mine(nights, nights / "first", *options)
        self.next_night(nights)
        mine(nights, nights / "out", *options)
        for language in ("en", "de"):
            (nights / language / "night-1.txt").rename(nights / f"{language} later.txt")
        mine(nights, nights / "out", *options)
        assert contents(nights / "out") == contents(nights / "first")
        self.next_night(nights)
        (nights / "en/night-0.txt").unlink()
        mine(nights, nights / "out", *options)
        self.same(nights, *options)
        assert "removed" in pq.read_table(nights / "out/deltas/00003.parquet")["change"].to_pylist()

    @pytest.mark.slow
    def test_folders_that_grow_and_an_index_of_them(self, nights: Path, toy_encoder: Path) -> None:
        """By FAISS all is searched again, which finds all there is in so few."""
        for night in range(2):
            for language in ("en", "de"):
                told = miner("embed", f"{nights}/{language}/*.txt", "--output", nights / f"embedded-{language}", "--encoder", toy_encoder)
                assert told.exit_code == 0, told.output
            for engine in ("exact", "faiss"):
                sides = (nights / "embedded-en", nights / "embedded-de")
                mined(*sides, "--output", nights / engine, "--engine", engine, "--threshold", "1.05")
            assert contents(nights / "exact") == contents(nights / "faiss")
            if not night:
                self.next_night(nights)
        mine(nights, nights / "out", "--encoder", toy_encoder)
        assert (nights / "out/bitext.tsv.gz").read_bytes() == (nights / "exact/bitext.tsv.gz").read_bytes()

    def test_runs_of_many_corpora(self, nights: Path, toy_encoder: Path) -> None:
        corpora = {language: [f"{nights}/{language}/*.txt"] for language in ("en", "de")}
        config = {"output": str(nights / "run"), "encoder": str(toy_encoder), "corpora": corpora, "threshold": 1.05, "engine": "exact"}
        (nights / "run.yaml").write_text(json.dumps(config))
        for night in range(2):
            told = miner("run", nights / "run.yaml", "--json", nights / "told.json")
            assert told.exit_code == 0, told.output
            if not night:
                self.next_night(nights)
        assert json.loads((nights / "told.json").read_text())["pairs"]["en-de"]["delta"]["added"] > 0
        mine(nights, nights / "out", "--encoder", toy_encoder)
        assert contents(nights / "run/pairs/en-de") == contents(nights / "out")


FALLS = {
    "while what was found is moved aside": (storage, "move", 2),
    "before pairs are moved aside": (stages.Stage, "done", deltas.BEFORE),
    "while pairs are moved aside": (storage, "move", deltas.BEFORE),
    "before the blocks are searched": (exact.SearchShardPair, "write_shard", 0),
    "between blocks": (exact.SearchShardPair, "write_shard", 1),
    "while neighbours are merged": (exact.MergePartialNeighbours, "write_shard", 2),
    "while pairs are written": (writers, "write_bitext", 0),
    "before the delta is written": (deltas, "write", 0),
    "while the delta is written": (deltas, "compare", 0),
    "at the very end": (deltas, "end", 1),
}


OFTEN = ("while pairs are moved aside", "while the delta is written")  # the others take the slow tests' time


@pytest.mark.parametrize("fall", [pytest.param(fall, marks=[] if fall in OFTEN else pytest.mark.slow) for fall in FALLS])
def test_a_run_that_falls_goes_on_to_the_same_pairs_and_delta(
    fall: str, grown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both nights are mined apart before: `grown` holds the files, the output of the first night, and of the second without a fall."""
    shutil.copytree(grown / "first", tmp_path / "out")
    place, name, calls = FALLS[fall]
    act, seen = getattr(place, name), []

    def falls(*arguments: object, **more: object) -> object:
        seen.append(name)
        if len(seen) > calls if isinstance(calls, int) else calls in str(arguments):
            raise StorageError("the disk is full; make room")
        return act(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(place, name, falls)
        sides = (f"{grown}/en/*.txt", f"{grown}/de/*.txt", "--source-lang", "en", "--target-lang", "de", "--engine", "exact")
        result = miner("mine", *sides, "--output", tmp_path / "out", "--threshold", "1.05")
        assert (result.exit_code, "the disk is full" in result.stderr) == (1, True)
    mine(grown, tmp_path / "out")
    assert contents(tmp_path / "out") == contents(grown / "second")
    for file in ("00001.parquet", "00001.tsv.gz"):
        assert (tmp_path / "out/deltas" / file).read_bytes() == (grown / "second/deltas" / file).read_bytes()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(path.name for path in (grown / "second").iterdir())
    assert sorted(path.name for path in (tmp_path / "out/neighbours").iterdir()) == ["backward", "forward"]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nights: the files of both, what was mined of the first, and of both after that."""
    folder = tmp_path_factory.mktemp("grown")
    for night, rows in enumerate((slice(0, 60), slice(50, 80))):
        for language in ("en", "de"):
            add(folder, language, night, lines(language)[rows])
        mine(folder, folder / "out")
        shutil.copytree(folder / "out", folder / ("first", "second")[night])
    return folder


def test_a_new_file_without_a_sentence_is_empty_and_no_fault(toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two\nthree four\n")
    (tmp_path / "blank.txt").write_text("\n\n\n")
    options = ("--lang", "en", "--encoder", toy_encoder, "--output")
    files = [tmp_path / "a.txt", tmp_path / "blank.txt"]
    assert miner("embed", *files, *options, tmp_path / "once").exit_code == 0
    found = []
    for command in (files[:1], files, files):
        result = miner("embed", *command, *options, tmp_path / "nightly")
        assert result.exit_code == 0, result.output
        found.append(result.stdout)
    counts = [open_corpus(str(tmp_path / name)).counts for name in ("once", "nightly")]
    assert counts[0] == counts[1]
    assert counts[0]["lines"] == 5


def test_no_delta_leads_past_pairs_that_changed_without_their_texts(tmp_path: Path) -> None:
    """The pairs of the same text by another precision: deltas of before would not lead to them."""
    english, german = lines("en"), lines("de")
    add(tmp_path, "en", 0, english[:80])
    add(tmp_path, "de", 0, german[:90])
    texts = [(EXAMPLES / f"{language}.txt").read_text(encoding="utf-8").splitlines() for language in ("en", "de")]
    pairs = [line.split("\t") for line in (EXAMPLES / "gold.en-de.tsv").read_text().splitlines()[-60:]]
    planted = [f"{texts[0][int(one) - 1]}\t{texts[1][int(other) - 1]}\n" for one, other in pairs]
    (tmp_path / "planted.tsv").write_text("".join(planted), encoding="utf-8")
    auto = ("--threshold", "auto", "--planted", tmp_path / "planted.tsv", "--precision")
    mine(tmp_path, tmp_path / "out", *auto, "0.15")
    add(tmp_path, "en", 1, english[80:85])
    mine(tmp_path, tmp_path / "out", *auto, "0.15")
    assert list((tmp_path / "out/deltas").glob("*.parquet"))
    before = (tmp_path / "out/bitext.parquet").read_bytes()
    mine(tmp_path, tmp_path / "out", *auto, "0.02")
    assert (tmp_path / "out/bitext.parquet").read_bytes() != before
    assert not (tmp_path / "out/deltas").exists()
