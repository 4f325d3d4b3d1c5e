"""Text -> sentences and their embeddings: `OUTPUT/sentences` and `OUTPUT/embeddings`, shard by shard in the same order."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from miner import corpus, languages, stages, storage, tables
from miner.background import background_thread
from miner.config.commands import EmbedConfig, EncoderSettings
from miner.encoders import Encoder, load_encoder
from miner.encoders.base import CountsTokens
from miner.errors import ModelError
from miner.stages import Stage
from miner.text import readers
from miner.text.sentences import signature
from pipelines.beam.retry import read_skipped
from pipelines.beam.runner import ShardTask, claim_output, run_stage
from pipelines.corpus import ingest

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EmbedResult:
    """What `miner embed` did."""

    output: str
    lang: str
    encoder: str
    fingerprint: str
    dim: int
    unique: int  # sentences
    counts: Mapping[str, int]  # of lines: lines = kept + empty + invalid + too_long, and duplicate = kept - unique
    seconds: Mapping[str, float]  # by stage
    set_aside: Mapping[str, str]  # input or shard -> why it is left out

    def summary(self) -> str:
        """A few lines for a person."""
        counts = {name.replace("_", " "): count for name, count in self.counts.items() if name != "lines" and (count or name == "kept")}
        told = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        spent = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
        return (
            f"{self.counts['lines']:,} lines: {told}\n"
            f"{self.unique:,} unique sentences ({self.lang}) x {self.dim} dimensions in {self.output}\n{spent}"
        )

    def figures(self) -> dict[str, Any]:
        """The same for a program."""
        return asdict(self)


def run(config: EmbedConfig, options: Sequence[str] = ()) -> EmbedResult:
    """Read, clean, deduplicate and embed the inputs into `config.output`; what an earlier run finished there is kept.

    Raises the MinerError of whatever cannot work: inputs, encoder, output folder, or the settings of an earlier run there.
    """
    times = [time.perf_counter()]
    lang = languages.canonical(config.lang)
    inputs = readers.expand(config.inputs)
    settings = config.part(EncoderSettings)
    encoder = _loaded(settings)
    times.append(time.perf_counter())
    with claim_output(config.output):
        _stage(config.output, lang, encoder, {}).start()  # before any work: the folder may hold that of another encoder
        texts = ingest.run(config, inputs, options)
        times.append(time.perf_counter())
        stage = _stage(config.output, lang, encoder, {shard.name: shard.checksum for shard in texts.shards})
        made_from = {shard.name: stage.key({shard.name: shard.checksum}) for shard in texts.shards}
        made = run_stage(stage, made_from, _Embed(config.output, settings, encoder.fingerprint), options, skip_failed=not config.strict)
        times.append(time.perf_counter())
    seconds = dict(zip(("encoder", corpus.SENTENCES, corpus.EMBEDDINGS), np.diff(times).round(3).tolist(), strict=True))
    return EmbedResult(
        output=config.output,
        lang=lang,
        encoder=config.encoder,
        fingerprint=encoder.fingerprint,
        dim=encoder.dim,
        unique=made.rows,
        counts=texts.details["counts"],
        seconds=seconds,
        set_aside={**read_skipped(texts), **{stage.path(name): why for name, why in read_skipped(made).items()}},
    )


def is_done(config: EmbedConfig, fingerprint: str) -> bool:
    """Whether the encoder of that fingerprint embedded all of this already, from inputs as they are now. Looks at manifests only."""
    folders = [storage.join(config.output, name) for name in (corpus.SENTENCES, corpus.EMBEDDINGS)]
    if not all(storage.exists(storage.join(folder, stages.MANIFEST)) for folder in folders):
        return False
    texts, embedded = (stages.read_manifest(folder) for folder in folders)
    same = dict(texts.inputs) == {uri: signature(uri) for uri in readers.expand(config.inputs)}
    same &= dict(texts.config) == ingest.made_with(config)
    same &= not read_skipped(texts) and not read_skipped(embedded)  # which is to be tried again
    same &= dict(embedded.inputs) == {shard.name: shard.checksum for shard in texts.shards}
    return same and embedded.config.get("fingerprint") == fingerprint


def _stage(output: str, lang: str, encoder: Encoder, inputs: Mapping[str, str]) -> Stage:
    made_with = {"fingerprint": encoder.fingerprint, "dim": encoder.dim, "lang": lang}
    return Stage(storage.join(output, corpus.EMBEDDINGS), corpus.EMBEDDINGS, made_with, inputs)


class _Embed(ShardTask):
    """One shard of sentences -> one shard of their vectors."""

    uses_accelerator = True
    processed_counts = frozenset({"tokens"})

    def __init__(self, output: str, settings: EncoderSettings, fingerprint: str) -> None:
        self.output = output
        self.settings = settings
        self.fingerprint = fingerprint

    def setup(self) -> None:
        self.encoder = _loaded(self.settings, self.fingerprint)

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        schema = tables.embeddings_schema(self.encoder.dim, self.fingerprint)
        texts = storage.open_parquet(storage.join(self.output, corpus.SENTENCES, name))
        vectors = storage.parquet_writer(storage.join(self.output, corpus.EMBEDDINGS, name), schema)
        before = self._tokens()
        with texts as file, vectors as writer, background_thread() as submit:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=["id", "text"])
                rows = vectors_of(self.encoder, table["text"].to_pylist(), self.settings.encoder)
                submit(self.write, writer, table, rows)  # converted and written while the next group is encoded
                told = {"stage": corpus.EMBEDDINGS, "shard": name}
                logger.info("%s: row group %d of %d encoded", name, group + 1, file.num_row_groups, extra=told)
            made = int(file.metadata.num_rows)
        return made, {"tokens": self._tokens() - before} if isinstance(self.encoder, CountsTokens) else {}

    def _tokens(self) -> int:
        return self.encoder.tally.tokens if isinstance(self.encoder, CountsTokens) else 0

    def write(self, writer: pq.ParquetWriter, texts: pa.Table, vectors: npt.NDArray[np.float32]) -> None:
        """Write (n, dim) vectors beside the ids of their texts."""
        # Arrow's conversion is faster than numpy's. What is too large for float16 becomes infinite, and is caught here.
        stored = pa.array(vectors.ravel()).cast(pa.float16()).to_numpy().reshape(vectors.shape)
        if not corpus.all_finite(stored):
            row = int(np.argmin(np.isfinite(stored).all(axis=1)))
            text = texts["text"][row].as_py()
            raise ModelError(f"{self.settings.encoder}: the vector of {text[:60]!r} is not finite; try --dtype float32, or another encoder")
        writer.write_table(pa.table([texts["id"], tables.vectors_to_arrow(stored)], schema=writer.schema))


def vectors_of(encoder: Encoder, texts: Sequence[str], name: str) -> npt.NDArray[np.float32]:
    """The vectors (n, dim) of n texts. ModelError where the encoder called `name` returns another shape."""
    vectors = encoder.encode(texts)
    if vectors.shape != (len(texts), encoder.dim):
        raise ModelError(f"{name}: gave vectors of shape {vectors.shape} for {len(texts)} texts x {encoder.dim}; mend the encoder")
    return vectors


_lock = threading.Lock()
_encoders: dict[tuple[EncoderSettings, str], Encoder] = {}  # of this process: at most the one last loaded


def _loaded(settings: EncoderSettings, fingerprint: str | None = None) -> Encoder:
    """The encoder of these settings. A worker says which fingerprint it must have, and takes what its process has loaded."""
    with _lock:
        if fingerprint is not None and (settings, fingerprint) in _encoders:
            return _encoders[settings, fingerprint]
        encoder = load_encoder(settings.encoder, settings)
        if fingerprint not in (None, encoder.fingerprint):
            raise ModelError(
                f"{settings.encoder}: is {encoder.fingerprint} on a worker and {fingerprint} where the run started; give both the same"
            )
        if (settings, encoder.fingerprint) not in _encoders:  # else its vectors are in memory already
            _encoders.clear()
            _encoders[settings, encoder.fingerprint] = encoder
        return _encoders[settings, encoder.fingerprint]
