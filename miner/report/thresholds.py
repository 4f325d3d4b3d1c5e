"""The picture of precision, recall and F1 by threshold, and the section of a report on `miner eval bucc`."""

from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
import numpy.typing as npt

from miner.report import charts
from miner.report.page import Section

Floats = npt.NDArray[np.float64]

SHARES = {"precision": "precision", "recall": "recall", "f1": "F1"}
KEYS = dict(zip(SHARES.values(), charts.SERIES, strict=False))


def picture(name: str, thresholds: Floats, shares: Mapping[str, Floats], dashed: float | None, told: str) -> Element:
    """Thresholds (n,) and by share (n,) what lies above each, with a dashed line at one of them."""
    ax = charts.axes("threshold", "share")
    for share, label in SHARES.items():
        ax.plot(thresholds, shares[share], color=charts.colour(KEYS[label]), marker="." if len(thresholds) < 3 else "")
    ax.set_ylim(0, 1.02)
    if dashed is not None:
        charts.upright(ax, dashed)
    return charts.figure(name, ax, told, KEYS)


def sections(name: str, title: str, figures: Mapping[str, Any]) -> list[Section]:
    """Of each pair of languages the curve on the test split, with the threshold that the dev split chose."""
    return [_pair(f"{name}-{number}", f"{title}: {pair}", found) for number, (pair, found) in enumerate(figures["pairs"].items())]


def _pair(name: str, title: str, found: Mapping[str, Any]) -> Section:
    dashed = None if found["dev"] is None else float(found["dev"]["threshold"])
    reached = ", ".join(f"{label} {found['test'][share]:.4f}" for share, label in SHARES.items())
    chosen = "no pair of the dev split is right, so none is taken" if dashed is None else f"above the threshold of the dev split {reached}"
    note = f"On the test split, of {found['gold']['test']:,} gold pairs: {chosen}."
    told = "No pair is right."
    if found["oracle"] is not None:
        told = f"The best threshold, which nobody knows who mines, would give F1 {found['oracle']['f1']:.4f}. Dashed is that of dev."
    columns = {key: np.array([float(point[key]) for point in found["curve"]]) for key in ("threshold", *SHARES)}
    return Section(title, note, [picture(name, columns["threshold"], columns, dashed, told)])
