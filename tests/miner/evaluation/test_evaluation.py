"""Evaluations whose figures are known by hand, or from SciPy, scikit-learn and sentence-transformers."""

import importlib
import itertools
import json
import math
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from command import outcome_of
from scipy import stats
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator, TranslationEvaluator
from sklearn import metrics
from sklearn.linear_model import LogisticRegression

from miner.encoders import load_encoder
from miner.errors import ConfigError
from miner.evaluation import alignment, scores
from miner.evaluation.inputs import encode
from miner.evaluation.retrieval import RetrievalTask
from miner.research.tasks import clustering, probe
from miner.research.tasks.sts import StsTask

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
FRENCH = ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix"]


def write(path: Path, rows: Sequence[Sequence[object]]) -> str:
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")
    return str(path)


run = partial(outcome_of, "eval")


def measure(folder: Path, *arguments: object) -> dict:
    """Return the figures of a command that succeeds."""
    status, output, errors = run(*arguments, "--json", folder / "figures.json")
    assert (status, errors) == (0, "")
    assert output
    return json.loads((folder / "figures.json").read_text())


def sentences(count: int, words: Sequence[str], seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words, size=rng.integers(2, 6))) for _ in range(count)]


# Statistics


def test_correlations_with_ties_by_hand() -> None:
    # Ranks 1 2.5 2.5 4 against 1 2 3 4: covariance 4.5, variances 4.5 and 5.
    items = np.array([[1, 10], [3, 20], [3, 30], [9, 40]])
    assert scores.spearman(items) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert scores.pearson(np.array([[0, 0], [1, 0], [2, 3]])) == pytest.approx(3 / math.sqrt(2 * 6))


def test_correlation_with_constant_cosines_is_zero() -> None:
    items = np.array([[1, 0.5], [2, 0.5], [3, 0.5]])
    assert (scores.spearman(items), scores.pearson(items)) == (0.0, 0.0)


def test_purity_weights_clusters_equally() -> None:
    # Cluster 0 is three quarters of label 0, cluster 1 half of each label, cluster 2 pure: 9/12; weighted by texts it would be 5/7.
    items = np.array([[0, 0], [0, 0], [0, 0], [1, 0], [0, 1], [1, 1], [1, 2]])
    assert clustering.purity(items) == pytest.approx((3 / 4 + 1 / 2 + 1) / 3)


def test_v_measure_by_hand() -> None:
    # Two labels, each split into two pure clusters: homogeneity 1, completeness log 2 / log 4.
    items = np.array([[0, 0], [0, 1], [1, 2], [1, 3]])
    assert clustering.v_measure(items) == pytest.approx(2 * 0.5 / 1.5)
    assert clustering.v_measure(items[:, [0, 0]]) == 1.0


def test_f1_is_computed_from_sums() -> None:
    assert scores.f1(np.array([[1, 2, 1], [0, 0, 2], [1, 1, 1]])) == pytest.approx(2 * 2 / (3 + 4))
    assert scores.f1(np.zeros((3, 3))) == 0.0


# Semantic textual similarity


def test_sts_equals_scipy_on_float64_cosines(toy_encoder: Path, tmp_path: Path) -> None:
    first, second = sentences(60, WORDS, 1), sentences(60, [*WORDS, *FRENCH], 2)
    human = np.random.default_rng(3).integers(0, 11, size=60) / 2
    tracks = ["a"] * 20 + ["b"] * 40
    data = write(
        tmp_path / "sts.tsv",
        [("sentence1", "sentence2", "score", "track", "lang"), *zip(first, second, human, tracks, ["x"] * 60, strict=True)],
    )
    figures = measure(tmp_path, "sts", "--data", data, "--encoder", toy_encoder, "--track-column", "lang", "--track-column", "track")
    encoder = load_encoder(str(toy_encoder))
    x, y = encoder.encode(first).astype(np.float64), encoder.encode(second).astype(np.float64)
    cosine = (x * y).sum(axis=1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
    for name, function in (("spearman", stats.spearmanr), ("pearson", stats.pearsonr)):
        expected = [function(human[rows], cosine[rows]).statistic for rows in (slice(20), slice(20, 60), slice(60))]
        ours = [figures["tracks"]["x-a"][name], figures["tracks"]["x-b"][name], figures["all"][name]]
        assert ours == pytest.approx(expected, abs=1e-6)
        assert figures["mean"][name] == pytest.approx((expected[0] + expected[1]) / 2, abs=1e-6)
        assert figures["wmean"][name] == pytest.approx((20 * expected[0] + 40 * expected[1]) / 60, abs=1e-6)
    assert figures["tracks"]["x-b"]["n"] == 40
    task = StsTask(data=data, track_columns=("track",))
    result = task.evaluate(encoder)
    assert [line.split()[:2] for line in result.summary.splitlines()[-3:]] == [
        ["mean", f"{100 * figures['mean']['spearman']:.2f}"],
        ["wmean", f"{100 * figures['wmean']['spearman']:.2f}"],
        ["all", "60"],
    ]
    assert result.scores["Spearman, wmean"].value == pytest.approx(figures["wmean"]["spearman"])


class SentenceTransformerAdapter:
    """An encoder with the interface that the evaluators of sentence-transformers use."""

    similarity_fn_name = "cosine"
    model_card_data = SimpleNamespace(set_evaluation_metrics=lambda *_: None)

    def __init__(self, folder: Path) -> None:
        self.encoder = load_encoder(str(folder))

    def encode(self, texts: Sequence[str], convert_to_numpy: bool = True, **_: object) -> object:
        vectors = self.encoder.encode(texts)
        return vectors if convert_to_numpy else list(torch.from_numpy(vectors))


def test_sts_and_retrieval_equal_sentence_transformers(toy_encoder: Path, tmp_path: Path) -> None:
    first, second = sentences(80, WORDS, 4), sentences(80, FRENCH, 5)
    human = np.random.default_rng(6).random(80)
    model, encoder = SentenceTransformerAdapter(toy_encoder), load_encoder(str(toy_encoder))
    theirs = EmbeddingSimilarityEvaluator(first, second, human.tolist(), main_similarity="cosine", similarity_fn_names=["cosine"])(model)
    data = write(tmp_path / "sts.tsv", [("sentence1", "sentence2", "score"), *zip(first, second, human, strict=True)])
    ours = StsTask(data=data).evaluate(encoder).figures["all"]
    assert [ours["spearman"], ours["pearson"]] == pytest.approx([theirs["spearman_cosine"], theirs["pearson_cosine"]], abs=1e-5)

    # Translations with two additional words. No two lines of a side have the same words, so none tie.
    rng = np.random.default_rng(7)
    english = list({tuple(sorted(rng.choice(10, size=4).tolist())): None for _ in range(80)})
    pairs = {tuple(sorted([*words, *rng.choice(10, size=2).tolist()])): words for words in english}.items()
    source, target = [" ".join(WORDS[n] for n in words) for _, words in pairs], [" ".join(FRENCH[n] for n in words) for words, _ in pairs]
    theirs = TranslationEvaluator(source, target)(model)
    paths = {name: write(tmp_path / name, [[line] for line in lines]) for name, lines in (("source", source), ("target", target))}
    shares = RetrievalTask(**paths).evaluate(encoder).figures["accuracy"]["cosine"]
    assert [shares["forward"], shares["backward"]] == pytest.approx([theirs["src2trg_accuracy"], theirs["trg2src_accuracy"]])
    assert 0 < shares["mean"] < 1


# Clustering


def test_clusters_of_meanings_are_pure(toy_encoder: Path, tmp_path: Path) -> None:
    rows = [
        (lang, word, number) for lang, words in (("en", WORDS), ("fr", FRENCH)) for number, word in enumerate(words[:4]) for _ in range(5)
    ]
    data = write(tmp_path / "t.tsv", [("lang", "text", "label"), *rows])
    figures = measure(tmp_path, "clustering", "--data", data, "--encoder", toy_encoder, "--lang-column", "lang")
    perfect = {"n": 20, "labels": 4, "clusters": 4, "purity": 1.0, "v_measure": 1.0}
    assert figures["languages"] == {"en": perfect, "fr": perfect}
    assert figures["mean"] == {"purity": 1.0, "v_measure": 1.0}
    # English and French together are still four meanings; two clusters hold two each.
    figures = measure(tmp_path, "clustering", "--data", data, "--encoder", toy_encoder, "--clusters", 2)
    assert figures["languages"]["all"]["clusters"] == 2
    assert figures["mean"]["purity"] <= (1 / 1 + 1 / 3) / 2  # at best one meaning in one cluster, three in the other


# Probes


def probe_rows() -> list[tuple[str, str, str, str]]:
    """Return texts of low and of high numbers, in two languages."""
    rows = []
    for lang, words in (("en", WORDS), ("fr", FRENCH)):
        for half, label in ((words[:3], "low"), (words[6:9], "high")):
            texts = sentences(40, half, len(rows))
            rows += [(lang, "train" if number < 25 else "test", label, text) for number, text in enumerate(texts)]
    return rows


def test_probe_transfers_between_languages_with_the_same_vectors(toy_encoder: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "t.tsv", [("lang", "split", "label", "text"), *probe_rows()])
    options = ("--train", data, "--test", data, "--split-column", "split", "--lang-column", "lang", "--encoder", toy_encoder)
    figures = measure(tmp_path, "classification", *options, "--train-lang", "en")
    assert (figures["trained_on"], figures["classes"]) == (50, 2)
    perfect = {"n": 30, "accuracy": 1.0, "macro_f1": 1.0, "majority": 0.5}
    assert figures["languages"] == {"en": perfect, "fr": perfect}
    assert figures["mean"] == {"accuracy": 1.0, "macro_f1": 1.0}
    assert measure(tmp_path, "classification", *options)["trained_on"] == 100
    samples = measure(tmp_path, "classification", *options, "--samples-per-label", "4", "--experiments", "2")
    assert (samples["trained_on"], samples["languages"]["fr"]) == (16, perfect)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--train-lang", "en"), "--samples-per-label trains in each language of the test rows; leave out --train-lang"),
        ((), "train.tsv: no two labels in 'fr', a language of"),
    ],
)
def test_samples_need_training_rows_in_every_language(toy_encoder: Path, tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    rows = [("lang", "split", "label", "text"), *probe_rows()]
    train = write(tmp_path / "train.tsv", [row for row in rows if row[0] != "fr" or row[2] == "low"])
    test = write(tmp_path / "test.tsv", rows)
    files = ("--train", train, "--test", test, "--lang-column", "lang", "--encoder", toy_encoder, "--samples-per-label", "4")
    status, output, errors = run("classification", *files, *options)
    assert (status, output, errors.count("\n"), message in errors) == (1, "", 1, True), errors


def test_probe_of_pairs_compares_their_embeddings(toy_encoder: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for number in range(400):
        first, second = rng.choice(5, size=2, replace=False)
        label = "same" if number % 2 else "different"
        rows.append((WORDS[first], FRENCH[first if label == "same" else second], label))
    head = ("premise", "hypothesis", "label")
    train, test = write(tmp_path / "a.tsv", [head, *rows[:300]]), write(tmp_path / "b.tsv", [head, *rows[300:]])
    options = ("--first-column", "premise", "--second-column", "hypothesis", "--encoder", toy_encoder)
    figures = measure(tmp_path, "pair-classification", "--train", train, "--test", test, *options)
    assert figures["mean"]["accuracy"] == 1.0


def test_probe_equals_sklearns_logistic_regression() -> None:
    rng = np.random.default_rng(0)
    labels = np.array(["a", "b", "c"])[rng.integers(0, 3, size=300)]
    x = (rng.normal(size=(300, 8)) + (labels == "a")[:, None] * 0.7).astype(np.float32)
    x[:, 3] = 5 + x[:, 3] / 1000  # invisible without standardisation
    train, test, train_labels = x[:200], x[200:], labels[:200]
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    train, test = (train - mean) / deviation, (test - mean) / deviation
    expected = {
        strength: LogisticRegression(C=strength, max_iter=200, tol=1e-3).fit(train, train_labels).predict(test)
        for strength in probe.STRENGTHS
    }
    predicted = probe.predict(x[:200], train_labels, [x[200:250], x[250:]])
    assert any((predicted == prediction).mean() > 0.98 for prediction in expected.values())
    items = probe.label_items(labels[200:], predicted)[1]
    assert scores.agreement(items) == metrics.accuracy_score(labels[200:], predicted)
    assert scores.macro_f1(items) == pytest.approx(metrics.f1_score(labels[200:], predicted, average="macro"))


def test_predictions_do_not_depend_on_other_test_rows() -> None:
    rng = np.random.default_rng(1)
    train, labels = rng.normal(size=(60, 4)).astype(np.float32), np.array(["a", "b"])[rng.integers(0, 2, size=60)]
    test = rng.normal(size=(40, 4)).astype(np.float32)
    one_by_one = [probe.predict(train, labels, [row[None]])[0] for row in test[:3]]
    assert probe.predict(train, labels, [test])[:3].tolist() == one_by_one


def test_language_with_distinct_vectors_is_identified(toy_encoder: Path, tmp_path: Path) -> None:
    # `en` and `fr` share vectors, so only `high` can be identified.
    rows = [("en", text) for text in sentences(60, WORDS[:4], 1)] + [("fr", text) for text in sentences(60, FRENCH[:4], 2)]
    rows += [("high", text) for text in sentences(60, WORDS[6:], 3)]
    data = write(tmp_path / "t.tsv", [("lang", "text"), *rows])
    figures = measure(tmp_path, "language-probe", "--data", data, "--encoder", toy_encoder, "--per-language", 50)
    assert (figures["n"], figures["trained_on"], figures["chance"]) == (75, 75, pytest.approx(1 / 3))
    assert figures["languages"]["high"] == {"n": 25, "accuracy": 1.0}
    assert figures["accuracy"] < 0.9
    assert figures["accuracy"] == pytest.approx(np.mean([row["accuracy"] for row in figures["languages"].values()]))


# Alignment and uniformity


def test_alignment_and_uniformity_by_hand() -> None:
    square = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], dtype=np.float32)
    rotated = np.roll(square, 1, axis=0)
    assert alignment.alignment(square, rotated).tolist() == [2.0] * 4
    assert alignment.alignment(np.array([[0.6, 0.8]], np.float32), square[:1]) == pytest.approx([0.4**2 + 0.8**2])
    # Of six pairs four are at squared distance 2, two at 4.
    assert alignment.uniformity(square) == pytest.approx(math.log((4 * math.exp(-4) + 2 * math.exp(-8)) / 6))
    assert alignment.uniformity(square[[0, 0]]) == 0.0


def test_uniformity_in_blocks_equals_all_pairs() -> None:
    x = np.random.default_rng(0).normal(size=(40, 6))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    squared = np.array([((x[i] - x[j]) ** 2).sum() for i in range(40) for j in range(i)])
    assert alignment.uniformity(x.astype(np.float32), block_rows=7) == pytest.approx(np.log(np.exp(-2 * squared).mean()), abs=1e-6)


def test_lines_without_a_vector_are_left_out(toy_encoder: Path, tmp_path: Path) -> None:
    source, target = write(tmp_path / "s", [["one"], [""], ["two"], ["two"]]), write(tmp_path / "t", [["un"], ["deux"], ["deux"], [""]])
    figures = measure(tmp_path, "alignment", source, target, "--encoder", toy_encoder)
    assert (figures["n"], figures["without_vector"]) == (2, 2)
    assert figures["alignment"] == pytest.approx(0, abs=1e-12)
    vectors = encode(load_encoder(str(toy_encoder)), ["one", "two"], np.float32).astype(np.float64)
    assert figures["uniformity"]["mean"] == pytest.approx(-2 * ((vectors[0] - vectors[1]) ** 2).sum(), abs=1e-5)


def test_alignment_of_sts_pairs_equals_its_definition(toy_encoder: Path, tmp_path: Path) -> None:
    rows = [("one", "un two", 4.5), ("one", "two", 4.0), ("three four", "trois two", 5), ("seven", "eight one", 0)]
    data = write(tmp_path / "sts.tsv", [("sentence1", "sentence2", "score"), *rows])
    figures = measure(tmp_path, "alignment", "--data", data, "--encoder", toy_encoder)
    encoder = load_encoder(str(toy_encoder))
    vector_of = {text: encoder.encode([text])[0].astype(np.float64) for row in rows for text in row[:2]}
    assert len(vector_of) == 7  # "one" is in two pairs, and counts once
    positives = [((vector_of[first] - vector_of[second]) ** 2).sum() for first, second, score in rows if score > 4]
    distances = [((x - y) ** 2).sum() for x, y in itertools.combinations(vector_of.values(), 2)]
    assert (figures["n"], figures["without_vector"]) == (2, 0)
    assert figures["alignment"] == pytest.approx(np.mean(positives), abs=1e-6)
    assert figures["uniformity"]["sentences"] == pytest.approx(np.log(np.mean(np.exp(-2 * np.array(distances)))), abs=1e-6)
    lower = measure(tmp_path, "alignment", "--data", data, "--encoder", toy_encoder, "--min-score", 3.9)
    assert (lower["n"], lower["uniformity"]) == (3, figures["uniformity"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--min-score", 5], "no score is above 5, the largest is 5; lower --min-score"),
        (["a.txt", "b.txt"], "give SOURCE and TARGET, or a table of scored pairs as --data"),
    ],
)
def test_alignment_without_positives_is_an_error(toy_encoder: Path, tmp_path: Path, options: list[object], message: str) -> None:
    data = write(tmp_path / "sts.tsv", [("sentence1", "sentence2", "score"), ("one", "un", 5), ("one", "two", 1)])
    status, _, errors = run("alignment", *options, "--data", data, "--encoder", toy_encoder)
    assert (status, errors.count("\n")) == (1, 1)
    assert message in errors


# Malformed data


@pytest.mark.parametrize(
    ("command", "rows", "message"),
    [
        ("sts", [("sentence1", "sentence2", "score"), ("a", "b", "much"), ("a", "b", 1)], "score 1 of the table is 'much'"),
        ("sts", [("sentence1", "sentence2", "score"), ("a", "b", 1), ("a", "b", "nan")], "score 2 of the table is 'nan'"),
        ("sts", [("sentence1", "sentence2", "score"), ("a", "b", 1), ("c", "d", 1)], "all scores of track 'all' are 1"),
        ("sts", [("sentence1", "sentence2", "score")], "no rows"),
        ("sts", [("sentence1", "sentence2")], "no column 'score'"),
        ("sts", [("sentence1", "sentence2", "score"), ("a", "", 1)], "row 2 has nothing in column 'sentence2'"),
        ("clustering", [("text", "label"), ("a", "x"), ("b", "x")], "'all' has only one label"),
        ("clustering", [("text", "label"), ("a", "x"), ("a", "y")], "1 different texts for 2 clusters"),
        ("language-probe", [("text", "lang"), ("a", "x"), ("b", "x")], "all rows are in 'x'"),
        ("language-probe", [("text", "lang"), ("a", "x"), ("b", "x"), ("b", "y")], "only one row in 'y'"),
    ],
)
def test_malformed_tables_are_errors_in_one_line(
    toy_encoder: Path, tmp_path: Path, command: str, rows: list[tuple[object, ...]], message: str
) -> None:
    data = write(tmp_path / "t.tsv", rows)
    status, output, errors = run(command, "--data", data, "--encoder", toy_encoder, "--json", tmp_path / "f.json")
    assert (status, output) == (1, "")
    assert message in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "f.json").exists()


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([("one", "a", "en")], [], "all training rows are labelled 'a'"),
        ([("one", "a", "en"), ("two", "b", "en")], ["--train-lang", "xx"], "give --lang-column"),
        (
            [("one", "a", "en"), ("two", "b", "en")],
            ["--lang-column", "lang", "--train-lang", "fr"],
            "no training rows in fr; choose from en",
        ),
        ([("one", "a", "en"), ("two", "b", "en")], ["--split-column", "lang"], "no row says 'train' in 'lang'"),
    ],
)
def test_missing_training_rows_are_an_error(
    toy_encoder: Path, tmp_path: Path, rows: list[tuple[str, ...]], options: list[str], message: str
) -> None:
    data = write(tmp_path / "t.tsv", [("text", "label", "lang"), *rows])
    status, output, errors = run("classification", "--train", data, "--test", data, "--encoder", toy_encoder, *options)
    assert (status, output, errors.count("\n")) == (1, "", 1)
    assert message in errors


def test_missing_mteb_is_an_error_with_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mteb", "mteb.models"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "miner.research.tasks.mteb_adapter", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'bitext-miner\[mteb\]'"):
        importlib.import_module("miner.research.tasks.mteb_adapter")


def test_alignment_of_one_line_is_an_error(toy_encoder: Path, tmp_path: Path) -> None:
    source, target = write(tmp_path / "s", [["one"], [""]]), write(tmp_path / "t", [["un"], ["deux"]])
    status, _, errors = run("alignment", source, target, "--encoder", toy_encoder)
    assert (status, errors.count("\n")) == (1, 1)
    assert "fewer than two lines have a vector" in errors
