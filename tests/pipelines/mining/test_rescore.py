"""Rescoring in `miner mine`: against a dense reference, the same bytes however it runs, and outputs that were mined without it."""

import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny
from bitexts import read_outputs
from command import error_of, miner, output_of

from miner.config.choices import default_candidates
from miner.config.commands import EncoderSettings, MineConfig
from miner.encoders import load_encoder, static, transformer
from miner.encoders import pair as pair_encoder
from miner.encoders.transformer import TransformerEncoder
from miner.io import stages
from miner.io.tables import CANDIDATES, RESCORED_CANDIDATES
from miner.mining.candidates import look_up
from pipelines.mining import mine
from pipelines.mining.candidates import MiningLimits

EXAMPLES = Path(__file__).parents[3] / "examples"
NUM_LINES = 150


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return English and German sentences, a line without known pieces among them."""
    folder = tmp_path_factory.mktemp("texts")
    for name in ("en", "de"):
        lines = (EXAMPLES / f"{name}.txt").read_text(encoding="utf-8").splitlines()[:NUM_LINES]
        (folder / name).write_text("".join(f"{line}\n" for line in [*lines, "\U00013000"]), encoding="utf-8")
    return folder / "en", folder / "de"


@pytest.fixture(scope="module")
def mined(texts: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("mined") / "out"
    output_of("mine", *texts, "--output", output, "--threshold", "0.9")
    return output


def read_candidates(output: Path) -> dict[str, np.ndarray]:
    tables = [pq.read_table(path) for path in sorted((output / "candidates").glob("*.parquet"))]
    return {name: np.concatenate([table[name].to_numpy() for table in tables]) for name in tables[0].column_names}


@pytest.mark.slow
def test_candidates_have_late_interaction_and_its_means(mined: Path) -> None:
    candidates, encoder = read_candidates(mined), load_encoder("builtin")
    assert list(candidates) == RESCORED_CANDIDATES.names
    tokens = {}
    for side in ("source", "target"):
        table = pq.read_table(mined / side / "sentences" / "part-00000-of-00001.parquet")
        vectors = encoder.token_vectors(table["text"].to_pylist())
        bounds = zip(vectors.bounds[:-1], vectors.bounds[1:], strict=True)
        rows = [slice(start, end) for start, end in bounds]
        by_text = [(vectors.table[vectors.rows[part]].astype(np.float64) / 127, vectors.weights[part].astype(float)) for part in rows]
        tokens[side] = dict(zip(table["id"].to_pylist(), by_text, strict=True))
    pairs = list(zip(candidates["source_id"].tolist(), candidates["target_id"].tolist(), strict=True))
    expected = []
    for source, target in pairs:
        (u, u_weights), (v, v_weights) = tokens["source"][source], tokens["target"][target]
        products = u @ v.T
        if not products.size:  # a text without a known piece
            expected.append(0.0)
            continue
        expected.append((u_weights @ products.max(1) / u_weights.sum() + v_weights @ products.max(0) / v_weights.sum()) / 2)
    np.testing.assert_allclose(candidates["late_similarity"], expected, rtol=1e-12)
    for side, flag in (("source", "forward"), ("target", "backward")):
        own: dict[int, list[float]] = {}
        for number in np.flatnonzero(candidates[flag]):
            own.setdefault(candidates[f"{side}_id"][number], []).append(candidates["late_similarity"][number])
        assert max(map(len, own.values())) == 16
        means = [np.mean(sorted(own[sentence])[-4:]) for sentence in candidates[f"{side}_id"].tolist()]
        np.testing.assert_allclose(candidates[f"{side}_late_mean"], means, rtol=1e-12)


def test_the_margin_of_the_embeddings_does_not_change(texts: tuple[Path, Path], mined: Path, tmp_path: Path) -> None:
    output_of("mine", *texts, "--output", tmp_path / "none", "--rescore", "none")
    plain, rescored = read_candidates(tmp_path / "none"), read_candidates(mined)
    assert list(plain) == CANDIDATES.names
    columns = ("similarity", "source_mean", "target_mean")
    by_pair = dict(
        zip(zip(rescored["source_id"], rescored["target_id"], strict=True), zip(*map(rescored.get, columns), strict=True), strict=True)
    )
    for number, pair in enumerate(zip(plain["source_id"], plain["target_id"], strict=True)):
        assert by_pair[pair] == tuple(plain[name][number] for name in columns)


@pytest.mark.slow
@pytest.mark.parametrize("device_rows", [0, 1 << 30])
def test_shards_and_pipelines_give_the_same_bytes(device_rows: int, texts: tuple[Path, Path], mined: Path, tmp_path: Path) -> None:
    config = MineConfig(source=str(texts[0]), target=str(texts[1]), output=str(tmp_path / "out"), threshold=0.9, shards=3)
    mine.run(config, limits=MiningLimits(in_process_rows=device_rows))
    assert (tmp_path / "out/bitext.tsv.gz").read_bytes() == (mined / "bitext.tsv.gz").read_bytes()
    reordered = read_candidates(tmp_path / "out")
    for name, column in read_candidates(mined).items():
        np.testing.assert_array_equal(reordered[name], column)


def test_a_stopped_run_resumes_to_the_same_bytes(texts: tuple[Path, Path], mined: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output_of("mine", *texts, "--output", output, "--threshold", "0.9")
    (output / "candidates/manifest.json").rename(output / "candidates" / stages.STARTED)
    for name in ("_shards/part-00000-of-00001.parquet.json", "part-00000-of-00001.parquet"):
        (output / "candidates" / name).unlink()
    output_of("mine", *texts, "--output", output, "--threshold", "0.9")
    assert read_outputs(output) == read_outputs(mined)


def test_selecting_again_needs_no_text_and_gives_the_same_bytes(texts: tuple[Path, Path], mined: Path, tmp_path: Path) -> None:
    options = ("--margin", "distance", "--retrieval", "intersection", "--threshold", "0.02")
    output_of("mine", "--from-candidates", mined, "--output", tmp_path / "again", *options)
    output_of("mine", *texts, "--output", tmp_path / "direct", *options)
    assert read_outputs(tmp_path / "again") == read_outputs(tmp_path / "direct")
    assert json.loads((tmp_path / "again/manifest.json").read_text())["config"]["rescore"] == "late"


@pytest.mark.slow
def test_an_output_that_was_mined_without_rescoring_stays_so(
    texts: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output_of("mine", *texts, "--output", tmp_path / "out", "--rescore", "none")
    before = read_outputs(tmp_path / "out")
    with caplog.at_level(logging.WARNING):
        output_of("mine", *texts, "--output", tmp_path / "out")
    assert "out/candidates: the candidates there are not rescored; to rescore them, mine into another --output" in caplog.text
    assert read_outputs(tmp_path / "out") == before
    message = error_of("mine", *texts, "--output", tmp_path / "out", "--rescore", "late")
    assert "out/candidates: computed with --rescore none, now late; choose another --output" in message
    assert read_outputs(tmp_path / "out") == before


def test_an_output_that_was_rescored_is_not_mined_without(texts: tuple[Path, Path], mined: Path) -> None:
    before = read_outputs(mined)
    assert "computed with --rescore late, now none" in error_of("mine", *texts, "--output", mined, "--rescore", "none")
    assert "made with k 4, now 16" in error_of("mine", *texts, "--output", mined, "--k", 16, "--rescore-candidates", 6)
    assert read_outputs(mined) == before


def test_more_candidates_of_small_corpora_by_default() -> None:
    assert [default_candidates(sizes) for sizes in ((20_000, 5), (5, 20_001), (20_001, 20_001))] == [16, 8, 8]


def test_an_output_keeps_its_number_of_candidates(texts: tuple[Path, Path], tmp_path: Path) -> None:
    output_of("mine", *texts, "--output", tmp_path / "out", "--rescore-candidates", 6)
    before = read_outputs(tmp_path / "out")
    output_of("mine", *texts, "--output", tmp_path / "out")
    assert read_outputs(tmp_path / "out") == before
    (tmp_path / "out/candidates/manifest.json").unlink()  # an interrupted run has searched, and records no candidates yet
    shutil.rmtree(tmp_path / "out/candidates")
    output_of("mine", *texts, "--output", tmp_path / "out")
    assert read_outputs(tmp_path / "out") == before


@pytest.mark.slow
def test_corpora_lead_to_their_encoder(
    texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = shutil.copytree(toy_encoder, tmp_path / "encoder")
    for path in texts:
        assert miner("embed", path, "--encoder", encoder, "--output", tmp_path / path.name).exit_code == 0
    sides = (tmp_path / "en", tmp_path / "de")
    output_of("mine", *sides, "--output", tmp_path / "given", "--encoder", encoder)
    output_of("mine", *sides, "--output", tmp_path / "recorded")
    assert list(read_candidates(tmp_path / "recorded")) == RESCORED_CANDIDATES.names
    assert read_outputs(tmp_path / "recorded") == read_outputs(tmp_path / "given")
    loaded = load_encoder(str(encoder))
    static.save(tmp_path / "other", -loaded.vectors, loaded.pieces.serialized_model_proto())
    with caplog.at_level(logging.WARNING):
        output_of("mine", *sides, "--output", tmp_path / "by-another", "--encoder", tmp_path / "other")
    assert f"{sides[0]} was embedded by {encoder}, which rescores, not by {tmp_path / 'other'}" in caplog.text
    assert read_outputs(tmp_path / "by-another") == read_outputs(tmp_path / "given")
    encoder.rename(tmp_path / "moved")
    with caplog.at_level(logging.WARNING):
        output_of("mine", *sides, "--output", tmp_path / "moved-encoder")
    assert f"candidates are not rescored: {sides[0]} was embedded by static-" in caplog.text
    assert "give the --encoder that embedded it, or --rescore none" in caplog.text
    assert list(read_candidates(tmp_path / "moved-encoder")) == CANDIDATES.names
    message = error_of("mine", *sides, "--output", tmp_path / "late", "--rescore", "late")
    assert f"{sides[0]} was embedded by static-" in message
    assert "give the --encoder that embedded it" in message


@pytest.mark.slow
@pytest.mark.parametrize("in_process_rows", [0, 1 << 30])
def test_of_corpora_that_grew_only_new_pairs_are_rescored(
    in_process_rows: int, texts: tuple[Path, Path], mined: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, limits = tmp_path / "texts", MiningLimits(in_process_rows=in_process_rows)
    folder.mkdir()
    lines = {path.name: path.read_text(encoding="utf-8").splitlines(keepends=True) for path in texts}
    config = MineConfig(source=f"{folder}/en*", target=f"{folder}/de*", output=str(tmp_path / "out"), threshold=0.9)
    for part, rows in (("1", slice(100)), ("2", slice(100, None))):
        for name, side in lines.items():
            (folder / f"{name}.{part}").write_text("".join(side[rows]), encoding="utf-8")
        if part == "1":
            mine.run(config, limits=limits)
            previous = read_pairs(tmp_path / "out")
    with caplog.at_level(logging.INFO):
        mine.run(config, limits=limits)
    current = read_pairs(tmp_path / "out")
    assert previous & current
    assert f"rescore: {len(current - previous)} of {len(current)} candidates; the others were rescored before" in caplog.text
    expected, grown = read_candidates(mined), read_candidates(tmp_path / "out")
    for name, column in expected.items():
        np.testing.assert_array_equal(grown[name][sorted_rows(grown)], column[sorted_rows(expected)])
    assert (tmp_path / "out/bitext.tsv.gz").read_bytes() == (mined / "bitext.tsv.gz").read_bytes()


def read_pairs(output: Path) -> set[tuple[int, int]]:
    candidates = read_candidates(output)
    return set(zip(candidates["source_id"].tolist(), candidates["target_id"].tolist(), strict=True))


def sorted_rows(candidates: dict[str, np.ndarray]) -> np.ndarray:
    return np.lexsort((candidates["target_id"], candidates["source_id"]))


def test_scores_are_looked_up_by_pair() -> None:
    scored = np.array([5, 2, 5]), np.array([1, 1, 2])
    pairs = np.array([2, 5, 5, 9]), np.array([2, 2, 1, 1])
    np.testing.assert_array_equal(look_up(pairs, scored, np.array([0.1, 0.2, 0.3])), [np.nan, 0.3, 0.1, np.nan])
    np.testing.assert_array_equal(look_up(scored, (scored[0][:0], scored[1][:0]), np.zeros(0)), [np.nan] * 3)


@pytest.fixture(scope="module")
def number_texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return English and German sentences of number words."""
    folder, rows = tmp_path_factory.mktemp("numbers"), tiny.numbers(40, 0)
    for name, lang in (("en", "eng_Latn"), ("de", "deu_Latn")):
        (folder / name).write_text("".join(f"{tiny.sentence(lang, digits)}\n" for digits in rows), encoding="utf-8")
    return folder / "en", folder / "de"


def late_by_loops(output: Path, encoders: dict[str, TransformerEncoder], layer: int) -> list[float]:
    """Return L of the candidates from the hidden states of each sentence by itself, in plain loops."""
    units: dict[str, dict[int, list[np.ndarray]]] = {}
    for side, encoder in encoders.items():
        table = pq.read_table(next((output / side / "sentences").glob("*.parquet")))
        states = {row["id"]: next(encoder.hidden_states([row["text"]], layer))[0].astype(float) for row in table.to_pylist()}
        units[side] = {sentence: [token / np.linalg.norm(token) for token in tokens] for sentence, tokens in states.items()}
    candidates, expected = read_candidates(output), []
    for source, target in zip(candidates["source_id"].tolist(), candidates["target_id"].tolist(), strict=True):
        u, v = units["source"][source], units["target"][target]
        sides = [max(float(a @ b) for b in v) for a in u], [max(float(a @ b) for a in u) for b in v]
        expected.append((np.mean(sides[0]) + np.mean(sides[1])) / 2)
    return expected


def test_a_transformer_rescores_by_a_layer(number_texts: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tiny.save_transformer(tmp_path / "model")
    options = ("--encoder", folder, "--pooling", "mean")
    output_of("mine", *number_texts, *options, "--output", tmp_path / "none", "--rescore", "none")
    assert list(read_candidates(tmp_path / "none")) == CANDIDATES.names
    output_of("mine", *number_texts, *options, "--output", tmp_path / "late", "--rescore", "late")
    assert json.loads((tmp_path / "late/candidates/manifest.json").read_text())["config"]["token_layer"] == 2  # of 3
    encoder = transformer.load(str(folder), EncoderSettings(pooling="mean", device="cpu"))
    expected = late_by_loops(tmp_path / "late", {"source": encoder, "target": encoder}, 2)
    np.testing.assert_allclose(read_candidates(tmp_path / "late")["late_similarity"], expected, atol=0.02)
    before = read_outputs(tmp_path / "late")
    output_of("mine", *number_texts, *options, "--output", tmp_path / "late")  # auto: as before
    assert read_outputs(tmp_path / "late") == before
    message = error_of("mine", *number_texts, *options, "--output", tmp_path / "late", "--rescore", "late", "--token-layer", 1)
    assert "made with token_layer 2, now 1" in message
    message = error_of("mine", *number_texts, *options, "--output", tmp_path / "late", "--rescore", "late", "--token-layer", 4)
    assert "has layers 0 to 3; choose one of them" in message
    message = error_of("mine", *number_texts, "--output", tmp_path / "x", "--token-layer", 1)
    assert "--token-layer has an effect only with --rescore late" in message


@pytest.mark.slow
def test_shards_and_scores_of_a_transformer(number_texts: tuple[Path, Path], tmp_path: Path) -> None:
    tiny.save_transformer(tmp_path / "model")
    options = ("--encoder", tmp_path / "model", "--pooling", "mean", "--rescore", "late", "--token-layer", 1)
    output_of("mine", *number_texts, *options, "--output", tmp_path / "one", "--retrieval", "all")
    output_of("mine", *number_texts, *options, "--output", tmp_path / "three", "--retrieval", "all", "--shards", 3)
    one, three = read_candidates(tmp_path / "one"), read_candidates(tmp_path / "three")
    assert read_pairs(tmp_path / "one") == read_pairs(tmp_path / "three")
    for name, column in one.items():
        np.testing.assert_allclose(three[name][sorted_rows(three)], column[sorted_rows(one)], atol=1e-3)
    output_of("score", *number_texts, *options, "--output", tmp_path / "scores.tsv")
    cells = [line.split("\t") for line in (tmp_path / "scores.tsv").read_text().splitlines()]
    margins = {(source, target): float(margin) for margin, source, target, *_ in cells}
    bitext = pq.read_table(tmp_path / "one/bitext.parquet").to_pylist()
    mined_pairs = {(row["source_text"], row["target_text"]): row["margin"] for row in bitext}
    common = margins.keys() & mined_pairs.keys()
    assert len(common) > 10
    np.testing.assert_allclose([margins[pair] for pair in common], [mined_pairs[pair] for pair in common], atol=1e-3)


def test_each_side_of_a_pair_has_its_own_tokens(number_texts: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "pair"
    folders = {side: tiny.save_transformer(folder / side, seed=seed) for seed, side in enumerate(pair_encoder.SIDES)}
    pair_encoder.write(folder, tiny.WIDTH, {"source": ["eng_Latn"], "target": ["deu_Latn"]})
    languages = ("--source-lang", "en", "--target-lang", "de")
    options = ("--encoder", folder, "--pooling", "mean", "--rescore", "late")
    output_of("mine", *number_texts, *options, *languages, "--output", tmp_path / "out")
    encoders = {side: transformer.load(str(path), EncoderSettings(pooling="mean", device="cpu")) for side, path in folders.items()}
    expected = late_by_loops(tmp_path / "out", encoders, 2)
    np.testing.assert_allclose(read_candidates(tmp_path / "out")["late_similarity"], expected, atol=0.02)
