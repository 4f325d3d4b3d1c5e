"""Gold pairs: from line numbers of the input to sentence ids."""

from dataclasses import dataclass

import numpy as np

from miner import corpus, stages, storage
from miner.config.commands import TextSettings
from miner.corpus import Corpus
from miner.errors import ConfigError, DataError
from miner.mining.gold import Pairs
from miner.stages import Manifest
from miner.text import readers, streams
from miner.text.normalise import sentence_ids

DIGITS = 18  # of a line number: what fits in 64 bits


@dataclass(frozen=True)
class GoldFile:
    """Pairs of lines as a gold file tells them."""

    uri: str
    lines: tuple[tuple[int, int], ...]


def read(uri: str) -> GoldFile:
    """A file of `source line<TAB>target line`, from 1. DataError for anything else, and where there is no pair."""
    with streams.open_bytes(uri, streams.split_extensions(uri)[1]) as handle:
        data = handle.read()
    pairs = []
    for number, line in enumerate(data.removeprefix(streams.BOM).splitlines(), start=1):
        cells = [cell.strip() for cell in line.split(b"\t")]
        if not line.strip():
            continue
        if len(cells) != 2 or not all(cell.isdigit() and len(cell) <= DIGITS and int(cell) > 0 for cell in cells):
            raise DataError(f"{uri}:{number}: not `source line<TAB>target line`, counted from 1; mend the line or take it out")
        pairs.append((int(cells[0]), int(cells[1])))
    if not pairs:
        raise DataError(f"{uri}: no pair of lines in it; check the name")
    return GoldFile(uri, tuple(dict.fromkeys(pairs)))


def resolve(gold: GoldFile, source: Corpus, target: Corpus) -> tuple[Pairs, int]:
    """The sentence ids of the gold pairs, and how many pairs have a line that holds no sentence.

    Lines that repeat a sentence have its id, so their pairs are one. DataError for a line beyond the end.
    """
    of_source = _ids_of_lines(gold, source, {line for line, _ in gold.lines})
    of_target = _ids_of_lines(gold, target, {line for _, line in gold.lines})
    known = [(of_source[one], of_target[other]) for one, other in gold.lines if one in of_source and other in of_target]
    return frozenset(known), len(gold.lines) - len(known)


def _ids_of_lines(gold: GoldFile, side: Corpus, wanted: set[int]) -> dict[int, int]:
    """Line -> id, without the lines that were dropped."""
    manifest = stages.read_manifest(storage.join(side.folder, corpus.SENTENCES), corpus.SENTENCES)
    if len(manifest.inputs) != 1:
        raise ConfigError(
            f"{gold.uri}: gold tells lines of one file, and {side.folder} was made from {len(manifest.inputs)}; mine one file a side"
        )
    ids = _first_places(side, wanted)
    # A sentence is stored with its first line only: its other lines are read again.
    others = wanted - set(ids)
    if others and manifest.config.get("collapse"):
        told = f"{gold.uri}: line {min(others)} of {side.folder} stands for another line since --collapse, which gold cannot follow"
        raise ConfigError(f"{told}; embed without --collapse to compare with gold")
    if others:
        ((uri, signature),) = manifest.inputs.items()
        if uri == readers.STDIN:
            raise DataError(f"{gold.uri}: line {min(others)} of standard input cannot be read again to look it up; give the text as a file")
        if not storage.exists(uri) or readers.input_signature(uri) != signature:
            raise DataError(f"{gold.uri}: line {min(others)} of {uri} cannot be looked up: the file moved or changed; embed it again")
        ids.update(_read_again(gold, uri, _text_settings(manifest), others))
    return ids


def _text_settings(manifest: Manifest) -> TextSettings:
    return TextSettings(**{name: manifest.config[name] for name in TextSettings.model_fields if name in manifest.config})


def _first_places(side: Corpus, wanted: set[int]) -> dict[int, int]:
    lines = np.fromiter(wanted, dtype=np.int64)
    ids: dict[int, int] = {}
    for shard in side.shards:
        for table in side.sentences(shard.name, ["id", "line"]):
            here = table.filter(np.isin(table["line"].to_numpy(), lines))
            ids.update(zip(here["line"].to_pylist(), here["id"].to_pylist(), strict=True))
    return ids


def _read_again(gold: GoldFile, uri: str, settings: TextSettings, wanted: set[int]) -> dict[int, int]:
    lines = np.fromiter(wanted, dtype=np.int64)
    ids: dict[int, int] = {}
    end = 0
    for block in readers.read_sentences(uri, settings):
        rows = np.flatnonzero(np.isin(block.lines, lines))
        ids.update(zip(block.lines[rows].tolist(), sentence_ids([block.texts[row] for row in rows]).tolist(), strict=True))
        end = block.end
        if end >= lines.max():
            break
    beyond = [line for line in wanted if line > end]
    if beyond:
        raise DataError(f"{gold.uri}: there is no line {min(beyond)} in {uri}, which ends at line {end}; give the gold of this text")
    return ids
