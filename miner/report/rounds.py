"""The sections of a report on a loop of mining and training: the figures of its rounds, from loop.json."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any
from xml.etree.ElementTree import Element

from miner.errors import DataError
from miner.io import records, storage
from miner.loop.figures import training_precision
from miner.report import charts
from miner.report.page import MALFORMED, Section, table, text

LOOP = "loop.json"

Round = Mapping[str, Any]


def read(folder: str) -> Mapping[str, Any] | None:
    """Return the figures of the loop in a folder; None if there is none."""
    uri = storage.join(folder, LOOP)
    return records.read(uri, dict[str, Any]) if storage.exists(uri) else None


def describe(folder: str, figures: Mapping[str, Any]) -> tuple[str, list[Section]]:
    """Return the result of the loop in one line, and its sections. Raise DataError for malformed figures."""
    try:
        rounds: Sequence[Round] = figures["rounds"]
        sections = [_dev_scores(figures["start"], rounds), *_test_scores(figures["start"], rounds)]
        if rounds:
            sections += [_pairs(rounds), _changes(rounds), _examples(rounds)]
        reason = f"; the loop stopped: {figures['stop_reason']}" if figures["stop_reason"] else ""
        return f"{len(rounds)} rounds, the best is {figures['best']}{reason}", sections
    except MALFORMED as error:
        raise DataError(
            f"{storage.join(folder, LOOP)}: not the figures of a loop ({error!r}); run `miner loop` again with --resume"
        ) from error


def _dev_scores(start: Round, rounds: Sequence[Round]) -> Section:
    """Draw the scores of each dev set by round, and their mean."""
    labels = ["seed", *_labels(rounds)]
    scored = [(number, figures["dev"]) for number, figures in enumerate([start, *rounds]) if figures.get("dev")]
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


def _plot(ax: charts.Axes, points: Sequence[tuple[int, float]], colour: str, linewidth: float | None = None) -> None:
    ax.plot(*zip(*points, strict=True), color=charts.colour(colour), marker=".", linewidth=linewidth)


def _test_scores(start: Round, rounds: Sequence[Round]) -> list[Section]:
    """Draw the scores that select nothing."""
    lines = {}
    for name in ("test", "tatoeba"):
        points = [(number, _mean(figures[name])) for number, figures in enumerate([start, *rounds]) if figures.get(name)]
        if points:
            lines[name] = points
    if not lines:
        return []
    ax = charts.axes("round", "accuracy")
    legend = dict(zip(lines, charts.SERIES, strict=False))
    for name, points in lines.items():
        _plot(ax, points, legend[name])
    charts.label_ticks(ax, ["seed", *_labels(rounds)])
    figure = charts.figure("test", ax, "The mean over the sets of each kind.", legend)
    return [Section("Test", "Measured like dev, but used for no decision.", [figure])]


def _mean(value: Any) -> float:
    return fmean(value.values()) if isinstance(value, Mapping) else float(value)


def _labels(rounds: Sequence[Round]) -> list[str]:
    return [f"{number:02d}" for number in range(len(rounds))]


def _pairs(rounds: Sequence[Round]) -> Section:
    """Draw how many pairs each round was trained on, and list them by language pair."""
    labels = _labels(rounds)
    ax = charts.axes("round", "pairs")
    ax.bar(range(len(rounds)), [figures["selection"]["training"] for figures in rounds], color=charts.colour("one"), width=0.6)
    charts.label_ticks(ax, labels)
    names = list(dict.fromkeys(name for figures in rounds for name in figures["selection"]["pairs"]))
    rows = [[name, *(_training_pairs(figures["selection"]["pairs"].get(name)) for figures in rounds)] for name in names]
    note = "Pairs on which each round trained; in the table by language pair, with their precision where gold is known."
    return Section("Pairs", note, [charts.figure("pairs", ax, "Training pairs."), table(["", *labels], rows)])


def _training_pairs(selection: Mapping[str, Any] | None) -> str:
    if selection is None:
        return ""
    return f"{selection['training']:,}" + (f" ({selection['precision']:.1%})" if "precision" in selection else "")


def _changes(rounds: Sequence[Round]) -> Section:
    """Draw how much each round differs from the one before, and the precision of its pairs."""
    lines: dict[str, list[tuple[int, float]]] = {
        name: [(number, value) for number, value in enumerate(values) if value is not None]
        for name, values in (
            ("precision of the pairs", (training_precision(figures["selection"]) for figures in rounds)),
            ("Jaccard similarity of the pairs to the previous round's", (figures["changes"]["jaccard"] for figures in rounds)),
            ("drift of the encoder", (figures.get("drift") for figures in rounds)),
        )
    }
    ax = charts.axes("round", "share")
    legend = {name: colour for (name, points), colour in zip(lines.items(), charts.SERIES, strict=False) if points}
    for name, colour in legend.items():
        _plot(ax, lines[name], colour)
    ax.set_ylim(0, 1.02)
    charts.label_ticks(ax, _labels(rounds))
    rows = []
    for label, figures in zip(_labels(rounds), rounds, strict=True):
        num_gained, num_lost = (figures["changes"][kind]["pairs"] for kind in ("gained", "lost"))
        rows.append([label, f"{num_gained:,}", f"{num_lost:,}", "yes" if figures.get("kept") else "no"])
    note = "When rounds select the same pairs and the encoder stops drifting, the loop has converged."
    figure = charts.figure("change", ax, "Drift is 1 - linear CKA of the same sentences.", legend)
    return Section("Change", note, [figure, table(["round", "gained", "lost", "kept"], rows)])


def _examples(rounds: Sequence[Round]) -> Section:
    rows: list[list[str | Element]] = []
    for label, figures in zip(_labels(rounds), rounds, strict=True):
        for kind in ("gained", "lost"):
            for pair in figures["changes"][kind]["examples"]:
                sides = [text(pair["source_text"]), text(pair["target_text"])]
                rows.append([label, kind, pair["languages"], f"{pair['margin']:.4f}", *sides])
    note = "Pairs that only this round selected (gained), or only the round before (lost)."
    return Section("Examples", note, [table(["round", "", "languages", "margin", "source", "target"], rows)])
