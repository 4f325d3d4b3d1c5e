"""Rescoring in `miner mine`: against a dense reference, the same bytes however it runs, and outputs that were mined without it."""

import json
import logging
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny
from command import error_of, miner, output_of

from miner import stages
from miner.config.commands import MineConfig
from miner.encoders import load_encoder
from miner.tables import CANDIDATES, RESCORED_CANDIDATES
from pipelines.mining import mine
from pipelines.mining.candidates import MiningLimits

EXAMPLES = Path(__file__).parents[3] / "examples"
NUM_LINES = 150
FILES = ("bitext.tsv.gz", "bitext.parquet", "manifest.json")


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


def contents(output: Path) -> dict[str, bytes]:
    return {name: (output / name).read_bytes() for name in FILES}


def read_candidates(output: Path) -> dict[str, np.ndarray]:
    tables = [pq.read_table(path) for path in sorted((output / "candidates").glob("*.parquet"))]
    return {name: np.concatenate([table[name].to_numpy() for table in tables]) for name in tables[0].column_names}


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
        expected.append((u_weights @ products.max(1) / u_weights.sum() + v_weights @ products.max(0) / v_weights.sum()) / 2)
    np.testing.assert_allclose(candidates["late_similarity"], expected, rtol=1e-12)
    for side, flag in (("source", "forward"), ("target", "backward")):
        own: dict[int, list[float]] = {}
        for number in np.flatnonzero(candidates[flag]):
            own.setdefault(candidates[f"{side}_id"][number], []).append(candidates["late_similarity"][number])
        assert max(map(len, own.values())) == 8
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
    assert contents(output) == contents(mined)


def test_selecting_again_needs_no_text_and_gives_the_same_bytes(texts: tuple[Path, Path], mined: Path, tmp_path: Path) -> None:
    options = ("--margin", "distance", "--retrieval", "intersection", "--threshold", "0.02")
    output_of("mine", "--from-candidates", mined, "--output", tmp_path / "again", *options)
    output_of("mine", *texts, "--output", tmp_path / "direct", *options)
    assert contents(tmp_path / "again") == contents(tmp_path / "direct")
    assert json.loads((tmp_path / "again/manifest.json").read_text())["config"]["rescore"] == "late"


def test_an_output_that_was_mined_without_rescoring_stays_so(
    texts: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output_of("mine", *texts, "--output", tmp_path / "out", "--rescore", "none")
    before = contents(tmp_path / "out")
    with caplog.at_level(logging.WARNING):
        output_of("mine", *texts, "--output", tmp_path / "out")
    assert "out/candidates: the candidates there are not rescored; to rescore them, mine into another --output" in caplog.text
    assert contents(tmp_path / "out") == before
    message = error_of("mine", *texts, "--output", tmp_path / "out", "--rescore", "late")
    assert "out/candidates: computed with --rescore none, now late; choose another --output" in message
    assert contents(tmp_path / "out") == before


def test_an_output_that_was_rescored_is_not_mined_without(texts: tuple[Path, Path], mined: Path) -> None:
    before = contents(mined)
    assert "computed with --rescore late, now none" in error_of("mine", *texts, "--output", mined, "--rescore", "none")
    assert "made with k 4, now 8" in error_of("mine", *texts, "--output", mined, "--k", 8, "--rescore-candidates", 6)
    assert contents(mined) == before


def test_corpora_of_another_encoder_are_not_rescored(
    texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for path in texts:
        assert miner("embed", path, "--encoder", toy_encoder, "--output", tmp_path / path.name).exit_code == 0
    sides = (tmp_path / "en", tmp_path / "de")
    with caplog.at_level(logging.WARNING):
        output_of("mine", *sides, "--output", tmp_path / "out")
    assert "en: embedded by static-" in caplog.text
    assert "so candidates are not rescored; give its --encoder" in caplog.text
    assert list(read_candidates(tmp_path / "out")) == CANDIDATES.names
    message = error_of("mine", *sides, "--output", tmp_path / "late", "--rescore", "late")
    assert "was embedded by static-" in message
    assert "give the --encoder of that folder" in message
    output_of("mine", *sides, "--output", tmp_path / "late", "--encoder", toy_encoder)
    assert list(read_candidates(tmp_path / "late")) == RESCORED_CANDIDATES.names


def test_a_transformer_does_not_rescore(texts: tuple[Path, Path], tmp_path: Path) -> None:
    tiny.save_transformer(tmp_path / "model")
    options = ("--encoder", tmp_path / "model", "--pooling", "mean", "--output", tmp_path / "out")
    assert "has no token vectors; give --rescore none" in error_of("mine", *texts, *options, "--rescore", "late")
    output_of("mine", *texts, *options)
    assert list(read_candidates(tmp_path / "out")) == CANDIDATES.names
