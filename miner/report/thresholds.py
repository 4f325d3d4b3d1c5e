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
    section = _sample_section if figures.get("protocol") == "sample" else _pair_section
    pairs = charts.shown(figures["pairs"].items(), "curves")
    return [section(f"{name}-{number}", f"{title}: {pair}", pair_figures) for number, (pair, pair_figures) in enumerate(pairs)]


def _sample_section(name: str, title: str, figures: Mapping[str, Any]) -> Section:
    """Return the curve on the sample split, whose own best threshold is marked."""
    note = (
        f"On the sample split, with {figures['gold']['sample']:,} gold pairs: the threshold is tuned on the gold that scores it, an oracle."
    )
    caption = f"F1 at the best threshold: {figures['f1']:.4f}. Dashed: that threshold."
    return _curve_section(name, title, note, figures, figures["threshold"], caption)


def _pair_section(name: str, title: str, figures: Mapping[str, Any]) -> Section:
    dev_threshold = None if figures["dev"] is None else float(figures["dev"]["threshold"])
    shares = ", ".join(f"{label} {figures['test'][share]:.4f}" for share, label in SHARES.items())
    result = f"above the threshold of the dev split, {shares}"
    if dev_threshold is None:
        result = "no pair of the dev split is correct, so no pair is accepted"
    note = f"On the test split, with {figures['gold']['test']:,} gold pairs: {result}."
    caption = "No pair is correct."
    if figures["oracle"] is not None:
        caption = f"F1 at the best threshold of the test split, an oracle: {figures['oracle']['f1']:.4f}. Dashed: the dev threshold."
    return _curve_section(name, title, note, figures, dev_threshold, caption)


def _curve_section(name: str, title: str, note: str, figures: Mapping[str, Any], marked: float | None, caption: str) -> Section:
    columns = {key: np.array([float(point[key]) for point in figures["curve"]]) for key in ("threshold", *SHARES)}
    return Section(title, note, [chart(name, columns["threshold"], columns, marked, caption)])
