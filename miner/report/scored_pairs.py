"""The report of a file of `miner score`: margins, probabilities, why pairs are dropped, and pairs to look at.

Memory: the margins, probabilities and reasons of all pairs, 20 bytes each, and the texts of a sample.
"""

from collections import Counter
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from miner.arrays import Bools, Floats, Ints, spaced_rows
from miner.io import storage
from miner.report import charts
from miner.report.page import Part, Section, claim_page, page, table, text
from miner.text.scored_pairs import SCHEMA, read_scored_pairs
from miner.units import counted

SUFFIX = ".report.html"  # of the name of the scored file
NUM_BINS = 60
KEPT_EXAMPLES, DROPPED_EXAMPLES = 20, 5  # pairs that are shown of those that are kept, and of each reason


def write(uri: str) -> str:
    """Write the report beside a file of `miner score`, and return its path.

    Raises DataError for another file, ConfigError if there is another file of the report's name.
    """
    output = f"{uri}{SUFFIX}"
    claim_page(output)
    with charts.style():
        content = page([_read_part(uri)])
    with storage.atomic(output) as handle:
        handle.write(content)
    return output


def _read_part(uri: str) -> Part:
    tables = [batch.select(["margin", "probability", "reason"]) for batch in read_scored_pairs(uri)]
    pairs = pa.concat_tables([SCHEMA.empty_table().select(["margin", "probability", "reason"]), *tables])
    margins, probabilities = (pairs[name].to_numpy() for name in ("margin", "probability"))
    reasons = np.array(pairs["reason"].to_pylist(), dtype=object)
    has_no_reason = pairs["reason"].is_null().to_numpy()
    is_kept = has_no_reason & ~np.isnan(margins)
    reasons[has_no_reason & ~is_kept] = "no_margin"
    facts = [f"{counted(int(is_kept.sum()), 'pair')} of {counted(len(margins), 'line')} kept"]
    scores = {"margin": margins} | ({} if np.isnan(probabilities).all() else {"probability": probabilities})
    sections = [_histogram(name, values, is_kept) for name, values in scores.items() if np.isfinite(values).any()]
    sections += [_count(reasons), _examples(uri, margins, reasons)]
    return Part(f"{uri.rpartition('/')[2]}: scored pairs", facts, sections)


def _histogram(name: str, values: Floats, is_kept: Bools) -> Section:
    """Draw the values (n,) of pairs with one; the dropped ones above the kept ones."""
    is_defined = np.isfinite(values)
    edges = np.histogram_bin_edges(values[is_defined], NUM_BINS)
    kept, all_pairs = (np.histogram(values[rows], edges)[0] for rows in (is_defined & is_kept, is_defined))
    ax = charts.axes(name, "pairs")
    ax.stairs(all_pairs, edges, baseline=kept, fill=True, color=charts.colour("two"))
    ax.stairs(kept, edges, fill=True, color=charts.colour("one"))
    quartiles = np.quantile(values[is_defined], [0.25, 0.5, 0.75])
    caption = "A quarter is below {:.4f}, half below {:.4f}, three quarters below {:.4f}.".format(*quartiles)
    legend = {"kept": "one", "dropped": "two"}
    return Section(name.capitalize(), "Each line pair counts once.", [charts.figure(name, ax, caption, legend)])


def _count(reasons: npt.NDArray[Any]) -> Section:
    """List how many pairs each reason drops."""
    counts = Counter(reasons.tolist())
    rows: list[list[str | Element]] = [
        [str(reason or "kept").replace("_", " "), f"{count:,}", f"{count / len(reasons):.1%}"] for reason, count in counts.most_common()
    ]
    return Section("Reasons", "The first reason that drops each pair.", [table(["reason", "pairs", "share"], rows)])


def _examples(uri: str, margins: Floats, reasons: npt.NDArray[Any]) -> Section:
    """Show pairs that are kept, from the largest to the smallest margin, and a few of each reason."""
    order = np.argsort(-margins, kind="stable")  # NaN last
    rows: list[Ints] = []
    for reason in dict.fromkeys([None, *sorted(set(reasons.tolist()) - {None})]):
        group = order[[reasons[row] == reason for row in order]]
        rows.append(group[spaced_rows(len(group), KEPT_EXAMPLES if reason is None else DROPPED_EXAMPLES)])
    shown = np.concatenate(rows).tolist()
    texts = _read_rows(uri, set(shown))
    cells: list[list[str | Element]] = []
    for row in shown:
        pair = texts[row]
        line = "" if pair["line"] is None else f"{pair['line']:,}"
        probability = "" if pair["probability"] is None else f"{pair['probability']:.2f}"
        reason = str(reasons[row] or "").replace("_", " ")
        sides = [text(pair[f"{side}_text"] or "") for side in ("source", "target")]
        cells.append([line, f"{pair['margin']:.4f}", probability, *sides, reason])
    heads = ["line", "margin", "probability", "source", "target", "dropped because"]
    return Section("Pairs", "From the largest to the smallest margin, then some of each reason.", [table(heads, cells)])


def _read_rows(uri: str, rows: set[int]) -> dict[int, dict[str, Any]]:
    """Return the pairs in some rows of the file."""
    pairs: dict[int, dict[str, Any]] = {}
    start = 0
    for batch in read_scored_pairs(uri):
        batch_rows = [row for row in rows if start <= row < start + len(batch)]
        values = batch.take(pa.array([row - start for row in batch_rows], pa.int64())).to_pylist()
        pairs.update(zip(batch_rows, values, strict=True))
        start += len(batch)
    return pairs
