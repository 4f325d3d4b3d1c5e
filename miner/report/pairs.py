"""The sections of a report on mined pairs: margins, precision, lengths, hubs and languages."""

from collections import Counter
from collections.abc import Sequence
from xml.etree.ElementTree import Element

import numpy as np

from miner.arrays import Bools, Floats, spaced_rows
from miner.errors import ConfigError
from miner.evaluation.bitext_precision import GoldReport, KnownPairs, ReviewReport, measure_precision
from miner.evaluation.hub_counts import SIDES, HubCounts
from miner.evaluation.marks import Agreement, ReviewMarks
from miner.evaluation.reliability import Reliability
from miner.filters import language
from miner.mining.gold import GoldPairs
from miner.mining.histogram import BIN_WIDTH, Histogram
from miner.report import charts, marking, thresholds
from miner.report.mined_pairs import MAX_SAMPLE_PAIRS, MinedBitext
from miner.report.page import Section, table, text

MAX_CHART_BINS = 60
MAX_LINE_POINTS = 400
MAX_LANGUAGES = 5  # of each side
MIN_LANGUAGE_PERCENT = 1


def sections(mined: MinedBitext, known_pairs: KnownPairs | None, identify: bool, sample_pairs: int) -> list[Section]:
    """Return all sections. `identify` includes the languages of a sample, whose identifier takes a second to load."""
    is_right = known_pairs.is_gold(*mined.ids()) if isinstance(known_pairs, GoldPairs) else None
    margins = _margins(mined, is_right)
    hub_counts = mined.hub_counts()
    hubs = [_hubs(mined, hub_counts)] if hub_counts and all(len(side.counts) for side in hub_counts.sides.values()) else []
    if not len(mined.margins):
        return [margins, *hubs]
    precision = _precision(mined, known_pairs) if known_pairs is not None else []
    languages = _languages(mined) if identify else []
    form = marking.section(mined, known_pairs if isinstance(known_pairs, ReviewMarks) else None, sample_pairs)
    return [margins, *precision, _yield(mined.margins), _lengths(mined, is_right), *hubs, *languages, form]


def _margins(mined: MinedBitext, is_right: Bools | None) -> Section:
    """Draw the margins of the pairs, the threshold, and the best margins of all source sentences."""
    pairs, best = Histogram(), mined.best_margins()
    pairs.add(mined.margins)
    histograms = [histogram for histogram in (pairs, best) if histogram is not None and histogram.bins]
    threshold = mined.manifest.config.get("threshold")
    if not histograms:
        return Section("Margins", "There are no pairs and no candidates to show.", [])
    edges = _bin_edges(histograms)
    ax = charts.axes("margin", "pairs")
    legend: dict[str, str] = {}
    if best is not None:
        legend["best candidate of every source sentence"] = "muted"
        ax.stairs(best.rebin(edges).counts, edges, color=charts.colour("muted"), linewidth=1)
    legend |= _fill_bins(ax, mined.margins, is_right, edges)
    if threshold is not None:
        charts.dashed_line(ax, threshold)
    caption = "" if threshold is None else f"The dashed line is the threshold, {threshold:g}."
    note = "If the grey outline has two modes, they separate right pairs from wrong ones; the threshold belongs between them."
    return Section("Margins", note, [charts.figure("margins", ax, caption, legend)])


def _bin_edges(histograms: Sequence[Histogram]) -> Floats:
    """Return the edges of at most MAX_CHART_BINS bins, whose width is a multiple of BIN_WIDTH."""
    bounds = [histogram.bounds() for histogram in histograms]
    low, high = min(bound[0] for bound in bounds), max(bound[1] for bound in bounds)
    num_steps = round((high - low) / BIN_WIDTH)
    steps_per_bin = max(1, -(-num_steps // MAX_CHART_BINS))
    return low + BIN_WIDTH * steps_per_bin * np.arange(-(-num_steps // steps_per_bin) + 1, dtype=np.float64)


def _fill_bins(ax: charts.Axes, margins: Floats, is_right: Bools | None, edges: Floats) -> dict[str, str]:
    """Draw filled bins, with gold the right pairs stacked on the wrong ones; return the legend."""
    counts = np.histogram(margins, edges)[0]
    wrong = np.zeros_like(counts) if is_right is None else np.histogram(margins[~is_right], edges)[0]
    ax.stairs(counts, edges, baseline=wrong, fill=True, color=charts.colour("one"))
    if is_right is None:
        return {"pairs": "one"}
    ax.stairs(wrong, edges, fill=True, color=charts.colour("two"))
    return {"right": "one", "wrong": "two"}


def _precision(mined: MinedBitext, known_pairs: KnownPairs) -> list[Section]:
    report = measure_precision(known_pairs, mined.ids(), mined.margins, mined.probabilities)
    if isinstance(report, ReviewReport):
        return [_marks_section(report)]
    return [_gold_section(report), *([_calibration_section(report.calibration)] if report.calibration is not None else [])]


def _calibration_section(calibration: Reliability) -> Section:
    """Draw the reliability diagram."""
    ax = charts.axes("probability", "share right")
    ax.plot([0, 1], [0, 1], color=charts.colour("muted"), linewidth=0.8)
    ax.plot(calibration.probabilities, calibration.precision, color=charts.colour("one"), marker="o", markersize=4)
    ax.set_xlim(0, 1.02)
    ax.set_ylim(0, 1.02)
    caption = f"The expected calibration error is {calibration.error:.3f}. On the line, the probability is the share of right pairs."
    rows: list[list[str | Element]] = [
        [f"{mean:.2f}", f"{precision:.2f}", f"{pairs:,}"]
        for mean, precision, pairs in zip(calibration.probabilities, calibration.precision, calibration.pairs.tolist(), strict=True)
    ]
    note = "Pairs in ten intervals of their probability, against gold. Above the line, more of them are right than it says."
    figure = charts.figure("calibration", ax, caption)
    return Section("Calibration", note, [figure, table(["mean probability", "share right", "pairs"], rows)])


def _gold_section(report: GoldReport) -> Section:
    curve = report.curve
    rows = spaced_rows(len(curve.pairs), MAX_LINE_POINTS)
    shares = {"precision": curve.precision[rows], "recall": curve.recall[rows], "f1": curve.f1[rows]}
    best, caption = curve.best(), "No pair is correct."
    if best is not None:
        caption = f"The best F1 is {curve.f1[best]:.4f}, above {curve.thresholds[best]:.4f} (dashed)."
    marked = None if best is None else float(curve.thresholds[best])
    note = f"Against {report.num_gold:,} gold pairs, from the threshold of mining upwards."
    return Section("Precision and recall", note, [thresholds.chart("gold", curve.thresholds[rows], shares, marked, caption)])


def _marks_section(report: ReviewReport) -> Section:
    levels = report.figures()["marks"]["levels"]
    ax = charts.axes("margin", "share right")
    for level in levels:
        if level["precision"] is not None:
            middle = (level["min_margin"] + level["max_margin"]) / 2
            ax.plot([middle] * 2, level["interval"], color=charts.colour("one"), linewidth=1.5)
            ax.plot([level["min_margin"], level["max_margin"]], [level["precision"]] * 2, color=charts.colour("one"))
    ax.set_ylim(0, 1.02)
    note = f"From {report.num_marked:,} marked pairs. Horizontal lines span the margins of a level, vertical ones its 95 % interval."
    rows: list[list[str | Element]] = [
        [
            f"{level['min_margin']:.4f} to {level['max_margin']:.4f}",
            f"{level['pairs']:,}",
            str(level["marked"]),
            *(_interval(level[f"precision{part}"], level[f"interval{part}"]) for part in ("", "_above")),
        ]
        for level in levels
    ]
    figure = charts.figure("marks", ax, "The share of marked pairs that are right, by level of margin.")
    body = [figure, table(["margins", "pairs", "marked", "right", "right of all above"], rows)]
    return Section("Marks", note, [*body, *([_agreement_table(report.agreements)] if report.agreements else [])])


def _interval(share: float | None, interval: tuple[float, float]) -> str:
    return "" if share is None else f"{share:.3f} ({interval[0]:.3f}-{interval[1]:.3f})"


def _agreement_table(agreements: Sequence[Agreement]) -> Element:
    rows: list[list[str | Element]] = [
        [
            *agreement.uris,
            f"{agreement.num_pairs:,}",
            f"{agreement.num_equal:,}",
            "" if agreement.kappa is None else f"{agreement.kappa:.3f}",
        ]
        for agreement in agreements
    ]
    return table(["marks", "and", "pairs in both", "equal marks", "Cohen's kappa"], rows)


def _yield(margins: Floats) -> Section:
    ax = charts.axes("threshold", "pairs above")
    rows = spaced_rows(len(margins), MAX_LINE_POINTS)
    ax.step(margins[rows], rows + 1, where="post", color=charts.colour("one"))
    ax.set_ylim(0, None)
    quartiles = margins[np.linspace(0, len(margins) - 1, 5).round().astype(int)]
    caption = f"Half of the {len(margins):,} pairs have margins above {quartiles[2]:.4f}, a quarter above {quartiles[1]:.4f}."
    return Section("Yield", "How many pairs a higher threshold would keep.", [charts.figure("yield", ax, caption)])


def _lengths(mined: MinedBitext, is_right: Bools | None) -> Section:
    rows = spaced_rows(len(mined.margins), MAX_SAMPLE_PAIRS)
    lengths = [np.array([max(1, len(sentence)) for sentence in side]) for side in mined.texts(rows)]
    ax = charts.axes(f"characters, {mined.languages[0]}", f"characters, {mined.languages[1]}")
    limits = [min(map(min, lengths)), max(map(max, lengths))]
    for axis in ("x", "y"):
        charts.set_log_scale(ax, axis, *limits)
    groups = {"pairs": np.ones(len(rows), bool)} if is_right is None else {"right": is_right[rows], "wrong": ~is_right[rows]}
    legend = dict(zip(groups, charts.SERIES, strict=False))
    for name, colour in legend.items():
        of_group = groups[name]
        ax.plot(lengths[0][of_group], lengths[1][of_group], ".", color=charts.colour(colour), markersize=4, alpha=0.5, markeredgewidth=0)
    ax.plot(limits, limits, color=charts.colour("muted"), linewidth=0.8)
    caption = f"{len(rows):,} pairs, evenly spaced from the best to the last. On the line, both sentences have the same length."
    note = "Translations are near a line. Pairs far from it are worth checking."
    return Section("Lengths", note, [charts.figure("lengths", ax, caption, legend)])


def _hubs(mined: MinedBitext, hub_counts: HubCounts) -> Section:
    ax = charts.axes("candidates / k", "sentences with as many or more")
    x_min, x_max, y_max = 1.0, 1.0, 1.0
    for side, colour in zip(SIDES, charts.SERIES, strict=False):
        candidates_by_k, counts = np.unique(hub_counts.sides[side].counts / hub_counts.k, return_counts=True)
        num_sentences = counts[::-1].cumsum()[::-1] / hub_counts.share
        x_min, x_max, y_max = min(x_min, candidates_by_k[0]), max(x_max, candidates_by_k[-1]), max(y_max, num_sentences[0])
        ax.step(candidates_by_k, num_sentences, where="pre", color=charts.colour(colour))
    charts.set_log_scale(ax, "x", x_min, x_max)
    charts.set_log_scale(ax, "y", 1, y_max)
    legend = dict(zip((f"{side} ({lang})" for side, lang in zip(SIDES, mined.languages, strict=True)), charts.SERIES, strict=False))
    caption = "How many sentences occur in how many candidates."
    if hub_counts.share < 1:
        caption = f"Estimated from a random {hub_counts.share:.2%} of the sentences."
    note = "Sentences that are neighbours of very many others are short phrases and templates; their pairs are rarely right."
    figure = charts.figure("hubs", ax, caption, legend)
    rows: list[list[str | Element]] = [
        [f"{times:.1f}", side, text(sentence)]
        for side, ids in zip(SIDES, mined.ids(), strict=True)
        for times, sentence in hub_counts.top(side, ids, mined.uri)
    ]
    return Section("Hubs", note, [figure, table(["candidates / k", "side", "sentence of a pair"], rows)])


def _languages(mined: MinedBitext) -> list[Section]:
    """Identify the languages of a sample of the pairs; nothing if py3langid is not installed."""
    rows = spaced_rows(len(mined.margins), MAX_SAMPLE_PAIRS)
    try:
        counts_by_side = [Counter(language.identify_languages(side)) for side in mined.texts(rows)]
    except ConfigError:
        return []
    series = []
    for colour, side, counts in zip(charts.SERIES, SIDES, counts_by_side, strict=False):
        shares = {f"{side}: {code}": count / len(rows) for code, count in _most_frequent(counts)}
        series.append(charts.BarSeries(colour, shares, {}))
    labels = [label for bars in series for label in bars.lengths]
    ax = charts.axes("share of pairs", "", height=0.9 + 0.2 * len(labels), labels=labels)
    for bars in series:
        charts.bars(ax, labels, [bars])
    caption = f"Of {len(rows):,} pairs, evenly spaced. The declared languages are {mined.languages[0]} and {mined.languages[1]}."
    note = "As identified from single sentences, which is unreliable for short ones."
    return [Section("Languages", note, [charts.figure("languages", ax, caption)])]


def _most_frequent(counts: Counter[str]) -> list[tuple[str, int]]:
    frequent = [(name, count) for name, count in counts.items() if 100 * count >= MIN_LANGUAGE_PERCENT * counts.total()]
    return sorted(frequent, key=lambda item: (-item[1], item[0]))[:MAX_LANGUAGES]
