"""Machines that are known by name, and how fast they are expected to be.

Peaks are those of NVIDIA's data sheets for the SXM modules and, of L4 and L40S, the PCIe cards: 16-bit floats with float32 sums, without
sparsity (data sheets that count it have twice as much). Cores and memory are those of usual cloud machines with one such GPU. What
share of a peak is reached is an assumption, and told as one: no GPU was at hand to measure it.
"""

from collections.abc import Mapping

from miner.config.planning import Hardware
from miner.errors import ConfigError

HARDWARE: Mapping[str, Hardware] = {
    "cpu8": Hardware(cores=8, memory=32),
    "cpu32": Hardware(cores=32, memory=128),
    "l4": Hardware(cores=8, memory=64, flops=121e12, bandwidth=300e9),
    "l40s": Hardware(cores=16, memory=128, flops=362e12, bandwidth=864e9),
    "a100": Hardware(cores=12, memory=170, flops=312e12, bandwidth=2039e9),
    "h100": Hardware(cores=16, memory=234, flops=989e12, bandwidth=3350e9),
    "h200": Hardware(cores=16, memory=256, flops=989e12, bandwidth=4800e9),
}

PRODUCT_BYTES = 8  # of a GPU's memory for each product of exact search: float16, written once, filled up, and read for rows and columns


def find(name: str, given: Mapping[str, Hardware]) -> Hardware:
    """The machine called `name`; ConfigError where there is none."""
    machines = {**HARDWARE, **given}
    if name not in machines:
        raise ConfigError(f"--hardware {name}: no such machine; one of {', '.join(machines)}, or one that --rates tells of")
    return machines[name]


def exact_search(machine: Hardware, dim: int, stretch: int) -> float:
    """Pairs of sentences a second that the accelerator of `machine` compares, of vectors of `dim` numbers.

    A pair takes 2 dim operations, and PRODUCT_BYTES of traffic, whichever takes longer at the stated share of the peak. A vector of 2 dim
    bytes is read from a file for every `stretch` vectors that it is compared with, while the accelerator waits.
    """
    assert machine.flops is not None
    computing = 2 * dim / machine.flops
    moving = PRODUCT_BYTES / machine.bandwidth if machine.bandwidth is not None else 0.0
    return 1 / (max(computing, moving) / machine.efficiency + 2 * dim / stretch / machine.reading)


def transformer(machine: Hardware, operations: float) -> float:
    """Sentences a second that the accelerator of `machine` encodes, each of so many floating point operations."""
    assert machine.flops is not None
    return machine.flops * machine.efficiency / operations
