"""Embed text: inputs become `OUTPUT/sentences` and `OUTPUT/embeddings`, with shards of the same names and row order."""

import contextlib
import logging
import math
import posixpath
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from miner import languages
from miner.arrays import Floats32
from miner.config.choices import AUTO, INT8, NONE
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
from miner.encoders.base import CountsTokens, Preloads, in_language
from miner.encoders.checked import encode_checked, to_float16
from miner.encoders.layer_tokens import LayerTokens, TokenForm, choose_form, choose_token_encoder
from miner.encoders.token_vectors import TextTokens
from miner.errors import ConfigError, ModelError
from miner.io import stages, storage, table_files, tables
from miner.io.corpus import Corpus
from miner.io.stages import Shard, Stage
from miner.text import readers
from miner.text.readers import REPAIRED, list_repairs
from miner.text.sharding import DEFAULT_SIZES, IngestSizes
from miner.units import list_counts
from pipelines.beam import workers
from pipelines.beam.runner import Pipeline, claim_output, run_pipeline, run_stage
from pipelines.beam.tasks import ShardTask
from pipelines.corpus import ingest

EMBEDDINGS_MANIFEST = storage.join(stages.EMBEDDINGS, stages.MANIFEST)  # in an output

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
        outcomes = {
            name: count for name, count in self.counts.items() if name not in ("lines", "kept", "split") and not name.startswith(REPAIRED)
        }
        split = f", split into {self.counts['lines'] + self.counts['split']:,}" if "split" in self.counts else ""
        outcome_text = ", ".join(filter(None, [f"{self.counts['kept']:,} kept", list_counts(outcomes)]))
        truncated = f", {self.truncated_texts:,} truncated at the limit of the encoder" if self.truncated_texts else ""
        return (
            f"{self.counts['lines']:,} lines{split}: {outcome_text}{list_repairs(self.counts)}\n"
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
    with claim_output(config.output, stages.EMBED):
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
    if not isinstance(encoder, EncoderIdentity):
        in_language(encoder, lang)  # a language that it does not know is an error before the inputs are read
    profile = find_profile(settings, encoder.fingerprint)
    if warns:
        mining_profile.warn_of_languages(profile, [lang])
    if isinstance(encoder, Preloads) and not storage.exists(storage.join(config.output, EMBEDDINGS_MANIFEST)):
        encoder.preload(_num_bytes(inputs))  # while the inputs are read
    times.append(time.perf_counter())
    _stage(config.output, lang, settings, encoder).start()  # before any work, because the folder can hold another encoder's embeddings
    form = _choose_tokens(config, encoder, profile)
    if form is not None:
        _token_stage(config.output, settings, encoder.fingerprint, form, {}).start()
    sentences = yield from ingest.run(config, inputs, sizes)
    times.append(time.perf_counter())
    stage = _stage(config.output, lang, settings, encoder, {shard.name: shard.checksum for shard in sentences.shards})
    keys = {shard.name: stage.key({shard.name: shard.checksum}) for shard in sentences.shards}
    tokens = None if form is None else _token_stage(config.output, settings, encoder.fingerprint, form, stage.inputs)
    task = EmbedTask(config.output, settings, encoder.fingerprint, lang, sentences.shards, tokens)
    details = {"encoder": absolute_name(config.encoder), **({"profile": measured} if (measured := profile.measured()) else {})}
    embeddings = yield from run_stage(stage, keys, task, lambda _: details, skip_failed=not config.strict)
    if tokens is not None:  # those that are missing or damaged are encoded again
        token_keys = {shard.name: _token_key(tokens, shard.name) for shard in embeddings.shards}
        task = EmbedTask(config.output, settings, encoder.fingerprint, lang, sentences.shards, tokens, only_tokens=True)
        yield from run_stage(tokens, token_keys, task)
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
        and _are_tokens_done(config.output, embeddings.inputs)
    )


def _are_tokens_done(output: str, inputs: Mapping[str, str]) -> bool:
    """Return whether an output has no tokens, or those of all its sentences."""
    folder = storage.join(output, stages.TOKENS)
    if stages.recorded_config(folder) is None:
        return True
    return storage.exists(storage.join(folder, stages.MANIFEST)) and stages.read_manifest(folder).inputs == inputs


def _stage(
    output: str, lang: str, settings: EncoderSettings, encoder: Encoder | EncoderIdentity, inputs: Mapping[str, str] | None = None
) -> Stage:
    side = {} if settings.side is None else {"side": settings.side}
    config = {"fingerprint": encoder.fingerprint, "dim": encoder.dim, "lang": lang, **side}
    return Stage(storage.join(output, stages.EMBEDDINGS), stages.EMBEDDINGS, config, inputs or {})


def _choose_tokens(config: EmbedConfig, encoder: Encoder | EncoderIdentity, profile: mining_profile.MiningProfile) -> TokenForm | None:
    """Return which tokens are stored beside the embeddings; None without rescoring, and for other encoders than transformers.

    Tokens that are stored already decide on the layer, and embeddings without tokens are left so with `auto`.
    """
    num_layers, width = getattr(encoder, "num_layers", None), getattr(encoder, "width", None)
    if config.rescore == NONE or num_layers is None or width is None or (config.rescore == AUTO and not profile.rescoring_pays):
        return None
    folder = storage.join(config.output, stages.TOKENS)
    if config.rescore == AUTO and not storage.names_in(folder) and storage.exists(storage.join(config.output, EMBEDDINGS_MANIFEST)):
        return None
    recorded = stages.recorded_config(folder)
    layer = config.token_layer if recorded is None or config.token_layer is not None else recorded.get("token_layer")
    return choose_form(find_folder(config.encoder), num_layers, width, layer)


def _token_stage(output: str, settings: EncoderSettings, fingerprint: str, form: TokenForm, inputs: Mapping[str, str]) -> Stage:
    side = {} if settings.side is None else {"side": settings.side}
    config = {"fingerprint": fingerprint, "token_layer": form.layer, "token_dim": form.dim, **side}
    return Stage(storage.join(output, stages.TOKENS), stages.TOKENS, config, inputs)


def _token_key(stage: Stage, name: str) -> str:
    """Return the key of a shard of tokens, which depends on its sentences."""
    return stage.key({name: stage.inputs[name]})


def uses_accelerator(settings: EncoderSettings) -> bool:
    """Whether a GPU makes an encoder faster."""
    return settings.device != CPU and settings.dtype != INT8 and find_kind(settings.encoder) != STATIC


class EmbedTask(ShardTask):
    """Embed one shard of sentences, and store its tokens if their stage is given."""

    processed_counts = frozenset({"tokens", "truncated_texts"})
    work_unit = "sentence"

    def __init__(
        self,
        output: str,
        settings: EncoderSettings,
        fingerprint: str,
        lang: str,
        shards: Sequence[Shard],
        tokens: Stage | None = None,
        only_tokens: bool = False,
    ) -> None:
        self.output = output
        self.tokens = tokens
        self.only_tokens = only_tokens  # the embeddings are there already
        self.label = posixpath.basename(output.rstrip("/"))
        self.rows = {shard.name: shard.rows for shard in shards}
        self.settings = settings
        self.fingerprint, self.lang = fingerprint, lang
        self.uses_accelerator = uses_accelerator(settings)

    def work(self, names: Sequence[str]) -> Mapping[str, int]:
        return {name: self.rows[name] for name in names}

    def setup(self) -> None:
        self.encoder = in_language(load_once(self.settings, self.fingerprint), self.lang)

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        uri = storage.join(self.output, stages.SENTENCES, name)
        counts_before = self._read_counts()
        with table_files.open_parquet(uri) as file, self._open_writers(name) as writers, background_thread() as submit:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=["id", "text"])
                encoded = self._encode(table["text"].to_pylist())
                submit(self._write, writers, table, encoded, uri)  # while the next row group is encoded
                extra = {"stage": stages.EMBEDDINGS, "shard": name}
                logger.info("%s: row group %d of %d encoded", name, group + 1, file.num_row_groups, extra=extra)
            rows = int(file.metadata.num_rows)
        if self.tokens is not None and not self.only_tokens:
            self.tokens.mark_done(name, rows, _token_key(self.tokens, name))
        counts = {name: count - counts_before[name] for name, count in self._read_counts().items()}
        return rows, {name: count for name, count in counts.items() if count or name == "tokens"}

    def _read_counts(self) -> dict[str, int]:
        """Return the counts of this thread's encoder so far; nothing for an encoder that does not count."""
        if not isinstance(self.encoder, CountsTokens):
            return {}
        return {"tokens": self.encoder.tally.tokens, "truncated_texts": self.encoder.tally.truncated_texts}

    @contextlib.contextmanager
    def _open_writers(self, name: str) -> Iterator[dict[str, pq.ParquetWriter]]:
        """Open the files of a shard, by their stage."""
        schemas = {} if self.only_tokens else {stages.EMBEDDINGS: tables.embeddings_schema(self.encoder.dim, self.fingerprint)}
        if self.tokens is not None:
            schemas[stages.TOKENS] = tables.tokens_schema(self.tokens.config["token_dim"], self.fingerprint)
        with contextlib.ExitStack() as stack:
            uris = {stage: storage.join(self.output, stage, name) for stage in schemas}
            yield {stage: stack.enter_context(table_files.parquet_writer(uris[stage], schema)) for stage, schema in schemas.items()}

    def _encode(self, texts: list[str]) -> tuple[Floats32, TextTokens | None]:
        """Return the vectors (n, dim) of texts, and their tokens, if these are stored."""
        if self.tokens is None:
            return encode_checked(self.encoder, texts, self.settings.encoder), None
        token_encoder = choose_token_encoder(self.encoder, self.tokens.config["token_layer"])
        assert isinstance(token_encoder, LayerTokens), "`_choose_tokens` comes first"
        return token_encoder.encode(texts)

    def _write(
        self, writers: Mapping[str, pq.ParquetWriter], sentences: pa.Table, encoded: tuple[Floats32, TextTokens | None], uri: str
    ) -> None:
        """Write vectors (n, dim) and tokens with the ids of their sentences, which are from `uri`.

        Raises ModelError if a vector is not finite in float16, and DataError if an id is not the hash of its text.
        """
        tables.check_ids(uri, sentences)
        vectors, tokens = encoded
        columns = {} if tokens is None else {stages.TOKENS: tokens.to_arrow()}
        if not self.only_tokens:
            columns[stages.EMBEDDINGS] = tables.vectors_to_arrow(to_float16(vectors, sentences["text"], self.settings.encoder))
        for stage, column in columns.items():
            writers[stage].write_table(pa.table([sentences["id"], column], schema=writers[stage].schema))


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


def preload(settings: EncoderSettings, inputs: Iterable[str]) -> None:
    """Start to read the encoder of these settings in the background for these inputs, if it is a static one on this machine."""
    is_here = settings.encoder == BUILTIN or Path(settings.encoder).is_dir()
    encoder = load_once(settings) if is_here and find_kind(settings.encoder) == STATIC else None
    if isinstance(encoder, Preloads):
        encoder.preload(_num_bytes(inputs))


def _num_bytes(inputs: Iterable[str]) -> float:
    """Return the size of files, as they are stored; infinity if one is not a file on this machine."""
    return sum(Path(uri).stat().st_size if Path(uri).is_file() else math.inf for uri in inputs)


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


def profile_of(settings: EncoderSettings, corpus: Corpus) -> mining_profile.MiningProfile:
    """Return the profile of the encoder of a corpus: that of `find_profile` or, if there is none, what the corpus records."""
    profile = find_profile(settings, corpus.fingerprint)
    return mining_profile.MiningProfile.check(**corpus.profile) if profile == mining_profile.NO_PROFILE else profile


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
