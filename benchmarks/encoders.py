"""Time a transformer in this package and in sentence-transformers, in float32 and bfloat16, in turns on the same lines.

    python benchmarks/encoders.py TEXT --encoder DIR --lines 600 --rounds 3
    python benchmarks/encoders.py TEXT --target TEXT --encoder DIR --lines 600 --rounds 3

Print the minimum seconds of each, and the least cosine of the vectors with those of this package in float32. With --target, print what
rescoring adds to `miner embed` and `miner mine` of both texts, in turns: seconds, and those of the processor, on which other work has less
effect.
"""

import argparse
import itertools
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

import miner
from miner.config.choices import AUTO, NONE
from miner.config.commands import EncoderSettings
from miner.encoders import load_encoder

DTYPES = ("float32", "bfloat16")


def read_lines(path: Path, count: int) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()[-count:]


def time_rescoring(sides: tuple[list[str], list[str]], name: str, rounds: int) -> None:
    """Print the minimum seconds of embedding and mining, without and with tokens."""
    encoder = load_encoder(name)
    minima = dict.fromkeys(itertools.product(("embed", "mine"), (NONE, AUTO)), (math.inf, math.inf))
    for _ in range(rounds):
        for rescore in (NONE, AUTO):
            clock = time.perf_counter(), time.process_time()
            embedded = [miner.embed(side, encoder, rescore=rescore) for side in sides]
            middle = time.perf_counter(), time.process_time()
            miner.mine(*embedded, rescore=rescore, threshold=1.0, calibrate=NONE)
            end = time.perf_counter(), time.process_time()
            for command, first, last in (("embed", clock, middle), ("mine", middle, end)):
                seconds = (after - before for before, after in zip(first, last, strict=True))
                minima[command, rescore] = tuple(map(min, minima[command, rescore], seconds))
    for (command, rescore), (wall, processor) in minima.items():
        print(f"{command:6} --rescore {rescore:5} {wall:7.2f} s   {processor:7.2f} s of the processor")
    sums = [[sum(minima[command, rescore][kind] for command in ("embed", "mine")) for rescore in (NONE, AUTO)] for kind in (0, 1)]
    print("rescored, relative to not rescored: " + ", ".join(f"{rescored / plain:.3f}" for plain, rescored in sums))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="text file of which the last lines are encoded")
    parser.add_argument("--target", type=Path, help="text file of another language, to time rescoring")
    parser.add_argument("--encoder", required=True, help="folder of a sentence-transformers model")
    parser.add_argument("--lines", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    lines = read_lines(arguments.text, arguments.lines)
    if arguments.target is not None:
        time_rescoring((lines, read_lines(arguments.target, arguments.lines)), arguments.encoder, arguments.rounds)
        return
    encoders: dict[str, Callable[[list[str]], Any]] = {}
    for dtype in DTYPES:
        encoders[f"miner {dtype}"] = load_encoder(arguments.encoder, EncoderSettings(dtype=dtype)).encode
        theirs = SentenceTransformer(arguments.encoder, device="cpu", model_kwargs={"dtype": getattr(torch, dtype)})
        encoders[f"sentence-transformers {dtype}"] = lambda texts, model=theirs: model.encode(texts, normalize_embeddings=True)
    expected = encoders["miner float32"](lines)
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    cosines = dict[str, float]()
    for _ in range(arguments.rounds):
        for name, encode in encoders.items():
            start = time.perf_counter()
            vectors = encode(lines)
            seconds[name].append(time.perf_counter() - start)
            cosines[name] = float(np.einsum("nd,nd->n", vectors, expected).min())
    for name, values in seconds.items():
        print(f"{name:32} {min(values):7.2f} s   least cosine {cosines[name]:.5f}")


if __name__ == "__main__":
    main()
