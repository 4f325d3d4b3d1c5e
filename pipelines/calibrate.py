"""How fast this machine is, found out in some seconds with sentences of the corpora themselves."""

import logging
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from miner.config import EmbedConfig, EncoderSettings, SentenceFilters, SentenceSettings
from miner.corpus import SENTENCES, open_corpus
from miner.encoders import Encoder, load_encoder
from miner.encoders.transformer import TransformerEncoder
from miner.encoders.transformer_parts import choose_device
from miner.errors import DataError
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
START_SECONDS = 0.5  # of a stage, where nothing is embedded that would tell
SEED = 3
UNFILTERED = {"sentence_filters": SentenceFilters(), "collapse": False}

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
    """Embed some of these texts, none of them empty, and compare their vectors, by the settings of `config`.

    DataError where its filters leave none of them.
    """
    start = time.perf_counter()
    encoder = load_encoder(config.encoder, config.part(EncoderSettings))
    many = min(len(texts), max(TRIED, int(EMBED_SECONDS * _sentences_a_second(encoder, texts))))
    with tempfile.TemporaryDirectory(prefix="miner-") as folder:
        few = _embed(texts[: math.ceil(many / FEW)], lang, config.model_copy(update=UNFILTERED), f"{folder}/few")
        found = _embed(texts[:many], lang, config, f"{folder}/many")
        corpus = open_corpus(found.output)
        size = sum(path.stat().st_size for path in Path(found.output, SENTENCES).glob("*.parquet"))
        vectors = np.concatenate([corpus.read_vectors(shard.name)[1] for shard in corpus.shards])
    tokens = sum(shard.counts.get("tokens", 0) for shard in corpus.shards) / corpus.rows
    operations = encoder.operations(tokens) if isinstance(encoder, TransformerEncoder) else None
    read, first = _slope(few, found, "sentences")
    encoded, second = _slope(few, found, "embeddings")
    compared = compare(vectors, config)
    return Calibration(
        replace(compared.speeds, read=read, embed=encoded, start=max(first / 2, second)),
        replace(compared.encoding, operations=operations),
        passed=found.counts["kept"] / found.counts["lines"],
        bytes=size / found.unique,
        seconds=time.perf_counter() - start,
    )


def compare(vectors: Vectors, config: RunConfig) -> Calibration:
    """The same where nothing is to be embedded, by vectors (n, dim) that are there: compare some of them."""
    start, dim = time.perf_counter(), vectors.shape[1]
    stretch = max(1, BLOCK_BYTES // (2 * dim))
    pairs, faster = _search(vectors, stretch, config)
    speeds = Speeds(read=None, embed=None, search=pairs, faster=faster, start=START_SECONDS)
    return Calibration(speeds, Encoding(dim, None, stretch), 1.0, 0.0, time.perf_counter() - start)


def _sentences_a_second(encoder: Encoder, texts: Sequence[str]) -> float:
    encoder.encode(texts[:1])  # what is loaded when it is first used
    start = time.perf_counter()
    return len(encoder.encode(texts[:TRIED])) / (time.perf_counter() - start)


def _embed(texts: Sequence[str], lang: str, config: RunConfig, output: str) -> EmbedResult:
    path = Path(f"{output}.txt")
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    settings = {name: value for part in (EncoderSettings, SentenceSettings) for name, value in config.part(part)}
    try:
        return embed.run(EmbedConfig(inputs=(str(path),), output=output, lang=lang, max_chars=config.max_chars, **settings))
    except DataError as error:
        raise DataError(f"the filters leave none of {len(texts)} sentences that were tried; ask less of them") from error


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
