"""Sentences per second of a transformer on the CPU, compared with sentence-transformers at several batch sizes.

    OMP_NUM_THREADS=2 python benchmarks/encode_transformer.py --text news.txt [--lines 2000] [--rounds 3]

The model has 6 layers of 384 dimensions and random weights. Both encode the same lines in turns, in one process; printed are the minima
of the processor time, the largest difference of a component, and the cosines of the vectors with int8 weights with those in
float32. `miner` has its default settings.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from training import prepare

from miner.config.commands import EncoderSettings
from miner.encoders import load_encoder
from miner.encoders.int8_linear import is_exact

BATCHES = (8, 16, 32, 64, 128)  # of sentences; 32 is the default of sentence-transformers
DEFAULT_BATCH = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    lines = arguments.text.read_text(encoding="utf-8").splitlines()[: arguments.lines]
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name), "small")
        settings = EncoderSettings(pooling="mean", device="cpu", dtype="float32")
        encoder = load_encoder(f"{name}/model", settings)
        rounded = load_encoder(f"{name}/model", settings.model_copy(update={"dtype": "int8"})) if is_exact() else None
        other = SentenceTransformer(f"{name}/model", device="cpu")
    other.max_seq_length = encoder.max_tokens
    runs: dict[str, Callable[[], np.ndarray]] = {"miner": lambda: encoder.encode(lines)}
    if rounded is not None:
        runs["miner, int8"] = lambda: rounded.encode(lines)
    for batch in BATCHES:
        runs[f"sentence-transformers, batches of {batch}"] = lambda batch=batch: other.encode(
            lines, batch_size=batch, normalize_embeddings=True
        )
    seconds: dict[str, list[float]] = {label: [] for label in runs}
    vectors = {}
    for _ in range(arguments.rounds):
        for label, run in runs.items():
            start = time.process_time()
            vectors[label] = run()
            seconds[label].append(time.process_time() - start)
    fastest = {label: min(times) for label, times in seconds.items()}
    print(f"{len(lines):,} lines, {torch.get_num_threads()} threads, processor seconds:")
    for label, minimum in fastest.items():
        print(f"{minimum:8.1f}  {minimum / fastest['miner']:4.2f} x  {label}")
    print(f"largest difference {np.abs(vectors['miner'] - vectors[f'sentence-transformers, batches of {DEFAULT_BATCH}']).max():.1e}")
    if rounded is not None:
        cosines = (vectors["miner"] * vectors["miner, int8"]).sum(axis=1)
        print(f"cosines of int8: mean {cosines.mean():.6f}, least {cosines.min():.6f}")


if __name__ == "__main__":
    main()
