"""Embed text: inputs become `OUTPUT/sentences` and `OUTPUT/embeddings`, with shards of the same names and row order."""

import logging
import posixpath
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from miner import languages
from miner.arrays import Floats32
from miner.config.choices import INT8
from miner.config.commands import EmbedConfig, EncoderSettings
from miner.devices import CPU, background_thread
from miner.encoders import (
    BUILTIN,
    STATIC,
    Encoder,
    EncoderIdentity,
    absolute_name,
    choose_side,
    find_folder,
    find_kind,
    find_offered,
    identify,
    load_encoder,
    mining_profile,
    with_recorded_dtype,
)
from miner.encoders.base import CountsTokens, Preloads
from miner.encoders.checked import encode_checked, to_float16
from miner.errors import ConfigError, ModelError
from miner.io import stages, storage, table_files, tables
from miner.io.stages import Shard, Stage
from miner.text import readers
from miner.text.sharding import DEFAULT_SIZES, IngestSizes
from miner.units import list_counts
from pipelines.beam import workers
from pipelines.beam.runner import Pipeline, claim_output, run_pipeline, run_stage
from pipelines.beam.tasks import ShardTask
from pipelines.corpus import ingest

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EmbedResult:
    """The result of `miner embed`. The field names are keys of its --json output."""

    output: str
    lang: str
    encoder: str
    fingerprint: str
    dim: int
    unique: int  # sentences
    # Lines by outcome: lines (+ split, the sentences that splitting adds) = kept + empty + invalid + too_long; duplicate = kept - unique.
    counts: Mapping[str, int]
    seconds: Mapping[str, float]  # by stage
    skipped: Mapping[str, str]  # skipped input or shard -> error
    truncated_texts: int = 0  # longer than the limit of the encoder

    def summary(self) -> str:
        """Return a few lines to print."""
        outcomes = {name: count for name, count in self.counts.items() if name not in ("lines", "kept", "split")}
        split = f", split into {self.counts['lines'] + self.counts['split']:,}" if "split" in self.counts else ""
        outcome_text = ", ".join(filter(None, [f"{self.counts['kept']:,} kept", list_counts(outcomes)]))
        truncated = f", {self.truncated_texts:,} truncated at the limit of the encoder" if self.truncated_texts else ""
        return (
            f"{self.counts['lines']:,} lines{split}: {outcome_text}\n"
            f"{self.unique:,} unique sentences ({self.lang}) x {self.dim} dimensions in {self.output}{truncated}"
        )

    def figures(self) -> dict[str, Any]:
        """Return the values for --json."""
        return asdict(self)


def run(config: EmbedConfig, options: Sequence[str] = (), sizes: IngestSizes = DEFAULT_SIZES, warns: bool = False) -> EmbedResult:
    """Read, clean, filter, deduplicate and embed the inputs into `config.output`; keep what an earlier run finished there.

    `warns`: of a language that the encoder was not trained on.
    Raises the MinerError of an invalid input, encoder or output, or of an output that was written with other settings.
    """
    with claim_output(config.output):
        return run_pipeline(pipeline(config, options, sizes, warns), options)


def pipeline(
    config: EmbedConfig, options: Sequence[str] = (), sizes: IngestSizes = DEFAULT_SIZES, warns: bool = False
) -> Pipeline[EmbedResult]:
    """Return the pipeline of `run`, for an output whose lock the caller holds. `options` describe the workers."""
    times = [time.perf_counter()]
    lang = languages.canonical(config.lang)
    inputs = readers.expand(config.inputs)
    if inside := [uri for uri in inputs if storage.is_inside(uri, config.output)]:
        raise ConfigError(f"{inside[0]}: this input is inside --output {config.output}; choose another --output")
    ingest.check_extras(config)
    settings = with_recorded_dtype(choose_side(config, lang), [recorded_fingerprint(config.output)])
    encoder = identify_encoder(settings, options)
    settings = with_recorded_dtype(settings, [encoder.fingerprint])  # workers take the data type of the driver
    if warns:
        mining_profile.warn_of_languages(find_profile(settings, encoder.fingerprint), [lang])
    if isinstance(encoder, Preloads) and not storage.exists(storage.join(config.output, stages.EMBEDDINGS, stages.MANIFEST)):
        encoder.preload()  # while the inputs are read
    times.append(time.perf_counter())
    _stage(config.output, lang, settings, encoder).start()  # before any work, because the folder can hold another encoder's embeddings
    sentences = yield from ingest.run(config, inputs, sizes)
    times.append(time.perf_counter())
    stage = _stage(config.output, lang, settings, encoder, {shard.name: shard.checksum for shard in sentences.shards})
    keys = {shard.name: stage.key({shard.name: shard.checksum}) for shard in sentences.shards}
    task = EmbedTask(config.output, settings, encoder.fingerprint, sentences.shards)
    details = {"encoder": absolute_name(config.encoder)}
    embeddings = yield from run_stage(stage, keys, task, lambda _: details, skip_failed=not config.strict)
    times.append(time.perf_counter())
    seconds = dict(zip(("encoder", stages.SENTENCES, stages.EMBEDDINGS), np.diff(times).round(3).tolist(), strict=True))
    return EmbedResult(
        output=config.output,
        lang=lang,
        encoder=config.encoder,
        fingerprint=encoder.fingerprint,
        dim=encoder.dim,
        unique=embeddings.rows,
        counts=sentences.details["counts"],
        seconds=seconds,
        skipped={**sentences.skipped, **{stage.path(name): error for name, error in embeddings.skipped.items()}},
        truncated_texts=sum(shard.counts.get("truncated_texts", 0) for shard in embeddings.shards),
    )


def is_done(config: EmbedConfig, fingerprint: str) -> bool:
    """Return whether the output is complete and up to date with the inputs and the encoder. Reads manifests only."""
    folders = [storage.join(config.output, name) for name in (stages.SENTENCES, stages.EMBEDDINGS)]
    if not all(storage.exists(storage.join(folder, stages.MANIFEST)) for folder in folders):
        return False
    sentences, embeddings = (stages.read_manifest(folder) for folder in folders)
    return (
        dict(sentences.inputs) == {uri: readers.input_signature(uri) for uri in readers.expand(config.inputs)}
        and dict(sentences.config) == ingest.stage_config(config)
        and not sentences.skipped  # what was skipped is retried
        and not embeddings.skipped
        and dict(embeddings.inputs) == {shard.name: shard.checksum for shard in sentences.shards}
        and embeddings.config.get("fingerprint") == fingerprint
        and embeddings.config.get("side") == choose_side(config, config.lang).side
    )


def _stage(
    output: str, lang: str, settings: EncoderSettings, encoder: Encoder | EncoderIdentity, inputs: Mapping[str, str] | None = None
) -> Stage:
    side = {} if settings.side is None else {"side": settings.side}
    config = {"fingerprint": encoder.fingerprint, "dim": encoder.dim, "lang": lang, **side}
    return Stage(storage.join(output, stages.EMBEDDINGS), stages.EMBEDDINGS, config, inputs or {})


def uses_accelerator(settings: EncoderSettings) -> bool:
    """Whether a GPU makes an encoder faster."""
    return settings.device != CPU and settings.dtype != INT8 and find_kind(settings.encoder) != STATIC


class EmbedTask(ShardTask):
    """Embed one shard of sentences."""

    processed_counts = frozenset({"tokens", "truncated_texts"})
    work_unit = "sentence"

    def __init__(self, output: str, settings: EncoderSettings, fingerprint: str, shards: Sequence[Shard]) -> None:
        self.output = output
        self.label = posixpath.basename(output.rstrip("/"))
        self.rows = {shard.name: shard.rows for shard in shards}
        self.settings = settings
        self.fingerprint = fingerprint
        self.uses_accelerator = uses_accelerator(settings)

    def work(self, names: Sequence[str]) -> Mapping[str, int]:
        return {name: self.rows[name] for name in names}

    def setup(self) -> None:
        self.encoder = load_once(self.settings, self.fingerprint)

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        schema = tables.embeddings_schema(self.encoder.dim, self.fingerprint)
        uri = storage.join(self.output, stages.SENTENCES, name)
        sentences = table_files.open_parquet(uri)
        embeddings = table_files.parquet_writer(storage.join(self.output, stages.EMBEDDINGS, name), schema)
        counts_before = self._read_counts()
        with sentences as file, embeddings as writer, background_thread() as submit:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=["id", "text"])
                vectors = encode_checked(self.encoder, table["text"].to_pylist(), self.settings.encoder)
                submit(self._write, writer, table, vectors, uri)  # while the next row group is encoded
                extra = {"stage": stages.EMBEDDINGS, "shard": name}
                logger.info("%s: row group %d of %d encoded", name, group + 1, file.num_row_groups, extra=extra)
            rows = int(file.metadata.num_rows)
        counts = {name: count - counts_before[name] for name, count in self._read_counts().items()}
        return rows, {name: count for name, count in counts.items() if count or name == "tokens"}

    def _read_counts(self) -> dict[str, int]:
        """Return the counts of this thread's encoder so far; nothing for an encoder that does not count."""
        if not isinstance(self.encoder, CountsTokens):
            return {}
        return {"tokens": self.encoder.tally.tokens, "truncated_texts": self.encoder.tally.truncated_texts}

    def _write(self, writer: pq.ParquetWriter, sentences: pa.Table, vectors: Floats32, uri: str) -> None:
        """Write (n, dim) vectors with the ids of their sentences, which are from `uri`.

        Raises ModelError if a vector is not finite in float16, and DataError if an id is not the hash of its text.
        """
        tables.check_ids(uri, sentences)
        stored = to_float16(vectors, sentences["text"], self.settings.encoder)
        writer.write_table(pa.table([sentences["id"], tables.vectors_to_arrow(stored)], schema=writer.schema))


@dataclass(frozen=True)
class _LoadedEncoder:
    """An encoder, and the files that it was loaded from."""

    files: Mapping[str, str]  # version by relative path
    encoder: Encoder


_lock = threading.Lock()
_loaded: dict[EncoderSettings, _LoadedEncoder] = {}  # the encoder that this process loaded last


def identify_encoder(settings: EncoderSettings, options: Sequence[str]) -> Encoder | EncoderIdentity:
    """Return the encoder of these settings; where workers are on other machines, only its identity, so the driver keeps no weights.

    The driver chooses the data type of all workers. `options` are Beam's. Raises ConfigError for a device
    that no worker on this machine has.
    """
    described = workers.describe(options)
    if described.is_here:
        return load_once(settings)
    return identify(settings.model_copy(update={"device": described.device_type(settings.device)}))


def recorded_fingerprint(output: str) -> str | None:
    """Return the fingerprint of the encoder of an output of `miner embed`, finished or not; None if there is none."""
    config = stages.recorded_config(storage.join(output, stages.EMBEDDINGS))
    return None if config is None else config.get("fingerprint")


def preload(settings: EncoderSettings) -> None:
    """Start to read the encoder of these settings in the background, if it is a static one on this machine."""
    is_here = settings.encoder == BUILTIN or Path(settings.encoder).is_dir()
    encoder = load_once(settings) if is_here and find_kind(settings.encoder) == STATIC else None
    if isinstance(encoder, Preloads):
        encoder.preload()


def has_fingerprint(settings: EncoderSettings, fingerprint: str) -> bool:
    """Return whether the encoder of these settings has a fingerprint. If so, `load_once` returns it without loading it again."""
    with _lock:
        loaded = _loaded.get(settings)
    return (loaded is not None and loaded.encoder.fingerprint == fingerprint) or load_once(settings).fingerprint == fingerprint


def find_profile(settings: EncoderSettings, fingerprint: str) -> mining_profile.MiningProfile:
    """Return what `mining_profile.find` does, without reading an encoder again that this process has loaded."""
    settings = settings.part(EncoderSettings)
    with _lock:
        loaded = _loaded.get(settings)
    profile = mining_profile.NO_PROFILE if loaded is None else mining_profile.of_encoder(loaded.encoder, fingerprint)
    return mining_profile.find(settings, fingerprint) if profile == mining_profile.NO_PROFILE else profile


def load_once(settings: EncoderSettings, fingerprint: str | None = None) -> Encoder:
    """Return the encoder of these settings, loaded once per process.

    Without `fingerprint`, it is loaded again if its files changed. Raises ModelError if it has another fingerprint.
    """
    settings = settings.part(EncoderSettings)
    if (offered := find_offered(settings)) is not None:
        return offered
    with _lock:
        loaded = _loaded.get(settings)
        if loaded is not None and loaded.encoder.fingerprint == fingerprint:
            return loaded.encoder
        files = storage.versions_below(str(find_folder(settings.encoder)))
        encoder = loaded.encoder if loaded is not None and loaded.files == files else load_encoder(settings.encoder, settings)
        if fingerprint not in (None, encoder.fingerprint):
            raise ModelError(
                f"{settings.encoder}: the fingerprint on a worker is {encoder.fingerprint}, on the driver {fingerprint}; "
                "give both the same encoder"
            )
        if loaded is not None and loaded.encoder.fingerprint == encoder.fingerprint:
            encoder = loaded.encoder  # whose vectors are in memory
        _loaded.clear()
        _loaded[settings] = _loaded[with_recorded_dtype(settings, [encoder.fingerprint])] = _LoadedEncoder(files, encoder)
        return encoder
