"""The sections of a report on a training run, from its journal."""

import json
from collections.abc import Mapping
from itertools import zip_longest

import numpy as np

from miner.arrays import Floats
from miner.errors import DataError
from miner.io import storage
from miner.report import charts
from miner.report.page import MALFORMED, Part, Section

JOURNAL = "log.jsonl"
MAX_LINE_POINTS = 400
RATES = {
    "lr": ("Learning rate", "At each step."),
    "examples_per_second": ("Speed", "Mean number of examples per second since the start."),
}
NOT_LOSSES = {*RATES, "step", "examples", "cut_texts", "score"}
COUNTS_OF_SOURCES = ("examples/", "epochs/")
MORE_SCORES = "score/"

Line = Floats  # (n, 2): steps, ascending, and values


def read_part(folder: str) -> Part | None:
    """Return the charts of a training run, None if there is no journal. Raises DataError for a malformed one."""
    lines = read(folder)
    if not lines:
        return None
    try:
        steps = max(int(line[-1, 0]) for line in lines.values())
        examples = f", {int(lines['examples'][-1, 1]):,} examples" if "examples" in lines else ""
        return Part("Training", [f"{steps:,} steps{examples}"], _sections(lines))
    except MALFORMED as error:
        raise DataError(f"{storage.join(folder, JOURNAL)}: not the journal of a training run ({error!r}); delete it") from error


def read(folder: str) -> dict[str, Line]:
    """Return the lines of a run's journal by name; empty if the folder has none. Raises DataError for a malformed entry."""
    uri = storage.join(folder, JOURNAL)
    if not storage.exists(uri):
        return {}
    points: dict[str, list[tuple[float, float]]] = {}
    for number, text in enumerate(storage.read_bytes(uri).splitlines(), start=1):
        try:
            entry = {name: float(value) for name, value in json.loads(text).items()}
            step = entry.pop("step")
        except MALFORMED as error:
            raise DataError(f"{uri}:{number}: not an entry of a training journal; fix or remove the line") from error
        for name, value in entry.items():
            points.setdefault(name, []).append((step, value))
    return {name: np.array(sorted(of_name)) for name, of_name in points.items()}


def _sections(lines: Mapping[str, Line]) -> list[Section]:
    kinds = (
        (name, line) for name, line in lines.items() if name not in NOT_LOSSES and not name.startswith((*COUNTS_OF_SOURCES, MORE_SCORES))
    )
    losses = dict(charts.shown(kinds, "losses"))
    if set(losses) - {"loss"} and len(losses) == 2:
        losses = {"loss": losses["loss"]}  # the only term equals the sum
    drawn = []
    if losses:
        last_values = ", ".join(f"{name} {line[-1, 1]:.4f}" for name, line in losses.items())
        drawn.append(_section("loss", "Loss", f"The mean over the steps between two entries. At the end: {last_values}.", losses))
    if "score" in lines:
        best = lines["score"][lines["score"][:, 1].argmax()]
        note = f"On held-out data. The best is {best[1]:.4f}, after step {best[0]:,.0f}; that encoder is kept."
        more = {name: line for name, line in lines.items() if name.startswith(MORE_SCORES)}
        drawn.append(_section("score", "Score", note, {"score": lines["score"], **dict(charts.shown(more.items(), "scores"))}))
    for name, (title, note) in RATES.items():
        if name in lines:
            drawn.append(_section(name.replace("_", "-"), title, note, {title.lower(): lines[name]}))
    return drawn


def _section(name: str, title: str, note: str, lines: Mapping[str, Line]) -> Section:
    ax = charts.axes("step", title.lower())
    legend = dict(zip_longest(lines, charts.SERIES[: len(lines)], fillvalue="muted"))
    for label, line in lines.items():
        points = thin(line)
        ax.plot(points[:, 0], points[:, 1], color=charts.colour(legend[label]), marker="." if len(points) < 30 else "")
    return Section(title, note, [charts.figure(name, ax, f"{title} by step.", legend if len(lines) > 1 else None)])


def thin(line: Line) -> Line:
    """Return at most MAX_LINE_POINTS points: means of equally many neighbouring points."""
    if len(line) <= MAX_LINE_POINTS:
        return line
    return np.array([part.mean(axis=0) for part in np.array_split(line, MAX_LINE_POINTS)])
