"""Write report.html for a directory, from everything in it that has charts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from miner.config.choices import CALIBRATED, PROBABILITY, RECOMMENDED
from miner.errors import ConfigError, DataError, StorageError
from miner.evaluation.bitext_precision import KnownPairs
from miner.io import stages, storage
from miner.io.stages import Manifest
from miner.mining.histogram import describe_quantiles
from miner.mining.writers import PARQUET
from miner.report import charts, pairs, rounds, runs, scores, training
from miner.report.marking import SAMPLE_PAIRS
from miner.report.mined_pairs import MinedBitext
from miner.report.page import MALFORMED, Section, page
from miner.units import list_counts

NAME = "report.html"


@dataclass(frozen=True)
class Part:
    """The part of a report on one kind of content, such as a training run."""

    title: str
    facts: Sequence[str]
    sections: Sequence[Section]


def write(folder: str, known_pairs: KnownPairs | None = None, identify: bool = False, sample_pairs: int = SAMPLE_PAIRS) -> str | None:
    """Write FOLDER/report.html and return its path; None if there is nothing to show. The same folder gives the same bytes.

    `known_pairs` are gold or marks of mined pairs; `identify` also identifies the languages of a sample of these. `sample_pairs` are to
    be marked.
    """
    with charts.style():
        parts = [
            _mined(folder, known_pairs, identify, sample_pairs),
            *(read_part(folder) for read_part in (_run, _loop, _training, _evaluation)),
        ]
        shown = [part for part in parts if part is not None]
    if not shown:
        return None
    facts = [fact for part in shown for fact in part.facts]
    uri = storage.join(folder, NAME)
    with storage.atomic(uri) as handle:
        handle.write(page(shown[0].title, facts, [section for part in shown for section in part.sections]))
    return uri


def _mined(folder: str, known_pairs: KnownPairs | None, identify: bool, sample_pairs: int) -> Part | None:
    if not all(storage.exists(storage.join(folder, name)) for name in (stages.MANIFEST, PARQUET)):
        if known_pairs is not None:
            raise ConfigError(f"{folder}: no mined pairs to compare with gold; leave --gold out, or name a directory of `miner mine`")
        return None
    mined = MinedBitext(folder, stages.read_manifest(folder, stages.MINE))
    try:
        facts = _mining_facts(mined.manifest)
        title = f"{' – '.join(mined.languages)}: {len(mined.margins):,} pairs"
        return Part(title, facts, pairs.sections(mined, known_pairs, identify, sample_pairs))
    except MALFORMED as error:
        raise StorageError(f"{folder}: its manifest or {PARQUET} is incomplete ({error!r}); run `miner mine` again") from error


def _mining_facts(manifest: Manifest) -> list[str]:
    """Return the mining settings, the expected precision and recall, and the numbers of dropped pairs."""
    config, details = manifest.config, manifest.details
    threshold = [] if config.get("threshold") is None else [f"threshold {config['threshold']:g}"]
    threshold += [f"probability at least {config['min_probability']:g}"] if "min_probability" in config else []
    facts = [", ".join([*(f"{name} {config[name]}" for name in ("margin", "retrieval", "k") if name in config), *threshold])]
    choice = details.get("choice")
    if choice is not None:
        estimates = {name: choice[name] for name in ("precision", "recall") if choice[name] is not None}
        shares = (f"{name} {share['value']:.3f} ({share['low']:.3f}-{share['high']:.3f})" for name, share in estimates.items())
        facts.append(f"threshold chosen by {choice['by']}: expected {', '.join(shares)}, with 95 % confidence")
    if (default := details.get("default_threshold")) is not None:
        facts.append(_default_fact(default))
    if (precision := details.get("estimated_precision")) is not None:
        facts.append(f"by their probabilities, {precision:.0%} of the pairs are right")
    if (quantiles := details.get("best_margins")) is not None:
        facts.append(f"best margins of the source sentences: {describe_quantiles(quantiles)}")
    if dropped := list_counts(details.get("dropped", {})):
        facts.append(f"dropped: {dropped}")
    return facts


def _default_fact(default: Mapping[str, Any]) -> str:
    if default["by"] == CALIBRATED:
        return f"threshold calibrated on {default['num_pairs']:,} of these pairs: about {default['precision']:.0%} are right above it"
    if default["by"] == PROBABILITY and "precision" in default:
        return f"probability chosen for a precision of {default['precision']:g}"
    if default["by"] == PROBABILITY:
        return "threshold: the lowest margin of a pair with that probability"
    return f"threshold: {'recommended for the encoder' if default['by'] == RECOMMENDED else 'fallback, not chosen for this encoder'}"


def _run(folder: str) -> Part | None:
    figures = runs.read(folder)
    if figures is None:
        return None
    for name in runs.pair_names(folder, figures):
        pair_folder = storage.join(folder, runs.PAIRS, name)
        if storage.is_folder(pair_folder) and not storage.exists(storage.join(pair_folder, NAME)):
            write(pair_folder)
    fact, sections = runs.describe(folder, figures, NAME)
    return Part("Run", [fact], sections)


def _loop(folder: str) -> Part | None:
    figures = rounds.read(folder)
    if figures is None:
        return None
    fact, sections = rounds.describe(folder, figures)
    return Part("Loop", [fact], sections)


def _training(folder: str) -> Part | None:
    lines = training.read(folder)
    try:
        return Part("Training", training.facts(lines), training.sections(lines)) if lines else None
    except MALFORMED as error:
        uri = storage.join(folder, training.JOURNAL)
        raise DataError(f"{uri}: not the journal of a training run ({error!r}); delete it") from error


def _evaluation(folder: str) -> Part | None:
    figures = scores.read(folder)
    return Part("Evaluation", [], scores.sections(figures)) if figures else None
