"""Which pairs of a scored bitext stay, against plain loops."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from miner.filters.line_pair_filter import KEPT, REASONS, LinePairFilter, count_reasons

ENGLISH = ["one two", "", "same words here", "page 7", None, "yes", "seven words", "a house"]
GERMAN = ["eins zwei", "drei", "same words here", "Seite 8", "fünf", "ja", "sieben Wörter", None]
MARGINS = [1.2, math.nan, 1.5, 1.4, math.nan, 1.3, math.nan, math.nan]


def reasons_of(codes: np.ndarray) -> list[str | None]:
    return [None if code == KEPT else REASONS[code] for code in codes]


@pytest.mark.parametrize(
    ("sentence_bounds", "pair_bounds", "threshold", "expected"),
    [
        ({}, {}, None, [None, "no_sentence", None, None, "no_sentence", None, "no_margin", "no_sentence"]),
        ({}, {}, 1.3, ["low_margin", "no_sentence", None, None, "no_sentence", "low_margin", "no_margin", "no_sentence"]),
        ({"min_words": 2}, {}, None, [None, "no_sentence", None, None, "no_sentence", "few_words", "no_margin", "no_sentence"]),
        (
            {"min_chars": 3},
            {"copies": 0.7, "numbers": 0},
            1.45,
            ["low_margin", "no_sentence", "near_copy", "low_margin", "no_sentence", "too_short", "no_margin", "no_sentence"],
        ),
        ({}, {"numbers": 0}, None, [None, "no_sentence", None, "numbers_disagree", "no_sentence", None, "no_margin", "no_sentence"]),
    ],
)
def test_the_first_bound_that_a_pair_violates_is_its_reason(
    sentence_bounds: dict[str, float], pair_bounds: dict[str, float], threshold: float | None, expected: list[str | None]
) -> None:
    line_filter = LinePairFilter(("eng_Latn", "deu_Latn"), sentence_bounds, pair_bounds, threshold, None, None)
    codes = line_filter.check_pairs(line_filter.check_sentences(ENGLISH, GERMAN), np.array(MARGINS), ENGLISH, GERMAN)
    assert reasons_of(codes) == expected
    assert count_reasons(codes) == {reason: expected.count(reason) for reason in REASONS if reason in expected}


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30), st.integers(1, 12))
def test_top_keeps_the_largest_margins_and_the_first_of_equal_ones(lines: list[tuple[int, bool]], top: int) -> None:
    margins = np.array([float(margin) for margin, _ in lines])
    codes = np.array([KEPT if is_kept else 0 for _, is_kept in lines], dtype=np.int8)
    best = sorted((-margin, row) for row, (margin, is_kept) in enumerate(lines) if is_kept)[:top]
    line_filter = LinePairFilter(("und", "und"), {}, {}, None, top, None)
    assert np.flatnonzero(line_filter.check_top(codes, margins) == KEPT).tolist() == sorted(row for _, row in best)
