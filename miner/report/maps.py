"""The sections of a report on `miner eval map`: how alike languages are, and their sentences on a plane."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from miner.report import charts
from miner.report.page import Section, element

FITTING = 30  # languages whose names can be read on a phone; of more the heat map is as large as it must be, and scrolls
CELL = 11  # CSS pixels of a cell of such a map

METHODS = {
    "pca": ("Principal components", "Distances are true as far as two dimensions can show them."),
    "tsne": ("t-SNE", "Neighbours stay neighbours; distances between groups say nothing."),
}


def sections(name: str, figures: Mapping[str, Any]) -> list[Section]:
    """The heat map, and the sentences on a plane where there are any."""
    made = [_heat(name, list(figures["languages"]), figures["translations"])]
    plane = figures["map"]
    if plane is not None:
        made += [_plane(name, method, plane["languages"], plane[method]) for method in METHODS]
    return made


def _heat(name: str, languages: Sequence[str], cells: Sequence[Sequence[float | None]]) -> Section:
    matrix = np.array([[np.nan if cell is None else cell for cell in row] for row in cells], dtype=np.float64)
    order = np.argsort(-np.nanmean(matrix, axis=1), kind="stable")
    drawn = charts.heat(name, [languages[row] for row in order], matrix[np.ix_(order, order)])
    note = "The mean cosine of translations, for every two languages; those that are closest to the others come first."
    if len(languages) > FITTING:
        drawn = element("div", drawn, class_="wide", style=f"--least: {CELL * len(languages)}px")
    return Section("Similarity of languages", note, [drawn])


def _plane(name: str, method: str, languages: Sequence[str], points: Sequence[Any]) -> Section:
    """A colour for each language; what is translations of one another is joined at its middle."""
    places = np.array(points, dtype=np.float64)  # (languages, sentences, 2)
    ax = charts.plane(height=4.0)
    middles = places.mean(axis=0)
    for own in places:
        ends = np.stack([own, middles, np.full_like(own, np.nan)], axis=1).reshape(-1, 2)
        ax.plot(ends[:, 0], ends[:, 1], color=charts.colour("line"), linewidth=0.8)
    keys = dict(zip(languages, charts.SERIES, strict=False))
    for own, part in zip(places, keys.values(), strict=False):
        ax.plot(own[:, 0], own[:, 1], ".", color=charts.colour(part), markersize=6, markeredgewidth=0, alpha=0.85)
    title, told = METHODS[method]
    note = f"{places.shape[1]} sentences in {len(languages)} languages. Short lines and mixed colours say that meaning counts."
    return Section(title, note, [charts.figure(f"{name}-{method}", ax, told, keys)])
