"""Text -> shards of unique sentences. *Scatter* files the sentences of one input by id range, *gather* makes one range a shard.

What scatter leaves lies under `OUTPUT/.ranges` until the sentences are complete, so a run that was stopped goes on from there.
Filters work on a range that was gathered; near-duplicates are collapsed after them (`pipelines/corpus/near_duplicates.py`).

Inputs that are new since an earlier run become a part of their own: of them those sentences are kept that no part before has, in further
shards, and the shards that were there stay as they are. `parts.json` tells what was read when.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from miner import languages, stages, storage
from miner.config.commands import EmbedConfig, TextSettings
from miner.corpus import SENTENCES
from miner.errors import DataError
from miner.filters import language
from miner.stages import Manifest, Shard, Stage
from miner.text import readers, sentences
from pipelines.beam.retry import read_skipped
from pipelines.beam.runner import ShardTask, run_stage
from pipelines.corpus import increments
from pipelines.corpus.deduplicate import (
    DROPPED,
    DeduplicateTask,
    FilteredSentences,
    PreviousSentences,
    ScatteredFiles,
    SentenceFilter,
    reasons,
)
from pipelines.corpus.increments import CorpusIncrement
from pipelines.corpus.near_duplicates import NEAR_DUPLICATE, NearDuplicateCollapse

RANGES = ".ranges"
STDIN = ".stdin"
PARTS = "parts.json"


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
        manifest = _Reading(config, places, options).run(signatures)
    finally:
        storage.remove(spool)
    storage.remove(storage.join(config.output, RANGES))
    if not manifest.rows:
        for name in (SENTENCES, DROPPED):
            storage.remove(storage.join(config.output, name))
        told = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in manifest.details["counts"].items() if count)
        raise DataError(f"{', '.join(signatures)}: the filters leave not one sentence ({told}); ask less of them")
    return manifest


class _Reading:
    """The parts of a corpus, as they are read."""

    def __init__(self, config: EmbedConfig, places: Mapping[str, str], options: Sequence[str]) -> None:
        self.config = config
        self.places = places  # input -> where it is read
        self.options = options
        self.parts: list[CorpusIncrement] = []
        self.set_aside: dict[str, str] = {}  # input -> why it could not be read

    def run(self, signatures: Mapping[str, str]) -> Manifest:
        """Read what is not read yet of inputs {name: signature}."""
        stage, _ = self._stages(signatures)
        stage.start()
        self.parts = increments.planned(stage.path(PARTS), signatures, whole=self.config.collapse)
        stage, dropped = self._stages(increments.inputs(self.parts))
        if self.config.keep_dropped:
            dropped.start()
            for name in dropped.reopen(self._made_from(dropped)):
                storage.remove(stage.path(f"{stages.MARKERS}/{name}.json"))  # to be sifted again
        whole = not stage.reopen(self._made_from(stage)) and storage.exists(stage.path(stages.MANIFEST))
        manifest = stages.read_manifest(stage.folder) if whole else None
        if manifest is None or dict(manifest.inputs) != stage.inputs:  # as where a part is gone
            manifest = self._read_all()
        if self.config.keep_dropped:
            _, dropped = self._stages(manifest.inputs)
            dropped.finish(self._made_from(dropped))
        return manifest

    def _read_all(self) -> Manifest:
        for number in range(len(self.parts)):
            manifest = self._read(number)
        if self.config.collapse:
            assert manifest is not None, "one part, whose files are counted only on the way"
            return manifest
        self.parts = [part for part in self.parts if part.inputs]
        self._write_parts()
        stage, _ = self._stages(increments.inputs(self.parts))
        return stage.finish(self._made_from(stage), lambda shards: self._details(shards, shards))

    def _write_parts(self) -> None:
        told = [asdict(part) for part in self.parts if part.counts is not None]
        storage.write_json(storage.join(self.config.output, SENTENCES, PARTS), told)

    def _stages(self, inputs: Mapping[str, str]) -> tuple[Stage, Stage]:
        """Of the sentences, and of those that are dropped."""
        folders = {name: storage.join(self.config.output, name) for name in (SENTENCES, DROPPED)}
        stage, dropped = (Stage(folder, name, made_with(self.config), inputs) for name, folder in folders.items())
        return stage, dropped

    def _made_from(self, stage: Stage) -> dict[str, str]:
        """Shard -> the key of what it is made from: the inputs of its part and of those before."""
        made_from: dict[str, str] = {}
        for number in range(len(self.parts)):
            key = stage.key(increments.inputs(self.parts[: number + 1]))
            made_from |= dict.fromkeys(self._scattered(number).names(), key)
        return made_from

    def _scattered(self, number: int) -> ScatteredFiles:
        folder, part = storage.join(self.config.output, RANGES), self.parts[number]
        if part.ranges is None:
            places = [self.places[uri] for uri in part.inputs]
            settings = self.config.part(TextSettings)
            # What is added is cut by its size alone, or every night would bring as many shards as the first.
            ranges = sentences.ranges_for(places, settings.model_copy(update={"shards": None}) if number else settings)
            part = self.parts[number] = replace(part, ranges=ranges)
        assert part.ranges is not None
        return ScatteredFiles(folder, part.ranges, number)

    def _read(self, number: int) -> Manifest | None:
        """Make the shards of one part that are not there, None where all are. Those of the parts before are."""
        scattered = self._scattered(number)
        stage, _ = self._stages(increments.inputs(self.parts))
        made_from, part = self._made_from(stage), self.parts[number]
        made = all(stage.find_shard(name, made_from[name]) for name in scattered.names())
        if made and part.counts is not None and not self.config.collapse:
            return None
        read = self._scatter(scattered, number)
        self.set_aside |= read.set_aside
        left = {uri: told for uri, told in part.inputs.items() if uri not in read.set_aside}
        self.parts[number] = replace(part, inputs=left, counts=read.counts)
        if not left:
            return None
        self._write_parts()
        return self._sift(scattered, number)

    def _sift(self, scattered: ScatteredFiles, number: int) -> Manifest:
        """What was scattered -> the sentences of a part, and those that were dropped."""
        stage, dropped = self._stages(increments.inputs(self.parts))
        made_from = self._made_from(stage)
        for name in [name for after in range(number + 1, len(self.parts)) for name in self._scattered(after).names()]:
            if stage.find_shard(name, made_from[name]) is None:
                del made_from[name]  # comes in its turn
        if not self.config.keep_dropped:
            storage.remove(dropped.folder)  # of other inputs than these
        sieve = SentenceFilter(languages.canonical(self.config.lang), self.config.sentence_filters.bounds())
        key = dropped.key(increments.inputs(self.parts[: number + 1]))
        sifted = FilteredSentences(stage.folder, (dropped, key) if self.config.keep_dropped else None)
        if not self.config.collapse:
            known = PreviousSentences([stage.path(name) for before in range(number) for name in self._scattered(before).names()])
            work = DeduplicateTask(scattered, sieve, sifted, known)
            return run_stage(stage, made_from, work, self.options, lambda shards: self._details(shards, shards))
        collapse = NearDuplicateCollapse(self.config.output, scattered, sifted)
        before = collapse.prepare(sieve, stage.key(), self.options)
        manifest = run_stage(stage, made_from, collapse, self.options, lambda shards: self._details(before, shards))
        collapse.remove()
        return manifest

    def _scatter(self, scattered: ScatteredFiles, number: int) -> "_Read":
        settings = self.config.part(TextSettings)
        inputs = self.parts[number].inputs
        try:
            work = _Scatter(scattered, {uri: self.places[uri] for uri in inputs}, settings)
            return _scatter(work, inputs, self.options, may_be_empty=number > 0)  # there are the parts before
        except DataError as error:
            if not number or settings.strict:
                raise
            return _Read(dict.fromkeys(readers.COUNTS, 0), dict.fromkeys(inputs, str(error)))

    def _details(self, sifted: Sequence[Shard], shards: Sequence[Shard]) -> dict[str, Any]:
        """For the manifest of the sentences; `sifted` count what the filters dropped."""
        read: Counter[str] = Counter(dict.fromkeys(readers.COUNTS, 0))
        for part in self.parts:
            read.update(part.counts or {})
        return {"counts": _tally(read, sifted, shards), **({"set_aside": self.set_aside} if self.set_aside else {})}


@dataclass(frozen=True)
class _Read:
    """What was scattered."""

    counts: Mapping[str, int]  # of lines
    set_aside: Mapping[str, str]  # input -> why it could not be read


def made_with(config: EmbedConfig) -> dict[str, Any]:
    """What must not change between runs in one folder: settings of the text, language, and the filters that are on."""
    filters = {f"filter {name}": bound for name, bound in config.sentence_filters.bounds().items()}
    return {**config.part(TextSettings).model_dump(), "lang": languages.canonical(config.lang), "collapse": config.collapse, **filters}


def _tally(read: Mapping[str, int], sifted: Sequence[Shard], shards: Sequence[Shard]) -> dict[str, int]:
    """What became of every line: `lines` are those kept and those not, by reason; those kept are unique, near-duplicates of them, or
    duplicates of either."""
    dropped = reasons(sifted)
    dropped.pop(NEAR_DUPLICATE, None)
    kept = read["kept"] - dropped.total()
    unique = sum(shard.rows for shard in shards)
    near = {NEAR_DUPLICATE: sum(shard.counts[NEAR_DUPLICATE] for shard in shards)} if sifted is not shards else {}
    return {**read, "kept": kept, **dropped, **near, "duplicate": kept - unique - sum(near.values())}


class _Scatter(ShardTask):
    """One input -> one file of sentences in the order of their ranges."""

    processed_counts = frozenset({"lines", "kept"})

    def __init__(self, scattered: ScatteredFiles, places: Mapping[str, str], settings: TextSettings) -> None:
        self.folder = scattered.folder
        self.ranges = scattered.ranges
        self.settings = settings
        self.places = {sentences.scattered_name(source): (uri, source) for source, uri in places.items()}

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        uri, source = self.places[name]
        counts = sentences.scatter(uri, self.folder, self.ranges, self.settings, source)
        return counts["kept"], counts


def _scatter(work: _Scatter, signatures: Mapping[str, str], options: Sequence[str], may_be_empty: bool) -> _Read:
    """Scatter every input that is not scattered yet. One that cannot be read is set aside, unless the settings are strict.

    DataError where there is not one sentence, unless there `may_be_empty`.
    """
    stage = Stage(work.folder, "ranges", {}, signatures)
    how = {"settings": storage.key(work.settings.model_dump()), "ranges": str(work.ranges)}
    made_from = {sentences.scattered_name(source): stage.key({source: signature, **how}) for source, signature in signatures.items()}
    for name in set(storage.names_in(work.folder)) - set(made_from):
        if name.endswith(sentences.SUFFIX):  # of an input that is no longer asked for; gather takes all there are
            storage.remove(stage.path(name))
            storage.remove(stage.path(f"{stages.MARKERS}/{name}.json"))
    manifest = run_stage(stage, made_from, work, options, skip_failed=not work.settings.strict)
    counts = Counter(dict.fromkeys(readers.COUNTS, 0))
    for shard in manifest.shards:
        counts.update(shard.counts)
    if not counts["kept"] and not may_be_empty:
        storage.remove(work.folder)
        reasons = ", ".join(f"{counts[name]} {name.replace('_', ' ')}" for name in readers.COUNTS if name not in ("lines", "kept"))
        raise DataError(f"{', '.join(signatures)}: not one sentence in {counts['lines']} lines ({reasons}); give a text with sentences")
    left_out = read_skipped(manifest)
    return _Read(dict(counts), {source: left_out[name] for source in signatures if (name := sentences.scattered_name(source)) in left_out})
