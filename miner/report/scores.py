"""The sections of a report on evaluations, from the figures that `miner eval --json` wrote to a directory."""

import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from miner.errors import StorageError
from miner.evaluation.task_base import BarChart, Chart, ValueTable
from miner.evaluation.tasks import TASKS, find_task
from miner.io import storage
from miner.mining.thresholds import wilson
from miner.report import charts, maps, thresholds
from miner.report.page import MALFORMED, Part, Section, element, table

SUITE = "suite"
BITEXT = "bitext"  # measures mined pairs and no encoder
BITEXT_CHART = BarChart(groups="suspects", value="share", caption="Share of the pairs that look wrong", is_share=True)
MAX_FILE_BYTES = 1 << 24
MAX_CHART_BARS = 40  # more are drawn as several charts
MAX_BAR_CHARTS = 25  # maximum number of charts of one task; the table has all figures

logger = logging.getLogger(__name__)

Figures = Mapping[str, Any]
Groups = Mapping[str, Figures]  # by group, such as a language


def read_part(folder: str) -> Part | None:
    """Return the charts of all evaluations in a folder, None if there are none. Malformed figures are left out, with a warning."""
    figures_by_name = read(folder)
    if not figures_by_name:
        return None
    drawn: list[Section] = []
    for number, (name, figures) in enumerate(charts.shown(figures_by_name.items(), "files of figures")):
        try:
            drawn += _sections(number, name, figures)
        except MALFORMED:
            logger.warning("%s.json is left out: not written by `miner eval`", name)
    return Part("Evaluation", [], drawn)


def read(folder: str) -> dict[str, Figures]:
    """Return the figures in a folder by file name without `.json`. Other JSON files are ignored."""
    figures_by_name: dict[str, Figures] = {}
    for name in storage.names_in(folder):
        if name.endswith(".json"):
            with contextlib.suppress(StorageError, ValueError, RecursionError):
                figures = json.loads(storage.read_bytes(storage.join(folder, name), MAX_FILE_BYTES))
                if isinstance(figures, dict) and _task_of(figures) is not None:
                    figures_by_name[name.removesuffix(".json")] = figures
    return figures_by_name


def _task_of(figures: Figures) -> str | None:
    """Return the name of the task that wrote these figures, None if no task did."""
    task = figures.get("task")
    return task if isinstance(task, str) and (task in TASKS or task in (BITEXT, SUITE)) else None


def find_chart(task: str) -> Chart:
    """Return the chart of a task by its name."""
    return BITEXT_CHART if task == BITEXT else find_task(task).CHART


def groups(chart: BarChart, figures: Figures) -> Groups:
    """Return the groups of a task's figures that have the value of its chart; of a group with several splits, the test split."""
    by_group = figures[chart.groups]
    if not isinstance(by_group, dict):
        return {}
    common = {"n": figures["n"]} if "n" in figures else {}
    rows = {}
    for name, row in by_group.items():
        if isinstance(row, dict):
            row = {**common, **(row["test"] if isinstance(row.get("test"), dict) else row)}
            if isinstance(row.get(chart.value), int | float):
                rows[name] = row
    return rows


def _sections(number: int, title: str, figures: Figures) -> list[Section]:
    task = str(_task_of(figures))
    if task == SUITE:
        return _suite_sections(f"suite-{number}", title, figures)
    chart = find_chart(task)
    if isinstance(chart, ValueTable):
        return [_value_table(title, chart, figures)]
    bars = _bar_section(f"task-{number}", title, chart, {title: groups(chart, figures)})
    if chart.details == "language_map":
        return [*maps.sections(f"map-{number}", figures), bars]
    if chart.details == "threshold_curves":
        return [bars, *thresholds.sections(f"curve-{number}", title, figures)]
    return [bars]


def _value_table(title: str, chart: ValueTable, figures: Figures) -> Section:
    rows = []
    for label, keys in chart.values.items():
        value: Any = figures
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:  # a task may have figures of one kind of input only
            rows.append([label, _cell(value)])
    return Section(title, chart.caption.format(**figures), [table(["", ""], rows)])


def _suite_sections(name: str, title: str, figures: Figures) -> list[Section]:
    """Return the scores of all encoders side by side, then the chart of each task with several groups."""
    encoders: Mapping[str, Mapping[str, Figures]] = {encoder: figures["encoders"][encoder] for encoder in figures["order"]}
    drawn = [_suite_scores(name, title, figures)]
    task_titles = list(dict.fromkeys(task_title for tasks in encoders.values() for task_title in tasks))
    for number, task_title in enumerate(charts.shown(task_titles, "tasks of a suite")):
        by_encoder = {encoder: tasks[task_title] for encoder, tasks in encoders.items() if task_title in tasks}
        task = next((task for task in map(_task_of, by_encoder.values()) if task), None)
        chart = find_chart(task) if task in (*TASKS, BITEXT) else None
        if isinstance(chart, BarChart):
            rows = {encoder: of_task for encoder, task_figures in by_encoder.items() if (of_task := groups(chart, task_figures))}
            if max(map(len, rows.values()), default=0) > 1:
                drawn.append(_bar_section(f"{name}-{number}", task_title, chart, rows))
    return drawn


def _suite_scores(name: str, title: str, figures: Figures) -> Section:
    """Draw the scores that are shares, as others would dwarf them; list all scores and, of two encoders, the differences."""
    scores: Mapping[str, Mapping[str, float]] = {encoder: figures["scores"][encoder] for encoder in figures["order"]}
    comparisons: Mapping[str, Any] = figures.get("comparisons", {})
    labels = list(dict.fromkeys(label for values in scores.values() for label in values))
    shares = [label for label in labels if all(0 <= values.get(label, 0) <= 1 for values in scores.values())]
    values = {encoder: {label: values[label] for label in shares if label in values} for encoder, values in scores.items()}
    ends = {
        encoder: {label: (comparisons[label][side]["low"], comparisons[label][side]["high"]) for label in shares if label in comparisons}
        for encoder, side in zip(scores, ("first", "second"), strict=False)
    }
    rows = []
    for label in labels:
        row = [label, *("" if label not in values else f"{values[label]:.4f}" for values in scores.values())]
        if label in comparisons:
            difference, p = comparisons[label]["difference"], comparisons[label]["p"]
            row += [f"{difference['value']:+.4f} [{difference['low']:+.4f}, {difference['high']:+.4f}]", f"{p:.3f}"]
        rows.append(row)
    note = "One score for each task. Higher is better, except for alignment."
    heads = ["", *scores]
    if comparisons:
        note += " Lines are 95 % confidence intervals, by the paired bootstrap."
        heads += ["difference", "p"]
    return Section(title, note, [*_bar_charts(name, "score", values, ends), table(heads, rows)])


def _bar_section(name: str, title: str, chart: BarChart, groups_by_encoder: Mapping[str, Groups]) -> Section:
    """Draw the value of every group, in the order of the first encoder's values; list all figures in a table."""
    first = next(iter(groups_by_encoder.values()))
    order = sorted(first, key=lambda group: (-first[group][chart.value], group))
    order += [group for rows in groups_by_encoder.values() for group in rows if group not in first]
    if not order:
        raise ValueError(f"no {chart.groups} with {chart.value}")
    values = {encoder: {group: rows[group][chart.value] for group in order if group in rows} for encoder, rows in groups_by_encoder.items()}
    ends = {
        encoder: {group: ends for group, row in rows.items() if (ends := interval(row, chart)) is not None}
        for encoder, rows in groups_by_encoder.items()
    }
    note = f"{chart.caption}." + (" Lines are 95 % confidence intervals (Wilson)." if any(ends.values()) else "")
    return Section(title, note, [*_bar_charts(name, chart.axis or chart.value, values, ends), _details(groups_by_encoder, order)])


def interval(row: Figures, chart: BarChart) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of a group's value; None if the value is not a share of a known number of items."""
    num_items = row.get("n")
    if not chart.is_share or not isinstance(num_items, int):
        return None
    low, high = wilson(np.array([float(row[chart.value])]), np.array([float(num_items)]))
    return float(low[0]), float(high[0])


def _details(groups_by_encoder: Mapping[str, Groups], order: Sequence[str]) -> Element:
    """Return a table of all figures, closed at first."""
    cells = [cell for rows in groups_by_encoder.values() for row in rows.values() for cell in row.items()]
    names = list(dict.fromkeys(name for name, value in cells if not isinstance(value, dict | list)))  # others are no figures
    prefixes = [f"{encoder}: " if len(groups_by_encoder) > 1 else "" for encoder in groups_by_encoder]
    heads = ["", *(f"{prefix}{name}" for prefix in prefixes for name in names)]
    rows = [[group, *(_cell(rows.get(group, {}).get(name)) for rows in groups_by_encoder.values() for name in names)] for group in order]
    return element("details", element("summary", "All figures"), table(heads, rows))


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else "" if value is None else str(value)


def _bar_charts(
    name: str, axis: str, values: Mapping[str, Mapping[str, float]], intervals: Mapping[str, charts.Intervals]
) -> list[Element]:
    """Draw a bar for each encoder and label, with its interval if there is one; at most MAX_CHART_BARS labels per chart."""
    labels = list(dict.fromkeys(label for by_label in values.values() for label in by_label))
    colours = dict(zip(values, charts.SERIES, strict=False))
    lengths = [length for by_label in values.values() for length in by_label.values()]
    lengths += [end for by_label in intervals.values() for ends in by_label.values() for end in ends]
    num_charts = -(-len(labels) // MAX_CHART_BARS)
    size = -(-len(labels) // num_charts) if labels else 1
    figures = []
    for start in range(0, len(labels), size)[:MAX_BAR_CHARTS]:
        shown = labels[start : start + size]
        ax = charts.axes(axis, "", height=0.7 + 0.2 * len(shown) * max(1, 0.7 * len(values)), labels=labels)
        lengths_by_colour = {colour: values[encoder] for encoder, colour in colours.items()}
        charts.bars(ax, shown, lengths_by_colour, {colour: intervals.get(encoder, {}) for encoder, colour in colours.items()})
        ax.set_xlim(1.05 * min(0.0, *lengths), 1.05 * max(0.0, *lengths) or 1)  # the same for all charts
        caption = "By encoder." if len(values) > 1 else "Sorted by value."
        caption += "" if num_charts == 1 else f" {shown[0]} to {shown[-1]}."
        figures.append(charts.figure(f"{name}-{start}", ax, caption, colours if len(values) > 1 else None))
    return figures
