"""The sections of a report on mined pairs: margins, what is right among them, lengths, hubs and languages."""

from collections import Counter
from collections.abc import Sequence
from xml.etree.ElementTree import Element

import numpy as np

from miner.errors import ConfigError
from miner.evaluation.bitext import SIDES
from miner.evaluation.bitext_precision import GoldPairs, ReviewMarks, ReviewReport
from miner.evaluation.precision_recall import Bools, Curve, curve
from miner.filters import language
from miner.report import charts, marking, thresholds
from miner.report.mined_pairs import SCATTER, STEP, Floats, Histogram, MarginBins, MinedBitext, NeighbourCounts, Rows, Truth
from miner.report.page import Section, table, text

BINS = 60  # of a picture
LINE = 400  # points, at most
TOP = 5  # hubs told of each side, and languages


def sections(mined: MinedBitext, truth: Truth | None, identify: bool) -> list[Section]:
    """All of them. `identify` tells to look at the languages of some pairs, which takes a second to begin."""
    right = mined.right(truth) if isinstance(truth, GoldPairs) else None
    found = [_margins(mined, right)]
    if len(mined.margins):
        if isinstance(truth, GoldPairs) and right is not None:
            found.append(_by_gold(curve(mined.margins, right, len(truth.pairs) + truth.missing), truth))
        if isinstance(truth, ReviewMarks):
            found.append(_by_marks(mined, truth))
        found += [_yield(mined.margins), _lengths(mined, right)]
    crowds = mined.crowds()
    if crowds is not None and all(len(times.counts) for times in crowds.times.values()):
        found.append(_hubs(mined, crowds))
    if identify and len(mined.margins):
        found += _languages(mined)
    return [*found, marking.section(mined)] if len(mined.margins) else found


def _margins(mined: MinedBitext, right: Bools | None) -> Section:
    """Where the pairs lie, with the threshold, above what the best candidates of all sources have."""
    pairs, nearest = Histogram(), mined.nearest()
    pairs.add(mined.margins)
    both = [found for found in (pairs, nearest) if found is not None and found.bins]
    threshold = mined.manifest.config.get("threshold")
    if not both:
        return Section("Margins", "There are no pairs and no candidates to show.", [])
    edges = _edges(both)
    ax = charts.axes("margin", "pairs")
    keys: dict[str, str] = {}
    if nearest is not None:
        keys["best candidate of every source sentence"] = "muted"
        _outline(ax, nearest.by(edges))
    keys |= _filled(ax, mined.margins, right, edges)
    if threshold is not None:
        charts.upright(ax, threshold)
    told = "" if threshold is None else f"The dashed line is the threshold, {threshold:g}."
    note = "Right pairs stand apart from wrong ones where the grey outline has two hills; the threshold belongs into the valley."
    return Section("Margins", note, [charts.figure("margins", ax, told, keys)])


def _edges(found: Sequence[Histogram]) -> Floats:
    """Of at most BINS bins, each of as many fine ones."""
    low, high = min(one.bounds()[0] for one in found), max(one.bounds()[1] for one in found)
    steps = round((high - low) / STEP)
    width = max(1, -(-steps // BINS))
    return low + STEP * width * np.arange(-(-steps // width) + 1, dtype=np.float64)


def _outline(ax: charts.Axes, bins: MarginBins) -> None:
    ax.stairs(bins.counts, bins.edges, color=charts.colour("muted"), linewidth=1)


def _filled(ax: charts.Axes, margins: Floats, right: Bools | None, edges: Floats) -> dict[str, str]:
    """Pairs in bins; with gold the wrong ones below, the right ones on them."""
    every = np.histogram(margins, edges)[0]
    wrong = np.zeros_like(every) if right is None else np.histogram(margins[~right], edges)[0]
    ax.stairs(every, edges, baseline=wrong, fill=True, color=charts.colour("one"))
    if right is None:
        return {"pairs": "one"}
    ax.stairs(wrong, edges, fill=True, color=charts.colour("two"))
    return {"right": "one", "wrong": "two"}


def _by_gold(found: Curve, gold: GoldPairs) -> Section:
    rows = _spread(len(found.pairs))
    shares = {"precision": found.precision[rows], "recall": found.recall[rows], "f1": found.f1[rows]}
    best, told = found.best(), "No pair is right."
    if best is not None:
        told = f"The best F1 is {found.f1[best]:.4f}, above {found.thresholds[best]:.4f} (dashed)."
    dashed = None if best is None else float(found.thresholds[best])
    note = f"Against {len(gold.pairs) + gold.missing:,} gold pairs, from the threshold of mining upwards."
    return Section("Precision and recall", note, [thresholds.picture("gold", found.thresholds[rows], shares, dashed, told)])


def _by_marks(mined: MinedBitext, marks: ReviewMarks) -> Section:
    found = marks.judge(*mined.ids(), mined.margins)
    assert isinstance(found, ReviewReport)
    levels = found.figures()["marks"]["levels"]
    ax = charts.axes("margin", "share right")
    for level in levels:
        if level["precision"] is not None:
            middle = (level["from"] + level["to"]) / 2
            ax.plot([middle] * 2, level["interval"], color=charts.colour("one"), linewidth=1.5)
            ax.plot([level["from"], level["to"]], [level["precision"]] * 2, color=charts.colour("one"))
    ax.set_ylim(0, 1.02)
    marked = sum(level["judged"] for level in levels)
    note = f"By {marked:,} marks. A level spans its margins; the upright line is the 95 % interval of its share."
    rows = [
        [f"{level['from']:.4f} to {level['to']:.4f}", f"{level['pairs']:,}", str(level["judged"])]
        + ["" if share is None else f"{share:.3f}" for share in (level["precision"], level["precision_above"])]
        for level in levels
    ]
    figure = charts.figure("marks", ax, "The share of marked pairs that are right, by level of margin.")
    return Section("ReviewMarks", note, [figure, table(["margins", "pairs", "marked", "right", "right of all above"], rows)])


def _yield(margins: Floats) -> Section:
    ax = charts.axes("threshold", "pairs above")
    rows = _spread(len(margins))
    ax.step(margins[rows], rows + 1, where="post", color=charts.colour("one"))
    ax.set_ylim(0, None)
    quarter = margins[np.linspace(0, len(margins) - 1, 5).round().astype(int)]
    told = f"Half of the {len(margins):,} pairs lie above {quarter[2]:.4f}, a quarter above {quarter[1]:.4f}."
    return Section("Yield", "How many pairs a higher threshold would leave.", [charts.figure("yield", ax, told)])


def _spread(count: int) -> Rows:
    """At most LINE rows of so many, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, LINE)).round().astype(int))


def _lengths(mined: MinedBitext, right: Bools | None) -> Section:
    rows = np.unique(np.linspace(0, len(mined.margins) - 1, SCATTER).round().astype(int))
    sizes = [np.array([max(1, len(sentence)) for sentence in side]) for side in mined.texts(rows)]
    ax = charts.axes(f"characters, {mined.languages[0]}", f"characters, {mined.languages[1]}")
    ends = [min(map(min, sizes)), max(map(max, sizes))]
    for axis in ("x", "y"):
        charts.logarithmic(ax, axis, *ends)
    kinds = {"pairs": np.ones(len(rows), bool)} if right is None else {"right": right[rows], "wrong": ~right[rows]}
    for (_, kind), part in zip(kinds.items(), charts.SERIES, strict=False):
        ax.plot(sizes[0][kind], sizes[1][kind], ".", color=charts.colour(part), markersize=4, alpha=0.5, markeredgewidth=0)
    ax.plot(ends, ends, color=charts.colour("muted"), linewidth=0.8)
    told = f"{len(rows):,} pairs, evenly spread from the best to the last; on the line both sentences are equally long."
    note = "Translations lie along a line. Pairs far from it are worth a look."
    return Section("Lengths", note, [charts.figure("lengths", ax, told, dict(zip(kinds, charts.SERIES, strict=False)))])


def _hubs(mined: MinedBitext, crowds: NeighbourCounts) -> Section:
    ax = charts.axes("candidates, by k", "sentences in so many")
    least, most, many = 1.0, 1.0, 1.0
    for side, part in zip(SIDES, charts.SERIES, strict=False):
        values, counts = np.unique(crowds.times[side].counts / crowds.k, return_counts=True)
        above = counts[::-1].cumsum()[::-1] / crowds.share
        least, most, many = min(least, values[0]), max(most, values[-1]), max(many, above[0])
        ax.step(values, above, where="post", color=charts.colour(part))
    charts.logarithmic(ax, "x", least, most)
    charts.logarithmic(ax, "y", 1, many)
    keys = dict(zip((f"{side} ({lang})" for side, lang in zip(SIDES, mined.languages, strict=True)), charts.SERIES, strict=False))
    told = "" if crowds.share == 1 else f"Counted for {crowds.share:.2%} of the sentences, drawn by chance."
    note = "Sentences that are neighbours of far too many are short phrases and templates; their pairs are rarely right."
    figure = charts.figure("hubs", ax, told or "How many sentences stand in so many candidates or more.", keys)
    return Section("Hubs", note, [figure, table(["times k", "side", "sentence of a pair"], _crowded(mined, crowds))])


def _crowded(mined: MinedBitext, crowds: NeighbourCounts) -> list[list[str | Element]]:
    """The sentences of pairs that are in most candidates."""
    rows: list[list[str | Element]] = []
    for number, ids in enumerate(mined.ids()):
        times = crowds.times[SIDES[number]]
        places = np.searchsorted(times.ids, ids).clip(max=len(times.ids) - 1)
        counts = np.where(times.ids[places] == ids, times.counts[places], 0)
        first = np.unique(ids, return_index=True)[1]
        top = first[np.lexsort((first, -counts[first]))][:TOP]
        order = np.argsort(top)
        texts = dict(zip(top[order].tolist(), mined.texts(top[order])[number], strict=True))
        rows += [[f"{counts[row] / crowds.k:.1f}", SIDES[number], text(texts[row])] for row in top.tolist()]
    return rows


def _languages(mined: MinedBitext) -> list[Section]:
    """What language the sentences of some pairs seem to be in; nothing where no identifier is installed."""
    rows = np.unique(np.linspace(0, len(mined.margins) - 1, SCATTER).round().astype(int))
    try:
        found = [Counter(language.identify_languages(side)) for side in mined.texts(rows)]
    except ConfigError:
        return []
    bars = []
    for part, side, seen in zip(charts.SERIES, SIDES, found, strict=False):
        bars.append((part, {f"{side}: {code}": count / len(rows) for code, count in _most(seen)}))
    labels = [label for _, shares in bars for label in shares]
    ax = charts.axes("share of pairs", "", height=0.9 + 0.2 * len(labels), labels=labels)
    for part, shares in bars:
        charts.bars(ax, labels, [(part, shares, {})])
    told = f"Of {len(rows):,} pairs, evenly spread. The sides are told to be {mined.languages[0]} and {mined.languages[1]}."
    note = "As an identifier of languages sees single sentences: it errs, above all on short ones."
    return [Section("Languages", note, [charts.figure("languages", ax, told)])]


def _most(seen: Counter[str]) -> list[tuple[str, int]]:
    """The most frequent, without those that are less than a hundredth."""
    often = [(name, count) for name, count in seen.items() if 100 * count >= seen.total()]
    return sorted(often, key=lambda one: (-one[1], one[0]))[:TOP]
