"""How fast this machine is, found out in some seconds with sentences of the corpora themselves."""

import logging
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from miner import storage
from miner.config import EmbedConfig, EncoderSettings, SentenceSettings
from miner.corpus import SENTENCES, open_corpus
from miner.encoders import Encoder, load_encoder
from miner.encoders.transformer import TransformerEncoder
from miner.encoders.transformer_parts import choose_device
from miner.plan.speeds import Encoding, Speeds
from miner.run_settings import RunConfig
from miner.search import choice, precision
from miner.search.exact import Block, search_block
from miner.storage import available_cores
from miner.tables import Vectors
from pipelines import embed
from pipelines.embed import EmbedResult
from pipelines.search import BLOCK_BYTES

EMBED_SECONDS, SEARCH_SECONDS = 5.0, 2.0  # that are spent on either, or a little more
TRIED = 32  # sentences by which it is found out how many can be encoded in that time
FEW = 16  # times fewer sentences in a first run: what it takes longer for the others is not what it takes to start
SEED = 3

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Calibration:
    """What was found out here."""

    speeds: Speeds
    encoding: Encoding
    passed: float  # share of the sentences that the filters keep
    bytes: float  # on disk, of a row of the sentences
    seconds: float  # that it took


def calibrate(texts: Sequence[str], lang: str, config: RunConfig) -> Calibration:
    """Embed some of these texts, none of them empty, and compare their vectors, by the settings of `config`."""
    start = time.perf_counter()
    encoder = load_encoder(config.encoder, config.part(EncoderSettings))
    many = min(len(texts), max(TRIED, int(EMBED_SECONDS * _sentences_a_second(encoder, texts))))
    with tempfile.TemporaryDirectory(prefix="miner-") as folder:
        few = _embed(texts[: math.ceil(many / FEW)], lang, config, storage.join(folder, "few"))
        found = _embed(texts[:many], lang, config, storage.join(folder, "many"))
        corpus = open_corpus(found.output)
        shards = storage.names_in(storage.join(found.output, SENTENCES))
        size = sum(Path(found.output, SENTENCES, name).stat().st_size for name in shards if name.endswith(".parquet"))
        tokens = sum(shard.counts.get("tokens", 0) for shard in corpus.shards) / corpus.rows
        vectors = np.concatenate([corpus.read_vectors(shard.name)[1] for shard in corpus.shards])
    stretch = max(1, BLOCK_BYTES // (2 * encoder.dim))
    compared, faster = _search(vectors, stretch, config)
    read, first = _slope(few, found, "sentences")
    encoded, second = _slope(few, found, "embeddings")
    return Calibration(
        Speeds(read, encoded, compared, faster, max(first / 2, second)),
        Encoding(encoder.dim, encoder.operations(tokens) if isinstance(encoder, TransformerEncoder) else None, stretch),
        passed=found.counts["kept"] / max(1, found.counts["lines"]),
        bytes=size / max(1, found.unique),
        seconds=time.perf_counter() - start,
    )


def _sentences_a_second(encoder: Encoder, texts: Sequence[str]) -> float:
    encoder.encode(texts[:1])  # what is loaded when it is first used
    start = time.perf_counter()
    return len(encoder.encode(texts[:TRIED])) / (time.perf_counter() - start)


def _embed(texts: Sequence[str], lang: str, config: RunConfig, output: str) -> EmbedResult:
    path = f"{output}.txt"
    Path(path).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    parts = (EncoderSettings, SentenceSettings)
    settings = {name: value for part in parts for name, value in config.part(part)}
    return embed.run(EmbedConfig(inputs=(path,), output=output, lang=lang, max_chars=config.max_chars, **settings))


def _slope(few: EmbedResult, many: EmbedResult, stage: str) -> tuple[float, float]:
    """Lines a second, by what more of them take, and the seconds that are no matter of lines."""
    more = many.counts["lines"] - few.counts["lines"]
    longer = many.seconds[stage] - few.seconds[stage]
    if longer < few.seconds[stage] / 4:  # too short to tell from chance: the start is counted as work
        return many.counts["lines"] / many.seconds[stage], few.seconds[stage]
    return more / longer, max(0.0, few.seconds[stage] - longer / more * few.counts["lines"])


def _search(vectors: Vectors, stretch: int, config: RunConfig) -> tuple[float, float]:
    """Pairs a second that exact search compares here, and how many times as many as is expected."""
    device = choose_device(config.device)
    dim, rows = vectors.shape[1], 4096
    chance = np.random.default_rng(SEED)
    while True:
        source, target = (_block(vectors[part::2], rows, chance) for part in (0, 1))
        start = time.perf_counter()
        search_block(source, target, config.k, str(device))
        seconds = time.perf_counter() - start
        if seconds >= SEARCH_SECONDS or rows >= stretch:
            break
        rows *= 2
    fastest = next(iter(precision.fastest(device, dim)))
    expected = rows**2 * dim * choice.EXACT_SECONDS[fastest] / available_cores()
    return rows**2 / seconds, expected / seconds


def _block(vectors: Vectors, rows: int, chance: np.random.Generator) -> Block:
    """`rows` vectors, and where there are not so many, others of the same length."""
    missing = max(0, rows - len(vectors))
    made = chance.normal(size=(missing, vectors.shape[1]))
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    return Block(np.arange(rows), np.concatenate([vectors[:rows], made.astype(np.float16)]))
