"""The sections of a report on evaluations, from the figures that `miner eval --json` left in a folder."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from miner import storage
from miner.mining.thresholds import wilson
from miner.report import charts, maps, thresholds
from miner.report.page import Section, element, table

LARGEST = 1 << 24  # bytes: no figures are larger
BARS = 40  # of a picture: more are drawn side by side
LABELS = {"mean": "accuracy", "f1": "F1", "spearman": "Spearman's correlation"}  # of measures


@dataclass(frozen=True)
class ScoreChart:
    """Where an evaluation tells of its groups, such as languages; of them the one measure that is drawn, and what it is."""

    place: str
    measure: str
    told: str
    share: bool = False  # of as many things as `n` or `judged` says, so that it has an interval


BOTH_WAYS = "accuracy, the mean of both directions"  # its interval is that of one direction, which is the wider
KINDS = {  # by the figures they have
    frozenset({"languages", "average"}): ScoreChart("languages", "mean", BOTH_WAYS, share=True),
    frozenset({"n", "accuracy", "f1", "xsim"}): ScoreChart("accuracy", "mean", BOTH_WAYS, share=True),
    frozenset({"tracks", "mean", "all"}): ScoreChart("tracks", "spearman", "Spearman's correlation with what people say"),
    frozenset({"trained_on", "classes", "languages", "mean"}): ScoreChart("languages", "accuracy", "accuracy", share=True),
    frozenset({"trained_on", "n", "accuracy", "chance", "languages"}): ScoreChart(
        "languages", "accuracy", "share of the texts whose language is told", share=True
    ),
    frozenset({"languages", "mean"}): ScoreChart("languages", "purity", "purity of the clusters"),
    frozenset({"languages", "translations", "others", "map"}): ScoreChart(
        "languages", "cosine", "mean cosine with the mean of the translations"
    ),
    frozenset({"pairs", "mean"}): ScoreChart("pairs", "f1", "F1 on the test split, above the threshold chosen on the dev split"),
    frozenset({"suspects", "histogram", "repeats"}): ScoreChart("suspects", "share", "share of the pairs that look wrong", share=True),
}
SPREAD = frozenset({"n", "left_out", "alignment", "uniformity"})  # the figures of `miner eval alignment`, which has no groups

logger = logging.getLogger(__name__)

Group = Mapping[str, Any]


def read(folder: str) -> dict[str, dict[str, Any]]:
    """By file, without its ending, the figures in a folder; files of anything else are passed over."""
    found = {}
    for name in storage.names_in(folder):
        if name.endswith(".json"):
            figures = _figures(storage.join(folder, name))
            if _is_suite(figures) or groups(figures)[1] or figures.keys() == SPREAD:
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
    known = all(isinstance(told, dict) and told and all(isinstance(row, dict) for row in told.values()) for told in tables)
    return known and isinstance(figures.get("names"), list)


def groups(figures: Mapping[str, Any]) -> tuple[ScoreChart | None, dict[str, Group]]:
    """What kind of evaluation these figures are of, and by group its figures; none where they are of no kind that has groups."""
    told = figures.keys() - {"seconds"}
    kinds = [kind for names, kind in KINDS.items() if names == told or (names <= told and "suspects" in names)]
    if not kinds:
        return None, {}
    held = figures[kinds[0].place]
    common = {"n": figures["n"]} if "n" in figures else {}
    rows = {name: {**common, **_tested(row)} for name, row in held.items() if isinstance(row, dict)} if isinstance(held, dict) else {}
    return kinds[0], {name: row for name, row in rows.items() if isinstance(row.get(kinds[0].measure), int | float)}


def _tested(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The figures of a test set, where there is one apart."""
    test = row.get("test")
    return test if isinstance(test, dict) else row


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
    kind, rows = groups(figures)
    if kind is None:
        return [_spread(name, figures)]
    drawn = maps.sections(f"map-{number}", figures) if "translations" in figures else []
    curves = thresholds.sections(f"curve-{number}", name, figures) if kind.place == "pairs" else []
    return [*drawn, _groups(f"task-{number}", name, kind, {name: rows}), *curves]


def _spread(name: str, figures: Mapping[str, Any]) -> Section:
    rows = [
        ["alignment", _cell(figures["alignment"])],
        *([f"uniformity, {side}", _cell(figures["uniformity"][side])] for side in ("source", "target", "mean")),
    ]
    note = f"Of {figures['n']:,} lines and their translations: how near these are, and how evenly all are spread. Less is better."
    return Section(name, note, [table(["", ""], rows)])


def _suite(name: str, title: str, figures: Mapping[str, Any]) -> list[Section]:
    """The scores of all encoders side by side, then each task that has several groups."""
    encoders: Mapping[str, Mapping[str, Any]] = {name: figures["encoders"][name] for name in figures["names"]}
    made = [_scores(name, title, figures)]
    tasks = list(dict.fromkeys(task for tasks in encoders.values() for task in tasks))
    for number, task in enumerate(tasks):
        told = {encoder: groups(tasks.get(task, {})) for encoder, tasks in encoders.items()}
        kind = next((kind for kind, _ in told.values() if kind), None)
        rows = {encoder: rows for encoder, (_, rows) in told.items() if rows}
        if kind and rows and max(map(len, rows.values())) > 1:
            made.append(_groups(f"{name}-{number}", task, kind, rows))
    return made


def _scores(name: str, title: str, figures: Mapping[str, Any]) -> Section:
    scores: Mapping[str, Mapping[str, float]] = {name: figures["scores"][name] for name in figures["names"]}
    compared: Mapping[str, Any] = figures.get("compared", {})
    titles = list(dict.fromkeys(title for told in scores.values() for title in told))
    drawn = [title for title in titles if all(0 <= told.get(title, 0) <= 1 for told in scores.values())]
    values = {encoder: {title: told[title] for title in drawn if title in told} for encoder, told in scores.items()}
    ends = {encoder: intervals(side, compared, drawn) for encoder, side in zip(scores, ("one", "other"), strict=False)}
    rows = [[title, *(_number(told.get(title)) for told in scores.values()), *_difference(compared.get(title))] for title in titles]
    heads = ["", *scores, *(["difference", "p"] if compared else [])]
    note = (
        "Lines are 95 % intervals, by the paired bootstrap."
        if compared
        else "One figure for each task; more is better, but for those of alignment."
    )
    return Section(title, note, [*_bars(name, "score", values, ends), table(heads, rows)])


def intervals(side: str, compared: Mapping[str, Any], titles: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The ends of those of the first encoder, `one`, or of the second, `other`, by title of the score."""
    return {title: (compared[title][side]["low"], compared[title][side]["high"]) for title in titles if title in compared}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _difference(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return []
    difference = found["difference"]
    return [f"{difference['value']:+.4f} [{difference['low']:+.4f}, {difference['high']:+.4f}]", f"{found['p']:.3f}"]


def _groups(name: str, title: str, kind: ScoreChart, told: Mapping[str, Mapping[str, Group]]) -> Section:
    """The measure of every group, the best of the first encoder first; all figures in a table below."""
    measure, first = kind.measure, next(iter(told.values()))
    order = sorted(first, key=lambda group: (-first[group][measure], group))
    order += [group for rows in told.values() for group in rows if group not in first]
    values = {encoder: {group: rows[group][measure] for group in order if group in rows} for encoder, rows in told.items()}
    ends = {encoder: {group: _interval(rows[group], kind) for group in rows} for encoder, rows in told.items()}
    known = {encoder: {group: ends for group, ends in found.items() if ends is not None} for encoder, found in ends.items()}
    note = f"{kind.told[0].upper()}{kind.told[1:]}." + (" Lines are 95 % intervals (Wilson)." if any(known.values()) else "")
    return Section(title, note, [*_bars(name, measure, values, known), _numbers(told, order)])


def _interval(row: Group, kind: ScoreChart) -> tuple[float, float] | None:
    count = row.get("n", row.get("judged"))
    if not kind.share or not isinstance(count, int):
        return None
    low, high = wilson(np.array([float(row[kind.measure])]), np.array([float(count)]))
    return float(low[0]), float(high[0])


def _numbers(told: Mapping[str, Mapping[str, Group]], order: Sequence[str]) -> Any:
    measures = list(dict.fromkeys(name for rows in told.values() for row in rows.values() for name in row))
    heads = ["", *(f"{encoder}: {name}" if len(told) > 1 else name for encoder in told for name in measures)]
    rows = [[group, *(_cell(found.get(group, {}).get(name)) for found in told.values() for name in measures)] for group in order]
    return element("details", element("summary", "All figures"), table(heads, rows))


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else "" if value is None else str(value)


def _bars(
    name: str, measure: str, values: Mapping[str, Mapping[str, float]], ends: Mapping[str, Mapping[str, tuple[float, float]]]
) -> list[Element]:
    """By encoder and label a bar, those of one label side by side, with lines where their ends are known; at most BARS labels a picture."""
    labels = list(dict.fromkeys(label for told in values.values() for label in told))
    parts = dict(zip(values, charts.SERIES, strict=False))
    reached = [length for told in (values, ends) for one in told.values() for lengths in one.values() for length in np.atleast_1d(lengths)]
    size = -(-len(labels) // -(-len(labels) // BARS)) if labels else 1
    drawn = []
    for start in range(0, len(labels), size):
        shown = labels[start : start + size]
        ax = charts.axes(LABELS.get(measure, measure), "", height=0.7 + 0.2 * len(shown) * max(1, 0.7 * len(values)), labels=labels)
        charts.bars(ax, shown, [(part, _of(values[encoder], shown), _of(ends.get(encoder, {}), shown)) for encoder, part in parts.items()])
        ax.set_xlim(1.05 * min(0.0, *reached), 1.05 * max(0.0, *reached) or 1)  # alike in all pictures
        told = "" if len(labels) <= size else f" {shown[0]} to {shown[-1]}."
        told = f"By encoder.{told}" if len(values) > 1 else f"The largest first.{told}"
        drawn.append(charts.figure(f"{name}-{start}", ax, told, parts if len(values) > 1 else None))
    return drawn


def _of(values: Mapping[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    return {label: values[label] for label in labels if label in values}
