"""The sections of a report on `miner eval map`: how similar languages are, and their sentences on a plane."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from miner.report import charts
from miner.report.page import Section, element

MAX_PHONE_LANGUAGES = 30  # a heat map of more languages is wider than a phone, and scrolls
CELL_PIXELS = 11  # CSS pixels, of such a heat map

METHODS = {
    "pca": ("Principal components", "Distances are as true as two dimensions allow."),
    "tsne": ("t-SNE", "Neighbours stay neighbours; distances between groups have no meaning."),
}


def sections(name: str, figures: Mapping[str, Any]) -> list[Section]:
    projection, has_pairs = figures["map"], figures["has_pairs"]
    planes = []
    if projection is not None:
        planes = [_plane(f"{name}-{method}", method, projection, has_pairs) for method in METHODS]
    return planes if has_pairs else [_heat_map(name, list(figures["languages"]), figures["translations"]), *planes]


def _heat_map(name: str, languages: Sequence[str], cells: Sequence[Sequence[float | None]]) -> Section:
    matrix = np.array([[np.nan if cell is None else cell for cell in row] for row in cells], dtype=np.float64)
    order = np.argsort(-np.nanmean(matrix, axis=1), kind="stable")
    heat_map = charts.heat_map(name, [languages[row] for row in order], matrix[np.ix_(order, order)])
    note = "The mean cosine of translations for every two languages. Languages that are closest to the others come first."
    if len(languages) > MAX_PHONE_LANGUAGES:
        heat_map = element("div", heat_map, class_="wide", style=f"--least: {CELL_PIXELS * len(languages)}px")
    return Section("Similarity of languages", note, [heat_map])


def _plane(name: str, method: str, projection: Mapping[str, Any], has_pairs: bool) -> Section:
    """Draw sentences in a colour per language, or per column of pairs, each joined by a line to the mean of its translations or pair."""
    languages = projection["languages"]
    positions = np.array(charts.shown(projection[method], "languages of a map"), dtype=np.float64)  # (languages, sentences, 2)
    ax = charts.plane(height=4.0)
    means = positions.mean(axis=0)
    for of_language in positions:
        lines = np.stack([of_language, means, np.full_like(of_language, np.nan)], axis=1).reshape(-1, 2)
        ax.plot(lines[:, 0], lines[:, 1], color=charts.colour("line"), linewidth=0.8)
    legend = dict(zip(languages, charts.SERIES, strict=False))
    for of_language, colour in zip(positions, legend.values(), strict=False):
        ax.plot(of_language[:, 0], of_language[:, 1], ".", color=charts.colour(colour), markersize=6, markeredgewidth=0, alpha=0.85)
    title, caption = METHODS[method]
    note = f"{positions.shape[1]} sentences in {len(languages)} languages. Short lines and mixed colours: meaning counts, not language."
    if has_pairs:
        note = f"{positions.shape[1]} pairs of sentences, joined by lines."
    return Section(title, note, [charts.figure(name, ax, caption, legend)])
