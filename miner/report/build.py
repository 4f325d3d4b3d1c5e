"""report.html of a folder: whatever it finds there that it knows how to show."""

from collections.abc import Sequence
from dataclasses import dataclass

from miner import stages, storage
from miner.errors import ConfigError, StorageError
from miner.evaluation.bitext import STAGE
from miner.mining.writers import PARQUET
from miner.report import charts, pairs, rounds, scores, training
from miner.report.mined_pairs import MinedBitext, Truth
from miner.report.page import Section, page
from miner.stages import Manifest

NAME = "report.html"


def write(folder: str, truth: Truth | None = None, identify: bool = False) -> str | None:
    """Write FOLDER/report.html and tell where it is; None where there is nothing to show. The same folder gives the same bytes.

    `truth` is of mined pairs; `identify` tells to look at their languages too.
    """
    with charts.style():
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
    if not all(storage.exists(storage.join(folder, name)) for name in (stages.MANIFEST, PARQUET)):
        if truth is not None:
            raise ConfigError(f"{folder}: gold is of mined pairs, and there are none; leave it out")
        return None
    mined = MinedBitext(folder, stages.read_manifest(folder, STAGE))
    try:
        facts = _decided(mined.manifest)
        title = f"{' – '.join(mined.languages)}: {len(mined.margins):,} pairs"
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{folder}: its manifest does not tell how it was mined ({error!r}); run `miner mine` again") from error
    return Part(title, facts, pairs.sections(mined, truth, identify))


def _decided(manifest: Manifest) -> list[str]:
    """How pairs were decided on, what to expect of them, and what was dropped."""
    config, details = manifest.config, manifest.details
    threshold = [] if config.get("threshold") is None else [f"threshold {config['threshold']:g}"]
    facts = [", ".join([*(f"{name} {config[name]}" for name in ("margin", "retrieval", "k") if name in config), *threshold])]
    choice = details.get("choice")
    if choice is not None:
        shares = (
            f"{name} {choice[name]['value']:.3f} ({choice[name]['low']:.3f}-{choice[name]['high']:.3f})" for name in ("precision", "recall")
        )
        facts.append(f"threshold chosen by {choice['by']}: expected {', '.join(shares)}, with 95 % confidence")
    dropped = details.get("dropped")
    if dropped:
        facts.append("dropped: " + ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in dropped.items()))
    return facts


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
