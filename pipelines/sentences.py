"""Text -> shards of unique sentences. *Scatter* files the sentences of one input by id range, *gather* makes one range a shard.

What scatter leaves lies under `OUTPUT/.ranges` until the sentences are complete, so a run that was stopped goes on from there.
Filters work on a range that was gathered; near-duplicates are collapsed after them (`pipelines/collapse.py`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from miner import languages, storage
from miner.config import EmbedConfig, TextSettings
from miner.corpus import SENTENCES
from miner.errors import DataError
from miner.filters import language
from miner.storage import Manifest, Shard, Stage
from miner.text import readers, sentences
from pipelines.collapse import NEAR_DUPLICATE, Collapse
from pipelines.failures import set_aside_in
from pipelines.gather import DROPPED, Gather, Scattered, Sieve, Sifted, reasons
from pipelines.runner import run_stage

RANGES = ".ranges"
STDIN = ".stdin"


def run(config: EmbedConfig, inputs: Sequence[str], options: Sequence[str] = ()) -> Manifest:
    """Make `config.output`/sentences from inputs that `readers.expand` found; what is finished and still fits is kept.

    The manifest's details hold the counts of `readers.COUNTS`, and of what became of the lines kept. DataError where there is no
    sentence at all, or the filters leave none.
    """
    if config.sentence_filters.language is not None:
        language.check()
    spool = storage.join(config.output, STDIN)
    try:
        signatures = {uri: readers.spool_stdin(spool) if uri == readers.STDIN else sentences.signature(uri) for uri in inputs}
        places = {uri: spool if uri == readers.STDIN else uri for uri in inputs}
        settings = config.part(TextSettings)
        scattered = Scattered(storage.join(config.output, RANGES), sentences.ranges_for(list(places.values()), settings))
        stage, dropped = _stages(config, signatures)
        stage.start()
        made_from = dict.fromkeys(scattered.names(), stage.key())
        if config.keep_dropped:
            dropped.start()
            for name in dropped.pending(dict.fromkeys(made_from, dropped.key())):
                storage.remove(stage.path(f"{storage.MARKERS}/{name}.json"))  # to be sifted again
        if not stage.pending(made_from) and storage.exists(stage.path(storage.MANIFEST)):
            manifest = storage.read_manifest(stage.folder)
        else:
            read = _scatter(_Scatter(scattered, places, settings), signatures, options)
            stage, dropped = _stages(config, {uri: told for uri, told in signatures.items() if uri not in read.set_aside})
            manifest = _sift(config, scattered, (stage, dropped), read, options)
        if config.keep_dropped:
            dropped.finish(dict.fromkeys(scattered.names(), dropped.key()))
    finally:
        storage.remove(spool)
    storage.remove(scattered.folder)
    if not manifest.rows:
        for folder in (stage.folder, dropped.folder):
            storage.remove(folder)
        told = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in manifest.details["counts"].items() if count)
        raise DataError(f"{', '.join(signatures)}: the filters leave not one sentence ({told}); ask less of them")
    return manifest


def _stages(config: EmbedConfig, signatures: Mapping[str, str]) -> tuple[Stage, Stage]:
    """Of the sentences, and of those that are dropped."""
    stage, dropped = (Stage(storage.join(config.output, name), name, made_with(config), signatures) for name in (SENTENCES, DROPPED))
    return stage, dropped


@dataclass(frozen=True)
class _Read:
    """What was scattered."""

    counts: Mapping[str, int]  # of lines
    set_aside: Mapping[str, str]  # input -> why it could not be read

    def details(self, sifted: Sequence[Shard], shards: Sequence[Shard]) -> dict[str, Any]:
        """For the manifest of the sentences."""
        set_aside = {"set_aside": dict(self.set_aside)} if self.set_aside else {}
        return {"counts": _tally(self.counts, sifted, shards), **set_aside}


def made_with(config: EmbedConfig) -> dict[str, Any]:
    """What must not change between runs in one folder: settings of the text, language, and the filters that are on."""
    filters = {f"filter {name}": bound for name, bound in config.sentence_filters.bounds().items()}
    return {**config.part(TextSettings).model_dump(), "lang": languages.canonical(config.lang), "collapse": config.collapse, **filters}


def _sift(config: EmbedConfig, scattered: Scattered, stages: tuple[Stage, Stage], read: _Read, options: Sequence[str]) -> Manifest:
    """What was scattered -> the sentences, and those that were dropped; these are the two stages."""
    stage, dropped = stages
    if not config.keep_dropped:
        storage.remove(dropped.folder)  # of other inputs than these
    sieve = Sieve(languages.canonical(config.lang), config.sentence_filters.bounds())
    sifted = Sifted(stage.folder, dropped if config.keep_dropped else None)
    made_from = dict.fromkeys(scattered.names(), stage.key())
    if not config.collapse:
        work = Gather(scattered, sieve, sifted)
        return run_stage(stage, made_from, work, options, lambda shards: read.details(shards, shards))
    collapse = Collapse(config.output, scattered, sifted)
    before = collapse.prepare(sieve, stage.key(), options)
    manifest = run_stage(stage, made_from, collapse, options, lambda shards: read.details(before, shards))
    collapse.remove()
    return manifest


def _tally(read: Mapping[str, int], sifted: Sequence[Shard], shards: Sequence[Shard]) -> dict[str, int]:
    """What became of every line: `lines` are those kept and those not, by reason; those kept are unique, near-duplicates of them, or
    duplicates of either."""
    dropped = reasons(sifted)
    dropped.pop(NEAR_DUPLICATE, None)
    kept = read["kept"] - dropped.total()
    unique = sum(shard.rows for shard in shards)
    near = {NEAR_DUPLICATE: sum(shard.counts[NEAR_DUPLICATE] for shard in shards)} if sifted is not shards else {}
    return {**read, "kept": kept, **dropped, **near, "duplicate": kept - unique - sum(near.values())}


class _Scatter:
    """One input -> one file of sentences in the order of their ranges."""

    def __init__(self, scattered: Scattered, places: Mapping[str, str], settings: TextSettings) -> None:
        self.folder = scattered.folder
        self.ranges = scattered.ranges
        self.settings = settings
        self.places = {sentences.scattered_name(source): (uri, source) for source, uri in places.items()}

    def setup(self) -> None:
        pass

    def make(self, name: str) -> tuple[int, Mapping[str, int]]:
        uri, source = self.places[name]
        counts = sentences.scatter(uri, self.folder, self.ranges, self.settings, source)
        return counts["kept"], counts


def _scatter(work: _Scatter, signatures: Mapping[str, str], options: Sequence[str]) -> _Read:
    """Scatter every input that is not scattered yet. One that cannot be read is set aside, unless the settings are strict."""
    stage = Stage(work.folder, "ranges", {}, signatures)
    how = {"settings": storage.key(work.settings.model_dump()), "ranges": str(work.ranges)}
    made_from = {sentences.scattered_name(source): stage.key({source: signature, **how}) for source, signature in signatures.items()}
    for name in set(storage.names_in(work.folder)) - set(made_from):
        if name.endswith(sentences.SUFFIX):  # of an input that is no longer asked for; gather takes all there are
            storage.remove(stage.path(name))
            storage.remove(stage.path(f"{storage.MARKERS}/{name}.json"))
    manifest = run_stage(stage, made_from, work, options, spare=not work.settings.strict)
    counts = Counter(dict.fromkeys(readers.COUNTS, 0))
    for shard in manifest.shards:
        counts.update(shard.counts)
    if not counts["kept"]:
        storage.remove(work.folder)
        reasons = ", ".join(f"{counts[name]} {name.replace('_', ' ')}" for name in readers.COUNTS if name not in ("lines", "kept"))
        raise DataError(f"{', '.join(signatures)}: not one sentence in {counts['lines']} lines ({reasons}); give a text with sentences")
    left_out = set_aside_in(manifest)
    return _Read(dict(counts), {source: left_out[name] for source in signatures if (name := sentences.scattered_name(source)) in left_out})
