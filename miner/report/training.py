"""The sections of a report on a training run, from its journal."""

import json
from collections.abc import Mapping
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from miner import storage
from miner.errors import DataError
from miner.report import charts
from miner.report.page import Section

JOURNAL = "log.jsonl"
POINTS = 400  # of a line, at most
RATES = {"lr": "Learning rate", "examples_per_second": "Speed"}
TOLD = {*RATES, "step", "examples", "score"}  # the rest are losses

Line = npt.NDArray[np.float64]  # (n, 2): steps, ascending, and values


def read(folder: str) -> dict[str, Line]:
    """By name what the journal of a run tells; empty where the folder has none. DataError where a line is none of a journal."""
    uri = storage.join(folder, JOURNAL)
    if not storage.exists(uri):
        return {}
    points: dict[str, list[tuple[float, float]]] = {}
    fs, path = storage.filesystem(uri)
    with fs.open(path, "rb") as handle:
        for number, line in enumerate(handle, start=1):
            step, values = _entry(uri, number, line)
            for name, value in values.items():
                points.setdefault(name, []).append((step, value))
    return {name: np.array(sorted(found)) for name, found in points.items()}


def _entry(uri: str, number: int, line: bytes) -> tuple[float, Mapping[str, float]]:
    try:
        entry = json.loads(line)
        return float(entry["step"]), {name: float(value) for name, value in entry.items() if name != "step"}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{uri}:{number}: no entry of a training journal; mend the line or take it out") from error


def sections(lines: Mapping[str, Line]) -> list[Section]:
    losses = {name: line for name, line in lines.items() if name not in TOLD}
    if set(losses) - {"loss"} and len(losses) == 2:
        losses = {"loss": losses["loss"]}  # of one term, which is the sum
    found = []
    if losses:
        last = {name: line[-1, 1] for name, line in losses.items()}
        told = ", ".join(f"{name} {value:.4f}" for name, value in last.items())
        found.append(_section("loss", "Loss", f"The mean of the steps between two entries. At the end: {told}.", losses))
    if "score" in lines:
        best = lines["score"][lines["score"][:, 1].argmax()]
        note = f"On held-out data. The best is {best[1]:.4f}, after step {best[0]:,.0f}: that encoder is kept."
        found.append(_section("score", "Score", note, {"score": lines["score"]}))
    for name, title in RATES.items():
        if name in lines:
            unit = "Of each step." if name == "lr" else "Examples a second, from the start on."
            found.append(_section(name.replace("_", "-"), title, unit, {title.lower(): lines[name]}))
    return found


def _section(name: str, title: str, note: str, lines: Mapping[str, Line]) -> Section:
    ax = charts.axes("step", title.lower())
    parts = dict(zip_longest(lines, charts.SERIES[: len(lines)], fillvalue="muted"))
    for label, line in lines.items():
        points = thin(line)
        ax.plot(points[:, 0], points[:, 1], color=charts.colour(parts[label]), marker="." if len(points) < 30 else "")
    return Section(title, note, [charts.figure(name, ax, f"{title} by step.", parts if len(lines) > 1 else None)])


def thin(line: Line) -> Line:
    """At most POINTS points, each the mean of as many neighbours."""
    if len(line) <= POINTS:
        return line
    return np.array([part.mean(axis=0) for part in np.array_split(line, POINTS)])


def facts(lines: Mapping[str, Line]) -> list[str]:
    steps = max(int(line[-1, 0]) for line in lines.values())
    examples = int(lines["examples"][-1, 1]) if "examples" in lines else None
    return [f"{steps:,} steps" + (f", {examples:,} examples" if examples is not None else "")]
