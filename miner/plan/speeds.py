"""The speeds of a machine: as measured here, scaled to another machine, or as measured by the owner of that machine."""

from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class EncodingCost:
    """What the speeds depend on."""

    dim: int
    flops_per_sentence: float | None  # None for an encoder that needs no accelerator
    block_rows: int  # vectors that exact search holds at a time on an accelerator


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
    names = ("lines_per_second", "sentences_per_second", "pairs_per_second")
    measured = {name: speed for name in names if (speed := getattr(machine, name)) is not None}
    return replace(scaled, **measured)
