"""Sentences per second of a transformer on the CPU, compared with sentence-transformers at several batch sizes.

    OMP_NUM_THREADS=2 python benchmarks/encode_transformer.py --text news.txt [--lines 2000] [--rounds 3]

The model has 6 layers of 384 dimensions and random weights. Both encode the same lines in turns, in one process; printed are the medians
of the processor time and the largest difference of a component. `miner` has its default settings.
"""

import argparse
import statistics
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
        encoder = load_encoder(f"{name}/model", EncoderSettings(pooling="mean", device="cpu", dtype="float32"))
        other = SentenceTransformer(f"{name}/model", device="cpu")
    other.max_seq_length = encoder.max_tokens
    runs: dict[str, Callable[[], np.ndarray]] = {"miner": lambda: encoder.encode(lines)}
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
    medians = {label: statistics.median(times) for label, times in seconds.items()}
    print(f"{len(lines):,} lines, {torch.get_num_threads()} threads, processor seconds:")
    for label, median in medians.items():
        print(f"{median:8.1f}  {median / medians['miner']:4.2f} x  {label}")
    print(f"largest difference {np.abs(vectors['miner'] - vectors[f'sentence-transformers, batches of {DEFAULT_BATCH}']).max():.1e}")


if __name__ == "__main__":
    main()
