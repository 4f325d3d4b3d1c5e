"""The chart of precision, recall and F1 by threshold, and the sections of a report on `miner eval bucc`."""

from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from miner.arrays import Floats
from miner.report import charts
from miner.report.page import Section

SHARES = {"precision": "precision", "recall": "recall", "f1": "F1"}
LEGEND = dict(zip(SHARES.values(), charts.SERIES, strict=False))


def chart(name: str, thresholds: Floats, shares: Mapping[str, Floats], marked: float | None, caption: str) -> Element:
    """Draw shares (n,) of the pairs above thresholds (n,), with a dashed line at the threshold `marked`."""
    ax = charts.axes("threshold", "share")
    for share, label in SHARES.items():
        ax.plot(thresholds, shares[share], color=charts.colour(LEGEND[label]), marker="." if len(thresholds) < 3 else "")
    ax.set_ylim(0, 1.02)
    if marked is not None:
        charts.dashed_line(ax, marked)
    return charts.figure(name, ax, caption, LEGEND)


def sections(name: str, title: str, figures: Mapping[str, Any]) -> list[Section]:
    """Return the curve of each language pair on the split that is scored, with the threshold that was chosen."""
    drawn = []
    for number, (pair, pair_figures) in enumerate(charts.shown(figures["pairs"].items(), "curves")):
        describe = _describe_sample if figures.get("protocol") == "sample" else _describe_splits
        note, caption, threshold = describe(pair_figures)
        columns = {key: np.array([float(point[key]) for point in pair_figures["curve"]]) for key in ("threshold", *SHARES)}
        curve = chart(f"{name}-{number}", columns["threshold"], columns, threshold, caption)
        drawn.append(Section(f"{title}: {pair}", note, [curve]))
    return drawn


def _describe_sample(figures: Mapping[str, Any]) -> tuple[str, str, float | None]:
    """Return the note, the caption and the marked threshold of a sample split."""
    note = (
        f"On the sample split, with {figures['gold']['sample']:,} gold pairs: the threshold is tuned on the gold that scores it, an oracle."
    )
    return note, f"F1 at the best threshold: {figures['f1']:.4f}. Dashed: that threshold.", figures["threshold"]


def _describe_splits(figures: Mapping[str, Any]) -> tuple[str, str, float | None]:
    """Return the same of a test split, whose threshold is tuned on the dev split."""
    dev_threshold = None if figures["dev"] is None else float(figures["dev"]["threshold"])
    shares = ", ".join(f"{label} {figures['test'][share]:.4f}" for share, label in SHARES.items())
    result = f"above the threshold of the dev split, {shares}"
    if dev_threshold is None:
        result = "no pair of the dev split is correct, so no pair is accepted"
    caption = "No pair is correct."
    if figures["oracle"] is not None:
        caption = f"F1 at the best threshold of the test split, an oracle: {figures['oracle']['f1']:.4f}. Dashed: the dev threshold."
    return f"On the test split, with {figures['gold']['test']:,} gold pairs: {result}.", caption, dev_threshold
