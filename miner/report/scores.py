"""The sections of a report on evaluations, from the figures that `miner eval --json` left in a folder."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from miner import storage
from miner.mining.thresholds import wilson
from miner.report import draw, maps
from miner.report.page import Section, element, table

LARGEST = 1 << 24  # bytes: no figures are larger
# Of an evaluation: what its groups, such as languages, are told under; in them the one measure that is drawn.
TASKS = {
    frozenset({"languages", "average"}): ("languages", "mean"),
    frozenset({"n", "accuracy", "f1", "xsim"}): ("accuracy", "mean"),
    frozenset({"tracks", "mean", "all"}): ("tracks", "spearman"),
    frozenset({"trained_on", "classes", "languages", "mean"}): ("languages", "accuracy"),
    frozenset({"trained_on", "n", "accuracy", "chance", "languages"}): ("languages", "accuracy"),
    frozenset({"languages", "mean"}): ("languages", "purity"),
    frozenset({"languages", "translations", "others", "map"}): ("languages", "cosine"),
    frozenset({"pairs", "mean"}): ("pairs", "f1"),
    frozenset({"suspects", "histogram", "repeats"}): ("suspects", "share"),
}
SHARES = ("accuracy", "share")  # of n things, so that they have an interval

logger = logging.getLogger(__name__)

Group = Mapping[str, Any]


def read(folder: str) -> dict[str, dict[str, Any]]:
    """By file, without its ending, the figures in a folder; files of anything else are passed over."""
    found = {}
    for name in storage.names_in(folder):
        if name.endswith(".json"):
            figures = _figures(storage.join(folder, name))
            if _is_suite(figures) or groups(figures)[1]:
                found[name.removesuffix(".json")] = figures
    return found


def _figures(uri: str) -> dict[str, Any]:
    fs, path = storage.filesystem(uri)
    try:
        if fs.size(path) > LARGEST:
            return {}
        with fs.open(path, "rb") as handle:
            value = json.loads(handle.read())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _is_suite(figures: Mapping[str, Any]) -> bool:
    tables = [figures.get("encoders"), figures.get("scores")]
    return all(isinstance(told, dict) and told and all(isinstance(row, dict) for row in told.values()) for told in tables)


def groups(figures: Mapping[str, Any]) -> tuple[str, dict[str, Group]]:
    """The measure that is drawn, and by group its figures; none where these are no figures of a task."""
    told = figures.keys() - {"seconds"}
    kinds = [kind for kind in TASKS if kind == told or (kind <= told and "suspects" in kind)]
    if not kinds:
        return "", {}
    place, measure = TASKS[kinds[0]]
    held = figures[place]
    rows = {name: row.get("test", row) for name, row in held.items() if isinstance(row, dict)} if isinstance(held, dict) else {}
    return measure, {name: row for name, row in rows.items() if isinstance(row.get(measure), int | float)}


def sections(found: Mapping[str, Mapping[str, Any]]) -> list[Section]:
    made: list[Section] = []
    for number, (name, figures) in enumerate(found.items()):
        try:
            made += _task(number, name, figures)
        except (KeyError, TypeError, ValueError, AttributeError):
            logger.warning("%s.json is left out: not what `miner eval` writes", name)
    return made


def _task(number: int, name: str, figures: Mapping[str, Any]) -> list[Section]:
    if _is_suite(figures):
        return _suite(f"suite-{number}", name, figures)
    measure, rows = groups(figures)
    drawn = maps.sections(f"map-{number}", figures) if "translations" in figures else []
    return [*drawn, _groups(f"task-{number}", name, measure, {name: rows})]


def _suite(name: str, title: str, figures: Mapping[str, Any]) -> list[Section]:
    """The scores of all encoders side by side, then each task that has several groups."""
    encoders: Mapping[str, Mapping[str, Any]] = figures["encoders"]
    made = [_scores(name, title, figures)]
    tasks = list(dict.fromkeys(task for tasks in encoders.values() for task in tasks))
    for number, task in enumerate(tasks):
        told = {encoder: groups(tasks.get(task, {})) for encoder, tasks in encoders.items()}
        measure = next((measure for measure, _ in told.values() if measure), "")
        rows = {encoder: rows for encoder, (_, rows) in told.items() if rows}
        if rows and max(map(len, rows.values())) > 1:
            made.append(_groups(f"{name}-{number}", task, measure, rows))
    return made


def _scores(name: str, title: str, figures: Mapping[str, Any]) -> Section:
    scores: Mapping[str, Mapping[str, float]] = figures["scores"]
    compared: Mapping[str, Any] = figures.get("compared", {})
    titles = list(dict.fromkeys(title for told in scores.values() for title in told))
    drawn = [title for title in titles if all(0 <= told.get(title, 0) <= 1 for told in scores.values())]
    values = {encoder: {title: told[title] for title in drawn if title in told} for encoder, told in scores.items()}
    ends = {
        encoder: {title: (compared[title][side]["low"], compared[title][side]["high"]) for title in drawn if title in compared}
        for encoder, side in zip(scores, ("one", "other"), strict=False)
    }
    rows = [[title, *(_number(told.get(title)) for told in scores.values()), *_difference(compared.get(title))] for title in titles]
    heads = ["", *scores, *(["difference", "p"] if compared else [])]
    note = (
        "Lines are 95 % intervals, by the paired bootstrap."
        if compared
        else "One figure for each task; more is better, but for those of alignment."
    )
    return Section(title, note, [_bars(name, "score", values, ends), table(heads, rows)])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _difference(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return []
    difference = found["difference"]
    return [f"{difference['value']:+.4f} [{difference['low']:+.4f}, {difference['high']:+.4f}]", f"{found['p']:.3f}"]


def _groups(name: str, title: str, measure: str, told: Mapping[str, Mapping[str, Group]]) -> Section:
    """The measure of every group, the best of the first encoder first; all figures in a table below."""
    first = next(iter(told.values()))
    order = sorted(first, key=lambda group: (-first[group][measure], group))
    order += [group for rows in told.values() for group in rows if group not in first]
    values = {encoder: {group: rows[group][measure] for group in order if group in rows} for encoder, rows in told.items()}
    ends = {encoder: {group: _interval(rows[group], measure) for group in rows} for encoder, rows in told.items()}
    known = {encoder: {group: ends for group, ends in found.items() if ends is not None} for encoder, found in ends.items()}
    note = f"{measure}, of 1." + (" Lines are 95 % intervals (Wilson)." if any(known.values()) else "")
    return Section(title, note, [_bars(name, measure, values, known), _numbers(told, order)])


def _interval(row: Group, measure: str) -> tuple[float, float] | None:
    count = row.get("n", row.get("judged"))
    if measure not in SHARES or not isinstance(count, int):
        return None
    low, high = wilson(np.array([float(row[measure])]), np.array([float(count)]))
    return float(low[0]), float(high[0])


def _numbers(told: Mapping[str, Mapping[str, Group]], order: Sequence[str]) -> Any:
    measures = list(dict.fromkeys(name for rows in told.values() for row in rows.values() for name in row))
    heads = ["", *(f"{encoder}: {name}" if len(told) > 1 else name for encoder in told for name in measures)]
    rows = [[group, *(_cell(found.get(group, {}).get(name)) for found in told.values() for name in measures)] for group in order]
    return element("details", element("summary", "All figures"), table(heads, rows))


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else "" if value is None else str(value)


def _bars(name: str, measure: str, values: Mapping[str, Mapping[str, float]], ends: Mapping[str, Mapping[str, tuple[float, float]]]) -> Any:
    """By encoder and label a bar, those of one label side by side, with lines where their ends are known."""
    labels = list(dict.fromkeys(label for told in values.values() for label in told))
    ax = draw.axes(measure, "", height=0.9 + 0.2 * len(labels) * max(1, 0.7 * len(values)), labels=labels)
    parts = dict(zip(values, draw.SERIES, strict=False))
    draw.bars(ax, labels, [(part, values[encoder], ends.get(encoder, {})) for encoder, part in parts.items()])
    told = f"{measure} of {', '.join(values)}." if len(values) > 1 else "The largest first."
    return draw.figure(name, ax, told, parts if len(values) > 1 else None)
