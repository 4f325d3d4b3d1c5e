"""The probability that a pair is right, against plain formulas, and as a bound of mining, scoring and exporting."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import output_of
from hypothesis import given
from hypothesis import strategies as st

import miner as package
from miner.config.probability import ProbabilityBound, ProbabilityWeights
from miner.encoders import find_folder, mining_profile
from miner.filters.line_pair_filter import KEPT, REASONS, LinePairFilter
from miner.filters.pairs import PairTexts, probabilities, probabilities_of

EXAMPLES = Path(__file__).parents[3] / "examples"
WEIGHTS = ProbabilityWeights(intercept=-20.0, margin=18.0, length_ratio=-7.0, numbers=-5.0)


def test_probabilities_by_hand() -> None:
    pairs = [
        (1.2, "a" * 30, "b" * 30),  # equal lengths, no numbers
        (1.2, "a" * 30, "b" * 70),  # (70 + 10) / (30 + 10) = 2
        (1.3, "from 10 to 20 people", "von 10 bis 30 Personen"),  # one of two numbers disagrees; 32 letters, 30
        (math.nan, "a", "b"),
    ]
    table = pa.table(list(zip(*pairs, strict=True)), names=["margin", "source_text", "target_text"])
    logits = [-20 + 18 * 1.2, -20 + 18 * 1.2 - 7 * math.log(2), -20 + 18 * 1.3 - 7 * math.log(32 / 30) - 5 * 0.5]
    expected = [*(1 / (1 + math.exp(-logit)) for logit in logits), 0]
    np.testing.assert_allclose(probabilities_of(table, WEIGHTS), expected, rtol=1e-12)


def test_large_logits_do_not_overflow() -> None:
    one, none = np.ones(2), np.full(2, np.nan)
    assert probabilities(WEIGHTS, np.array([1e6, -1e6]), one, none).tolist() == [1, 0]


@given(st.floats(-1, 3), st.floats(1, 10), st.floats(0, 1) | st.just(math.nan), st.floats(0.001, 0.999))
def test_no_probable_pair_is_below_the_lowest_margin(margin: float, length_ratio: float, disagreement: float, minimum: float) -> None:
    lowest = WEIGHTS.lowest_margin(minimum)
    assert probabilities(WEIGHTS, np.array([lowest]), np.ones(1), np.zeros(1))[0] == pytest.approx(minimum)
    if probabilities(WEIGHTS, np.array([margin]), np.array([length_ratio]), np.array([disagreement]))[0] > minimum + 1e-9:
        assert margin > lowest


def test_scored_lines_below_the_bound_are_improbable() -> None:
    sources, targets = ["page 7", "page 7", "short"], ["Seite 7", "Seite 8", "a much longer sentence than that"]
    line_filter = LinePairFilter(("und", "und"), {}, {}, None, None, None, ProbabilityBound(WEIGHTS, 0.5))
    codes = line_filter.check_pairs(line_filter.check_sentences(sources, targets), np.full(3, 1.2), sources, targets)
    assert [None if code == KEPT else REASONS[code] for code in codes] == [None, "improbable", "improbable"]


def test_blocks_of_pairs_have_their_own_margins() -> None:
    texts = [f"{number} pages" for number in range(5)]
    pairs = PairTexts(texts, texts, ("und", "und"), np.zeros(5), margins=np.linspace(1, 1.4, 5), weights=WEIGHTS)
    assert pairs.slice(2, 4).probabilities.tolist() == pairs.probabilities[2:4].tolist()


@pytest.fixture(scope="module")
def mined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mine translations of which every fourth has another number on the other side."""
    folder = tmp_path_factory.mktemp("mined")
    english, german = ((EXAMPLES / f"{lang}.txt").read_text(encoding="utf-8").splitlines() for lang in ("en", "de"))
    rows = [[int(number) - 1 for number in line.split()] for line in (EXAMPLES / "gold.en-de.tsv").read_text().splitlines()][:200]
    numbers = range(len(rows))
    sides = [
        [f"{english[row]} {number}" for number, (row, _) in enumerate(rows)],
        [f"{german[row]} {number + 1000 * (number % 4 == 0)}" for number, (_, row) in zip(numbers, rows, strict=True)],
    ]
    for name, lines in zip(("en", "de"), sides, strict=True):
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    output_of("mine", folder / "en.txt", folder / "de.txt", "--filter", "none", "--output", folder / "out")
    return folder


def test_mined_pairs_are_probable(mined: Path) -> None:
    table = pq.read_table(mined / "out" / "bitext.parquet")
    by_margin = mined / "by-margin"
    output_of("mine", "--from-candidates", mined / "out", "--filter", "none", "--output", by_margin, "--threshold", "1")
    everything = pq.read_table(by_margin / "bitext.parquet")
    share_wrong = [
        np.mean([row["source_line"] % 4 == 1 for row in part.to_pylist() if row["source_line"] == row["target_line"]])
        for part in (table, everything)
    ]
    assert min(table["probability"].to_pylist()) >= 0.5 > min(everything["probability"].to_pylist())
    assert share_wrong[0] < share_wrong[1]
    probable = {(row["source_id"], row["target_id"]) for row in everything.to_pylist() if row["probability"] >= 0.5}
    assert len(probable) > 100
    assert probable <= {(row["source_id"], row["target_id"]) for row in table.to_pylist()}


def test_python_mines_and_scores_the_same(mined: Path) -> None:
    sides = [(mined / f"{lang}.txt").read_text(encoding="utf-8").splitlines() for lang in ("en", "de")]
    table = pq.read_table(mined / "out" / "bitext.parquet")
    bitext = package.mine(*sides, filters="none")
    assert bitext.to_arrow()["probability"].to_pylist() == table["probability"].to_pylist()
    assert bitext.to_arrow()["source_text"].to_pylist() == table["source_text"].to_pylist()
    kept = package.score(*sides, min_probability=0.9)
    profile = mining_profile.read(find_folder("builtin"))
    weights = profile.line_pair_probabilities["ratio"].rescored
    assert weights not in (None, profile.probabilities["ratio"].rescored)
    assert kept.rows.tolist() == np.flatnonzero(probabilities_of(package.score(*sides).to_arrow(), weights) >= 0.9).tolist()
    output_of("score", mined / "en.txt", mined / "de.txt", "--min-probability", "0.9", "--output", mined / "scored.tsv")
    lines = (mined / "scored.tsv").read_text(encoding="utf-8").splitlines()
    assert [line.split("\t")[1] for line in lines] == kept.to_arrow()["source_text"].to_pylist()
    assert 0 < len(lines) < len(sides[0])


def test_any_probability_will_do(mined: Path) -> None:
    output_of(
        "mine",
        "--from-candidates",
        mined / "out",
        "--filter",
        "none",
        "--output",
        mined / "all",
        "--min-probability",
        "0",
        "--json",
        mined / "all.json",
    )
    figures = json.loads((mined / "all.json").read_text())
    table = pq.read_table(mined / "all" / "bitext.parquet")
    assert (figures["threshold"], figures["pairs"]) == (None, len(table))
    assert min(table["probability"].to_pylist()) < 0.5
    assert "choice" not in figures


def test_exports_take_a_bound(mined: Path) -> None:
    output_of("export", mined / "out", "--min-probability", "0.9", "--format", "moses", "--output", mined / "moses")
    probable = [row for row in pq.read_table(mined / "out" / "bitext.parquet").to_pylist() if row["probability"] >= 0.9]
    (sources,) = (mined / "moses").glob("*source*")
    assert sources.read_text(encoding="utf-8").splitlines() == [row["source_text"] for row in probable]
