"""Machines by name, and their speeds: as measured here, scaled to another machine, or as measured by its owner.

Peaks are those of NVIDIA's data sheets for the SXM modules and, for L4 and L40S, the PCIe cards: 16-bit floats with float32 accumulation,
without sparsity (data sheets that count it state twice as much). Cores and memory are those of usual cloud machines with one such GPU.
The share of a peak that is reached is an assumption: it was not measured on a GPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from miner.config.planning import Hardware
from miner.errors import ConfigError
from miner.search.cost_model import SearchCosts

HARDWARE: Mapping[str, Hardware] = {
    "cpu8": Hardware(cores=8, memory=32),
    "cpu32": Hardware(cores=32, memory=128),
    "l4": Hardware(cores=8, memory=64, flops=121e12, bandwidth=300e9),
    "l40s": Hardware(cores=16, memory=128, flops=362e12, bandwidth=864e9),
    "a100": Hardware(cores=12, memory=170, flops=312e12, bandwidth=2039e9),
    "h100": Hardware(cores=16, memory=234, flops=989e12, bandwidth=3350e9),
    "h200": Hardware(cores=16, memory=256, flops=989e12, bandwidth=4800e9),
}

TRAFFIC_BYTES_PER_PAIR = 8  # GPU memory traffic of exact search: a float16 product is written, padded, and read by rows and by columns


@dataclass(frozen=True)
class Speeds:
    """Of one machine with one process. None for reading and encoding where nothing is left to embed."""

    lines_per_second: float | None  # read, cleaned, deduplicated, sorted and written
    sentences_per_second: float | None  # encoded and written
    pairs_per_second: float | None  # pairs of sentences that exact search compares on an accelerator, or as stated; None: by `search`
    search: SearchCosts  # costs of search on its cores
    stage_start_seconds: float


@dataclass(frozen=True)
class EncodingCost:
    """What the speeds depend on."""

    dim: int
    flops_per_sentence: float | None  # None for an encoder that needs no accelerator
    block_rows: int  # vectors that exact search holds at a time on an accelerator


def find_hardware(name: str, rates: Mapping[str, Hardware]) -> Hardware:
    """Return the machine called `name`, one of HARDWARE or of `rates`. Raises ConfigError if there is none."""
    machines = {**HARDWARE, **rates}
    if name not in machines:
        raise ConfigError(f"--hardware {name}: no such machine; one of {', '.join(machines)}, or one that --rates defines")
    return machines[name]


def search_speed(machine: Hardware, dim: int, block_rows: int) -> float:
    """Return the pairs of vectors per second that the accelerator of `machine` compares in exact search.

    A pair takes 2 dim operations and TRAFFIC_BYTES_PER_PAIR, whichever takes longer at the stated share of the peak. Each vector of
    2 dim bytes is read from a file once for every `block_rows` vectors that it is compared with, as if the accelerator waited.
    """
    assert machine.flops is not None
    compute_seconds = 2 * dim / machine.flops
    traffic_seconds = TRAFFIC_BYTES_PER_PAIR / machine.bandwidth if machine.bandwidth is not None else 0.0
    return 1 / (max(compute_seconds, traffic_seconds) / machine.efficiency + 2 * dim / block_rows / machine.vector_bytes_per_second)


def encoding_speed(machine: Hardware, flops_per_sentence: float) -> float:
    """Return the sentences per second that the accelerator of `machine` encodes."""
    assert machine.flops is not None
    return machine.flops * machine.efficiency / flops_per_sentence


def scale_speeds(local: Speeds, local_cores: int, machine: Hardware, encoding: EncodingCost) -> Speeds:
    """Return the speeds of `machine`, from those measured on this one.

    Encoding and search use all cores, which are assumed to be like the local ones, or the accelerator. A text is read by one core. A speed
    that was measured on the machine takes precedence.
    """
    ratio = machine.cores / local_cores
    scaled = replace(
        local,
        sentences_per_second=local.sentences_per_second and local.sentences_per_second * ratio,
        search=local.search.scale(1 / ratio),
        pairs_per_second=None,
    )
    if machine.flops is not None:
        scaled = replace(scaled, pairs_per_second=search_speed(machine, encoding.dim, encoding.block_rows))
        if encoding.flops_per_sentence is not None:
            scaled = replace(scaled, sentences_per_second=encoding_speed(machine, encoding.flops_per_sentence))
    names = ("lines_per_second", "sentences_per_second", "pairs_per_second")
    measured = {name: speed for name in names if (speed := getattr(machine, name)) is not None}
    return replace(scaled, **measured)
