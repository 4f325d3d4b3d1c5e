"""The filter `hubs` on sides of any sizes: a sentence of a small side occurs in more candidates, without being a hub."""

from pathlib import Path

import pytest

import miner
from miner.filters.hubs import usual_counts

EXAMPLES = Path(__file__).parents[3] / "examples"


def read_lines(lang: str, number: int) -> list[str]:
    return (EXAMPLES / f"{lang}.txt").read_text(encoding="utf-8").splitlines()[:number]


def score_pairs(sizes: tuple[int, int], filters: list[str]) -> float:
    """Return F1 of mining the first lines of each side."""
    sides = read_lines("en", sizes[0]), read_lines("de", sizes[1])
    table = miner.mine(*sides, source_lang="en", target_lang="de", filters=filters).to_arrow()
    pairs = set(zip(table["source_row"].to_pylist(), table["target_row"].to_pylist(), strict=True))
    gold = (line.split("\t") for line in (EXAMPLES / "gold.en-de.tsv").read_text().splitlines())
    true = {(int(source) - 1, int(target) - 1) for source, target in gold if int(source) <= sizes[0] and int(target) <= sizes[1]}
    return 2 * len(pairs & true) / (len(pairs) + len(true))


@pytest.mark.parametrize("sizes", [(3017, 3), (3017, 100), (3017, 300), (1000, 1000), (300, 2341), (3, 2341)])
def test_recommended_filters_keep_the_pairs_of_sides_of_any_sizes(sizes: tuple[int, int]) -> None:
    assert score_pairs(sizes, ["recommended"]) >= score_pairs(sizes, []) - 0.01


def test_a_usual_sentence_of_the_smaller_side_has_more_candidates() -> None:
    assert usual_counts(4, 1000, 1000) == (4, 4)
    assert usual_counts(4, 3000, 100) == (4, 120)  # 3,000 sentences x 4 neighbours among 100
    assert usual_counts(16, 10, 10_000) == (16_000, 16)
