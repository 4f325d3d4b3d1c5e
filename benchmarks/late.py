"""Rescoring by late interaction: candidates per second, and its share of `miner mine`.

    python benchmarks/late.py [--rows 100000] [--rounds 2]

The sentences are made of halves of those in examples/, English and German, so lengths and pieces are real ones. `miner mine` runs from
text in turns with `--rescore none` and `--rescore late`, each in a process of its own; the fastest of the rounds counts.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from miner.encoders import load_encoder
from miner.encoders.base import TokenEncoder
from miner.mining.late_interaction import LateOptions, late_similarities

EXAMPLES = Path(__file__).parents[1] / "examples"
KERNEL_SENTENCES, KERNEL_CANDIDATES = 5000, 12
KILOBYTES = 1e6  # per GB of ru_maxrss


@dataclass(frozen=True)
class MeasuredRun:
    """One run of `miner mine`."""

    seconds: float
    stages: dict[str, float]
    memory: float  # GB at the peak
    pairs: int


def processor_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


def sentences(name: str, count: int) -> list[str]:
    """Return different sentences: the first half of one line and the second half of another."""
    halves = [line.split() for line in (EXAMPLES / f"{name}.txt").read_text(encoding="utf-8").splitlines()]
    chance, made = random.Random(name), dict[str, None]()
    while len(made) < count:
        first, second = chance.choice(halves), chance.choice(halves)
        made[" ".join([*first[: len(first) // 2 + 1], *second[len(second) // 2 :]])] = None
    return list(made)


def measure_kernel(texts: dict[str, list[str]]) -> None:
    """Print candidates per second of the scoring alone, by precision, with all cores."""
    encoder = load_encoder("builtin")
    assert isinstance(encoder, TokenEncoder)
    source, target = (encoder.token_vectors(side[:KERNEL_SENTENCES]) for side in texts.values())
    queries = np.repeat(np.arange(len(target)), KERNEL_CANDIDATES)
    keys = np.random.default_rng(0).integers(0, len(source), len(queries))
    lengths = ", ".join(f"{side.lengths.mean():.0f}" for side in (source, target))
    print(f"{len(queries):,} candidates, {lengths} pieces per sentence, {torch.get_num_threads()} threads")
    for precision in ("int8", "float32"):
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            late_similarities(target, source, queries, keys, LateOptions(precision=precision))
            best = min(best, time.perf_counter() - start)
        print(f"  {precision}: {len(queries) / best:,.0f} candidates per second")


def mine(folder: Path, rescore: str) -> MeasuredRun:
    output = folder / rescore
    options = (
        "--output",
        str(output),
        "--rescore",
        rescore,
        "--threshold",
        "1.1",
        "--engine",
        "exact",
        "--no-report",
        "--json",
        f"{output}.json",
    )
    subprocess.run(["rm", "-rf", str(output)], check=True)
    command = [sys.executable, "-m", "miner.cli.main", "mine", str(folder / "en"), str(folder / "de"), *options]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    assert status == 0, command
    figures: dict[str, Any] = json.loads(Path(f"{output}.json").read_text())
    return MeasuredRun(seconds, figures["seconds"], usage.ru_maxrss / KILOBYTES, figures["pairs"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    print(processor_name())
    texts = {name: sentences(name, arguments.rows) for name in ("en", "de")}
    measure_kernel(texts)
    with tempfile.TemporaryDirectory(prefix="late-") as name:
        folder = Path(name)
        for language, lines in texts.items():
            (folder / language).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        runs: dict[str, list[MeasuredRun]] = {"none": [], "late": []}
        for _ in range(arguments.rounds):
            for rescore, measured in runs.items():
                measured.append(mine(folder, rescore))
    best = {rescore: min(measured, key=lambda run: run.seconds) for rescore, measured in runs.items()}
    for rescore, run in best.items():
        stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in run.stages.items())
        print(f"--rescore {rescore}: {run.seconds:.1f} s ({stages}), {run.memory:.2f} GB, {run.pairs:,} pairs")
    print(f"rescoring takes {best['late'].seconds / best['none'].seconds - 1:.1%} longer at {arguments.rows:,} x {arguments.rows:,}")


if __name__ == "__main__":
    main()
