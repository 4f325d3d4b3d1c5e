"""Time a transformer in this package and in sentence-transformers, in float32 and bfloat16, in turns on the same lines.

    python benchmarks/encoders.py TEXT --encoder DIR --lines 600 --rounds 3

Print the minimum seconds of each, and the least cosine of the vectors with those of this package in float32.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from miner.config.commands import EncoderSettings
from miner.encoders import load_encoder

DTYPES = ("float32", "bfloat16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="text file of which the last lines are encoded")
    parser.add_argument("--encoder", required=True, help="folder of a sentence-transformers model")
    parser.add_argument("--lines", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    lines = arguments.text.read_text(encoding="utf-8").splitlines()[-arguments.lines :]
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
