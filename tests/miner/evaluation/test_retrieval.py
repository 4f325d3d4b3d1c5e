"""Retrieval accuracy: cases with obvious answers, and a dense reference."""

import gzip
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from command import outcome_of
from sklearn.metrics import f1_score

from miner import __version__
from miner.encoders.token_vectors import TokenTable, TokenVectors
from miner.evaluation.retrieval import Accuracy, accuracy, f1, hits, retrieve
from miner.mining.late_scores import TokenSides


def unit(rows: object) -> np.ndarray:
    """Return rows of length 1 (or 0) in float16."""
    vectors = np.asarray(rows, dtype=np.float64)
    return (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)).astype(np.float16)


def reference(x: np.ndarray, y: np.ndarray, k: int) -> dict[str, tuple[float, float]]:
    """Return accuracy both ways by definition, over dense matrices: xSIM's steps, without its rounding."""
    similarity = x.astype(np.float64) @ y.astype(np.float64).T

    def shares(similarity: np.ndarray) -> tuple[float, float]:
        rows = np.arange(len(similarity))
        nearest = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
        means = np.take_along_axis(similarity, nearest, axis=1).mean(axis=1)
        other_means = -np.sort(-similarity, axis=0)[:k].mean(axis=0)
        margin = np.take_along_axis(similarity, nearest, axis=1) / ((means[:, None] + other_means[nearest]) / 2)
        best = nearest[rows, margin.argmax(axis=1)]
        return float((nearest[:, 0] == rows).mean()), float((best == rows).mean())

    (cosine, ratio), (cosine_back, ratio_back) = shares(similarity), shares(similarity.T)
    return {"cosine": (cosine, cosine_back), "ratio": (ratio, ratio_back)}


def accuracies(x: np.ndarray, y: np.ndarray, k: int) -> dict[str, Accuracy]:
    return {name: accuracy(hits(answers)) for name, answers in retrieve(x, y, k).items()}


def shares_of(x: np.ndarray, y: np.ndarray, k: int = 4) -> dict[str, tuple[float, float]]:
    return {name: (shares["forward"], shares["backward"]) for name, shares in accuracies(x, y, k).items()}


@pytest.mark.parametrize(("size", "k"), [(1, 4), (3, 4), (50, 1), (50, 4), (300, 4), (300, 16)])
def test_equals_a_dense_reference(size: int, k: int) -> None:
    rng = np.random.default_rng(size + k)
    x = unit(rng.normal(size=(size, 16)) + 0.5)
    y = unit(x.astype(np.float64) + 0.25 * rng.normal(size=(size, 16)))
    expected = reference(x, y, min(k, size))
    assert shares_of(x, y, k) == expected
    assert size < 50 or 0.1 < expected["cosine"][0] < 0.9


def test_equals_a_dense_reference_with_duplicates() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 40, size=200)
    x = unit(rng.normal(size=(40, 16)))[rows]
    y = unit(x[rng.permutation(200)].astype(np.float64) + 0.3 * rng.normal(size=(40, 16))[rows])
    assert shares_of(x, y) == reference(x, y, 4)


def test_forward_and_backward_differ() -> None:
    # Both sources are nearest to target 0; each target is nearest to its own source.
    x, y = unit([[1, 0, 0], [0.9, 0.4, 0]]), unit([[1, 0.2, 0], [0, 0.5, 1]])
    result = accuracies(x, y, 1)
    assert (result["cosine"]["forward"], result["cosine"]["backward"], result["cosine"]["mean"]) == (0.5, 1.0, 0.75)


def test_margin_corrects_a_hub() -> None:
    # Target 0 is close to both sources, so by cosine it is retrieved twice (0.7 > 0.65); by margin target 1 is retrieved for its source:
    # the means are 0.5 and 0.675 for the sources, 0.7 and 0.475 for the targets, and 0.65 / 0.575 > 0.7 / 0.6875.
    x = np.array([[1, 0, 0, 0], [0, 1, 0, 0]], dtype=np.float16)
    y = np.array([[0.7, 0.7, 0, 0], [0.3, 0.65, 0.7, 0]], dtype=np.float16)
    result = accuracies(x, y, 2)
    assert result["cosine"]["forward"] == 0.5
    assert result["ratio"]["forward"] == 1.0


def test_first_of_equally_near_lines_is_retrieved() -> None:
    vectors = unit([[1, 2], [1, 2], [1, 2], [2, -1]])
    assert shares_of(vectors, vectors) == {"cosine": (0.5, 0.5), "ratio": (0.5, 0.5)}


def test_lines_without_a_vector_are_wrong_and_affect_no_other() -> None:
    x, y = unit([[0, 0], [1, 0], [0, 1]]), unit([[0, 0], [1, 0], [0, 1]])
    assert shares_of(x, y) == {"cosine": (2 / 3, 2 / 3), "ratio": (2 / 3, 2 / 3)}
    assert shares_of(x[:1], y[:1]) == {"cosine": (0, 0), "ratio": (0, 0)}


def test_f1_equals_sklearns_weighted_f1_of_classes() -> None:
    answers = np.random.default_rng(0).integers(0, 60, size=(60, 2)) - 1  # -1: nothing retrieved
    answers[:40] = np.arange(40)[:, None]
    for column, share in zip(answers.T, (f1(answers)["forward"], f1(answers)["backward"]), strict=True):
        expected = f1_score(np.arange(60), column, average="weighted", zero_division=0)
        assert share == pytest.approx(expected, abs=1e-12)


run = partial(outcome_of, "eval", "retrieval")


def test_command_retrieves_both_ways(toy_encoder: Path, tmp_path: Path) -> None:
    # Lines 1 and 4 are equal, so line 4 is never retrieved; line 3 is empty; line 5 retrieves line 2 forward, and line 1 backward.
    english = ["one two three", "four five", "", "one two three", "four five five"]
    french = ["un deux trois", " quatre  cinq ", "", "un deux trois", "un deux"]
    (tmp_path / "en.txt").write_text("\n".join(english) + "\n")
    with gzip.open(tmp_path / "fr.txt.gz", "wt") as file:
        file.write("\n".join(french))
    status, output, errors = run(
        str(tmp_path / "en.txt"), str(tmp_path / "fr.txt.gz"), "--encoder", str(toy_encoder), "--json", str(tmp_path / "f.json")
    )
    assert (status, errors) == (0, "")
    shares = {"forward": 0.4, "backward": 0.4, "mean": 0.4}
    xsim = {"forward": 0.6, "backward": 0.6, "mean": 0.6}
    # Line 1 is retrieved for 1 and 4, so its F1 is 2/3; line 2 for 2 and 5 forward, and only for 2 backward, where 1 is also for 5.
    f1 = {"forward": (2 / 3 + 2 / 3) / 5, "backward": (1 / 2 + 1) / 5}
    f1["mean"] = (f1["forward"] + f1["backward"]) / 2
    # By its tokens, line 5 matches line 2 as well as line 2 itself does, and its other candidates are further away.
    late = {"forward": 0.4, "backward": 0.2, "mean": pytest.approx(0.3)}
    accuracy = {"cosine": shares, "ratio": shares, "late": late}
    figures = {"task": "retrieval", "n": 5, "accuracy": accuracy, "f1": {"cosine": f1}, "xsim": xsim}
    expected = {**figures, "written_by": f"miner {__version__}"}
    assert json.loads((tmp_path / "f.json").read_text()) == expected
    assert "5 lines" in output


def test_columns_by_number(toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "en.tsv").write_text("1\tone\n2\ttwo\n")
    (tmp_path / "fr.tsv").write_text("1\tun\n2\tdeux\n")
    status, output, _ = run(str(tmp_path / "en.tsv"), str(tmp_path / "fr.tsv"), "--encoder", str(toy_encoder), "--text-column", "2")
    assert status == 0
    assert output.splitlines()[-4].split() == ["ratio", "100.00", "100.00", "100.00"]
    assert output.splitlines()[-3].split() == ["late", "100.00", "100.00", "100.00"]
    assert output.splitlines()[-1].split() == ["xSIM", "error", "0.00", "0.00", "0.00"]


def test_late_interaction_tells_apart_what_embeddings_do_not() -> None:
    """The last target has the embedding of the first source, but no token of it; the first target has all its tokens and another one."""
    vectors = np.eye(8)
    vectors[2] = vectors[0] + vectors[1]
    table = TokenTable.of(vectors)

    def encode(texts: list[list[int]]) -> tuple[np.ndarray, TokenVectors]:
        rows = np.array([row for text in texts for row in text], dtype=np.int32)
        tokens = TokenVectors.of(table, rows, np.cumsum([0, *map(len, texts)]))
        return unit([vectors[text].sum(axis=0) for text in texts]), tokens

    (x, source), (y, target) = encode([[0, 1], [3], [4]]), encode([[0, 1, 5], [3], [2]])
    by = {name: answers[0, 0] for name, answers in retrieve(x, y, 2, TokenSides(source, target, 2)).items()}
    assert by == {"cosine": 2, "ratio": 2, "late": 0}


def test_without_rescoring_there_is_no_late_figure(toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("en\tfr\none\tun\ntwo\tdeux\n")
    options = ["--source-column", "en", "--target-column", "fr", "--encoder", str(toy_encoder), "--json", str(tmp_path / "f.json")]
    assert run(str(tmp_path / "t.tsv"), str(tmp_path / "t.tsv"), *options, "--rescore", "none")[0] == 0
    assert set(json.loads((tmp_path / "f.json").read_text())["accuracy"]) == {"cosine", "ratio"}


def test_both_sides_may_be_columns_of_one_table(toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("en\tfr\none\tun\ntwo\ttrois\nthree\tdeux\n")
    options = ["--source-column", "en", "--target-column", "fr", "--encoder", str(toy_encoder), "--json", str(tmp_path / "f.json")]
    table = str(tmp_path / "t.tsv")
    assert run(table, table, *options)[0] == 0
    figures = json.loads((tmp_path / "f.json").read_text())
    assert figures["accuracy"]["cosine"]["mean"] == pytest.approx(1 / 3)
    assert run(table, *options)[0] == 0
    assert json.loads((tmp_path / "f.json").read_text()) == figures
    assert "give TARGET too, or one file" in run(table, *options[2:])[2]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (b"one\ntwo\n", b"un\n", "has 2 lines, "),
        (b"", b"", "no lines"),
        (b"one\n\xff\n", b"un\ndeux\n", "source.txt:2: not UTF-8"),
        (b"one\n" + b"o" * 5_000_000, b"un\ndeux\n", "source.txt:2: longer than"),
        (None, b"un\n", "source.txt: no such file"),
    ],
)
def test_malformed_input_is_an_error_in_one_line(
    toy_encoder: Path, tmp_path: Path, source: bytes | None, target: bytes, message: str
) -> None:
    if source is not None:
        (tmp_path / "source.txt").write_bytes(source)
    (tmp_path / "target.txt").write_bytes(target)
    status, output, errors = run(
        *(str(tmp_path / f"{side}.txt") for side in ("source", "target")), "--encoder", str(toy_encoder), "--json", str(tmp_path / "f.json")
    )
    assert (status, output) == (1, "")
    assert message in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "f.json").exists()
