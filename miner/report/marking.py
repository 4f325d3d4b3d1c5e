"""A sample of pairs to be marked right or wrong, which the page gives out as the table that `miner eval bitext --gold` reads."""

from xml.etree.ElementTree import Element

import numpy as np

from miner import storage
from miner.report.mined_pairs import PER_LEVEL, MinedBitext, sample
from miner.report.page import Section, element, text

SEED = 0
CHOICES = ("right", "wrong", "")  # what a mark says; the last that the reader cannot tell


def section(mined: MinedBitext) -> Section:
    levels = sample(len(mined.margins), SEED)
    rows = np.concatenate(levels)
    shown = list(zip(mined.margins[rows].tolist(), *mined.texts(rows), strict=True))
    foot = element(
        "div",
        element("output"),
        element("button", "Download marks.tsv", id="download", type="button"),
        element("button", "Forget all", id="forget", type="button"),
        class_="marking",
    )
    form = element("form", *(_pair(number, *pair) for number, pair in enumerate(shown)), foot, id="marks", data_key=storage.key(shown))
    note = (
        f"{len(rows)} pairs: up to {PER_LEVEL} drawn by chance from each of {len(levels)} levels of margin, which have as many pairs each. "
        "Mark those you can judge; miner eval bitext DIR --gold marks.tsv then tells the precision above every level. "
        "Marks stay in this browser until they are downloaded."
    )
    return Section("Right or wrong?", note, [form])


def _pair(number: int, margin: float, source: str, target: str) -> Element:
    marks = [
        element("label", element("input", type="radio", name=f"pair-{number}", value=mark), f" {mark or 'unsure'}") for mark in CHOICES
    ]
    return element("div", text(source), text(target), element("fieldset", element("legend", f"{margin:.4f}"), *marks), class_="pair")
