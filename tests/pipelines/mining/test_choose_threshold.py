"""Runs without `--threshold`: what the encoder recommends, what is calibrated, `--top`, quantiles, and warnings of languages."""

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from command import error_of, miner, output_of

import miner as package
from miner.config.commands import FromCandidatesConfig
from miner.encoders import load_encoder
from miner.languages import canonical
from pipelines.mining.candidates import MiningLimits
from pipelines.mining.mine import run_from_candidates

EXAMPLES = Path(__file__).parents[3] / "examples"
NUM_LINES = 500


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return real sentences: translations, and as many sentences without one on each side."""
    folder = tmp_path_factory.mktemp("texts")
    english, german = ((EXAMPLES / f"{lang}.txt").read_text(encoding="utf-8").splitlines() for lang in ("en", "de"))
    gold = [tuple(int(number) - 1 for number in line.split()) for line in (EXAMPLES / "gold.en-de.tsv").read_text().splitlines()][
        :NUM_LINES
    ]
    of_gold = [{pair[side] for pair in gold} for side in (0, 1)]
    for name, lines, used, side in (("en", english, of_gold[0], 0), ("de", german, of_gold[1], 1)):
        lone = [line for row, line in enumerate(lines) if row not in used][:NUM_LINES]
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in [*(lines[pair[side]] for pair in gold), *lone]))
    return folder / "en.txt", folder / "de.txt"


@pytest.fixture(scope="module")
def unknown_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the built-in encoder without its profile and with another fingerprint."""
    folder = tmp_path_factory.mktemp("encoder") / "unknown"
    from miner.encoders import static

    builtin = load_encoder("builtin")
    vectors = builtin.vectors.copy()
    vectors[5] *= 1.5
    static.save(folder, vectors, builtin.pieces.serialized_model_proto())
    return folder


def figures_of(tmp_path: Path, *arguments: object) -> dict:
    output_of("mine", *arguments, "--json", tmp_path / "figures.json")
    return json.loads((tmp_path / "figures.json").read_text())


@pytest.mark.slow
def test_the_built_in_encoder_knows_probable_pairs_by_every_margin(texts: tuple[Path, Path], tmp_path: Path) -> None:
    profile = json.loads((load_encoder("builtin").folder / "mining.json").read_text())
    for margin in ("ratio", "distance", "absolute"):
        figures = figures_of(tmp_path, *texts, "--output", tmp_path / "out", "--margin", margin)
        weights = json.loads((tmp_path / "out/manifest.json").read_text())["config"]["probability_weights"]
        unfitted = profile["probabilities"][margin]["rescored"]
        slope = weights["margin"] / unfitted["margin"]
        boundary = unfitted["intercept"] - weights["intercept"] / slope
        assert slope == pytest.approx(0.1 * round(slope / 0.1))
        assert boundary == pytest.approx(0.125 * round(boundary / 0.125), abs=1e-6)
        assert ((slope, boundary) == (1, 0)) == (margin == "absolute")
        assert figures["threshold"] == pytest.approx(-weights["intercept"] / weights["margin"])
        assert figures["choice"] == {"threshold": figures["threshold"], "by": "probability", "min_probability": 0.5}
        assert ("estimated_precision" in figures) == (margin != "absolute")
    strict = ("--output", tmp_path / "strict", "--rescore", "none", "--min-probability", "0.9")
    figures = figures_of(tmp_path, *texts, *strict)
    weights = json.loads((tmp_path / "strict/manifest.json").read_text())["config"]["probability_weights"]
    assert figures["threshold"] == pytest.approx((math.log(9) - weights["intercept"]) / weights["margin"])


@pytest.mark.slow
def test_probabilities_follow_how_common_translations_are(texts: tuple[Path, Path], tmp_path: Path) -> None:
    english, german = (path.read_text(encoding="utf-8").splitlines() for path in texts)
    for num_pairs in (60, NUM_LINES):
        rows = [*range(num_pairs), *range(NUM_LINES, 2 * NUM_LINES)]
        sides = tuple([lines[row] for row in rows] for lines in (english, german))
        bitext = package.mine(*sides, source_lang="en", target_lang="de").to_arrow()
        is_right = bitext["source_row"].to_numpy() == bitext["target_row"].to_numpy()
        assert bitext["probability"].to_numpy().mean() == pytest.approx(is_right.mean(), abs=0.1)
        assert is_right.sum() > 0.9 * num_pairs
        for path, lines in zip((tmp_path / "en.txt", tmp_path / "de.txt"), sides, strict=True):
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        langs = ("--source-lang", "en", "--target-lang", "de")
        output = tmp_path / str(num_pairs)
        figures = figures_of(tmp_path, tmp_path / "en.txt", tmp_path / "de.txt", *langs, "--output", output)
        written = pq.read_table(output / "bitext.parquet")
        assert written["probability"].to_pylist() == bitext["probability"].to_pylist()
        is_estimated = len(written) >= 100
        assert is_estimated == ("estimated_precision" in figures)
        if is_estimated:
            assert figures["estimated_precision"] == pytest.approx(bitext["probability"].to_numpy().mean(), abs=1e-4)


@pytest.mark.slow
def test_auto_without_known_pairs_chooses_the_probability_for_a_precision(texts: tuple[Path, Path], tmp_path: Path) -> None:
    """The precision by line numbers, which the choice does not see, is near the requested one, and a lower bound has a lower mean."""
    output_of("mine", *texts, "--source-lang", "en", "--target-lang", "de", "--output", tmp_path / "mined", "--min-probability", "0")
    for precision in (0.8, 0.9):
        options = ("--from-candidates", tmp_path / "mined", "--threshold", "auto", "--precision", precision)
        figures = figures_of(tmp_path, *options, "--output", tmp_path / "auto")
        pairs = pq.read_table(tmp_path / "auto/bitext.parquet")
        is_right = [row["source_line"] == row["target_line"] <= NUM_LINES for row in pairs.to_pylist()]
        assert np.mean(is_right) == pytest.approx(precision, abs=0.05)
        bound = figures["choice"]["min_probability"]
        expected = {"threshold": figures["threshold"], "by": "probability", "min_precision": precision, "min_probability": bound}
        assert figures["choice"] == expected
        assert figures["estimated_precision"] == pytest.approx(precision, abs=0.01)
        assert min(pairs["probability"].to_pylist()) >= bound
        assert figures["estimated_precision"] == pytest.approx(np.mean(pairs["probability"].to_pylist()), abs=1e-4)
        lower = ("--from-candidates", tmp_path / "mined", "--min-probability", bound - 0.02, "--output", tmp_path / "lower")
        assert figures_of(tmp_path, *lower)["estimated_precision"] < precision <= figures["estimated_precision"]


def test_auto_needs_known_pairs_where_there_are_no_probabilities(texts: tuple[Path, Path], unknown_encoder: Path, tmp_path: Path) -> None:
    output = ("--output", tmp_path / "out")
    needed = "--threshold auto needs pairs to choose by, or their probabilities: give --gold FILE, or --planted FILE"
    for options, reason in (
        (("--retrieval", "all"), "; probabilities can be used with --retrieval max, and --margin ratio or distance"),
        (("--margin", "absolute"), "; probabilities can be used with --retrieval max, and --margin ratio or distance"),
        (("--encoder", unknown_encoder), "; the encoder has no probabilities"),
    ):
        assert needed + reason in error_of("mine", *texts, *output, "--threshold", "auto", *options)
    message = error_of("mine", *texts, *output, "--threshold", "auto", "--min-probability", "0.9")
    assert "give --min-probability or --threshold auto" in message
    assert not (tmp_path / "out/neighbours").exists()


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--threshold", "auto", "--precision", "0.5")])
def test_text_that_changes_the_probabilities_gives_a_delta(options: tuple[str, ...], texts: tuple[Path, Path], tmp_path: Path) -> None:
    """What the corpora determine is no setting: when new text changes it, the output goes on from the previous pairs.

    It is the same from the shards of two runs, of one, and by Beam jobs.
    """
    for path in texts:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        for name, rows in (("old", [*range(60), *range(NUM_LINES, 2 * NUM_LINES)]), ("new", range(60, NUM_LINES))):
            (tmp_path / f"{name}.{path.name}").write_text("".join(lines[row] for row in rows), encoding="utf-8")

    def mine(names: str, output: str) -> tuple[float, bytes]:
        sides = (tmp_path / f"{names}.{path.name}" for path in texts)
        output_of("mine", *sides, "--output", tmp_path / output, *options)
        manifest = json.loads((tmp_path / output / "manifest.json").read_text())
        return manifest["config"]["probability_weights"]["intercept"], (tmp_path / output / "bitext.parquet").read_bytes()

    before, _ = mine("old", "out")
    num_before = len(pq.read_table(tmp_path / "out/bitext.parquet"))
    after, bitext = mine("*", "out")
    assert after > before
    assert (after, bitext) == mine("*", "fresh")
    settings = {"threshold": "auto", "precision": 0.5} if options else {}
    as_jobs = FromCandidatesConfig(candidates=str(tmp_path / "out"), output=str(tmp_path / "jobs"), **settings)
    run_from_candidates(as_jobs, limits=MiningLimits(in_process_rows=-1))
    assert (tmp_path / "jobs/bitext.parquet").read_bytes() == bitext
    changes = pq.read_table(tmp_path / "out/deltas/00001.parquet")["change"].to_pylist()
    assert num_before + changes.count("added") - changes.count("removed") == len(pq.read_table(tmp_path / "out/bitext.parquet"))
    assert changes.count("added") > 300


def test_an_encoder_without_probabilities_takes_no_bound_of_them(texts: tuple[Path, Path], unknown_encoder: Path, tmp_path: Path) -> None:
    options = ("--encoder", unknown_encoder, "--min-probability", "0.5", "--output", tmp_path / "out")
    message = error_of("mine", *texts, *options)
    assert "--min-probability: the encoder has no probabilities with --margin ratio, rescored; give --threshold instead" in message
    assert not (tmp_path / "out" / "bitext.parquet").exists()


def test_what_the_built_in_encoder_states_is_valid() -> None:
    profile = json.loads((load_encoder("builtin").folder / "mining.json").read_text())
    assert [canonical(code) for code in profile["languages"]] == profile["languages"]


@pytest.mark.slow
def test_another_encoder_is_calibrated_to_the_precision(texts: tuple[Path, Path], unknown_encoder: Path, tmp_path: Path) -> None:
    options = ("--output", tmp_path / "out", "--encoder", unknown_encoder, "--json", tmp_path / "figures.json")
    result = miner("mine", *texts, *options)
    figures = json.loads((tmp_path / "figures.json").read_text())
    choice = figures["choice"]
    assert (choice["by"], choice["threshold"], choice["min_precision"]) == ("calibrated", figures["threshold"], 0.95)
    assert re.search(rf"the default threshold {figures['threshold']:.4g} is calibrated on {choice['num_evidence']} pairs", result.stderr)
    assert f"(margin > {figures['threshold']:g}, expected precision {choice['precision']['value']:.2f})" in result.stdout
    assert f"threshold calibrated on {choice['num_evidence']} pairs of these corpora" in result.stdout
    rows = pq.read_table(tmp_path / "out" / "bitext.parquet").to_pylist()
    is_correct = [row["source_line"] == row["target_line"] and row["source_line"] <= NUM_LINES for row in rows]
    assert np.mean(is_correct) > 0.85
    assert sum(is_correct) > 0.7 * NUM_LINES
    again = miner("mine", "--from-candidates", tmp_path / "out", "--output", tmp_path / "again")
    assert "calibrated on" in again.stderr
    assert (tmp_path / "again" / "bitext.tsv.gz").read_bytes() == (tmp_path / "out" / "bitext.tsv.gz").read_bytes()
    lower = figures_of(tmp_path, "--from-candidates", tmp_path / "out", "--output", tmp_path / "lower", "--precision", "0.8")
    assert lower["pairs"] > figures["pairs"]


@pytest.mark.slow
def test_python_calibrates_as_the_command_does(texts: tuple[Path, Path], unknown_encoder: Path, tmp_path: Path) -> None:
    figures = figures_of(tmp_path, *texts, "--output", tmp_path / "out", "--encoder", unknown_encoder)
    sides = [path.read_text().splitlines() for path in texts]
    bitext = package.mine(*sides, str(unknown_encoder))
    assert bitext.choice.figures() == figures["choice"]
    assert len(bitext) == figures["pairs"]
    assert len(package.mine(*sides, load_encoder(str(unknown_encoder)), top=7)) == 7


@pytest.mark.slow
def test_a_profile_in_the_folder_is_used(texts: tuple[Path, Path], unknown_encoder: Path, tmp_path: Path) -> None:
    encoder = shutil.copytree(unknown_encoder, tmp_path / "encoder")
    content = {"languages": ["de", "fr"], "thresholds": {"ratio": {"rescored": 1.31}}}
    (encoder / "mining.json").write_text(json.dumps(content))
    options = ("--encoder", encoder, "--source-lang", "en", "--target-lang", "de")
    result = miner("mine", *texts, "--output", tmp_path / "out", *options)
    assert "(margin > 1.31)\nthreshold recommended for the encoder" in result.stdout
    assert "was not trained on eng_Latn;" in result.stderr
    assert "default threshold" not in result.stderr
    again = miner("mine", "--from-candidates", tmp_path / "out", "--output", tmp_path / "again", "--encoder", encoder)
    assert "(margin > 1.31)\nthreshold recommended for the encoder" in again.stdout
    for damaged in ("[]", '{"thresholds": {"ratios": {}}}', '{"languages": ["xx-yy-zz"]}'):
        (encoder / "mining.json").write_text(damaged)
        assert "mining.json" in error_of("mine", *texts, "--output", tmp_path / "damaged", "--encoder", encoder)


@pytest.mark.slow
def test_top_keeps_the_best_pairs_whatever_their_margin(texts: tuple[Path, Path], tmp_path: Path) -> None:
    output_of("mine", *texts, "--output", tmp_path / "all", "--threshold", "-5")
    output_of("mine", "--from-candidates", tmp_path / "all", "--output", tmp_path / "top", "--top", 800)
    whole, best = (pq.read_table(tmp_path / name / "bitext.parquet") for name in ("all", "top"))
    assert best.equals(whole.slice(0, 800))
    assert best["margin"][-1].as_py() < 1.1  # below the default threshold
    limited = figures_of(tmp_path, "--from-candidates", tmp_path / "all", "--output", tmp_path / "both", "--top", 800, "--threshold", 1.3)
    assert limited["pairs"] == sum(margin > 1.3 for margin in whole["margin"].to_pylist()) < 800
    assert "best_margins" not in limited


@pytest.mark.slow
def test_few_pairs_show_quantiles_of_the_best_margins(texts: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    output_of("mine", *texts, "--output", tmp_path / "all", "--threshold", "-5", "--retrieval", "forward")
    best = pq.read_table(tmp_path / "all" / "bitext.parquet")["margin"].to_numpy()  # of nearly every source: backward may be better
    options = ("--output", tmp_path / "none", "--threshold", "5", "--json", tmp_path / "figures.json")
    result = miner("mine", "--from-candidates", tmp_path / "all", *options, report=True)
    quantiles = json.loads((tmp_path / "figures.json").read_text())["best_margins"]
    assert list(quantiles) == ["0.5", "0.9", "0.99", "0.999", "1"]
    assert quantiles["0.5"] == pytest.approx(np.median(best), abs=0.02)
    assert quantiles["1"] == pytest.approx(best.max(), abs=5e-5)
    assert "0 pairs (margin > 5)" in result.stdout
    text = f"best margins of the source sentences: 50% below {quantiles['0.5']:g}"
    assert package.mine(*texts, retrieval="forward", threshold=5).figures["best_margins"] == quantiles
    assert text in caplog.text
    assert "best_margins" not in package.mine(*texts, retrieval="forward", threshold=1.1).figures
    assert text in result.stdout
    assert text in (tmp_path / "none" / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_languages_that_the_built_in_encoder_does_not_know_are_a_warning(texts: tuple[Path, Path], tmp_path: Path) -> None:
    options = ("--source-lang", "en", "--target-lang", "quc", "--output", tmp_path / "out")
    assert "was not trained on quc_Latn;" in miner("mine", *texts, *options).stderr
    options = ("--source-lang", "en", "--target-lang", "de", "--output", tmp_path / "known")
    assert "not trained" not in miner("mine", *texts, *options).stderr


def test_embed_and_score_warn_of_languages_too(
    texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = shutil.copytree(toy_encoder, tmp_path / "encoder")
    (encoder / "mining.json").write_text('{"languages": ["en", "nus"], "accuracies": {"nus_Latn": 61.2}}')
    options = ("--output", tmp_path / "embedded", "--encoder", encoder)
    known = miner("embed", texts[0], "--lang", "nus", "--output", tmp_path / "poor", "--encoder", encoder).stderr
    assert "retrieved the translation of only 61 % of the lines in nus_Latn:" in known
    assert "was not trained on" not in known
    assert miner("embed", texts[0], "--lang", "quc", *options).stderr.count("was not trained on quc_Latn;") == 1
    languages = ("--source-lang", "en", "--target-lang", "quc")
    options = ("--output", tmp_path / "scored.tsv", "--encoder", encoder, "--filter", "languages")
    warnings = miner("score", *texts, *languages, *options).stderr
    assert warnings.count("was not trained on quc_Latn;") == 1
    assert warnings.count("--filter languages: cannot rate text in quc_Latn,") == 1
    sides = (["one two", "three"], ["un deux", "trois"])
    package.score(*sides, str(encoder), target_lang="quc", filters=["languages"])
    assert "was not trained on quc_Latn;" in caplog.text
    assert "--filter languages: cannot rate text in quc_Latn," in caplog.text
    caplog.clear()
    package.embed(sides[0], load_encoder(str(encoder)), lang="quc")
    assert "was not trained on quc_Latn;" in caplog.text


@pytest.mark.slow
def test_filters_that_cannot_judge_a_language_are_a_warning(texts: tuple[Path, Path], tmp_path: Path) -> None:
    filters = ("--filter", "script=0.5", "--filter", "languages", "--filter", "numbers")
    result = miner("mine", *texts, "--output", tmp_path / "out", "--target-lang", "de", *filters)
    lines = [line for line in result.stderr.splitlines() if "cannot rate" in line]
    assert lines == [
        "miner: --filter script: cannot rate text in und, and keeps all of it; give the language of the text",
        "miner: --filter languages: cannot rate text in und, and keeps all of it; give the language of the text",
    ]
    unknown = miner("embed", texts[1], "--lang", "quc", "--output", tmp_path / "quc", "--filter", "language")
    assert "--filter language: cannot rate text in quc_Latn, and keeps all of it; they know no such language" in unknown.stderr
