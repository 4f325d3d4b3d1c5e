"""The form in which people mark a sample of pairs as right or wrong. It saves the table that `--gold` reads."""

from itertools import pairwise
from xml.etree.ElementTree import Element

import numpy as np

from miner.arrays import Bools, Ints
from miner.evaluation.marks import ReviewMarks
from miner.io import storage
from miner.mining.review import NUM_LEVELS, LevelCounts, count_levels, find_marked, level_bounds, plan_sample
from miner.report.mined_pairs import MinedBitext
from miner.report.page import Section, element, text

SEED = 0
SAMPLE_PAIRS = 100
KEYS = {"1": "right", "2": "wrong", "3": "unsure"}  # key -> mark, as in report.js


def section(mined: MinedBitext, marks: ReviewMarks | None, size: int) -> Section:
    """Return the form for `size` pairs, which `marks`, if there are any, plan."""
    num_pairs = len(mined.margins)
    right, reviewed = (marks.right, dict.fromkeys(marks.reviewed, 1.0)) if marks else ({}, {})
    ids = [side.tolist() for side in mined.ids()] if marks else [[], []]
    levels = count_levels(find_marked(right, zip(*ids, strict=True)), np.array([num_pairs]))
    is_reviewed = np.isin(np.arange(num_pairs), find_marked(reviewed, zip(*ids, strict=True)).rows)
    rows = draw_sample(levels, is_reviewed, size, SEED)
    if not len(rows):
        return Section("Right or wrong?", "All pairs are marked.", [])
    sources, targets = mined.texts(np.sort(rows))
    ranks = np.argsort(np.argsort(rows)).tolist()
    pairs = [(margin, sources[rank], targets[rank]) for margin, rank in zip(mined.margins[rows].tolist(), ranks, strict=True)]
    design = f"drawn at random from {NUM_LEVELS} equally large levels of margin"
    if marks:
        design = f"not marked yet, most of them from the levels of margin whose precision is least certain by {marks.name}"
    keys = ", ".join(f"{key} {mark}" for key, mark in KEYS.items())
    note = (
        f"{len(rows)} pairs, {design}, in random order. Mark the pairs that you understand, with the mouse or the keys {keys}; "
        "the margin shows when a pair is marked. Marks are stored in this browser until you download them. "
        "miner report DIR --gold marks.tsv shows the precision by level and draws the next sample."
    )
    return Section("Right or wrong?", note, [_form(pairs)])


def draw_sample(levels: LevelCounts, is_reviewed: Bools, size: int, seed: int) -> Ints:
    """Return the rows, in random order, of at most `size` pairs that are not reviewed (n,), as `plan_sample` distributes them.

    Rows of a level are drawn from one permutation, so a larger sample contains a smaller one.
    """
    rng = np.random.default_rng(seed)
    bounds = level_bounds(np.array([len(is_reviewed)]))[0].tolist()
    shuffled = [rng.permutation(np.arange(start, end)) for start, end in pairwise(bounds)]
    free = [rows[~is_reviewed[rows]] for rows in shuffled]
    plan = plan_sample(levels, np.array([len(rows) for rows in free]), size)
    return rng.permutation(np.concatenate([rows[:count] for rows, count in zip(free, plan.tolist(), strict=True)]))


def _form(pairs: list[tuple[float, str, str]]) -> Element:
    footer = element(
        "div",
        element("output"),
        element("button", "Download marks.tsv", id="download", type="button"),
        element("button", "Clear all", id="clear", type="button"),
        class_="marking",
    )
    return element("form", *(_pair(number, *pair) for number, pair in enumerate(pairs)), footer, id="marks", data_key=storage.key(pairs))


def _pair(number: int, margin: float, source: str, target: str) -> Element:
    buttons = [
        element("label", element("input", type="radio", name=f"pair-{number}", value=mark), element("kbd", key), f" {mark}")
        for key, mark in KEYS.items()
    ]
    fields = element("fieldset", element("legend", f"{margin:.4f}"), *buttons)
    return element("div", text(source), text(target), fields, class_="pair", tabindex="-1")
