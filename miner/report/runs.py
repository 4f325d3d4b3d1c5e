"""The overview of a directory of `miner run`: every pair of corpora, from run.json."""

from collections.abc import Mapping
from typing import Any

from miner.errors import DataError
from miner.io import records, stages, storage
from miner.report.page import MALFORMED, Child, Section, element, table

RUN, PAIRS = "run.json", "pairs"  # file and folder of a run


def read(folder: str) -> Mapping[str, Any] | None:
    """Return the figures of the run in a folder; None if there is none."""
    uri = storage.join(folder, RUN)
    return records.read(uri, dict[str, Any]) if storage.exists(uri) else None


def pair_names(folder: str, figures: Mapping[str, Any]) -> list[str]:
    """Return the names of the pairs, which are names of folders. Raise DataError for a path out of the folder."""
    names = list(map(str, figures.get("pairs") or ()))
    foreign = [name for name in names if not stages.is_plain_name(name)]
    if foreign:
        raise DataError(f"{storage.join(folder, RUN)}: {foreign[0]!r} is not the name of a pair; do not trust this directory")
    return names


def describe(folder: str, figures: Mapping[str, Any], report_name: str) -> tuple[str, list[Section]]:
    """Return the totals in one line, and the sections. Raise DataError for malformed figures."""
    try:
        total = sum(pair["pairs"] for pair in figures["pairs"].values())
        rows = [_pair_row(folder, name, pair, report_name) for name, pair in figures["pairs"].items()]
        heads = ["corpora", "pairs", "threshold", "source sentences", "target sentences", "seconds"]
        note = "Each name leads to the report on its pairs. Pairs are mined side by side, so their seconds overlap."
        sections = [Section("Pairs", note, [table(heads, rows)])]
        corpora = [[name, corpus["lang"], f"{corpus['unique']:,}"] for name, corpus in figures["corpora"].items()]
        sections.append(Section("Corpora", "Unique sentences after the filters.", [table(["corpus", "language", "sentences"], corpora)]))
        skipped = [[path, reason] for path, reason in figures["skipped"].items()]
        if skipped:
            note = "The run finished without them. Correct them and run the same command again."
            sections.append(Section("Skipped", note, [table(["file, shard or task", "reason"], skipped)]))
        return f"{total:,} pairs of {len(rows)} pairs of corpora in {figures['seconds']:.0f} s", sections
    except MALFORMED as error:
        raise DataError(f"{storage.join(folder, RUN)}: not the figures of a run ({error!r}); run `miner run` again") from error


def _pair_row(folder: str, name: str, pair: Mapping[str, Any], report_name: str) -> list[Child]:
    path = f"{PAIRS}/{name}/{report_name}"
    label: Child = element("a", name, href=path) if storage.exists(storage.join(folder, path)) else name
    threshold = "" if pair["threshold"] is None else f"{pair['threshold']:g}"
    sentences = (f"{pair['unique'][side]:,}" for side in ("source", "target"))
    return [label, f"{pair['pairs']:,}", threshold, *sentences, f"{sum(pair['seconds'].values()):.1f}"]
