"""How fast this machine is, found out in some seconds with sentences of the corpora themselves."""

import logging
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from miner.config.commands import EmbedConfig, EncoderSettings, SentenceFilters, SentenceSettings
from miner.config.runs import RunConfig
from miner.corpus import SENTENCES, open_corpus
from miner.encoders import Encoder, load_encoder
from miner.encoders.base import EstimatesOperations
from miner.encoders.transformer_parts import choose_device
from miner.errors import DataError
from miner.plan.speeds import EncodingCost, Speeds
from miner.search import cost_model, precision
from miner.search.exact import SearchOptions, VectorBlock, search_block
from miner.storage import available_cores
from miner.tables import Vectors
from pipelines.corpus import embed
from pipelines.corpus.embed import EmbedResult
from pipelines.search.exact import BLOCK_BYTES

EMBED_SECONDS, SEARCH_SECONDS = 5.0, 3.0  # that are spent on either, or some more
ROWS = 2048  # vectors that are compared first
USUAL = 256  # numbers of a vector, by which `miner.search.cost_model` was measured: other times than these do not go by this number alone
TRIED = 32  # sentences by which it is found out how many can be encoded in that time; more, until that takes a TOLD of it
TOLD = 1 / 20
FEW = 4  # times fewer sentences in a first run: what it takes longer for the others is neither start nor words not met before
START_SECONDS = 0.5  # of a stage, where nothing is embedded that would tell
SEED = 3
UNFILTERED = {"sentence_filters": SentenceFilters(), "collapse": False}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Calibration:
    """What was found out here."""

    speeds: Speeds
    encoding: EncodingCost
    passed: float  # share of the sentences that the filters keep
    packed: float  # bytes on disk for each byte of a sentence
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
        corpus = open_corpus(found.result.output)
        size = sum(path.stat().st_size for path in Path(found.result.output, SENTENCES).glob("*.parquet"))
        vectors = np.concatenate([corpus.read_vectors(shard.name)[1] for shard in corpus.shards])
    tokens = sum(shard.counts.get("tokens", 0) for shard in corpus.shards) / corpus.rows
    operations = encoder.operations(tokens) if isinstance(encoder, EstimatesOperations) else None
    read, first = _slope(few, found, "sentences")
    encoded, second = _slope(few, found, "embeddings")
    compared = compare(vectors, config)
    return Calibration(
        replace(compared.speeds, read=read, embed=encoded, start=max(first / 2, second)),
        replace(compared.encoding, operations=operations),
        passed=found.result.counts["kept"] / found.result.counts["lines"],
        packed=size / sum(len(text.encode()) for text in texts[:many]),
        seconds=time.perf_counter() - start,
    )


def compare(vectors: Vectors, config: RunConfig) -> Calibration:
    """The same where nothing is to be embedded, by vectors (n, dim) that are there: compare some of them."""
    start, dim = time.perf_counter(), vectors.shape[1]
    pairs = usual = _search(vectors, config)
    if dim != USUAL:
        usual = _search(np.zeros((0, USUAL), dtype=np.float16), config)
    fastest = precision.fastest_precision(choose_device(config.device), USUAL)
    faster = usual * USUAL * cost_model.EXACT_SECONDS[fastest] / available_cores()
    speeds = Speeds(read=None, embed=None, search=pairs, faster=faster, start=START_SECONDS)
    return Calibration(speeds, EncodingCost(dim, None, _stretch(dim)), 1.0, 0.0, time.perf_counter() - start)


def _stretch(dim: int) -> int:
    """Vectors that exact search holds at a time."""
    return max(1, BLOCK_BYTES // (2 * dim))


def _sentences_a_second(encoder: Encoder, texts: Sequence[str]) -> float:
    encoder.encode(texts[:1])  # what is loaded when it is first used
    tried = TRIED
    while True:
        clock = _Clock()
        rows = len(encoder.encode(texts[:tried]))
        took = clock.read()
        if took.wall >= TOLD * EMBED_SECONDS or rows == len(texts):
            return rows / (took.wall * took.share)
        tried *= 4


@dataclass(frozen=True)
class _Timed:
    """Seconds of some work by the clock, and of processors."""

    wall: float
    processors: float

    @property
    def share(self) -> float:
        """Of the time by the clock, that which is not spent waiting for other programs, as far as one core alone would show it."""
        return min(1.0, self.processors / self.wall)


class _Clock:
    def __init__(self) -> None:
        self.wall, self.processors = time.perf_counter(), time.process_time()

    def read(self) -> _Timed:
        return _Timed(time.perf_counter() - self.wall, time.process_time() - self.processors)


@dataclass(frozen=True)
class _Embedded:
    """What was embedded, and which share of the time was not spent waiting for other programs."""

    result: EmbedResult
    share: float

    def seconds(self, stage: str) -> float:
        """That a stage would take on a machine that has nothing else to do."""
        return self.result.seconds[stage] * self.share


def _embed(texts: Sequence[str], lang: str, config: RunConfig, output: str) -> _Embedded:
    path = Path(f"{output}.txt")
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    settings = {name: value for part in (EncoderSettings, SentenceSettings) for name, value in config.part(part)}
    clock = _Clock()
    try:
        result = embed.run(EmbedConfig(inputs=(str(path),), output=output, lang=lang, max_chars=config.max_chars, **settings))
    except DataError as error:
        raise DataError(f"the filters leave none of {len(texts)} sentences that were tried; ask less of them") from error
    return _Embedded(result, clock.read().share if choose_device(config.device).type == "cpu" else 1.0)


def _slope(few: _Embedded, many: _Embedded, stage: str) -> tuple[float, float]:
    """Lines a second, by what more of them take, and the seconds that are no matter of lines."""
    (fewer, short), (more, long) = ((each.result.counts["lines"], each.seconds(stage)) for each in (few, many))
    if long - short < short / 4:  # too short to tell from chance: the start is counted as work
        return more / long, short
    rate = (more - fewer) / (long - short)
    return rate, max(0.0, short - fewer / rate)


def _search(vectors: Vectors, config: RunConfig) -> float:
    """Pairs of such vectors (n, dim) a second that exact search compares here; where they are too few, others are made.

    A part of the time goes by vectors instead of pairs, and shows in how much longer twice as many take than twice the time.
    """
    device, stretch = choose_device(config.device), _stretch(vectors.shape[1])
    chance = np.random.default_rng(SEED)
    rows, before = ROWS, math.nan
    _compare(vectors, rows, config, device, chance)  # what happens once
    while (seconds := _compare(vectors, rows, config, device, chance)) < SEARCH_SECONDS and rows < stretch:
        rows, before = 2 * rows, seconds
    more = 2 * (seconds - 2 * before) / rows**2  # of each pair
    by_pair = max(more, seconds / rows**2 / 3) if rows > ROWS else seconds / rows**2
    return 1 / (by_pair + (seconds - by_pair * rows**2) / rows / stretch)


def _compare(vectors: Vectors, rows: int, config: RunConfig, device: torch.device, chance: np.random.Generator) -> float:
    """Seconds to compare so many of one half of the vectors with as many of the other."""
    source, target = (_block(vectors[part::2], rows, chance) for part in (0, 1))
    clock = _Clock()
    search_block(source, target, config.k, SearchOptions(str(device)))
    took = clock.read()
    # All cores compute all the time, so what other programs take of them shows.
    return min(took.wall, took.processors / available_cores()) if device.type == "cpu" else took.wall


def _block(vectors: Vectors, rows: int, chance: np.random.Generator) -> VectorBlock:
    """`rows` vectors, and where there are not so many, others of the same length."""
    missing = max(0, rows - len(vectors))
    made = chance.normal(size=(missing, vectors.shape[1]))
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    return VectorBlock(np.arange(rows), np.concatenate([vectors[:rows], made.astype(np.float16)]))
