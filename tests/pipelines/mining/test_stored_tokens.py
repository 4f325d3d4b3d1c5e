"""Stored tokens of a transformer: against dense arithmetic, one pass over the texts, damage, increments, and sizes."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny
import torch
import transformers
import yaml
from command import error_of, outcome_of, output_of

import miner
from miner.encoders.layer_tokens import SEED, TOKEN_DIM, LayerTokens
from miner.encoders.transformer import TransformerEncoder
from miner.io import stages

WIDTH, LAYERS, LAYER = 128, 3, 2
NUM_LINES = 60
MINING = "--threshold", 0.5
LIKE_THE_ENCODER: dict[str, Any] = {"pooling": "mean", "device": "cpu", "dtype": "float32", "batch_tokens": 16}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_transformer(tmp_path_factory.mktemp("model"), width=WIDTH, layers=LAYERS)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return English and German sentences of three to five number words."""
    folder = tmp_path_factory.mktemp("texts")
    for name, lang in (("en", "eng_Latn"), ("de", "deu_Latn")):
        lines = [tiny.sentence(lang, digits) for count in (3, 4, 5) for digits in tiny.numbers(NUM_LINES // 3, count, count)]
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder / "en", folder / "de"


def options(model: Path) -> tuple[Any, ...]:
    # One sentence a batch, so that no sentence depends on its batch.
    return ("--encoder", model, "--pooling", "mean", "--device", "cpu", "--dtype", "float32", "--batch-tokens", 16)


@pytest.fixture(scope="module")
def mined(model: Path, texts: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("mined") / "out"
    output_of("mine", *MINING, *texts, *options(model), "--output", output)
    return output


@pytest.fixture
def copy(mined: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(mined, tmp_path / "out"))


def read(folder: Path) -> dict[str, np.ndarray]:
    """Return the columns of all shards of a stage, sorted by their first two."""
    table = pq.read_table(sorted(folder.glob("*.parquet")))
    columns = {name: table[name].to_numpy() for name in table.column_names}
    order = np.lexsort([columns[name] for name in table.column_names[1::-1]])
    return {name: column[order] for name, column in columns.items()}


def read_bytes(output: Path) -> dict[str, bytes]:
    paths = [*output.glob("*/tokens/*.parquet"), *output.glob("candidates/*.parquet"), output / "bitext.parquet"]
    return {str(path.relative_to(output)): path.read_bytes() for path in paths}


def dense_tokens(model: Path, text: str) -> np.ndarray:
    """Return the projected tokens (t, TOKEN_DIM) of a sentence, rounded, by the model itself in float64."""
    ids = [0, *(tiny.WORDS.index(word) for word in text.split()), 2]
    module = transformers.AutoModel.from_pretrained(model).eval().double()
    with torch.no_grad():
        states = module(torch.tensor([ids]), output_hidden_states=True).hidden_states[LAYER][0, 1:-1].numpy()
    axes = np.linalg.qr(np.random.default_rng(SEED).normal(size=(WIDTH, TOKEN_DIM)))[0]
    projected = states @ axes
    return np.rint(127 * projected / np.linalg.norm(projected, axis=1, keepdims=True))


def test_late_interaction_of_stored_tokens_equals_dense_arithmetic(model: Path, mined: Path) -> None:
    tokens = {}
    for side in ("source", "target"):
        sentences, stored = pq.read_table(next((mined / side / "sentences").glob("*.parquet"))), read(mined / side / "tokens")
        tokens[side] = {row["id"]: dense_tokens(model, row["text"]) for row in sentences.to_pylist()}
        for sentence, value in zip(stored["id"], stored["tokens"], strict=True):
            vectors = np.frombuffer(value, np.int8).reshape(-1, TOKEN_DIM)
            np.testing.assert_allclose(vectors, tokens[side][sentence], atol=1)
    candidates = read(mined / "candidates")
    pairs = zip(candidates["source_id"], candidates["target_id"], strict=True)
    expected = []
    for source, target in pairs:
        products = tokens["source"][source] @ tokens["target"][target].T / 127**2
        expected.append((products.max(1).mean() + products.max(0).mean()) / 2)
    assert len(expected) > 16 * NUM_LINES
    np.testing.assert_allclose(candidates["late_similarity"], expected, atol=2e-3)
    assert json.loads((mined / "candidates/manifest.json").read_text())["config"]["token_layer"] == LAYER


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of texts of each pass over texts."""
    recorded: list[int] = []
    tokenize = TransformerEncoder._tokenize

    def count(self: TransformerEncoder, texts: Any) -> Any:
        recorded.append(len(texts))
        return tokenize(self, texts)

    monkeypatch.setattr(TransformerEncoder, "_tokenize", count)
    return recorded


def test_texts_are_encoded_once(model: Path, texts: tuple[Path, Path], mined: Path, tmp_path: Path, passes: list[int]) -> None:
    output_of("mine", *MINING, *texts, *options(model), "--output", tmp_path / "out")
    assert sum(passes) == 2 * NUM_LINES
    for name, data in read_bytes(mined).items():
        assert (tmp_path / "out" / name).read_bytes() == data
    passes.clear()
    output_of("mine", *MINING, *(tmp_path / "out" / side for side in ("source", "target")), "--output", tmp_path / "again")
    assert not passes
    assert (tmp_path / "again/bitext.parquet").read_bytes() == (mined / "bitext.parquet").read_bytes()


def test_shards_and_vectors_do_not_change_the_result(model: Path, texts: tuple[Path, Path], mined: Path, tmp_path: Path) -> None:
    output_of("mine", *MINING, *texts, *options(model), "--output", tmp_path / "out", "--shards", 3)
    assert len(list((tmp_path / "out/source/tokens").glob("*.parquet"))) == 3
    for stage in ("source/tokens", "target/tokens", "source/embeddings", "candidates"):
        expected = read(mined / stage)
        assert all(np.array_equal(column, expected[name]) for name, column in read(tmp_path / "out" / stage).items())
    output_of("mine", *MINING, *texts, *options(model), "--output", tmp_path / "none", "--rescore", "none")
    assert not (tmp_path / "none/source/tokens").exists()
    plain, stored = (next((output / "source/embeddings").glob("*.parquet")).read_bytes() for output in (tmp_path / "none", mined))
    assert plain == stored


@pytest.mark.parametrize("damage", ["missing", "changed", "manifest"])
def test_damaged_tokens_are_encoded_again(damage: str, model: Path, texts: tuple[Path, Path], copy: Path, mined: Path) -> None:
    shard = next((copy / "source/tokens").glob("*.parquet"))
    if damage == "manifest":
        (copy / "source/tokens/manifest.json").unlink()
    elif damage == "missing":
        shard.unlink()
    else:
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 1
        shard.write_bytes(data)
    if damage != "manifest":
        assert str(shard) in error_of("mine", *MINING, copy / "source", copy / "target", "--output", copy.parent / "other")
        status, output, _ = outcome_of("verify", copy)
        assert status == 1
        assert str(shard) in output
    output_of("mine", *MINING, *texts, *options(model), "--output", copy)
    assert read_bytes(copy) == read_bytes(mined)
    output_of("verify", copy)


def test_added_files_have_tokens(model: Path, texts: tuple[Path, Path], mined: Path, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    lines = texts[0].read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "1.txt").write_text("".join(lines[:40]), encoding="utf-8")
    output_of("embed", folder / "*.txt", *options(model), "--output", tmp_path / "en")
    (folder / "2.txt").write_text("".join(lines[40:]), encoding="utf-8")
    output_of("embed", folder / "*.txt", *options(model), "--output", tmp_path / "en")
    expected = read(mined / "source/tokens")
    for name, column in read(tmp_path / "en/tokens").items():
        np.testing.assert_array_equal(column, expected[name])
    output_of("mine", *MINING, tmp_path / "en", mined / "target", "--output", tmp_path / "out")
    np.testing.assert_array_equal(read(tmp_path / "out/candidates")["late_similarity"], read(mined / "candidates")["late_similarity"])


def test_embeddings_without_tokens_are_rescored_only_if_asked(model: Path, texts: tuple[Path, Path], mined: Path, tmp_path: Path) -> None:
    for side, text in zip(("source", "target"), texts, strict=True):
        output_of("embed", text, *options(model), "--output", tmp_path / side, "--rescore", "none")
    sides = tmp_path / "source", tmp_path / "target"
    output_of("mine", *MINING, *sides, *options(model), "--output", tmp_path / "auto")
    assert "late_similarity" not in read(tmp_path / "auto/candidates")
    output_of("mine", *MINING, *sides, *options(model), "--output", tmp_path / "late", "--rescore", "late")
    late, expected = (read(output / "candidates")["late_similarity"] for output in (tmp_path / "late", mined))
    np.testing.assert_allclose(late, expected, atol=2e-3)


def test_a_profile_can_advise_against_rescoring(model: Path, texts: tuple[Path, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    (folder / "mining.json").write_text(json.dumps({"rescoring_pays": False}))
    output_of("mine", *MINING, *texts, *options(folder), "--output", tmp_path / "out")
    assert not (tmp_path / "out/source/tokens").exists()
    assert "late_similarity" not in read(tmp_path / "out/candidates")


def test_python_and_scores_use_stored_tokens(
    model: Path, texts: tuple[Path, Path], mined: Path, tmp_path: Path, passes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(LayerTokens, "token_vectors")
    lines = [path.read_text(encoding="utf-8").splitlines() for path in texts]
    encoder = miner.load_encoder(str(model), pooling="mean", device="cpu", dtype="float32", batch_tokens=16)
    passes.clear()
    result = miner.mine(*lines, encoder=encoder, threshold=0.5)
    assert sum(passes) == 2 * NUM_LINES
    assert len(result) == pq.read_metadata(mined / "bitext.parquet").num_rows > 0
    sides = mined / "source", mined / "target"
    output_of("mine", *sides, "--retrieval", "all", "--threshold", 0, "--output", tmp_path / "all")
    output_of("score", *texts, *options(model), "--output", tmp_path / "scores.tsv")
    margins = {tuple(line.split("\t")[1:3]): float(line.split("\t")[0]) for line in (tmp_path / "scores.tsv").read_text().splitlines()}
    bitext = pq.read_table(tmp_path / "all/bitext.parquet")
    expected = {(row["source_text"], row["target_text"]): row["margin"] for row in bitext.to_pylist()}
    common = margins.keys() & expected.keys()
    assert len(common) > 10
    np.testing.assert_allclose([margins[pair] for pair in common], [expected[pair] for pair in common], atol=1e-6)


def test_embeddings_in_memory_keep_their_tokens(model: Path, texts: tuple[Path, Path], passes: list[int], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    weights = {"intercept": -1, "margin": 2, "length_ratio": 0, "numbers": 0}
    (folder / "mining.json").write_text(json.dumps({"probabilities": {"ratio": {"rescored": weights}}}))
    encoder = miner.load_encoder(str(folder), pooling="mean", device="cpu", dtype="float32", batch_tokens=16)
    lines = [[*path.read_text(encoding="utf-8").splitlines(), "", "one two"] for path in texts]
    lines[0].insert(0, lines[0][-3])  # a repeated text
    sides = [miner.embed(side, encoder) for side in lines]
    passes.clear()
    shutil.rmtree(folder)
    bitext = miner.mine(*sides, retrieval="all", threshold=0.0)
    assert not passes
    assert "probability" in bitext.to_arrow().column_names  # the embeddings keep the profile of the encoder
    expected = miner.mine(*lines, encoder=str(model), retrieval="all", threshold=0.0, **LIKE_THE_ENCODER).to_arrow()
    margins = [
        {(row["source_text"], row["target_text"]): row["margin"] for row in table.to_pylist()} for table in (bitext.to_arrow(), expected)
    ]
    assert margins[0] == margins[1]
    plain = [miner.embed(side, encoder, rescore="none") for side in lines]
    assert plain[0].tokens is None
    assert miner.mine(*plain, retrieval="all", threshold=0.0).to_arrow()["margin"].to_pylist() != bitext.to_arrow()["margin"].to_pylist()


def test_the_plan_has_the_size_of_tokens(model: Path, tmp_path: Path) -> None:
    corpora = {}
    for lang in ("eng_Latn", "deu_Latn"):
        lines = {tiny.sentence(lang, digits) for digits in tiny.numbers(900, 1, 5)}
        (tmp_path / f"{lang}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        corpora[lang] = str(tmp_path / f"{lang}.txt")
    config = {
        "output": str(tmp_path / "run"), "corpora": corpora, "pairs": ["eng_Latn-deu_Latn"],
        "encoder": str(model), "pooling": "mean", "device": "cpu", "dtype": "float32", "sentence_filters": {}, "threshold": 1,
    }  # fmt: skip
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    plan = json.loads(output_of("plan", tmp_path / "run.yaml", "--json", "-"))
    output_of("run", tmp_path / "run.yaml")
    for lang in corpora:
        (cost,) = (stage for stage in plan["stages"] if stage["name"] == f"embed {lang}")
        folders = [tmp_path / "run/corpora" / lang / stage for stage in (stages.EMBEDDINGS, stages.TOKENS)]
        size = sum(path.stat().st_size for folder in folders for path in folder.glob("*.parquet"))
        assert cost["disk"] == pytest.approx(size, rel=0.1)
