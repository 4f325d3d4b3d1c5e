"""The part of a report on mined pairs: margins, precision, lengths, hubs and languages."""

from collections import Counter
from xml.etree.ElementTree import Element

import numpy as np

from miner.arrays import Bools, Floats, spaced_rows
from miner.config.choices import ThresholdChoice
from miner.errors import ConfigError, DamagedError
from miner.evaluation.bitext_precision import GoldReport, KnownPairs, ReviewReport, measure_precision
from miner.evaluation.hub_counts import SIDES, HubCounts, read_hub_counts
from miner.evaluation.marks import ReviewMarks
from miner.evaluation.reliability import Reliability
from miner.filters import language
from miner.io import stages, storage
from miner.io.stages import Manifest
from miner.mining.gold import GoldPairs
from miner.mining.histogram import BIN_WIDTH, Histogram, describe_quantiles
from miner.mining.writers import PARQUET
from miner.report import charts, marking, thresholds
from miner.report.mined_pairs import MinedBitext
from miner.report.page import MALFORMED, Part, Section, table, text
from miner.units import list_counts

MAX_CHART_BINS = 60
MAX_LINE_POINTS = 400
MAX_SAMPLE_PAIRS = 1000  # pairs whose lengths and languages are shown
MAX_HUB_CANDIDATES = 1 << 22  # with more candidates, hubs are counted for a random sample of the sentences
MAX_LANGUAGES = 5  # maximum number of languages shown of each side
MIN_LANGUAGE_PERCENT = 1


def read_part(folder: str, known_pairs: KnownPairs | None, identify: bool, sample_pairs: int) -> Part | None:
    """Return the part on a directory of `miner mine`, None for another directory. The parameters are those of `build.write`."""
    if not all(storage.exists(storage.join(folder, name)) for name in (stages.MANIFEST, PARQUET)):
        if known_pairs is not None:
            raise ConfigError(f"{folder}: no mined pairs to compare with gold; leave --gold out, or name a directory of `miner mine`")
        return None
    mined = MinedBitext(folder, stages.read_manifest(folder, stages.MINE))
    try:
        title = f"{' – '.join(mined.languages)}: {len(mined.margins):,} pairs"
        return Part(title, _facts(mined.manifest), _sections(mined, known_pairs, identify, sample_pairs))
    except MALFORMED as error:
        raise DamagedError(f"{folder}: its manifest or {PARQUET} is incomplete ({error!r}); run `miner mine` again") from error


def _facts(manifest: Manifest) -> list[str]:
    """Return the mining settings, the expected precision and recall, and the numbers of dropped pairs."""
    config, details = manifest.config, manifest.details
    settings = [f"{name} {config[name]}" for name in ("margin", "retrieval", "k") if name in config]
    settings += [] if config.get("threshold") is None else [f"threshold {config['threshold']:g}"]
    settings += [f"probability at least {config['min_probability']:g}"] if "min_probability" in config else []
    facts = [", ".join(settings)]
    if (choice := details.get("choice")) is not None:
        facts.append(f"threshold {ThresholdChoice.read(choice).describe()}")
    if (precision := details.get("estimated_precision")) is not None:
        facts.append(f"expected precision by the probabilities: {precision:.2f}")
    if (quantiles := details.get("best_margins")) is not None:
        facts.append(f"best margins of the source sentences: {describe_quantiles(quantiles)}")
    if dropped := list_counts(details.get("dropped", {})):
        facts.append(f"dropped: {dropped}")
    return facts


def _sections(mined: MinedBitext, known_pairs: KnownPairs | None, identify: bool, sample_pairs: int) -> list[Section]:
    """Return all sections. `identify` includes the languages of a sample, whose identifier takes a second to load."""
    is_right = known_pairs.is_gold(*mined.ids()) if isinstance(known_pairs, GoldPairs) else None
    margins = _margins(mined, is_right)
    hub_counts = read_hub_counts(mined.folder, MAX_HUB_CANDIDATES)
    hubs = [_hubs(mined, hub_counts)] if hub_counts and all(len(side.counts) for side in hub_counts.sides.values()) else []
    if not len(mined.margins):
        return [margins, *hubs]
    precision = []
    if known_pairs is not None:
        report = measure_precision(known_pairs, mined.ids(), mined.margins, mined.probabilities)
        precision = [_marks_section(report)] if isinstance(report, ReviewReport) else _gold_sections(report)
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
    # The width of a bin is a multiple of BIN_WIDTH, so that no margin changes bins.
    low, high = min(histogram.bounds()[0] for histogram in histograms), max(histogram.bounds()[1] for histogram in histograms)
    num_steps = round((high - low) / BIN_WIDTH)
    steps_per_bin = max(1, -(-num_steps // MAX_CHART_BINS))
    edges = low + BIN_WIDTH * steps_per_bin * np.arange(-(-num_steps // steps_per_bin) + 1, dtype=np.float64)
    ax = charts.axes("margin", "pairs")
    legend: dict[str, str] = {}
    if best is not None:
        legend["best candidate of every source sentence"] = "muted"
        ax.stairs(best.rebin(edges).counts, edges, color=charts.colour("muted"), linewidth=1)
    counts = np.histogram(mined.margins, edges)[0]
    wrong = np.zeros_like(counts) if is_right is None else np.histogram(mined.margins[~is_right], edges)[0]
    ax.stairs(counts, edges, baseline=wrong, fill=True, color=charts.colour("one"))
    if is_right is None:
        legend["pairs"] = "one"
    else:
        legend |= {"right": "one", "wrong": "two"}
        ax.stairs(wrong, edges, fill=True, color=charts.colour("two"))
    if threshold is not None:
        charts.dashed_line(ax, threshold)
    caption = "" if threshold is None else f"The dashed line is the threshold, {threshold:g}."
    note = "If the grey outline has two modes, they separate right pairs from wrong ones; the threshold belongs between them."
    return Section("Margins", note, [charts.figure("margins", ax, caption, legend)])


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


def _gold_sections(report: GoldReport) -> list[Section]:
    """Draw precision, recall and F1 by threshold and, where pairs have probabilities, their calibration."""
    curve = report.curve
    rows = spaced_rows(len(curve.pairs), MAX_LINE_POINTS)
    shares = {"precision": curve.precision[rows], "recall": curve.recall[rows], "f1": curve.f1[rows]}
    best, marked, caption = curve.best(), None, "No pair is correct."
    if best is not None:
        marked = float(curve.thresholds[best])
        caption = f"The best F1 is {curve.f1[best]:.4f}, above {marked:.4f} (dashed)."
    chart = thresholds.chart("gold", curve.thresholds[rows], shares, marked, caption)
    note = f"Against {report.num_gold:,} gold pairs, from the threshold of mining upwards."
    calibration = [] if report.calibration is None else [_calibration_section(report.calibration)]
    return [Section("Precision and recall", note, [chart]), *calibration]


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
    chart = charts.figure("marks", ax, "The share of marked pairs that are right, by level of margin.")
    body = [chart, table(["margins", "pairs", "marked", "right", "right of all above"], rows)]
    if report.agreements:
        agreements = [
            [
                *agreement.uris,
                f"{agreement.num_pairs:,}",
                f"{agreement.num_equal:,}",
                "" if agreement.kappa is None else f"{agreement.kappa:.3f}",
            ]
            for agreement in report.agreements
        ]
        body.append(table(["marks", "and", "pairs in both", "equal marks", "Cohen's kappa"], agreements))
    return Section("Marks", note, body)


def _interval(share: float | None, interval: tuple[float, float]) -> str:
    return "" if share is None else f"{share:.3f} ({interval[0]:.3f}-{interval[1]:.3f})"


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
    shares = {}
    for colour, side, counts in zip(charts.SERIES, SIDES, counts_by_side, strict=False):
        frequent = [(code, count) for code, count in counts.items() if 100 * count >= MIN_LANGUAGE_PERCENT * counts.total()]
        frequent = sorted(frequent, key=lambda item: (-item[1], item[0]))[:MAX_LANGUAGES]
        shares[colour] = {f"{side}: {code}": count / len(rows) for code, count in frequent}
    labels = [label for by_label in shares.values() for label in by_label]
    ax = charts.axes("share of pairs", "", height=0.9 + 0.2 * len(labels), labels=labels)
    for colour, by_label in shares.items():
        charts.bars(ax, labels, {colour: by_label}, {})
    caption = f"Of {len(rows):,} pairs, evenly spaced. The declared languages are {mined.languages[0]} and {mined.languages[1]}."
    note = "As identified from single sentences, which is unreliable for short ones."
    return [Section("Languages", note, [charts.figure("languages", ax, caption)])]
