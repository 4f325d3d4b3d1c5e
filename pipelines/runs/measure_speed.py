"""Measure the speed of this machine in some seconds, with sentences of the corpora themselves."""

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np
import pyarrow.compute as pc
import torch

from miner.arrays import Vectors
from miner.config.commands import EmbedConfig, EncoderSettings, SentenceFilters, SentenceSettings, TokenSettings
from miner.config.runs import RunConfig
from miner.devices import CPU, available_cores, choose_device, device_type
from miner.encoders import PAIR, TRANSFORMER, Encoder, choose_side, find_kind, load_encoder
from miner.encoders.base import EstimatesOperations, in_language
from miner.encoders.layer_tokens import choose_form
from miner.encoders.transformer import TransformerEncoder
from miner.errors import DataError
from miner.io.corpus import open_corpus
from miner.io.stages import EMBEDDINGS, SENTENCES
from miner.plan.hardware import EncodingCost, Speeds
from miner.search import cost_model, faiss_index, trials
from miner.search.blocks import default_block_bytes
from miner.search.cost_model import SearchCosts, SearchWorkload
from miner.search.exact import SearchOptions, search_block
from miner.search.neighbours import VectorBlock
from pipelines.beam.runner import claim_output, run_pipeline
from pipelines.corpus import embed, ingest
from pipelines.mining import rescore_choice

MIN_SEARCH_ROWS = 2048  # vectors of either side that are compared first
PLANNED_ROWS = 1_000_000  # vectors of either side, whose lists FAISS is timed with
WARMUP_SENTENCES = 32  # quadrupled until encoding them takes WARMUP_SHARE of the time budget
WARMUP_SHARE = 1 / 20
SMALL_RUN_DIVISOR = 4  # the small run has this many times fewer sentences: the difference of both runs excludes startup
DEFAULT_START_SECONDS = 0.5  # start of a stage, where nothing is embedded
GPU_BLOCK_ROWS = 300_000  # a GPU searches whole shards: that many sentences are in 32 MB of text
SEED = 3
TRANSFORMER_BYTES = 0.4e9  # of the library of transformers, and a batch
TOKENIZED_TEXTS = 4096  # of a corpus, whose tokens are counted
TOKEN_ROW_BYTES = 12  # of the stored tokens of a sentence: its id, and their length
UNFILTERED = {"sentence_filters": SentenceFilters.none(), "collapse": False}

Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")


@dataclass(frozen=True)
class ProbeSettings:
    """How long the machine is measured, at least."""

    embed_seconds: float = 5.0
    search_seconds: float = 3.0  # of an accelerator
    trial_rows: int = 1 << 15  # vectors of either side that the cores compare


DEFAULT_PROBE = ProbeSettings()


@dataclass(frozen=True)
class Calibration:
    """What was measured here."""

    speeds: Speeds
    encoding: EncodingCost
    compression: float  # bytes on disk per byte of text
    seconds: float  # time that the measurement took
    encoder_bytes: float = 0.0  # bytes of a transformer in memory, with its library and a batch


def calibrate(texts: Sequence[str], lang: str, config: RunConfig, num_files: int, probe: ProbeSettings = DEFAULT_PROBE) -> Calibration:
    """Embed a sample of these texts, none of them empty, and compare their vectors, with the settings of `config`.

    They are read from `num_files` files, at most one for each core: as many as a run reads at once. Raises DataError where the filters of
    `config` keep none of them.
    """
    num_files = min(num_files, available_cores())
    start = time.perf_counter()
    config = config.model_copy(update={"side": choose_side(config, lang, default="source").side})
    encoder = in_language(load_encoder(config.encoder, config.part(EncoderSettings)), lang)
    sentences_per_second = _measure_encoding(encoder, texts, probe.embed_seconds)
    num_texts = min(len(texts), max(WARMUP_SENTENCES, int(probe.embed_seconds * sentences_per_second)))
    with tempfile.TemporaryDirectory(prefix="miner-") as folder:
        small_config = config.model_copy(update=UNFILTERED)
        small = _embed(texts[: math.ceil(num_texts / SMALL_RUN_DIVISOR)], lang, small_config, f"{folder}/few", num_files)
        full = _embed(texts[:num_texts], lang, config, f"{folder}/many", num_files)
        corpus = open_corpus(f"{folder}/many")
        table_bytes = sum(path.stat().st_size for path in Path(folder, "many", SENTENCES).glob("*.parquet"))
        vectors = np.concatenate([corpus.read_vectors(shard.name)[1] for shard in corpus.shards])
        text_bytes = sum(
            pc.sum(pc.binary_length(table["text"])).as_py() for shard in corpus.shards for table in corpus.sentences(shard.name, ["text"])
        )
    tokens = sum(shard.counts.get("tokens", 0) for shard in corpus.shards) / corpus.rows
    flops = encoder.operations(tokens) if isinstance(encoder, EstimatesOperations) else None
    (read_speed, read_start), (embed_speed, embed_start) = (_marginal_speed(small[name], full[name]) for name in (SENTENCES, EMBEDDINGS))
    search = calibrate_search(vectors, config, probe)
    start_seconds = max(read_start / 2, embed_start)
    return Calibration(
        replace(search.speeds, lines_per_second=read_speed, sentences_per_second=embed_speed, stage_start_seconds=start_seconds),
        replace(search.encoding, flops_per_sentence=flops),
        compression=table_bytes / text_bytes,
        seconds=time.perf_counter() - start,
        encoder_bytes=_transformer_bytes(encoder),
    )


def _transformer_bytes(encoder: Encoder) -> float:
    """Return the bytes of a transformer in memory; 0 for another encoder."""
    return TRANSFORMER_BYTES + encoder.weight_bytes() if isinstance(encoder, TransformerEncoder) else 0.0


def measure_kept_share(texts: Sequence[str], lang: str, config: RunConfig) -> float:
    """Return the share of a sample of a corpus, none of it empty, that the filters of `config` keep. Raises DataError for none."""
    if not config.collapse and config.sentence_filters == SentenceFilters.none():
        return 1.0
    with tempfile.TemporaryDirectory(prefix="miner-") as folder:
        embed_config = _embed_config(texts, lang, config, f"{folder}/sample")
        try:
            with claim_output(embed_config.output):
                counts = run_pipeline(ingest.run(embed_config, embed_config.inputs), ()).details["counts"]
        except DataError as error:
            raise DataError(f"the filters leave none of {len(texts)} sampled sentences of {lang}; relax them") from error
    return float(counts["kept"] / counts["lines"])


def measure_token_bytes(texts: Sequence[str], lang: str, config: RunConfig) -> float:
    """Return the mean bytes of the tokens of a sentence that embedding stores; 0 without rescoring, and if not by a transformer."""
    if not rescore_choice.is_planned(config, config.encoder) or find_kind(config.encoder) not in (TRANSFORMER, PAIR):
        return 0.0
    encoder = embed.load_once(choose_side(config, lang, default="source"))
    if not isinstance(encoder, TransformerEncoder):
        return 0.0
    tokens = encoder.count_tokens(texts[:TOKENIZED_TEXTS])
    dim = choose_form(encoder.folder, encoder.num_layers, encoder.width, config.token_layer).dim
    return float(tokens.mean()) * dim + TOKEN_ROW_BYTES


def calibrate_search(vectors: Vectors, config: RunConfig, probe: ProbeSettings = DEFAULT_PROBE) -> Calibration:
    """Measure search alone, where nothing is left to embed, by comparing vectors (n, dim) of a corpus."""
    start, dim, device = time.perf_counter(), vectors.shape[1], torch.device(choose_device(config.device))
    speeds = Speeds(
        lines_per_second=None,
        sentences_per_second=None,
        pairs_per_second=None if device.type == CPU else _measure_search(vectors, config, probe.search_seconds),
        search=_measure_costs(vectors, config, probe.trial_rows),
        stage_start_seconds=DEFAULT_START_SECONDS,
    )
    return Calibration(speeds, EncodingCost(dim, None, GPU_BLOCK_ROWS), 0.0, time.perf_counter() - start)


def _measure_costs(vectors: Vectors, config: RunConfig, max_rows: int) -> SearchCosts:
    """Return the costs of search with all cores, by the trial that chooses the engine of a run."""
    block_rows = default_block_bytes(torch.device(CPU)) // (2 * vectors.shape[1])
    tile_rows, random = min(max_rows, block_rows // 2), np.random.default_rng(SEED)
    rows = max(tile_rows, min(max_rows, trials.INDEX_ROWS))
    vectors = vectors if len(vectors) > 1 else np.repeat(vectors, 2, axis=0)
    source, target = (_vector_block(vectors[half::2], rows, random).vectors for half in (0, 1))
    workload = SearchWorkload((PLANNED_ROWS, PLANNED_ROWS), vectors.shape[1], config.k, config.target_recall)
    faiss = trials.measure_faiss(target, source, workload) if faiss_index.is_available() else None
    expected = cost_model.expected_costs(workload, available_cores(), block_rows)
    return SearchCosts(trials.measure_exact(source[:tile_rows], target[:tile_rows], config.k, block_rows), faiss or expected.faiss)


def _measure_encoding(encoder: Encoder, texts: Sequence[str], budget_seconds: float) -> float:
    """Return sentences per second, of words that the encoder has met."""
    num_texts = WARMUP_SENTENCES
    while True:
        encoder.encode(texts[:num_texts])  # loads what is loaded on first use
        vectors, wall, cpu = _time(encoder.encode, texts[:num_texts])
        if wall >= WARMUP_SHARE * budget_seconds or len(vectors) == len(texts):
            return len(vectors) / min(wall, cpu)
        num_texts *= 4


def _embed_config(texts: Sequence[str], lang: str, config: RunConfig, output: str, num_files: int = 1) -> EmbedConfig:
    """Write texts to files, and return the settings that embed them."""
    paths = [Path(f"{output}-{number}.txt") for number in range(min(num_files, len(texts)))]
    for number, path in enumerate(paths):
        path.write_text("".join(f"{text}\n" for text in texts[number::num_files]), encoding="utf-8")
    settings = {name: value for part in (EncoderSettings, SentenceSettings, TokenSettings) for name, value in config.part(part)}
    return EmbedConfig(inputs=tuple(map(str, paths)), output=output, lang=lang, max_chars=config.max_chars, **settings)


def _embed(texts: Sequence[str], lang: str, config: RunConfig, output: str, num_files: int) -> dict[str, tuple[int, float]]:
    """Embed texts. Return by stage the lines that it worked on, and its seconds on a machine without other load."""
    try:
        result, wall, cpu = _time(embed.run, _embed_config(texts, lang, config, output, num_files))
    except DataError as error:
        raise DataError(f"the filters leave none of {len(texts)} sampled sentences; relax them") from error
    # The share of the time that was not spent waiting for other processes, as far as one core shows it.
    share = min(1.0, cpu / wall) if device_type(choose_device(config.device)) == CPU else 1.0
    counts = {SENTENCES: result.counts["lines"], EMBEDDINGS: result.counts["kept"]}
    return {stage: (lines, result.seconds[stage] * share) for stage, lines in counts.items()}


def _marginal_speed(small: tuple[int, float], full: tuple[int, float]) -> tuple[float, float]:
    """Return lines per second, from the difference of both runs, and the seconds that do not depend on the number of lines."""
    (small_lines, small_seconds), (full_lines, full_seconds) = small, full
    if full_lines <= small_lines or full_seconds - small_seconds < small_seconds / 4:  # too close to noise: startup is counted as work
        return full_lines / full_seconds, small_seconds
    speed = (full_lines - small_lines) / (full_seconds - small_seconds)
    return speed, max(0.0, small_seconds - small_lines / speed)


def _measure_search(vectors: Vectors, config: RunConfig, budget_seconds: float) -> float:
    """Return the pairs per second of exact search over such vectors (n, dim) on an accelerator.

    Part of the time is linear in the vectors. The quadratic part is what twice the rows take beyond twice the time.
    """
    device = torch.device(choose_device(config.device))
    block_rows: int = max(1, default_block_bytes(device) // (2 * vectors.shape[1]))
    random = np.random.default_rng(SEED)
    rows, previous_seconds = MIN_SEARCH_ROWS, math.nan
    _time_search(vectors, rows, config, device, random)  # warm up
    while (seconds := _time_search(vectors, rows, config, device, random)) < budget_seconds and rows < block_rows:
        rows, previous_seconds = 2 * rows, seconds
    if rows > MIN_SEARCH_ROWS:
        quadratic_seconds = 2 * (seconds - 2 * previous_seconds) / rows**2
        seconds_per_pair = max(quadratic_seconds, seconds / rows**2 / 3)
    else:
        seconds_per_pair = seconds / rows**2
    return 1 / (seconds_per_pair + (seconds - seconds_per_pair * rows**2) / rows / block_rows)


def _time_search(vectors: Vectors, rows: int, config: RunConfig, device: torch.device, random: np.random.Generator) -> float:
    """Return the seconds to compare `rows` of one half of the vectors with as many of the other half."""
    source, target = (_vector_block(vectors[half::2], rows, random) for half in (0, 1))
    return _time(search_block, source, target, config.k, SearchOptions(str(device)))[1]


def _time(work: Callable[Inputs, Output], *args: Inputs.args, **kwargs: Inputs.kwargs) -> tuple[Output, float, float]:
    """Return the result of `work`, and the seconds of wall time and of processor time that it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    output = work(*args, **kwargs)
    return output, time.perf_counter() - wall, time.process_time() - cpu


def _vector_block(vectors: Vectors, rows: int, random: np.random.Generator) -> VectorBlock:
    """Return a block of `rows` vectors, filled up with means of two of them, which are about as close to each other."""
    missing = max(0, rows - len(vectors))
    pairs = random.integers(len(vectors), size=(2, missing))
    means = vectors[pairs[0]].astype(np.float32) + vectors[pairs[1]].astype(np.float32)
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    block = np.concatenate([vectors[:rows], means.astype(np.float16)])
    return VectorBlock(np.arange(len(block)), block)
