"""report.html of a folder: whatever it finds there that it knows how to show."""

from collections.abc import Sequence
from dataclasses import dataclass

from miner import storage
from miner.errors import ConfigError
from miner.evaluation.bitext import STAGE
from miner.mining.writers import PARQUET
from miner.report import draw, pairs, rounds, scores, training
from miner.report.mined import Mined, Truth
from miner.report.page import Section, page

NAME = "report.html"


def write(folder: str, truth: Truth | None = None, identify: bool = False) -> str | None:
    """Write FOLDER/report.html and tell where it is; None where there is nothing to show. The same folder gives the same bytes.

    `truth` is of mined pairs; `identify` tells to look at their languages too.
    """
    with draw.style():
        parts = [part for part in (_mined(folder, truth, identify), *(look(folder) for look in LOOKS)) if part is not None]
    if not parts:
        return None
    facts = [fact for part in parts for fact in part.facts]
    uri = storage.join(folder, NAME)
    with storage.atomic(uri) as handle:
        handle.write(page(parts[0].title, facts, [section for part in parts for section in part.sections]))
    return uri


@dataclass(frozen=True)
class Part:
    """What a report says of one of the things that a folder holds."""

    title: str
    facts: Sequence[str]
    sections: Sequence[Section]


def _mined(folder: str, truth: Truth | None, identify: bool) -> Part | None:
    if not all(storage.exists(storage.join(folder, name)) for name in (storage.MANIFEST, PARQUET)):
        if truth is not None:
            raise ConfigError(f"{folder}: gold is of mined pairs, and there are none; leave it out")
        return None
    mined = Mined(folder, storage.read_manifest(folder, STAGE))
    config = mined.manifest.config
    told = [f"{name} {config[name]}" for name in ("margin", "retrieval", "k") if name in config]
    if config.get("threshold") is not None:
        told.append(f"threshold {config['threshold']:g}")
    title = f"{' – '.join(mined.languages)}: {len(mined.margins):,} pairs"
    return Part(title, [", ".join(told)], pairs.sections(mined, truth, identify))


def _trained(folder: str) -> Part | None:
    lines = training.read(folder)
    return Part("Training", training.facts(lines), training.sections(lines)) if lines else None


def _evaluated(folder: str) -> Part | None:
    found = scores.read(folder)
    return Part("Evaluation", [], scores.sections(found)) if found else None


def _looped(folder: str) -> Part | None:
    figures = rounds.read(folder)
    if figures is None:
        return None
    told, sections = rounds.describe(folder, figures)
    return Part("Loop", [told], sections)


LOOKS = (_looped, _trained, _evaluated)
