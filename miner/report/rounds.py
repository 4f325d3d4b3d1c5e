"""The sections of a report on a loop of mining and training: the figures of its rounds, from loop.json."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any
from xml.etree.ElementTree import Element

from miner.errors import DataError
from miner.io import records, storage
from miner.loop.figures import training_precision
from miner.report import charts
from miner.report.page import MALFORMED, Part, Section, table, text

LOOP = "loop.json"

Round = Mapping[str, Any]
Points = Sequence[tuple[int, float]]  # rounds and values


def read_part(folder: str) -> Part | None:
    """Return the result and the charts of a loop, None if there is none. Raises DataError for malformed figures."""
    uri = storage.join(folder, LOOP)
    if not storage.exists(uri):
        return None
    figures = records.read(uri, dict[str, Any])
    try:
        rounds: Sequence[Round] = figures["rounds"]
        labels = [f"{number:02d}" for number in range(len(rounds))]
        sections = [
            _dev_scores([figures["start"], *rounds], ["seed", *labels]),
            *_test_scores([figures["start"], *rounds], ["seed", *labels]),
        ]
        if rounds:
            sections += [_pairs(rounds, labels), _changes(rounds, labels), _examples(rounds, labels)]
        reason = f"; the loop stopped: {figures['stop_reason']}" if figures["stop_reason"] else ""
        return Part("Loop", [f"{len(rounds)} rounds, the best is {figures['best']}{reason}"], sections)
    except MALFORMED as error:
        raise DataError(f"{uri}: not the figures of a loop ({error!r}); run `miner loop` again with --resume") from error


def _dev_scores(rounds: Sequence[Round], labels: Sequence[str]) -> Section:
    """Draw the scores of each dev set by round, and their mean."""
    scored = [(number, figures["dev"]) for number, figures in enumerate(rounds) if figures.get("dev")]
    ax = charts.axes("round", "accuracy")
    names = list(dict.fromkeys(name for _, dev in scored for name in dev))
    for name in charts.shown(names, "dev sets"):
        _plot(ax, [(number, dev[name]) for number, dev in scored if name in dev], "muted", linewidth=0.8)
    if scored:
        _plot(ax, [(number, fmean(dev.values())) for number, dev in scored], "one")
    charts.label_ticks(ax, labels)
    figure = charts.figure("dev", ax, "Retrieval by ratio margin, both directions.", {"mean": "one", "each dev set": "muted"})
    rows = [[name, *(f"{dev[name]:.4f}" if name in dev else "" for _, dev in scored)] for name in names]
    note = "These scores select the encoder. A round with a lower mean is rolled back: the next round starts from the best one."
    return Section("Dev", note, [figure, table(["", *(labels[number] for number, _ in scored)], rows)])


def _test_scores(rounds: Sequence[Round], labels: Sequence[str]) -> list[Section]:
    """Draw the scores that select nothing."""
    lines: dict[str, Points] = {}
    for name in ("test", "tatoeba"):
        scores = [(number, figures[name]) for number, figures in enumerate(rounds) if figures.get(name)]
        if scores:
            lines[name] = [(number, fmean(score.values()) if isinstance(score, Mapping) else float(score)) for number, score in scores]
    if not lines:
        return []
    figure = _line_chart("test", charts.axes("round", "accuracy"), lines, labels, "The mean over the sets of each kind.")
    return [Section("Test", "Measured like dev, but used for no decision.", [figure])]


def _line_chart(name: str, ax: charts.Axes, lines: Mapping[str, Points], labels: Sequence[str], caption: str) -> Element:
    """Draw the lines that have points, each in a colour of its own."""
    legend = {line: colour for line, colour in zip(lines, charts.SERIES, strict=False) if lines[line]}
    for line, colour in legend.items():
        _plot(ax, lines[line], colour)
    charts.label_ticks(ax, labels)
    return charts.figure(name, ax, caption, legend)


def _plot(ax: charts.Axes, points: Points, colour: str, linewidth: float | None = None) -> None:
    ax.plot(*zip(*points, strict=True), color=charts.colour(colour), marker=".", linewidth=linewidth)


def _pairs(rounds: Sequence[Round], labels: Sequence[str]) -> Section:
    """Draw how many pairs each round was trained on, and list them by language pair."""
    selections = [figures["selection"] for figures in rounds]
    ax = charts.axes("round", "pairs")
    ax.bar(range(len(rounds)), [selection["training"] for selection in selections], color=charts.colour("one"), width=0.6)
    charts.label_ticks(ax, labels)
    names = dict.fromkeys(name for selection in selections for name in selection["pairs"])
    rows = [[name, *(_training_pairs(selection["pairs"].get(name)) for selection in selections)] for name in names]
    note = "Pairs on which each round trained; in the table by language pair, with their precision where gold is known."
    return Section("Pairs", note, [charts.figure("pairs", ax, "Training pairs."), table(["", *labels], rows)])


def _training_pairs(selection: Mapping[str, Any] | None) -> str:
    if selection is None:
        return ""
    return f"{selection['training']:,}" + (f" ({selection['precision']:.1%})" if "precision" in selection else "")


def _changes(rounds: Sequence[Round], labels: Sequence[str]) -> Section:
    """Draw how much each round differs from the one before, and the precision of its pairs."""
    shares = {
        "precision of the pairs": [training_precision(figures["selection"]) for figures in rounds],
        "Jaccard similarity of the pairs to the previous round's": [figures["changes"]["jaccard"] for figures in rounds],
        "drift of the encoder": [figures.get("drift") for figures in rounds],
    }
    lines = {name: [(number, value) for number, value in enumerate(values) if value is not None] for name, values in shares.items()}
    ax = charts.axes("round", "share")
    ax.set_ylim(0, 1.02)
    figure = _line_chart("change", ax, lines, labels, "Drift is 1 - linear CKA of the same sentences.")
    rows = []
    for label, figures in zip(labels, rounds, strict=True):
        counts = [f"{figures['changes'][kind]['pairs']:,}" for kind in ("gained", "lost")]
        rows.append([label, *counts, "yes" if figures.get("kept") else "no"])
    note = "When rounds select the same pairs and the encoder stops drifting, the loop has converged."
    return Section("Change", note, [figure, table(["round", "gained", "lost", "kept"], rows)])


def _examples(rounds: Sequence[Round], labels: Sequence[str]) -> Section:
    rows: list[list[str | Element]] = [
        [label, kind, pair["languages"], f"{pair['margin']:.4f}", text(pair["source_text"]), text(pair["target_text"])]
        for label, figures in zip(labels, rounds, strict=True)
        for kind in ("gained", "lost")
        for pair in figures["changes"][kind]["examples"]
    ]
    note = "Pairs that only this round selected (gained), or only the round before (lost)."
    return Section("Examples", note, [table(["round", "", "languages", "margin", "source", "target"], rows)])
