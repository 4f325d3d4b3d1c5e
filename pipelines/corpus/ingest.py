"""Ingest text: inputs become shards of unique sentences in OUTPUT/sentences.

Each input is scattered by id range (scatter.py); each id range is then deduplicated, filtered and written as a shard (deduplicate.py),
after near-duplicates are collapsed if this is configured. Scattered files are kept in OUTPUT/.ranges until the sentences are complete, so
that a stopped run can resume.

Inputs that are new since an earlier run become an increment (increments.py): shards of their own, with the sentences that no earlier
increment has. Earlier shards do not change. `increments.json` records the inputs of every increment.
"""

import contextlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from miner import languages
from miner.config.commands import EmbedConfig, SentenceFilters, TextSettings
from miner.devices import available_cores
from miner.errors import AllSkippedError, DataError, SettingsError
from miner.filters import language
from miner.io import stages, storage
from miner.io.credentials import hide
from miner.io.stages import SENTENCES, SKIPPED, Manifest, Shard, Stage
from miner.text import encodings, readers, splitting
from miner.text.readers import InputState
from miner.text.sharding import DEFAULT_SIZES, IngestSizes, InputFile, num_ranges_for
from miner.units import counted, list_counts
from pipelines.beam.runner import Pipeline, is_in_this_process, run_stage
from pipelines.beam.shuffle import ShuffleSteps
from pipelines.corpus.deduplicate import (
    DROPPED,
    NEAR_DUPLICATE,
    DeduplicateTask,
    SentenceFilter,
    SentenceWriter,
    collapse,
    count_dropped_lines,
)
from pipelines.corpus.increments import CorpusIncrement, find_absent, merge_inputs, plan_increments, write_increments
from pipelines.corpus.input_changes import PATTERNS
from pipelines.corpus.scatter import ScatteredFiles, ScatterResult, ScatterTask, scatter_inputs

logger = logging.getLogger(__name__)

RANGES = ".ranges"
STEPS = ".near_duplicates"
STDIN = ".stdin"
INCREMENTS = "increments.json"
FAULTS = ("invalid", "too_long")  # outcomes in `readers.LINE_COUNTS` that are faults
MIN_GUESSED_SHARE = 0.1  # share of invalid lines from which the encoding of a text is guessed
MAX_FAULTY_SHARE = 0.01  # share of lines that are dropped without a warning


def run(config: EmbedConfig, inputs: Sequence[str], sizes: IngestSizes = DEFAULT_SIZES) -> Pipeline[Manifest]:
    """Write the sentences of `inputs`, as `readers.expand` returns them, to OUTPUT/sentences; keep shards that are up to date.

    The details of the manifest hold the counts of lines by outcome. Raises DataError if there is no sentence, or none passes the
    filters.
    """
    check_extras(config)
    if config.sentence_filters != SentenceFilters():  # the default filters rate what they can
        language.warn_if_unrated(config.sentence_filters.bounds(), [languages.canonical(config.lang)], config.lang_id_model)
    spool = storage.join(config.output, STDIN)
    try:
        names = {uri: hide(uri) for uri in inputs}  # recorded in the sentences and the manifest
        if len(set(names.values())) < len(names):
            raise DataError("two inputs differ only in credentials or queries, which are not recorded; name one, or save them as files")
        states = {uri: InputState(readers.spool_stdin(spool), None) if uri == readers.STDIN else readers.input_state(uri) for uri in inputs}
        signatures = {names[uri]: state.signature for uri, state in states.items()}
        files = {names[uri]: InputFile(names[uri], spool if uri == readers.STDIN else uri, states[uri].num_bytes) for uri in inputs}
        manifest = yield from _Ingestion(config, files, sizes).run(signatures)
    finally:
        storage.remove(spool)
    storage.remove(storage.join(config.output, RANGES))
    if not manifest.rows:
        for name in (SENTENCES, DROPPED):
            storage.remove(storage.join(config.output, name))
        counts = list_counts(manifest.details["counts"])
        raise DataError(f"{', '.join(signatures)}: the filters drop every sentence ({counts}); relax their bounds")
    _warn_of_faulty_lines(manifest, inputs[0], languages.canonical(config.lang))
    return manifest


def _warn_of_faulty_lines(manifest: Manifest, uri: str, lang: str) -> None:
    """Warn if many lines are not UTF-8, lack the column with the text, or are too long. `uri` is the first input."""
    counts = manifest.details["counts"]
    faulty = {name.replace("_", " "): counts[name] for name in FAULTS if counts[name]}
    if sum(faulty.values()) > MAX_FAULTY_SHARE * counts["lines"]:
        reasons = ", ".join(f"{count:,} {name}" for name, count in faulty.items())
        first, *others = manifest.inputs
        name = f"{first} and {len(others):,} more" if others else first
        hint = "--strict stops at the first with the reason, such as text that is not UTF-8"
        if counts["invalid"] > MIN_GUESSED_SHARE * counts["lines"] and (encoding := encodings.guess_encoding(uri, lang)):
            hint = f"the text looks like {encoding}, so give --encoding {encoding}"
        logger.warning("%s: of %s lines, dropped %s; %s", name, f"{counts['lines']:,}", reasons, hint)


def check_extras(config: EmbedConfig) -> None:
    """Raise ConfigError if the settings need a package that is not installed, or a language that is not given."""
    language.check_identifier(config.sentence_filters.bounds(), config.lang_id_model)
    if config.split:
        splitting.load_splitter(languages.canonical(config.lang))


def stage_config(config: EmbedConfig) -> dict[str, Any]:
    """Return what must not change between runs in one folder: text settings, language, the splitter, and the bounds of filters."""
    split = {"split": splitting.LIBRARY} if config.split else {}
    filters: dict[str, Any] = {f"filter {name}": bound for name, bound in config.sentence_filters.bounds().items()}
    if config.lang_id_model is not None and config.sentence_filters.language is not None:
        filters["lang_id_model"] = storage.checksum(config.lang_id_model)
    text = config.part(TextSettings).model_dump(exclude={"max_expansion"})
    return {**text, "lang": languages.canonical(config.lang), "collapse": config.collapse, **split, **filters}


class _Ingestion:
    """One run of ingestion, and the state of its increments."""

    def __init__(self, config: EmbedConfig, files: Mapping[str, InputFile], sizes: IngestSizes) -> None:
        self.config = config
        self.files = files  # by input
        self.sizes = sizes
        self.increments: list[CorpusIncrement] = []
        self.skipped: dict[str, str] = {}  # input -> why it could not be read

    def run(self, signatures: Mapping[str, str]) -> Pipeline[Manifest]:
        """Ingest the inputs {name: signature} that are not ingested yet."""
        stage = self._stage(SENTENCES, signatures)
        stage.start()
        absent = [] if self.config.replace else find_absent(stage.path(INCREMENTS), signatures)
        if absent:
            files = f"{absent[0]} and {counted(len(absent) - 1, 'more file')}, no longer inputs"
            files = files if len(absent) > 1 else f"{absent[0]}, no longer an input"
            raise SettingsError(f"{self.config.output}: made from {files}; choose another --output, or replace it by --replace")
        self._plan(stage.path(INCREMENTS), signatures)
        if self.config.keep_dropped:
            self._redo_shards_without_dropped()
        manifest = self._read_complete() or (yield from self._ingest_increments())
        if self.config.keep_dropped:
            dropped = self._stage(DROPPED, manifest.inputs)
            dropped.finish(self._shard_keys(dropped))
        return manifest

    def _plan(self, uri: str, signatures: Mapping[str, str]) -> None:
        """Determine the increments and their numbers of id ranges."""
        for number, increment in enumerate(plan_increments(uri, signatures, single=self.config.collapse)):
            if increment.ranges is None:
                files = [self.files[name] for name in increment.inputs]
                # `shards` is for the first increment; with small increments, every run would otherwise add as many shards.
                increment_settings = self.config.model_copy(update={"shards": None}) if number else self.config
                increment = replace(increment, ranges=num_ranges_for(files, increment_settings, self.sizes))
            self.increments.append(increment)

    def _redo_shards_without_dropped(self) -> None:
        """Invalidate shards of sentences whose dropped sentences are not written, so that they are filtered again."""
        inputs = merge_inputs(self.increments)
        sentences, dropped = self._stage(SENTENCES, inputs), self._stage(DROPPED, inputs)
        dropped.start()
        for name in dropped.reopen(self._shard_keys(dropped)):
            storage.remove(sentences.path(f"{stages.MARKERS}/{name}.json"))

    def _read_complete(self) -> Manifest | None:
        """Return the manifest of an earlier run, if it is complete and of the same inputs."""
        stage = self._stage(SENTENCES, merge_inputs(self.increments))
        if stage.reopen(self._shard_keys(stage)) or not storage.exists(stage.path(stages.MANIFEST)):
            return None
        if any(increment.counts is None for increment in self.increments):  # their record is damaged: the inputs are read again for it
            return None
        manifest = stages.read_manifest(stage.folder)
        # Inputs differ if an increment was removed. An input that was skipped, and is no longer one, must not be reported again.
        return manifest if dict(manifest.inputs) == stage.inputs and not manifest.skipped else None

    def _check_start(self) -> None:
        """Warn if the lines at the start of the text are in another language than stated, or look like paragraphs."""
        file = next(iter(self.files.values()))
        with contextlib.suppress(DataError):  # raised again when the input is read
            block = next(readers.read_sentences(file.uri, self.config, file.source), None)
            language.warn_of_other_language(file.source, block.texts if block else (), languages.canonical(self.config.lang))
            share = splitting.paragraph_share(block.texts) if block is not None and not self.config.split else 0.0
            if share >= splitting.MIN_PARAGRAPH_SHARE:
                logger.warning("%s: %.0f%% of the lines have several sentences; --split splits them", file.source, 100 * share)

    def _ingest_increments(self) -> Pipeline[Manifest]:
        self._check_start()
        for number in range(len(self.increments)):
            manifest = yield from self._ingest_increment(number)
        if self.config.collapse:
            assert manifest is not None, "a collapsed corpus has one increment, which is always ingested"
            return manifest
        self.increments = [increment for increment in self.increments if increment.inputs]
        self._write_increments()
        stage = self._stage(SENTENCES, merge_inputs(self.increments))
        return stage.finish(self._shard_keys(stage), self._details)

    def _ingest_increment(self, number: int) -> Pipeline[Manifest | None]:
        """Write the missing shards of one increment, after those of all earlier ones; None if there is nothing to write."""
        increment, scattered = self.increments[number], self._scattered(number)
        stage = self._stage(SENTENCES, merge_inputs(self.increments))
        keys = self._shard_keys(stage)
        own_keys = {name: keys[name] for name in scattered.shard_names()}
        is_finished = stage.find_shards(own_keys).keys() == own_keys.keys()
        if is_finished and increment.counts is not None and not self.config.collapse:
            return None
        result = yield from self._scatter(scattered, increment)
        self.skipped |= result.skipped
        readable = {uri: signature for uri, signature in increment.inputs.items() if uri not in result.skipped}
        self.increments[number] = replace(increment, inputs=readable, counts=result.counts)
        if not readable:
            return None
        self._write_increments()
        return (yield from self._write_shards(scattered))

    def _scatter(self, scattered: ScatteredFiles, increment: CorpusIncrement) -> Pipeline[ScatterResult]:
        settings = self.config.part(TextSettings)
        lang = languages.canonical(self.config.lang)
        split_lang = lang if self.config.split else None
        num_processes = available_cores() if is_in_this_process.get() else 1  # on a cluster, other workers use the other cores
        task = ScatterTask(scattered, [self.files[uri] for uri in increment.inputs], settings, split_lang, num_processes)
        try:
            return (yield from scatter_inputs(task, increment.inputs, lang))
        except DataError as error:
            if not scattered.increment or settings.strict:
                raise
            skipped = dict(error.reasons) if isinstance(error, AllSkippedError) else dict.fromkeys(increment.inputs, str(error))
            return ScatterResult(dict.fromkeys(readers.LINE_COUNTS, 0), skipped)

    def _write_shards(self, scattered: ScatteredFiles) -> Pipeline[Manifest]:
        """Deduplicate and filter the scattered sentences of one increment, and collapse near-duplicates if configured."""
        stage = self._stage(SENTENCES, merge_inputs(self.increments))
        keys = self._shard_keys(stage)
        later = self._shard_names(range(scattered.increment + 1, len(self.increments)))
        scattered_later = stage.find_shards({name: keys[name] for name in later}) if later else {}
        for name in set(later) - scattered_later.keys():
            del keys[name]
        sentence_filter = SentenceFilter(
            languages.canonical(self.config.lang), self.config.sentence_filters.bounds(), self.config.lang_id_model
        )
        writer = self._writer(scattered.increment)
        if not self.config.collapse:
            previous = [stage.path(name) for name in self._shard_names(range(scattered.increment))]
            task = DeduplicateTask(scattered, previous, sentence_filter, writer)
            return (yield from run_stage(stage, keys, task, self._details))
        # Filters take long, so the steps always run as jobs.
        steps = ShuffleSteps("near-duplicates", storage.join(self.config.output, STEPS), stage.key(), self._num_kept(), in_process_rows=0)
        collapse_task, dropped = yield from collapse(scattered, sentence_filter, writer, steps)
        manifest = yield from run_stage(stage, keys, collapse_task, lambda shards: self._details(shards, dropped))
        steps.remove()
        return manifest

    def _writer(self, number: int) -> SentenceWriter:
        """Return the writer of the shards of an increment. Dropped sentences of an earlier run are removed if they are not kept."""
        inputs = merge_inputs(self.increments)
        sentences, dropped = self._stage(SENTENCES, inputs), self._stage(DROPPED, inputs)
        if not self.config.keep_dropped:
            storage.remove(dropped.folder)
            return SentenceWriter(sentences.folder, None, "", self.sizes)
        return SentenceWriter(sentences.folder, dropped, dropped.key(merge_inputs(self.increments[: number + 1])), self.sizes)

    def _stage(self, name: str, inputs: Mapping[str, str]) -> Stage:
        """Return the stage of SENTENCES, or of DROPPED."""
        return Stage(storage.join(self.config.output, name), name, stage_config(self.config), inputs)

    def _shard_keys(self, stage: Stage) -> dict[str, str]:
        """Return the key of every shard: a shard depends on the inputs of its increment and of all earlier ones."""
        keys: dict[str, str] = {}
        for number in range(len(self.increments)):
            key = stage.key(merge_inputs(self.increments[: number + 1]))
            keys |= dict.fromkeys(self._scattered(number).shard_names(), key)
        return keys

    def _scattered(self, number: int) -> ScatteredFiles:
        num_ranges = self.increments[number].ranges
        assert num_ranges is not None, "`_plan` sets it"
        return ScatteredFiles(storage.join(self.config.output, RANGES), num_ranges, number, self.sizes)

    def _shard_names(self, numbers: Sequence[int]) -> list[str]:
        return [name for number in numbers for name in self._scattered(number).shard_names()]

    def _write_increments(self) -> None:
        write_increments(storage.join(self.config.output, SENTENCES, INCREMENTS), self.increments)

    def _num_kept(self) -> int:
        """Return the number of lines that are read, before filters."""
        return sum((increment.counts or {}).get("kept", 0) for increment in self.increments)

    def _details(self, shards: Sequence[Shard], dropped: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Return the details of the manifest. `dropped` counts lines that filters dropped before near-duplicates, by reason."""
        lines: Counter[str] = Counter(dict.fromkeys(readers.LINE_COUNTS, 0))
        for increment in self.increments:
            lines.update(increment.counts or {})
        counts = _count_outcomes(lines, dropped or {}, shards)
        patterns = [hide(name) for name in self.config.inputs if hide(name) not in self.files]
        return {"counts": counts, **({PATTERNS: patterns} if patterns else {}), **({SKIPPED: self.skipped} if self.skipped else {})}


def _count_outcomes(lines: Mapping[str, int], filtered: Mapping[str, int], shards: Sequence[Shard]) -> dict[str, int]:
    """Count lines by outcome: `lines` = `kept` + every reason; `kept` = unique sentences + `duplicate` + `near_duplicate`."""
    dropped = Counter(filtered)
    dropped.update(count_dropped_lines(shards))
    kept = lines["kept"] - dropped.total() + dropped[NEAR_DUPLICATE]
    unique = sum(shard.rows for shard in shards)
    return {**lines, "kept": kept, **dropped, "duplicate": kept - unique - dropped[NEAR_DUPLICATE]}
