"""Embedding: sentences and vectors on disk, what a rerun keeps, and what `open_corpus` refuses."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from miner import encoders
from miner.config.commands import EmbedConfig, EncoderSettings
from miner.encoders import load_encoder
from miner.errors import DataError, MinerError, ModelError, StorageError
from miner.io import stages, storage, table_files, tables
from miner.io.corpus import Corpus, open_corpus
from miner.text.normalise import sentence_ids
from miner.text.sharding import DEFAULT_SIZES, IngestSizes
from pipelines.corpus import embed

TEXT = "one two\n\n three   four\r\nfive\nunknown word\none two\nfive\nfive"
UNIQUE = {  # text -> count, first line
    "one two": (2, 1),
    "three four": (1, 3),
    "five": (3, 4),
    "unknown word": (1, 5),
}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, newline="")
    return path


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory, toy_encoder: Path) -> tuple[Path, Path]:
    """A text and its embeddings in three shards. Tests must copy the folder before they change it."""
    folder = tmp_path_factory.mktemp("embedded")
    (folder / "text.txt").write_text(TEXT, newline="")
    run(folder / "text.txt", folder / "out", toy_encoder, shards=3)
    return folder / "text.txt", folder / "out"


def run(source: Path | Sequence[Path], output: Path | str, encoder: Path, sizes: IngestSizes = DEFAULT_SIZES, **settings: object) -> Corpus:
    inputs = [str(path) for path in ([source] if isinstance(source, Path) else source)]
    embed.run(EmbedConfig.check(inputs=inputs, output=str(output), encoder=str(encoder), **settings), sizes=sizes)
    return open_corpus(str(output))


def rows_of(opened: Corpus) -> dict[str, tuple[int, str, int, list[float]]]:
    """Return {text: (count, source, line, vector)}; assert that ids are unique and ascending."""
    rows = {}
    previous_id = np.iinfo(np.int64).min
    for shard in opened.shards:
        ids, vectors = opened.read_vectors(shard.name)
        table = pa.concat_tables(opened.sentences(shard.name)) if shard.rows else tables.SENTENCES.empty_table()
        assert table["id"].to_pylist() == ids.tolist() == sentence_ids(table["text"].to_pylist()).tolist()
        for row, vector in zip(table.to_pylist(), vectors, strict=True):
            assert row["id"] > previous_id, "ids ascend from shard to shard"
            assert row["text"] not in rows
            previous_id = row["id"]
            rows[row["text"]] = (row["count"], row["source"], row["line"], vector.tolist())
    return rows


def rewritten_shards(folder: Path, before: dict[str, int]) -> set[str]:
    return {name for name, mtime in shard_mtimes(folder).items() if before.get(name) != mtime}


def shard_mtimes(folder: Path) -> dict[str, int]:
    """Return {stage/shard: mtime}."""
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.glob("*/part-*.parquet")}


@pytest.mark.parametrize("shards", [1, 3])
def test_sentences_and_vectors_match_the_text(text: Path, tmp_path: Path, toy_encoder: Path, shards: int) -> None:
    config = EmbedConfig(inputs=(str(text),), output=str(tmp_path / "out"), encoder=str(toy_encoder), lang="fr", shards=shards)
    result = embed.run(config)
    opened = open_corpus(result.output)
    encoder = load_encoder(str(toy_encoder))
    vectors = dict(zip(UNIQUE, encoder.encode(list(UNIQUE)).astype(np.float16).tolist(), strict=True))
    assert rows_of(opened) == {name: (count, str(text), line, vectors[name]) for name, (count, line) in UNIQUE.items()}
    assert len(opened.shards) == shards
    assert (opened.lang, opened.dim, opened.fingerprint, opened.rows) == ("fra_Latn", encoder.dim, encoder.fingerprint, 4)
    counts = {"lines": 8, "kept": 7, "empty": 1, "invalid": 0, "too_long": 0, "few_letters": 0, "duplicate": 3}
    assert opened.counts == result.counts == counts
    assert (result.unique, result.lang, set(result.seconds)) == (4, "fra_Latn", {"encoder", "sentences", "embeddings"})
    assert "8 lines: 7 kept, 1 empty, 3 duplicate" in result.summary()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["embeddings", "sentences"]


def test_embeddings_record_their_encoder(text: Path, tmp_path: Path, toy_encoder: Path) -> None:
    opened = run(text, tmp_path / "out", toy_encoder)
    uri = storage.join(opened.folder, stages.EMBEDDINGS, opened.shards[0].name)
    with table_files.open_parquet(uri) as file:
        schema = file.schema_arrow
    assert schema.equals(tables.embeddings_schema(opened.dim, opened.fingerprint), check_metadata=True)


def test_corpus_does_not_depend_on_the_order_of_files(text: Path, tmp_path: Path, toy_encoder: Path) -> None:
    other = tmp_path / "also.txt"
    other.write_text("six\none two\n")
    first = run([text, other], tmp_path / "first", toy_encoder, shards=2)
    second = run([other, text, other], tmp_path / "second", toy_encoder, shards=2)
    assert first.key == second.key
    rows = rows_of(first)
    assert set(rows) == {*UNIQUE, "six"}
    assert rows["one two"][:3] == (3, str(other), 2)  # sources are ordered by name


def test_find_returns_sentences_by_id(text: Path, tmp_path: Path, toy_encoder: Path) -> None:
    opened = run(text, tmp_path / "out", toy_encoder, shards=3)
    texts = ["five", "one two", "five", "unknown word"]
    rows = opened.find(sentence_ids(texts)).of(sentence_ids(texts))
    assert rows["text"].to_pylist() == texts
    assert rows["line"].to_pylist() == [UNIQUE[name][1] for name in texts]
    assert rows["source"].to_pylist() == [str(text)] * 4
    no_ids = np.zeros(0, np.int64)
    assert opened.find(no_ids).of(no_ids).num_rows == 0
    with pytest.raises(DataError, match="no sentence has the id 12"):
        opened.find(np.array([12]))


def test_corpus_can_be_in_any_file_system(text: Path, tmp_path: Path, toy_encoder: Path) -> None:
    opened = run(text, f"memory://{tmp_path}/out", toy_encoder, shards=2)
    assert set(rows_of(opened)) == set(UNIQUE)


def test_row_groups_stream_in_order(tmp_path: Path, toy_encoder: Path) -> None:
    text = tmp_path / "many.txt"
    text.write_text("".join(f"one {'two ' * (n % 7)} {n}\n" for n in range(1050)))
    opened = run(text, tmp_path / "out", toy_encoder, IngestSizes(row_group_rows=100))
    groups = list(opened.vectors(opened.shards[0].name))
    assert [len(ids) for ids, _ in groups] == [100] * 10 + [50]
    texts = [name for table in opened.sentences(opened.shards[0].name, ["text"]) for name in table["text"].to_pylist()]
    expected = load_encoder(str(toy_encoder)).encode(texts).astype(np.float16)
    np.testing.assert_array_equal(np.concatenate([vectors for _, vectors in groups]), expected)
    np.testing.assert_array_equal(opened.read_vectors(opened.shards[0].name)[1], expected)


def test_row_groups_of_long_lines_are_limited_by_bytes(tmp_path: Path, toy_encoder: Path) -> None:
    text = tmp_path / "long.txt"
    text.write_text("".join(f"{n} {'two three ' * 200}\n" for n in range(100)))
    opened = run(text, tmp_path / "out", toy_encoder, IngestSizes(row_group_bytes=20_000), shards=1)
    tables = list(opened.sentences(opened.shards[0].name, ["text"]))
    assert sum(map(len, tables)) == 100
    assert max(sum(map(len, table["text"].to_pylist())) for table in tables) <= 20_000
    texts = [text for table in tables for text in table["text"].to_pylist()]
    expected = load_encoder(str(toy_encoder)).encode(texts).astype(np.float16)
    np.testing.assert_array_equal(opened.read_vectors(opened.shards[0].name)[1], expected)


SHARDS = [stages.shard_name(index, 3) for index in range(3)]
FULL = SHARDS[0]  # holds two of the four sentences


@pytest.mark.parametrize(
    ("damage", "rewritten"),
    [
        (lambda _: None, set()),
        (lambda out: (out / "embeddings" / SHARDS[1]).unlink(), {f"embeddings/{SHARDS[1]}"}),
        (lambda out: (out / "embeddings" / SHARDS[1]).write_bytes(b"PAR1"), {f"embeddings/{SHARDS[1]}"}),
        (lambda out: (out / "sentences" / SHARDS[2]).write_bytes(b""), {f"sentences/{SHARDS[2]}"}),
        (lambda out: (out / "embeddings" / "manifest.json").unlink(), set()),
        (lambda out: (out / "sentences" / "manifest.json").unlink(), set()),
        (lambda out: shutil.rmtree(out / "embeddings"), {f"embeddings/{name}" for name in SHARDS}),
    ],
    ids=["nothing", "vectors missing", "vectors truncated", "sentences truncated", "no manifest", "no sentences manifest", "no vectors"],
)
def test_rerun_rewrites_only_damaged_shards(
    embedded: tuple[Path, Path], tmp_path: Path, toy_encoder: Path, damage: Callable[[Path], object], rewritten: set[str]
) -> None:
    text, complete = embedded
    out = shutil.copytree(complete, tmp_path / "out")
    first, before = open_corpus(str(out)), shard_mtimes(out)
    damage(out)
    second = run(text, out, toy_encoder, shards=3)
    assert second == first
    assert rewritten_shards(out, before) == rewritten


def test_changed_text_rewrites_only_its_shards(text: Path, tmp_path: Path, toy_encoder: Path) -> None:
    out = tmp_path / "out"
    first = run(text, out, toy_encoder, shards=8)
    before = shard_mtimes(out)
    with text.open("a") as handle:
        handle.write("\nten ten")
    second = run(text, out, toy_encoder, shards=8)
    assert set(rows_of(second)) == {*UNIQUE, "ten ten"}
    grown = [shard.name for shard, previous in zip(second.shards, first.shards, strict=True) if shard.rows > previous.rows]
    assert {name for name in rewritten_shards(out, before) if name.startswith("embeddings")} == {f"embeddings/{name}" for name in grown}
    assert len(grown) == 1
    assert second.key != first.key


def changed_encoder(folder: Path, toy_encoder: Path) -> Path:
    shutil.copytree(toy_encoder, folder)
    path = folder / "vectors.safetensors"
    path.write_bytes(path.read_bytes()[:-2] + b"\x00\x3c")
    (folder / "checksums.json").unlink()
    return folder


@pytest.mark.parametrize("change", ["encoder", "lang", "max_chars", "strict"])
def test_output_of_other_settings_is_refused(text: Path, tmp_path: Path, toy_encoder: Path, change: str) -> None:
    out = tmp_path / "out"
    fingerprint = run(text, out, toy_encoder).fingerprint
    before = shard_mtimes(out)
    other = changed_encoder(tmp_path / "other", toy_encoder) if change == "encoder" else toy_encoder
    expected = {
        "encoder": f"made with encoder '{fingerprint}', now '{load_encoder(str(other)).fingerprint}'",
        "lang": "made with lang 'und', now 'deu_Latn'",
        "max_chars": "made with max_chars 5000, now 7",
        "strict": "made with strict False, now True",
    }
    settings = {"lang": "de", "max_chars": 7, "strict": True}
    changed = {change: settings[change]} if change in settings else {}
    with pytest.raises(StorageError) as caught:
        run(text, out, other, **changed)
    assert expected[change] in str(caught.value)
    assert shard_mtimes(out) == before
    open_corpus(str(out))  # still complete
    remedy, stale = str(caught.value).rsplit(" ", 1)
    assert remedy.endswith("choose another --output, or delete")
    shutil.rmtree(stale)
    run(text, out, other, **changed)


def test_an_encoder_is_loaded_again_only_if_its_files_changed(tmp_path: Path, toy_encoder: Path) -> None:
    settings = EncoderSettings(encoder=str(shutil.copytree(toy_encoder, tmp_path / "encoder")))
    first = embed.load_once(settings)
    assert embed.load_once(settings) is first
    assert embed.has_fingerprint(settings, first.fingerprint)
    shutil.rmtree(tmp_path / "encoder")
    changed_encoder(tmp_path / "encoder", toy_encoder)
    second = embed.load_once(settings)
    assert second.fingerprint == load_encoder(settings.encoder).fingerprint != first.fingerprint
    with pytest.raises(ModelError, match=f"on a worker is {second.fingerprint}, on the driver {first.fingerprint}"):
        embed.load_once(settings, first.fingerprint)


def test_another_encoder_keeps_the_sentences(text: Path, tmp_path: Path, toy_encoder: Path) -> None:
    out = tmp_path / "out"
    run(text, out, toy_encoder)
    before = shard_mtimes(out)
    shutil.rmtree(out / "embeddings")  # the remedy of the error message
    other = run(text, out, changed_encoder(tmp_path / "other", toy_encoder))
    assert rewritten_shards(out, before) == {f"embeddings/{shard.name}" for shard in other.shards}


def test_credentials_of_inputs_are_not_recorded(tmp_path: Path, toy_encoder: Path) -> None:
    fs, path = storage.filesystem("memory://user:pa55@host/texts/a.txt")
    fs.pipe_file(path, TEXT.encode())
    config = EmbedConfig.check(inputs=["memory://user:pa55@host/texts/a.txt"], output=str(tmp_path / "out"), encoder=str(toy_encoder))
    embed.run(config)
    manifest = stages.read_manifest(str(tmp_path / "out" / "sentences"))
    assert list(manifest.inputs) == ["memory://host/texts/a.txt"]
    sources = table_files.read_table(str(tmp_path / "out" / "sentences" / manifest.shards[0].name))["source"].to_pylist()
    assert set(sources) <= {"memory://host/texts/a.txt"}
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file() and b"pa55" in path.read_bytes()] == []


class BrokenEncoder:
    """Returns one invalid value, or vectors of a shape that does not match `dim`."""

    fingerprint = "broken"
    dim = 4

    def __init__(self, value: float | None) -> None:
        self.value = value

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        if self.value is None:
            return np.zeros((len(texts), 5), dtype=np.float32)
        vectors = np.full((len(texts), 4), 0.5, dtype=np.float32)
        vectors[[text == "five" for text in texts], 2] = self.value
        return vectors


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "the vector of 'five' is not finite"),
        (-np.inf, "the vector of 'five' is not finite"),
        (1e6, "the vector of 'five' is not finite"),  # infinite in float16
        (None, r"vectors of shape \(4, 5\) for 4 texts x 4"),
    ],
)
def test_invalid_vectors_are_an_error_of_the_encoder(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float | None, message: str
) -> None:
    folder = tmp_path / "broken-encoder"
    folder.mkdir()
    (folder / "miner.json").write_text('{"kind": "broken"}')
    monkeypatch.setitem(encoders.ENCODERS, "broken", lambda *_: BrokenEncoder(value))
    with pytest.raises(ModelError, match=f"{folder}.*{message}"):
        run(text, tmp_path / "out", folder)
    assert not list((tmp_path / "out" / "embeddings").glob("*part*"))
    with pytest.raises(StorageError, match="no finished stage `embeddings`"):
        open_corpus(str(tmp_path / "out"))


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    table_files.write_table(str(path), change(table_files.read_table(str(path))))


def nan(table: pa.Table) -> pa.Table:
    vectors = tables.arrow_to_vectors(table["embedding"]).copy()
    vectors[1, 2] = np.nan
    return table.set_column(1, table.schema.field(1), tables.vectors_to_arrow(vectors))


def narrow(table: pa.Table) -> pa.Table:
    vectors = tables.arrow_to_vectors(table["embedding"])[:, :8]
    return pa.table([table["id"], tables.vectors_to_arrow(vectors)], schema=tables.embeddings_schema(8, "f"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda out: shutil.rmtree(out), "out: not an embeddings directory; give the --output of `miner embed`"),
        (lambda out: shutil.rmtree(out / "embeddings"), "no finished stage `embeddings`"),
        (lambda out: (out / "sentences" / "manifest.json").unlink(), "no finished stage `sentences`"),
        (lambda out: (out / "embeddings" / FULL).unlink(), f"{FULL}: this shard is missing"),
        (lambda out: (out / "embeddings" / FULL).write_bytes(b"PAR1"), "not a complete Parquet file"),
        (lambda out: (out / "sentences" / FULL).write_bytes(b"PAR1"), "not a complete Parquet file"),
        (lambda out: rewrite(out / "embeddings" / FULL, lambda table: table.slice(1)), "1 rows, but its manifest says 2"),
        (lambda out: rewrite(out / "sentences" / FULL, lambda table: table.slice(1)), "1 rows, but its manifest says 2"),
        (lambda out: rewrite(out / "embeddings" / FULL, nan), "contains vectors that are not finite"),
        (lambda out: rewrite(out / "embeddings" / FULL, narrow), r"vectors of fixed_size_binary\[16\], not of 32 float16"),
    ],
)
def test_inconsistent_corpus_is_refused(
    embedded: tuple[Path, Path], tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    out = shutil.copytree(embedded[1], tmp_path / "out")
    rows_of(open_corpus(str(out)))
    damage(out)
    with pytest.raises(MinerError, match=message):
        rows_of(open_corpus(str(out)))


def test_sentences_other_than_those_embedded_are_refused(text: Path, tmp_path: Path, toy_encoder: Path) -> None:
    run(text, tmp_path / "out", toy_encoder)
    run(text, tmp_path / "other", toy_encoder, max_chars=7)
    shutil.rmtree(tmp_path / "out" / "sentences")
    shutil.copytree(tmp_path / "other" / "sentences", tmp_path / "out" / "sentences")
    with pytest.raises(DataError, match="not those that were embedded; run `miner embed` again"):
        open_corpus(str(tmp_path / "out"))
