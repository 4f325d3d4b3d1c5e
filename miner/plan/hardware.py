"""Machines by name, and how fast they are expected to be.

Peaks are those of NVIDIA's data sheets for the SXM modules and, for L4 and L40S, the PCIe cards: 16-bit floats with float32 accumulation,
without sparsity (data sheets that count it state twice as much). Cores and memory are those of usual cloud machines with one such GPU.
The share of a peak that is reached is an assumption: it was not measured on a GPU.
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

TRAFFIC_BYTES_PER_PAIR = 8  # of GPU memory in exact search: a float16 product is written, padded, and read by rows and by columns


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
