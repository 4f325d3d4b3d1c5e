"""The overview of a directory of `miner run`: every pair of corpora, from run.json."""

from collections.abc import Callable, Mapping
from typing import Any

from miner.errors import DataError
from miner.io import records, stages, storage
from miner.report.page import MALFORMED, REPORT, Child, Part, Section, element, table

RUN, PAIRS = "run.json", "pairs"  # file and folder of a run


def read_part(folder: str, write_report: Callable[[str], object]) -> Part | None:
    """Return the totals and tables of a run, None if there is none; write the missing reports of its pairs.

    Raises DataError for malformed figures, and where the name of a pair is a path out of the folder.
    """
    uri = storage.join(folder, RUN)
    if not storage.exists(uri):
        return None
    figures = records.read(uri, dict[str, Any])
    for name in map(str, figures.get("pairs") or ()):
        if not stages.is_plain_name(name):
            raise DataError(f"{uri}: {name!r} is not the name of a pair; do not trust this directory")
        pair_folder = storage.join(folder, PAIRS, name)
        if storage.is_folder(pair_folder) and not storage.exists(storage.join(pair_folder, REPORT)):
            write_report(pair_folder)
    try:
        return _part(folder, figures)
    except MALFORMED as error:
        raise DataError(f"{uri}: not the figures of a run ({error!r}); run `miner run` again") from error


def _part(folder: str, figures: Mapping[str, Any]) -> Part:
    rows = []
    for name, pair in figures["pairs"].items():
        path = f"{PAIRS}/{name}/{REPORT}"
        label: Child = element("a", name, href=path) if storage.exists(storage.join(folder, path)) else name
        threshold = "" if pair["threshold"] is None else f"{pair['threshold']:g}"
        sentences = (f"{pair['unique'][side]:,}" for side in ("source", "target"))
        rows.append([label, f"{pair['pairs']:,}", threshold, *sentences, f"{sum(pair['seconds'].values()):.1f}"])
    corpora = [[name, corpus["lang"], f"{corpus['unique']:,}"] for name, corpus in figures["corpora"].items()]
    heads = ["corpora", "pairs", "threshold", "source sentences", "target sentences", "seconds"]
    note = "Each name leads to the report on its pairs. Pairs are mined side by side, so their seconds overlap."
    sections = [
        Section("Pairs", note, [table(heads, rows)]),
        Section("Corpora", "Unique sentences after the filters.", [table(["corpus", "language", "sentences"], corpora)]),
    ]
    if skipped := list(figures["skipped"].items()):
        note = "The run finished without them. Correct them and run the same command again."
        sections.append(Section("Skipped", note, [table(["file, shard or task", "reason"], skipped)]))
    total = sum(pair["pairs"] for pair in figures["pairs"].values())
    return Part("Run", [f"{total:,} pairs of {len(rows)} pairs of corpora in {figures['seconds']:.0f} s"], sections)
