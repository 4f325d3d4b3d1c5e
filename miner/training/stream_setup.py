"""Build the streams of a config: which sources share batches, how large the batches are, and how many steps an epoch takes."""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from miner.training.config import TrainConfig, find_mixing_fault
from miner.training.data.strategy import Strategy
from miner.training.steps.loss_terms import LOSSES
from miner.training.steps.mixing import MixedStream, OneSourceStream, Stream
from miner.training.steps.step import LossContext, LossTerm

logger = logging.getLogger(__name__)

Terms = Mapping[str, tuple[float, LossTerm]]


def build_streams(config: TrainConfig, sources: Mapping[str, Strategy], towers: Sequence[Any], num_processes: int) -> list[Stream]:
    """Build the streams, in the order of the losses; `sources` are all sources of the config by title."""
    streams: list[Stream] = []
    for number, titles in enumerate(config.streams):
        epochs = config.training.epochs if number == 0 else None
        selected = {title: sources[title] for title in titles}
        streams.append(_build_stream(config, selected, _build_terms(config, titles, towers), epochs, num_processes))
    return streams


def count_steps(config: TrainConfig, stream: Stream) -> int:
    """Return the number of steps that draw as many examples as `epochs` passes over the sources of the first stream."""
    if config.training.steps is not None:
        return config.training.steps
    num_examples = (config.training.epochs or 1) * sum(source.num_examples for source in stream.sources.values())
    return max(1, math.ceil(num_examples / (stream.mean_batch_size * config.training.accumulation)))


def _build_stream(config: TrainConfig, sources: Mapping[str, Strategy], terms: Terms, epochs: float | None, num_processes: int) -> Stream:
    settings = [source for source in config.data if source.title in sources]
    counts = np.array([source.num_examples for source in sources.values()])
    weights = np.array([source.weight for source in settings]) * (counts > 0)
    batch_sizes = [source.batch_size or config.training.batch_size for source in settings]
    fault = find_mixing_fault(settings)
    if fault and config.training.mix == "examples":
        logger.warning("sources %s: every batch holds one source, since %s; set training.mix to batches", ", ".join(sources), fault)
    if fault or config.training.mix == "batches":
        _warn_of_duplicates(sources, batch_sizes)
        return OneSourceStream(sources, terms, weights / weights.sum(), batch_sizes)
    num_examples = None if epochs is None else math.ceil(epochs * int(counts.sum()))
    weights = weights * counts
    batch_size = min(batch_sizes[0], num_examples or batch_sizes[0])
    _warn_of_duplicates(sources, np.ceil(batch_size * weights / weights.sum()).astype(int).tolist())
    return MixedStream(sources, terms, weights, batch_sizes[0], num_examples, num_processes)


def _build_terms(config: TrainConfig, titles: Sequence[str], towers: Sequence[Any]) -> Terms:
    """Build the losses that train on exactly these sources, with their weights, by name."""
    terms: dict[str, tuple[float, LossTerm]] = {}
    for number, objective in enumerate(config.objective):
        if [source.title for source in config.sources_of(objective.data)] == list(titles):
            earlier = [previous.loss for previous in config.objective[:number]]
            name = f"{objective.loss}_{number}" if objective.loss in earlier else objective.loss
            context = LossContext(towers, config.find_labels(objective.data))
            terms[name] = objective.weight, LOSSES[objective.loss].term(objective, context)
    return terms


def _warn_of_duplicates(sources: Mapping[str, Strategy], sizes: Sequence[int]) -> None:
    """Warn about sources with fewer examples than a batch draws from them."""
    for (title, source), size in zip(sources.items(), sizes, strict=True):
        if source.num_examples < size:
            message = "source %r: fewer examples (%d) than the batch size (%d), so batches contain duplicates; lower batch_size"
            logger.warning(message, title, source.num_examples, size)
