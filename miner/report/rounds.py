"""The sections of a report on a loop: what its rounds came to, from loop.json."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any
from xml.etree.ElementTree import Element

from miner import storage
from miner.errors import DataError
from miner.report import charts
from miner.report.page import Section, table, text

LOOP = "loop.json"

Round = Mapping[str, Any]


def read(folder: str) -> Mapping[str, Any] | None:
    """The figures of the loop in a folder; None where there is none."""
    uri = storage.join(folder, LOOP)
    return storage.read_json(uri) if storage.exists(uri) else None


def describe(folder: str, figures: Mapping[str, Any]) -> tuple[str, list[Section]]:
    """The loop in a line, and its sections. DataError where these are no figures of a loop."""
    try:
        rounds: Sequence[Round] = figures["rounds"]
        made = [_curves(figures["start"], rounds), *_tested(figures["start"], rounds)]
        if rounds:
            made += [_pairs(rounds), _changes(rounds), _examples(rounds)]
        ended = f"; the loop ended: {figures['stopped']}" if figures["stopped"] else ""
        return f"{len(rounds)} rounds, the best is {figures['best']}{ended}", made
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{storage.join(folder, LOOP)}: no figures of a loop ({error!r}); run `miner loop` again with --resume") from error


def _curves(start: Round, rounds: Sequence[Round]) -> Section:
    """Dev by round: every set by itself, and their mean."""
    named = [("seed", start), *((f"{number:02d}", told) for number, told in enumerate(rounds))]
    scored = [(place, name, told["dev"]) for place, (name, told) in enumerate(named) if told.get("dev")]
    ax = charts.axes("round", "accuracy")
    names = list(dict.fromkeys(name for _, _, dev in scored for name in dev))
    for name in names:
        line = [(place, dev[name]) for place, _, dev in scored if name in dev]
        ax.plot(*zip(*line, strict=True), color=charts.colour("muted"), linewidth=0.8, marker=".")
    ax.plot([place for place, _, _ in scored], [fmean(dev.values()) for _, _, dev in scored], color=charts.colour("one"), marker=".")
    ax.set_xticks(range(len(named)), [name for name, _ in named])
    figure = charts.figure("dev", ax, "Retrieval by ratio margin, both ways.", {"mean": "one", "each dev set": "muted"})
    rows = [[one, *(f"{dev[one]:.4f}" if one in dev else "" for _, _, dev in scored)] for one in names]
    note = (
        "By these the loop decides which encoder is better. A round that is worse is rolled back: the next starts from the last good one."
    )
    return Section("Dev", note, [figure, table(["", *(name for _, name, _ in scored)], rows)])


def _tested(start: Round, rounds: Sequence[Round]) -> list[Section]:
    """What is measured and decides nothing."""
    lines = {}
    for name in ("test", "tatoeba"):
        values = [(place, _mean(told[name])) for place, told in enumerate([start, *rounds]) if told.get(name)]
        if values:
            lines[name] = values
    if not lines:
        return []
    ax = charts.axes("round", "accuracy")
    keys = dict(zip(lines, charts.SERIES, strict=False))
    for name, values in lines.items():
        ax.plot(*zip(*values, strict=True), color=charts.colour(keys[name]), marker=".")
    ax.set_xticks(range(len(rounds) + 1), ["seed", *_numbers(rounds)])
    return [Section("Test", "Measured alike; it decides nothing.", [charts.figure("test", ax, "The mean of each kind of test.", keys)])]


def _mean(value: Any) -> float:
    return fmean(value.values()) if isinstance(value, Mapping) else float(value)


def _numbers(rounds: Sequence[Round]) -> list[str]:
    return [f"{number:02d}" for number in range(len(rounds))]


def _pairs(rounds: Sequence[Round]) -> Section:
    """How much each round learnt from, by pair of languages where these are few."""
    labels = _numbers(rounds)
    ax = charts.axes("round", "pairs")
    ax.bar(range(len(rounds)), [told["selection"]["learnt"] for told in rounds], color=charts.colour("one"), width=0.6)
    ax.set_xticks(range(len(rounds)), labels)
    names = list(dict.fromkeys(name for told in rounds for name in told["selection"]["pairs"]))
    rows = [[name, *(_selected(told["selection"]["pairs"].get(name)) for told in rounds)] for name in names]
    note = "What each round selected to learn from; in the table by pair of languages, with the share that is right where gold tells."
    return Section("Pairs", note, [charts.figure("pairs", ax, "Pairs learnt from."), table(["", *labels], rows)])


def _selected(told: Mapping[str, Any] | None) -> str:
    if told is None:
        return ""
    return f"{told['selected']:,}" + (f" ({told['precision']:.1%})" if "precision" in told else "")


def _changes(rounds: Sequence[Round]) -> Section:
    """How a round differs from the one before, and how many of its pairs are right, where that is known."""
    ax = charts.axes("round", "share")
    names = ("pairs that are right", "pairs of the round before (Jaccard)", "drift of the encoder")
    lines: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
    for place, told in enumerate(rounds):
        known = [pair for pair in told["selection"]["pairs"].values() if "precision" in pair and pair["selected"]]
        found = sum(pair["selected"] for pair in known)
        right = sum(pair["precision"] * pair["selected"] for pair in known) / found if found else None
        for line, value in zip(lines.values(), (right, told["changes"]["jaccard"], told.get("drift")), strict=True):
            if value is not None:
                line.append((place, value))
    keys = {name: part for (name, line), part in zip(lines.items(), charts.SERIES, strict=False) if line}
    for name, part in keys.items():
        ax.plot(*zip(*lines[name], strict=True), color=charts.colour(part), marker=".")
    ax.set_ylim(0, 1.02)
    ax.set_xticks(range(len(rounds)), _numbers(rounds))
    heads = ["round", "gained", "lost", "kept"]
    rows = [[label, *_counts(told)] for label, told in zip(_numbers(rounds), rounds, strict=True)]
    note = "Rounds that select the same pairs, and an encoder that stays where it is, have nothing more to learn."
    return Section(
        "Change", note, [charts.figure("change", ax, "Drift is one less linear CKA of the same sentences.", keys), table(heads, rows)]
    )


def _counts(told: Round) -> list[str]:
    """Pairs gained and lost against the round before, and whether its encoder was kept."""
    changes = told["changes"]
    return [f"{changes['gained']['pairs']:,}", f"{changes['lost']['pairs']:,}", "yes" if told.get("kept") else "no"]


def _examples(rounds: Sequence[Round]) -> Section:
    rows: list[list[str | Element]] = []
    for label, told in zip(_numbers(rounds), rounds, strict=True):
        for kind in ("gained", "lost"):
            for pair in told["changes"][kind]["examples"]:
                sides = [text(pair["source_text"]), text(pair["target_text"])]
                rows.append([label, kind, pair["languages"], f"{pair['margin']:.4f}", *sides])
    note = "Some pairs that a round selected and the one before did not, and the other way round."
    return Section("Examples", note, [table(["round", "", "languages", "margin", "source", "target"], rows)])
