"""Charts by matplotlib as SVG elements of a page. The only importer of matplotlib.

Colours have names, such as `one` for the first series. Matplotlib draws each in a placeholder colour, which is replaced by a variable of
the style sheet, so one chart serves light and dark screens. Text stays text, in the reader's fonts.
"""

import io
import itertools
import logging
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from xml.etree.ElementTree import Element, fromstring

import numpy as np

from miner.arrays import Floats
from miner.errors import require
from miner.report.page import element

require("matplotlib")

import matplotlib  # noqa: E402  # after the error for a missing package
from matplotlib.axes import Axes as Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: E402

COLOUR_NAMES = ("ink", "muted", "line", "one", "two", "three", "four", "five", "six")
PLACEHOLDERS = {name: f"#00000{number}" for number, name in enumerate(COLOUR_NAMES, start=1)}
SERIES = ("one", "two", "three", "four", "five", "six")  # colours of lines and bars, in order

WIDTH_INCHES, HEIGHT_INCHES = 5.0, 2.9  # 360 points wide, so text has its nominal size on a phone
MARGIN_INCHES = {"left": 0.5, "right": 0.14, "top": 0.3, "bottom": 0.5}
BARE_TOP_INCHES = 0.06  # above axes whose y axis has no label
CHARACTER_INCHES = 0.085  # mean width of a character of a label
MAX_LABEL_CHARACTERS = 24
MAX_HEAT_MAP_POINTS = 290  # height of all labels of a heat map
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "miner",  # makes the names of clip paths reproducible
    "text.parse_math": False,  # a $ in a name is a $
    "font.sans-serif": ["DejaVu Sans"],  # by which labels are measured
    "font.size": 10,
    "axes.unicode_minus": False,
    "axes.edgecolor": PLACEHOLDERS["muted"],
    "axes.labelcolor": PLACEHOLDERS["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.linewidth": 0.8,
    "grid.color": PLACEHOLDERS["line"],
    "text.color": PLACEHOLDERS["ink"],
    "xtick.color": PLACEHOLDERS["muted"],
    "ytick.color": PLACEHOLDERS["muted"],
    "xtick.labelcolor": PLACEHOLDERS["ink"],
    "ytick.labelcolor": PLACEHOLDERS["ink"],
    "xtick.bottom": False,
    "ytick.left": False,
    "lines.linewidth": 1.8,
}

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Intervals = Mapping[str, tuple[float, float]]  # both ends, by label

MAX_SHOWN = 200  # lines of a chart, or charts of a kind: figures of others may have any number
MAX_TICKS = 40  # with labels

_NAMESPACE = re.compile(r"\{[^}]*\}")
_PLACEHOLDER = re.compile(r"#00000([1-9])\b")
_REFERENCE = re.compile(r"(url\(#|^#)")


@contextmanager
def style() -> Iterator[None]:
    """Set the style of charts. Warnings are off: the browser sets labels in scripts for which matplotlib has no font."""
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def axes(x_label: str, y_label: str, height: float = HEIGHT_INCHES, labels: Sequence[str] = ()) -> Axes:
    """Return labelled axes; the y label is above them. `height` is in inches; `labels` reserve room on the left."""
    figure = Figure(figsize=(WIDTH_INCHES, height), facecolor="none")
    left = max([MARGIN_INCHES["left"], *(0.15 + CHARACTER_INCHES * min(len(label), MAX_LABEL_CHARACTERS) for label in labels)])
    vertical_margins = MARGIN_INCHES["bottom"] + (MARGIN_INCHES["top"] if y_label else BARE_TOP_INCHES)
    width_share = 1 - (left + MARGIN_INCHES["right"]) / WIDTH_INCHES
    position = (left / WIDTH_INCHES, MARGIN_INCHES["bottom"] / height, width_share, 1 - vertical_margins / height)
    ax = figure.add_axes(position, facecolor="none")
    ax.set_xlabel(x_label)
    ax.text(0, 1 + 0.08 / height, y_label, transform=ax.transAxes, verticalalignment="bottom", color=colour("muted"))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(_format_tick))
    return ax


def plane(height: float) -> Axes:
    """Return axes without scales, of a height in inches."""
    ax = Figure(figsize=(WIDTH_INCHES, height), facecolor="none").add_axes((0.01, 0.01, 0.98, 0.98), facecolor="none")
    ax.set_axis_off()
    return ax


def heat_map(name: str, labels: Sequence[str], matrix: Floats) -> Element:
    """Return the figure of a matrix (n, n) with the same labels on both sides; NaN cells are empty."""
    font_size = min(10.0, MAX_HEAT_MAP_POINTS / len(labels))
    label_inches = max(0.3, 0.1 + CHARACTER_INCHES * font_size / 10 * min(max(map(len, labels)), MAX_LABEL_CHARACTERS))
    side = WIDTH_INCHES - label_inches - MARGIN_INCHES["right"]
    height = side + MARGIN_INCHES["right"] + label_inches
    ax = axes("", "", height=height)
    ax.set_position((label_inches / WIDTH_INCHES, label_inches / height, side / WIDTH_INCHES, side / height))
    ax.imshow(matrix, cmap="viridis", aspect="auto", interpolation="nearest")
    short_labels = [_shorten(label) for label in labels]
    ax.set_xticks(range(len(labels)), short_labels, rotation=90, fontsize=font_size)
    ax.set_yticks(range(len(labels)), short_labels, fontsize=font_size)
    ax.grid(visible=False)
    off_diagonal = matrix[~np.eye(len(labels), dtype=bool)]
    return figure(name, ax, f"From {np.nanmin(off_diagonal):.3f} (dark) to {np.nanmax(off_diagonal):.3f} (bright).")


def shown(items: Iterable[Item], kind: str) -> list[Item]:
    """Return the first MAX_SHOWN items, and warn if there are more: drawing takes time and space for each."""
    first = list(itertools.islice(items, MAX_SHOWN + 1))
    if len(first) > MAX_SHOWN:
        logger.warning("report: only the first %d %s are drawn", MAX_SHOWN, kind)
    return first[:MAX_SHOWN]


def label_ticks(ax: Axes, labels: Sequence[str]) -> None:
    """Label the positions 0, 1, ... of the x axis; only some of many."""
    step = -(-len(labels) // MAX_TICKS)
    ax.set_xticks(range(0, len(labels), max(1, step)), labels[:: max(1, step)])


def set_log_scale(ax: Axes, name: str, low: float, high: float) -> None:
    """Make the axis `x` or `y` logarithmic from low to high, both above 0, with few ticks and plain numbers."""
    ax.set(**{f"{name}scale": "log", f"{name}lim": (low / 1.15, high * 1.15)})
    axis = ax.xaxis if name == "x" else ax.yaxis
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if len(powers) > 4 else (1, 3) if len(powers) > 3 else (1, 2, 5)
    ticks = [step * 10.0**power for power in powers for step in steps]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(_format_tick))
    axis.set_minor_locator(NullLocator())


def _format_tick(value: float, _: object = None) -> str:
    """Return a short number: 0.2, 1500, 20k, 3M."""
    for minimum, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= minimum:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def dashed_line(ax: Axes, x: float) -> None:
    """Draw a vertical line."""
    ax.axvline(x, color=colour("ink"), linestyle=(0, (4, 3)), linewidth=1)


def bars(ax: Axes, labels: Sequence[str], lengths: Mapping[str, Mapping[str, float]], intervals: Mapping[str, Intervals]) -> None:
    """Draw horizontal bars by colour and label: a row for each label, with the bars of all colours side by side."""
    height = 0.8 / len(lengths)
    for number, (name, by_label) in enumerate(lengths.items()):
        rows = {label: row - 0.4 + height * (number + 0.5) for row, label in enumerate(labels) if label in by_label}
        ax.barh(list(rows.values()), [by_label[label] for label in rows], color=colour(name), height=0.9 * height)
        ends = intervals.get(name, {})
        for label, row in rows.items():
            if label in ends:
                ax.plot(ends[label], [row] * 2, color=colour("ink"), linewidth=1)
    ax.set_yticks(range(len(labels)), [_shorten(label) for label in labels])
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")


def _shorten(label: str) -> str:
    """Return a label of at most MAX_LABEL_CHARACTERS, with both its ends, as either may distinguish it from others."""
    half = MAX_LABEL_CHARACTERS // 2
    return label if len(label) <= MAX_LABEL_CHARACTERS else f"{label[: half - 1]}…{label[-half:]}"


def colour(name: str) -> str:
    return PLACEHOLDERS[name]


def figure(name: str, ax: Axes, caption: str, legend: Mapping[str, str] | None = None) -> Element:
    """Return a chart with its caption and its legend, {label: colour}. `name` is unique in a page."""
    keys = [element("span", label, class_=f"key {colour}") for label, colour in (legend or {}).items()]
    return element("figure", _svg(name, ax.figure, caption), element("figcaption", *keys, element("span", caption)))


def _svg(name: str, drawing: Any, caption: str) -> Element:
    handle = io.BytesIO()
    drawing.savefig(handle, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = fromstring(handle.getvalue())
    for part in svg.iter():
        part.tag = _NAMESPACE.sub("", part.tag)
        part.attrib = {_NAMESPACE.sub("", key): _attribute(name, _NAMESPACE.sub("", key), value) for key, value in part.attrib.items()}
        if part.text and not part.text.strip():
            part.text = None
        part.tail = None
    for defs in svg.findall("defs"):
        for sheet in defs.findall("style"):
            defs.remove(sheet)
    svg.attrib = {"viewBox": svg.attrib["viewBox"], "role": "img", "aria-label": caption}
    return svg


def _attribute(name: str, key: str, value: str) -> str:
    """Prefix ids and references with the name of the chart, and replace placeholder colours by variables of the style sheet."""
    if key == "id":
        return f"{name}-{value}"
    if key == "style":
        value = _PLACEHOLDER.sub(lambda match: f"var(--{COLOUR_NAMES[int(match[1]) - 1]})", value)
    if key == "d":
        return " ".join(value.split())
    return _REFERENCE.sub(lambda match: f"{match[1]}{name}-", value)
