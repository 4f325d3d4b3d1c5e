"""What `miner calibrate` measures."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny
from sklearn.linear_model import LogisticRegression
from support.command import error_of, output_of

import miner
from miner.config.choices import RescoreName
from miner.config.commands import CalibrateConfig, EmbedConfig
from miner.encoders import calibration_texts, load_encoder, mining_profile
from miner.encoders.base import TokenEncoder
from miner.evaluation import calibration
from miner.evaluation.calibration import LabelledPairs, MixedCorpora
from miner.mining.candidates import pair_margins
from miner.mining.logistic_regression import logistic_regression
from miner.mining.margin_sample import MarginSample
from pipelines.mining import calibrate

NO_SAMPLE = MarginSample(*np.zeros((3, 0)))


def test_regression_equals_that_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    features, weights = random.normal(size=(500, 3)), random.uniform(0.5, 2, size=500)
    is_true = random.random(500) < 1 / (1 + np.exp(-(features @ [2, -1, 0] - 0.5)))
    inputs, penalties = np.concatenate([np.ones((500, 1)), features], axis=1), np.array([0.0, 1, 1, 1])
    expected = LogisticRegression(tol=1e-10).fit(features, is_true, weights)
    actual = logistic_regression(inputs, is_true, weights, penalties)
    assert actual == pytest.approx([*expected.intercept_, *expected.coef_[0]], abs=1e-5)


@pytest.mark.parametrize("location", [1.0, 1.2])
def test_fit_returns_the_slope_of_sets_in_which_translations_are_common_and_rare(location: float) -> None:
    """The log odds are 40 (margin - location) + 3 in one set, and less 3 in the other."""
    random, sets = np.random.default_rng(1), []
    for intercept in (3.0, -3.0):
        margins = random.normal(location, 0.15, size=20_000)
        is_true = random.random(len(margins)) < 1 / (1 + np.exp(-(40 * (margins - location) + intercept)))
        texts = pa.array(["same"] * len(margins))
        table = pa.table([margins, texts, texts], names=["margin", "source_text", "target_text"])
        sets.append(LabelledPairs(table, is_true, int(is_true.sum()), NO_SAMPLE))
    weights = calibration.fit(sets, slice(1, None))
    assert weights.margin == pytest.approx(40, rel=0.05)
    assert weights.intercept + weights.margin * location == pytest.approx(-3, abs=0.3)


def test_mixtures_have_translations_of_one_pair_in_two_or_seven() -> None:
    mixtures = calibration.read_mixtures()
    assert len(mixtures) == 2 * (len(calibration.WITH_ENGLISH) + len(calibration.WITHOUT_ENGLISH))
    for dense, sparse in zip(mixtures[::2], mixtures[1::2], strict=True):
        assert len(dense.pairs) / len(sparse.pairs) == pytest.approx(3.5, abs=0.1)
        assert all(target in range(len(sparse.texts[1])) for _, target in sparse.pairs)
    assert max(len(mixture.texts[0]) for mixture in mixtures) > 5000


def number_mixtures() -> list[MixedCorpora]:
    """Corpora of number words, of which the toy encoder knows the translations."""
    english = ["one", "two", "three", "four", "five", "seven", "eight", "nine"]
    french = ["un", "deux", "trois", "quatre", "cinq", "sept", "huit", "neuf"]
    random = np.random.default_rng(0)
    rows = np.unique(np.sort(random.integers(0, len(english), size=(400, 4)), axis=1), axis=0)
    pairs = [(" ".join(english[i] for i in row), " ".join(french[i] for i in row)) for row in random.permutation(rows).tolist()]
    return [MixedCorpora.of(pairs, parts) for parts in (2, 7)]


@pytest.mark.parametrize("rescore", ["none", "late"])
def test_lines_are_scored_as_by_miner_score(rescore: RescoreName, toy_encoder: Path) -> None:
    encoder = load_encoder(str(toy_encoder))
    for mixture in number_mixtures():
        lines = mixture.lines(encoder)
        assert lines.texts[0] == [mixture.texts[0][row] for row, _ in sorted(mixture.pairs)]
        changed = [
            row
            for row, (text, (_, target)) in enumerate(zip(lines.texts[1], sorted(mixture.pairs), strict=True))
            if text != mixture.texts[1][target]
        ]
        assert set(range(len(lines.texts[0]))) - set(changed) == {row for row, _ in lines.pairs}
        assert len(changed) / len(lines.texts[0]) == pytest.approx(0.5, abs=0.02)
        scored = calibration.by_scoring([lines.score_lines(encoder)])["embedding" if rescore == "none" else "rescored"][0]
        table = miner.score(*lines.texts, encoder, rescore=rescore).to_arrow()
        np.testing.assert_allclose(pair_margins(scored, "ratio"), table["margin"].to_numpy(), rtol=1e-12)


class TaggedEncoder:
    """An encoder that records which texts it encoded in which language."""

    dim, fingerprint = 2, "tagged"

    def __init__(self, calls: list[tuple[str, list[str]]], lang: str = "und") -> None:
        self.calls, self.lang = calls, lang

    def in_language(self, lang: str) -> "TaggedEncoder":
        return TaggedEncoder(self.calls, lang)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.calls.append((self.lang, list(texts)))
        return np.tile(np.float32([len(self.lang), 1]), (len(texts), 1))


def test_texts_are_encoded_once_in_their_language() -> None:
    calls: list[tuple[str, list[str]]] = []
    mixtures = [
        MixedCorpora((["a", "b"], ["c"]), {(0, 0)}, ("eng_Latn", "deu_Latn")),
        MixedCorpora((["c"], ["d"]), set(), ("deu_Latn", "kor_Hang")),
    ]
    encoded = calibration.EncodedTexts.of(mixtures, TaggedEncoder(calls))
    assert sorted(calls) == [("deu_Latn", ["c"]), ("eng_Latn", ["a", "b"]), ("kor_Hang", ["d"])]
    assert encoded.encode(["d", "a"]).tolist() == [[8, 1], [8, 1]]
    assert not isinstance(encoded, TokenEncoder)


@pytest.fixture
def copied_toy_encoder(toy_encoder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_encoder, tmp_path / "encoder"))


def test_a_measured_encoder_has_probabilities_and_the_same_fingerprint(copied_toy_encoder: Path, tmp_path: Path) -> None:
    fingerprint = load_encoder(str(copied_toy_encoder)).fingerprint
    (copied_toy_encoder / "mining.json").write_text('{"languages": ["en", "fr"]}')
    result = calibrate.run(CalibrateConfig(encoder=str(copied_toy_encoder)), number_mixtures())
    profile = mining_profile.read(copied_toy_encoder)
    assert profile.languages == ("eng_Latn", "fra_Latn")  # what was there is kept
    assert profile.probabilities == result.measured.probabilities
    assert set(profile.probabilities) == set(profile.line_pair_probabilities) == {"ratio", "distance", "absolute"}
    assert profile.line_pair_probabilities["ratio"].rescored not in (None, profile.probabilities["ratio"].rescored)
    assert load_encoder(str(copied_toy_encoder)).fingerprint == fingerprint == result.fingerprint
    texts = tmp_path / "en.txt", tmp_path / "fr.txt"
    texts[0].write_text("one three\ntwo five\n")
    texts[1].write_text("un trois\ndeux cinq\n")
    output_of("mine", *texts, "--output", tmp_path / "out", "--encoder", copied_toy_encoder, "--min-probability", 0)
    assert "probability" in pq.read_table(tmp_path / "out" / "bitext.parquet").column_names


def test_corpora_keep_the_probabilities_of_their_encoder(copied_toy_encoder: Path, tmp_path: Path) -> None:
    calibrate.run(CalibrateConfig(encoder=str(copied_toy_encoder)), number_mixtures())
    for lang, text in (("en", "one three\ntwo five\n"), ("fr", "un trois\ndeux cinq\n")):
        (tmp_path / lang).write_text(text)
        output_of("embed", tmp_path / lang, "--lang", lang, "--encoder", copied_toy_encoder, "--output", tmp_path / f"{lang}-embedded")
    shutil.rmtree(copied_toy_encoder)
    output_of("mine", tmp_path / "en-embedded", tmp_path / "fr-embedded", "--output", tmp_path / "out", "--min-probability", 0)
    assert "probability" in pq.read_table(tmp_path / "out" / "bitext.parquet").column_names


def test_an_encoder_is_measured_before_a_run_that_is_far_longer(tmp_path: Path) -> None:
    encoder = tiny.save_transformer(tmp_path / "encoder")
    (tmp_path / "short.txt").write_text("one two\n")
    (tmp_path / "long.txt").write_text("one two three\n" * (10 * calibration_texts.num_bytes() // len("one two three\n") + 1))

    def is_measured(text: str, output: str = "out", **settings: str) -> bool:
        config = EmbedConfig(
            inputs=(str(tmp_path / text),), output=str(tmp_path / output), encoder=str(encoder), pooling="mean", **settings
        )
        return calibrate.run_before_first_use([config], (), number_mixtures())

    output_of("embed", tmp_path / "short.txt", "--encoder", encoder, "--pooling", "mean", "--output", tmp_path / "begun")
    assert not is_measured("short.txt")
    assert not is_measured("long.txt", output="begun")
    assert mining_profile.read(encoder) == mining_profile.NO_PROFILE
    assert is_measured("long.txt")
    assert set(mining_profile.read(encoder).probabilities) == {"ratio", "distance", "absolute"}
    assert not is_measured("long.txt")


def test_a_profile_in_the_cache_is_that_of_its_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINER_CACHE", str(tmp_path))
    (tmp_path / "profiles" / "print-1").mkdir(parents=True)
    (tmp_path / "profiles" / "print-1" / "mining.json").write_text('{"rescoring_pays": false}')
    assert not mining_profile.of_folder(tmp_path, "print-1").rescoring_pays
    assert mining_profile.of_folder(tmp_path, "print-2") == mining_profile.NO_PROFILE


def test_a_directory_that_cannot_be_written_keeps_its_profile_in_the_cache(
    copied_toy_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != copied_toy_encoder)  # root may write everywhere
    result = calibrate.run(CalibrateConfig(encoder=str(copied_toy_encoder)), number_mixtures())
    assert result.file == str(tmp_path / "cache" / "profiles" / result.fingerprint / "mining.json")
    assert not (copied_toy_encoder / "mining.json").exists()
    moved = copied_toy_encoder.rename(tmp_path / "moved")
    assert mining_profile.of_folder(moved, result.fingerprint).probabilities == result.measured.probabilities


def test_what_cannot_be_written_is_an_error_before_measuring(
    copied_toy_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile in the directory hides that in the cache, and the cache may be a file."""
    encoder = str(copied_toy_encoder)
    profile = copied_toy_encoder / "mining.json"
    profile.write_text("{}")
    (tmp_path / "cache").write_text("")
    monkeypatch.setenv("MINER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != copied_toy_encoder)  # root may write everywhere
    monkeypatch.delattr(calibration, "measure")
    assert "mining.json: cannot be written; copy the encoder with `miner fetch`" in error_of("calibrate", encoder)
    profile.unlink()
    assert "Not a directory" in error_of("calibrate", encoder)


def test_the_probabilities_of_an_encoder_are_replaced_only_on_request() -> None:
    assert error_of("calibrate", "builtin") == "builtin: has probabilities already; give --replace to measure them again"
    assert error_of("calibrate", "./missing").startswith("./missing: no such encoder folder")
