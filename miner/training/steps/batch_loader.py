"""Load training batches: draw the examples of each step and tokenise their texts."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from miner.training.data.batches import Batch, tower_index
from miner.training.settings import TrainingSettings
from miner.training.steps import distributed, errors
from miner.training.steps.distributed import Accelerator
from miner.training.steps.grad_cache import EncoderInputs, build_inputs
from miner.training.steps.mixing import Stream


@dataclass(frozen=True)
class TowerInputs:
    """The part of some views of a batch that this process encodes, all with one encoder."""

    views: list[str]
    tower: Any
    inputs: EncoderInputs
    dropout_seed: int


@dataclass(frozen=True)
class DrawnCounts:
    """How many examples were drawn so far, the whole state of sources and streams."""

    of_sources: list[list[int]]  # by language, for the sources of each stream in turn
    of_streams: list[int]

    @classmethod
    def of(cls, streams: Sequence[Stream]) -> "DrawnCounts":
        sources = [source for stream in streams for source in stream.sources.values()]
        return cls([list(source.sampler.drawn) for source in sources], [stream.num_drawn for stream in streams])


@dataclass(frozen=True)
class LoadedBatch:
    """A batch that is ready to be encoded."""

    batch: Batch
    stream: Stream
    seed: list[int]
    tower_inputs: list[TowerInputs]
    drawn: DrawnCounts  # once this batch was drawn


class BatchLoader:
    """Load the batches of `streams` for `towers`. It may run in a background thread, since it uses nothing that a step changes."""

    def __init__(self, streams: Sequence[Stream], towers: Sequence[Any], settings: TrainingSettings, accelerator: Accelerator) -> None:
        self.streams, self.towers, self.settings, self.accelerator = streams, towers, settings, accelerator

    def load_steps(self, steps: range) -> Generator[LoadedBatch, None, None]:
        """Yield the batches of optimizer steps: `accumulation` batches of each stream per step."""
        for step in steps:
            for accumulated in range(self.settings.accumulation):
                for number, stream in enumerate(self.streams):
                    seed = [self.settings.seed, step, accumulated, number]
                    batch = stream.draw(np.random.default_rng(seed), self.settings.accumulation - accumulated)
                    with errors.explain_out_of_memory(batch, step + 1, self.towers[0]):
                        loaded = self.load(batch, stream, seed)
                    yield loaded

    def load(self, batch: Batch, stream: Stream, seed: list[int]) -> LoadedBatch:
        """Tokenise a batch that was just drawn."""
        return LoadedBatch(batch, stream, seed, list(self._tokenize(batch, stream, seed)), DrawnCounts.of(self.streams))

    def _tokenize(self, batch: Batch, stream: Stream, seed: list[int]) -> Iterator[TowerInputs]:
        """Tokenise this process's part of the views that the losses use, for their towers."""
        process = self.accelerator.process_index
        for number, tower in enumerate(self.towers):
            names = [name for name in batch.views if stream.uses_view(name) and tower_index(name, len(self.towers)) == number]
            views = [batch.views[name].select(distributed.local_rows(len(batch.views[name]), self.accelerator)) for name in names]
            if views:
                tower_seed = [*seed, process, number]
                tokens = tower.tokenize_views(views, np.random.default_rng(tower_seed))
                inputs = build_inputs(tower, tokens, self.settings.gradient_cache, self.accelerator.device)
                yield TowerInputs(names, tower, inputs, combine_seeds(tower_seed))


def combine_seeds(seeds: Sequence[int]) -> int:
    """Hash several seeds to one that torch accepts."""
    return int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0] >> np.uint64(2))
