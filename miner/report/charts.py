"""Pictures by matplotlib as elements of a page. The only importer of matplotlib.

Colours are named by their part in a picture. Matplotlib is given a stand-in for each, which becomes a variable of the style sheet, so that
one picture serves light and dark screens. Text stays text, set by the reader's fonts.
"""

import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes as Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from miner.report.page import element

PARTS = ("ink", "muted", "line", "one", "two", "three", "four", "five", "six")
COLOURS = {part: f"#00000{number}" for number, part in enumerate(PARTS, start=1)}
SERIES = ("one", "two", "three", "four", "five", "six")  # of lines and bars, in their order

WIDTH, HEIGHT = 5.0, 2.9  # inches: 360 points, so that text is of its size on a phone
EDGES = {"left": 0.5, "right": 0.14, "top": 0.3, "bottom": 0.5}  # inches around the axes
BARE = 0.06  # inches above axes whose y has no name
CHARACTER = 0.085  # inches, of a label
LABEL = 24  # characters, at most
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "miner",  # the names of clip paths: the same in every run
    "text.parse_math": False,  # a $ in a name is a $
    "font.sans-serif": ["DejaVu Sans"],  # by which labels are measured
    "font.size": 10,
    "axes.unicode_minus": False,
    "axes.edgecolor": COLOURS["muted"],
    "axes.labelcolor": COLOURS["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.linewidth": 0.8,
    "grid.color": COLOURS["line"],
    "text.color": COLOURS["ink"],
    "xtick.color": COLOURS["muted"],
    "ytick.color": COLOURS["muted"],
    "xtick.labelcolor": COLOURS["ink"],
    "ytick.labelcolor": COLOURS["ink"],
    "xtick.bottom": False,
    "ytick.left": False,
    "lines.linewidth": 1.8,
}
Bars = tuple[str, Mapping[str, float], Mapping[str, tuple[float, float]]]  # a part; by label a length, and the ends of its interval

_NAMESPACE = re.compile(r"\{[^}]*\}")
_COLOUR = re.compile(r"#00000([1-9])\b")
_REFERENCE = re.compile(r"(url\(#|^#)")


@contextmanager
def style() -> Iterator[None]:
    """Within it pictures are drawn. Labels in scripts that matplotlib has no font for are the browser's to set, so it need not warn."""
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def axes(x: str, y: str, height: float = HEIGHT, labels: Sequence[str] = ()) -> Axes:
    """Axes with their names, y above them, as high as so many inches; on the left with room for these labels."""
    figure = Figure(figsize=(WIDTH, height), facecolor="none")
    left = max([EDGES["left"], *(0.15 + CHARACTER * min(len(label), LABEL) for label in labels)])
    around = EDGES["bottom"] + (EDGES["top"] if y else BARE)
    place = (left / WIDTH, EDGES["bottom"] / height, 1 - (left + EDGES["right"]) / WIDTH, 1 - around / height)
    made = figure.add_axes(place, facecolor="none")
    made.set_xlabel(x)
    made.text(0, 1 + 0.08 / height, y, transform=made.transAxes, verticalalignment="bottom", color=COLOURS["muted"])
    for axis in (made.xaxis, made.yaxis):
        axis.set_major_formatter(FuncFormatter(_short))
    return made


def plane(height: float) -> Axes:
    """Axes on which only distances say something, as high as so many inches."""
    made = Figure(figsize=(WIDTH, height), facecolor="none").add_axes((0.01, 0.01, 0.98, 0.98), facecolor="none")
    made.set_axis_off()
    return made


def heat(name: str, labels: Sequence[str], matrix: npt.NDArray[np.float64]) -> Element:
    """The picture of a matrix (n, n) with the same labels on both sides; NaN stays empty."""
    size = min(10.0, 290 / len(labels))
    room = max(0.3, 0.1 + CHARACTER * size / 10 * min(max(map(len, labels)), LABEL))
    side = WIDTH - room - EDGES["right"]
    height = side + EDGES["right"] + room
    ax = axes("", "", height=height)
    ax.set_position((room / WIDTH, room / height, side / WIDTH, side / height))
    ax.imshow(matrix, cmap="viridis", aspect="auto", interpolation="nearest")
    shown = [_fitting(label) for label in labels]
    ax.set_xticks(range(len(labels)), shown, rotation=90, fontsize=size)
    ax.set_yticks(range(len(labels)), shown, fontsize=size)
    ax.grid(visible=False)
    others = matrix[~np.eye(len(labels), dtype=bool)]
    return figure(name, ax, f"From {np.nanmin(others):.3f} (dark) to {np.nanmax(others):.3f} (bright).")


def logarithmic(ax: Axes, name: str, low: float, high: float) -> None:
    """A logarithmic scale of `x` or `y` from low to high, both above 0, with few ticks and plain numbers."""
    ax.set(**{f"{name}scale": "log", f"{name}lim": (low / 1.15, high * 1.15)})
    axis = ax.xaxis if name == "x" else ax.yaxis
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if len(powers) > 4 else (1, 3) if len(powers) > 3 else (1, 2, 5)
    ticks = [step * 10.0**power for power in powers for step in steps]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(_short))
    axis.set_minor_locator(NullLocator())


def _short(value: float, _: object = None) -> str:
    """A number at an axis: 0.2, 1500, 20k, 3M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):g}{letter}"
    return f"{value:g}"


def upright(ax: Axes, at: float) -> None:
    """A dashed line."""
    ax.axvline(at, color=COLOURS["ink"], linestyle=(0, (4, 3)), linewidth=1)


def bars(ax: Axes, labels: Sequence[str], series: Sequence[Bars]) -> None:
    """Bars from left to right, the series side by side at each label, which stand one below the other."""
    height = 0.8 / len(series)
    for number, (part, lengths, ends) in enumerate(series):
        rows = {label: row - 0.4 + height * (number + 0.5) for row, label in enumerate(labels) if label in lengths}
        ax.barh(list(rows.values()), [lengths[label] for label in rows], color=COLOURS[part], height=0.9 * height)
        for label in rows.keys() & ends.keys():
            ax.plot(ends[label], [rows[label]] * 2, color=COLOURS["ink"], linewidth=1)
    ax.set_yticks(range(len(labels)), [_fitting(label) for label in labels])
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")


def _fitting(label: str) -> str:
    """A label of at most LABEL characters: both its ends, as either may be what tells it from others."""
    half = LABEL // 2
    return label if len(label) <= LABEL else f"{label[: half - 1]}…{label[-half:]}"


def colour(part: str) -> str:
    return COLOURS[part]


def figure(name: str, drawn: Axes, told: str, keys: Mapping[str, str] | None = None) -> Element:
    """The picture of these axes, `told` in words below it, with a key {what: part} to its colours. `name` is its own in a page."""
    marks = [element("span", what, class_=f"key {part}") for what, part in (keys or {}).items()]
    caption = element("figcaption", *marks, element("span", told))
    return element("figure", _svg(name, drawn.figure, told), caption)


def _svg(name: str, drawn: Any, told: str) -> Element:
    handle = io.BytesIO()
    drawn.savefig(handle, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = fromstring(handle.getvalue())
    for part in svg.iter():
        part.tag = _NAMESPACE.sub("", part.tag)
        part.attrib = {_NAMESPACE.sub("", key): _value(name, _NAMESPACE.sub("", key), value) for key, value in part.attrib.items()}
        if part.text and not part.text.strip():
            part.text = None
        part.tail = None
    for defs in svg.findall("defs"):
        for sheet in defs.findall("style"):
            defs.remove(sheet)
    box = {"viewBox": svg.attrib["viewBox"], "role": "img", "aria-label": told}
    svg.attrib = box
    return svg


def _value(name: str, key: str, value: str) -> str:
    """Ids are made those of one picture, and stand-ins for colours the variables they stand for."""
    if key == "id":
        return f"{name}-{value}"
    if key == "style":
        value = _COLOUR.sub(lambda found: f"var(--{PARTS[int(found[1]) - 1]})", value)
    if key == "d":
        return " ".join(value.split())
    return _REFERENCE.sub(lambda found: f"{found[1]}{name}-", value)
