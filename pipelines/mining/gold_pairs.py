"""The evidence of `--gold`: gold pairs by line numbers of the input, which become sentence ids, or marks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from miner.config.commands import TextSettings
from miner.errors import ConfigError, DataError
from miner.evaluation.marks import ReviewMarks, is_marks, read_marks, report_unusable
from miner.io import stages, storage
from miner.io.corpus import Corpus
from miner.io.stages import Manifest
from miner.mining.gold import GoldPairs
from miner.text import readers, streams
from miner.text.normalise import sentence_ids

MAX_DIGITS = 18  # digits of a line number that fits in 64 bits


@dataclass(frozen=True)
class GoldFile:
    """The pairs of lines in a gold file."""

    uri: str
    lines: tuple[tuple[int, int], ...]
    is_sample: bool = False  # whether it lacks some of the true pairs


def read(uris: Sequence[str], is_sample: bool = False) -> GoldFile | ReviewMarks | None:
    """Read a file of gold or tables of marks; None without a file.

    Raise ConfigError for several files of gold, and for marks that are said to be a sample of gold. DataError for other content.
    """
    marks = [uri for uri in uris if is_marks(uri)]
    others = [uri for uri in uris if uri not in marks]
    if len(uris) > 1 and others:
        raise ConfigError(f"{others[0]}: --gold takes one file of line pairs, or any number of tables of marks (mark, source, target)")
    if marks and is_sample:
        raise ConfigError("--gold-sample describes gold pairs, and marks are a sample of the mined pairs anyway; remove it")
    if marks:
        return read_marks(marks)
    return replace(read_gold_file(others[0]), is_sample=is_sample) if others else None


def read_gold_file(uri: str) -> GoldFile:
    """Read a file of `source line<TAB>target line`, from 1. DataError for another format, and for a file without a pair."""
    with streams.open_bytes(uri, streams.split_extensions(uri)[1]) as handle:
        data = handle.read()
    pairs = []
    for number, line in enumerate(data.removeprefix(streams.BOM).splitlines(), start=1):
        cells = [cell.strip() for cell in line.split(b"\t")]
        if not line.strip():
            continue
        if len(cells) != 2 or not all(cell.isdigit() and len(cell) <= MAX_DIGITS and int(cell) > 0 for cell in cells):
            raise DataError(f"{uri}:{number}: not `source line<TAB>target line`, counted from 1; fix or remove the line")
        pairs.append((int(cells[0]), int(cells[1])))
    if not pairs:
        raise DataError(f"{uri}: no pair of lines; check the file name")
    return GoldFile(uri, tuple(dict.fromkeys(pairs)))


def resolve(gold: GoldFile | ReviewMarks | None, source: Corpus, target: Corpus) -> GoldPairs | ReviewMarks | None:
    """Return what `read` returned, with gold pairs as sentence ids. Marks have ids already; those of other texts are reported."""
    if isinstance(gold, ReviewMarks):
        _report_other_texts(gold, source, target)
        return gold
    return None if gold is None else resolve_lines(gold, source, target)


def _report_other_texts(marks: ReviewMarks, source: Corpus, target: Corpus) -> None:
    """Warn of marked pairs whose texts are not in the corpora. DataError where there are many, as `report_unusable` says."""
    pairs = np.array(sorted(marks.right), dtype=np.int64)
    is_there = np.ones(len(pairs), dtype=bool)
    for side, ids in ((source, pairs[:, 0]), (target, pairs[:, 1])):
        is_there &= np.isin(ids, side.find_present(np.unique(ids)).ids)
    num_missing = int((~is_there).sum())
    problems = [f"{num_missing:,} of texts that are not in the corpora"] if num_missing else []
    report_unusable(marks.name, problems, num_missing, len(pairs), "give the marks of these corpora")


def resolve_lines(gold: GoldFile, source: Corpus, target: Corpus) -> GoldPairs:
    """Return the gold pairs as sentence ids; a pair with a line that was dropped counts as missing.

    Lines that repeat a sentence have its id, so their pairs are one. DataError for a line after the end.
    """
    source_ids = _ids_of_lines(gold, source, {line for line, _ in gold.lines})
    target_ids = _ids_of_lines(gold, target, {line for _, line in gold.lines})
    pairs = [
        (source_ids[source_line], target_ids[target_line])
        for source_line, target_line in gold.lines
        if source_line in source_ids and target_line in target_ids
    ]
    return GoldPairs(frozenset(pairs), len(gold.lines) - len(pairs), gold.is_sample)


def _ids_of_lines(gold: GoldFile, side: Corpus, lines: set[int]) -> dict[int, int]:
    """Map lines to ids, without the lines that were dropped."""
    manifest = stages.read_manifest(storage.join(side.folder, stages.SENTENCES), stages.SENTENCES)
    if len(manifest.inputs) != 1:
        raise ConfigError(
            f"{gold.uri}: gold refers to lines of one file, but {side.folder} was embedded from {len(manifest.inputs)} files;"
            " mine one file per side"
        )
    if "split" in manifest.config:
        raise ConfigError(f"{gold.uri}: gold refers to lines, which --split has split in {side.folder}; embed without --split to compare")
    ids = _ids_of_first_lines(side, lines)
    # A sentence is stored with its first line only. Other lines are looked up in the text.
    others = lines - set(ids)
    if others and manifest.config.get("collapse"):
        raise ConfigError(
            f"{gold.uri}: line {min(others)} of {side.folder} may have been collapsed into another line by --collapse;"
            " embed without --collapse to compare with gold"
        )
    if others:
        ((uri, signature),) = manifest.inputs.items()
        if uri == readers.STDIN:
            raise DataError(f"{gold.uri}: line {min(others)} of standard input cannot be read again to look it up; give the text as a file")
        if not storage.exists(uri) or readers.input_signature(uri) != signature:
            raise DataError(f"{gold.uri}: line {min(others)} of {uri} cannot be looked up: the file moved or changed; embed it again")
        ids.update(_ids_in_text(gold, uri, _text_settings(manifest), others))
    return ids


def _text_settings(manifest: Manifest) -> TextSettings:
    return TextSettings(**{name: manifest.config[name] for name in TextSettings.model_fields if name in manifest.config})


def _ids_of_first_lines(side: Corpus, lines: set[int]) -> dict[int, int]:
    """Map lines to ids, for lines that are the first of their sentence."""
    line_numbers = np.fromiter(lines, dtype=np.int64)
    ids: dict[int, int] = {}
    for shard in side.shards:
        for table in side.sentences(shard.name, ["id", "line"]):
            matching = table.filter(np.isin(table["line"].to_numpy(), line_numbers))
            ids.update(zip(matching["line"].to_pylist(), matching["id"].to_pylist(), strict=True))
    return ids


def _ids_in_text(gold: GoldFile, uri: str, settings: TextSettings, lines: set[int]) -> dict[int, int]:
    """Read the text again and map lines to ids."""
    line_numbers = np.fromiter(lines, dtype=np.int64)
    ids: dict[int, int] = {}
    num_lines = 0
    for block in readers.read_sentences(uri, settings):
        rows = np.flatnonzero(np.isin(block.lines, line_numbers))
        ids.update(zip(block.lines[rows].tolist(), sentence_ids([block.texts[row] for row in rows]).tolist(), strict=True))
        num_lines = block.end
        if num_lines >= line_numbers.max():
            break
    beyond = [line for line in lines if line > num_lines]
    if beyond:
        raise DataError(f"{gold.uri}: there is no line {min(beyond)} in {uri}, which ends at line {num_lines}; give the gold of this text")
    return ids
