"""The form in which people mark a sample of pairs as right or wrong. It saves the table that `miner eval bitext --gold` reads."""

from xml.etree.ElementTree import Element

import numpy as np

from miner import storage
from miner.report.mined_pairs import SAMPLE_PER_LEVEL, MinedBitext, sample
from miner.report.page import Section, element, text

SEED = 0
CHOICES = ("right", "wrong", "")  # values of a mark; the last one is "unsure"


def section(mined: MinedBitext) -> Section:
    levels = sample(len(mined.margins), SEED)
    rows = np.concatenate(levels)
    pairs = list(zip(mined.margins[rows].tolist(), *mined.texts(rows), strict=True))
    footer = element(
        "div",
        element("output"),
        element("button", "Download marks.tsv", id="download", type="button"),
        element("button", "Clear all", id="clear", type="button"),
        class_="marking",
    )
    form = element("form", *(_pair(number, *pair) for number, pair in enumerate(pairs)), footer, id="marks", data_key=storage.key(pairs))
    note = (
        f"{len(rows)} pairs: up to {SAMPLE_PER_LEVEL}, drawn at random, from each of {len(levels)} equally large levels of margin. "
        "Mark the pairs that you understand; miner eval bitext DIR --gold marks.tsv reports the precision above every level. "
        "Marks are stored in this browser until you download them."
    )
    return Section("Right or wrong?", note, [form])


def _pair(number: int, margin: float, source: str, target: str) -> Element:
    buttons = [
        element("label", element("input", type="radio", name=f"pair-{number}", value=mark), f" {mark or 'unsure'}") for mark in CHOICES
    ]
    return element("div", text(source), text(target), element("fieldset", element("legend", f"{margin:.4f}"), *buttons), class_="pair")
