"""The speeds of a machine: as measured here, scaled to another machine, or as measured by the owner of that machine."""

from dataclasses import dataclass, replace
from typing import Any

from miner.config.planning import Hardware
from miner.plan import hardware


@dataclass(frozen=True)
class Speeds:
    """Of one machine with one process. None for reading and encoding where nothing is left to embed."""

    lines_per_second: float | None  # read, cleaned, deduplicated, sorted and written
    sentences_per_second: float | None  # encoded and written
    pairs_per_second: float  # of sentences, compared by exact search
    speedup: float  # relative to what `miner.search.cost_model` expects of the cores; applied to FAISS
    stage_start_seconds: float

    def figures(self) -> dict[str, Any]:
        """Return the speeds for --json."""
        return {
            "read": self.lines_per_second,
            "embed": self.sentences_per_second,
            "search": self.pairs_per_second,
            "faster": self.speedup,
            "start": self.stage_start_seconds,
        }


@dataclass(frozen=True)
class EncodingCost:
    """What the speeds depend on."""

    dim: int
    flops_per_sentence: float | None  # None for an encoder that needs no accelerator
    block_rows: int  # vectors that exact search holds at a time on an accelerator

    def figures(self) -> dict[str, Any]:
        """Return the values for --json."""
        return {"dim": self.dim, "operations": self.flops_per_sentence, "stretch": self.block_rows}


def scale_speeds(local: Speeds, local_cores: int, machine: Hardware, encoding: EncodingCost) -> Speeds:
    """Return the speeds of `machine`, from those measured on this one.

    Encoding and search use all cores, which are assumed to be like the local ones, or the accelerator. A text is read by one core. A speed
    that was measured on the machine takes precedence.
    """
    ratio = machine.cores / local_cores
    scaled = replace(
        local,
        sentences_per_second=local.sentences_per_second and local.sentences_per_second * ratio,
        pairs_per_second=local.pairs_per_second * ratio,
    )
    if machine.flops is not None:
        scaled = replace(scaled, pairs_per_second=hardware.search_speed(machine, encoding.dim, encoding.block_rows))
        if encoding.flops_per_sentence is not None:
            scaled = replace(scaled, sentences_per_second=hardware.encoding_speed(machine, encoding.flops_per_sentence))
    measured = {
        "lines_per_second": machine.read,
        "sentences_per_second": machine.embed,
        "pairs_per_second": machine.search,
    }
    return replace(scaled, **{name: speed for name, speed in measured.items() if speed is not None})
