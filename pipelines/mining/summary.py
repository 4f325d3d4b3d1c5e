"""The outcome of `miner mine` as text."""

from collections.abc import Mapping
from typing import Any

from miner.arrays import spaced_rows
from miner.mining.histogram import describe_quantiles
from miner.text.readers import REPAIRED, list_repairs
from miner.units import counted, list_counts
from pipelines.mining.mine import MineResult
from pipelines.mining.select_pairs import WrittenBitext

MAX_BRIEF_EXAMPLES = 4
MAX_TEXT_CHARS = 60  # of a sentence
UNDROPPED = ("lines", "kept", "duplicate", "near_duplicate", "empty", "split")  # counts of lines that lose no sentence


def summarise(result: MineResult) -> str:
    """Return the summary for the terminal."""
    bitext = result.bitext
    lines = [describe_side(side, result.lines[side], result.unique[side]) for side in ("source", "target")]
    lines.append(headline(bitext))
    if bitext.quantiles:
        lines.append(f"few pairs; {describe_best_margins(bitext)}")
    if bitext.delta is not None:
        changes = ", ".join(f"{count:,} {change}" for change, count in bitext.delta.counts.items())
        lines.append(f"since the previous run: {changes} ({bitext.delta.file})")
    if bitext.choice is not None and bitext.choice.min_probability is None:
        lines.append(f"threshold {bitext.choice.describe()}")
    if dropped := list_counts(bitext.dropped):
        lines.append(f"dropped: {dropped}")
    if bitext.scores is not None:
        lines.append(bitext.scores.summary())
    if bitext.examples:
        lines += ["", f"{'margin':>7}  pairs from the best to the last"]
        lines += map(_example_line, bitext.examples)
    return "\n".join([*lines, "", *_engine_lines(result.engine)])


def describe_best_margins(bitext: WrittenBitext) -> str:
    """Return the quantiles by which a lower threshold can be chosen, and one of them."""
    margins, tenth = describe_quantiles(bitext.quantiles), bitext.quantiles["0.9"]
    remedy = f"for more, mine again with a lower --threshold, such as {tenth:g} for the best tenth, and look at the last pairs"
    return f"best margins of the source sentences: {margins}; {remedy}"


def describe_briefly(bitext: WrittenBitext) -> str:
    """Return the number of pairs, those of dropped candidates, and a few pairs."""
    rows = spaced_rows(len(bitext.examples), MAX_BRIEF_EXAMPLES).tolist()
    dropped = list_counts(bitext.dropped)
    return "\n".join(
        [headline(bitext), *([f"dropped: {dropped}"] if dropped else []), *(_example_line(bitext.examples[row]) for row in rows)]
    )


def describe_side(side: str, counts: Mapping[str, int], unique: int) -> str:
    """Return the numbers of sentences of a side, and of lines that were dropped or repaired, by reason."""
    reasons = dropped_lines(counts)
    suffix = f"; of {counts['lines'] + counts.get('split', 0):,} lines, dropped {reasons}" if reasons else ""
    return f"{side}: {counted(counts['kept'], 'sentence')}, {unique:,} unique{suffix}{list_repairs(counts)}"


def dropped_lines(counts: Mapping[str, int]) -> str:
    """Return the numbers of lines that were dropped, by reason, as text."""
    return list_counts({name: count for name, count in counts.items() if name not in UNDROPPED and not name.startswith(REPAIRED)})


def headline(bitext: WrittenBitext) -> str:
    """Return the number of pairs with their bound and the precision that is expected."""
    choice, notes = bitext.choice, list[str]()
    if choice is not None and choice.min_probability is not None:
        notes.append(f"probability >= {choice.min_probability:g}")
    elif bitext.threshold is not None:
        notes.append(f"margin > {bitext.threshold:g}")
    precision = bitext.estimated_precision
    if choice is not None and choice.precision is not None:
        precision = choice.precision.value
    if precision is not None:
        notes.append(f"expected precision {precision:.2f}")
    elif bitext.has_few_right:
        notes.append("expected precision unknown: few or no translations")
    return counted(bitext.pairs, "pair") + (f" ({', '.join(notes)})" if notes else "")


def _engine_lines(engine: Mapping[str, Any]) -> list[str]:
    """Return the engine with the reason for it, and the recall of an approximate one."""
    lines = [f"search: {engine['name']} ({engine['reason']})"]
    for direction in (name for name in ("forward", "backward") if name in engine):
        search = engine[direction]
        shortfall = "" if search["low"] >= search["target_recall"] else f", which may be below {search['target_recall']:g}"
        again = f", {search['searched_again']:,} searched again" if search["searched_again"] else ""
        lines.append(f"{direction}: recall {search['recall']:.4f} on a sample with {search['factory']}{shortfall}{again}")
    return lines


def _example_line(example: tuple[float, str, str]) -> str:
    margin, *texts = example
    source, target = (text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…" for text in texts)
    return f"{margin:7.4f}  {source}  |  {target}"
