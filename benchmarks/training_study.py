"""Every way of training on real data at a small scale: what each adds to one start, over several seeds.

    python benchmarks/training_study.py run --data DATA --work DIR [--seeds 3] [--only NAME ...]
    python benchmarks/training_study.py table --work DIR

A transformer of two layers and 64 dimensions, random at first, learns words from lexicons. That is the start, in place of the
pretrained model of the papers: words of five languages are in one space, sentences it has not seen. Methods go on from there, or
from random weights, or, where pairs are to be classified, from what translations taught. What is measured is the last state, so
nothing is chosen by the test sets. DIR/results.jsonl has a line for each run; those that are there are not made again.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the runs stand side by side instead
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import study_data
import torch
from study_methods import METHODS, NOTHING, RANDOM, Method

from miner.config.commands import EncoderSettings
from miner.encoders import load_encoder
from miner.training import run
from miner.training.config import TrainConfig

RESULTS = "results.jsonl"
STARTS = {method.start for method in METHODS.values()} & set(METHODS)


def config(method: Method, data: Path, model: Path, seed: int) -> TrainConfig:
    """A method's settings, its files being those of DATA."""
    text = json.dumps([method.data, method.evaluation]).replace("DATA/", f"{data}/")
    sources, evaluation = json.loads(text)
    transformer = {"kind": "transformer", "model": str(model), "pooling": "mean", "max_tokens": 16}
    return TrainConfig.check(
        encoder={**({} if method.start == NOTHING else transformer), **method.encoder},
        data=sources,
        objective=method.objective,
        training={"warmup": 0.1, "clip": 1.0, "checkpoint_every": 100_000, "seed": seed, **method.training},
        evaluation=evaluation,
    )


def measure(encoder: str, data: Path, pooling: str | None = None) -> dict[str, float]:
    """On Tatoeba: retrieval in percent, the mean of languages and directions, and the mean cosine of two English sentences."""
    loaded, found, alike = load_encoder(encoder, EncoderSettings(pooling=pooling, dtype="float32")), [], []
    for pairs in study_data.held_out(data).values():
        source, target = (loaded.encode([pair[side] for pair in pairs]) for side in (0, 1))
        count, similarity = len(source), source @ target.T
        found += [100 * float((similarity.argmax(axis=axis) == np.arange(count)).mean()) for axis in (0, 1)]
        alike.append((float(np.square(source.sum(axis=0)).sum()) - count) / (count * (count - 1)))
    return {"retrieval": statistics.fmean(found), "alike": statistics.fmean(alike)}


def one(task: tuple[str, int, Path, Path]) -> dict[str, Any]:
    """Train and measure one method with one seed."""
    name, seed, data, work = task
    torch.set_num_threads(1)
    method, output = METHODS[name], work / f"{name}-{seed}"
    model = work / f"{RANDOM}-{seed}" if method.start == RANDOM else work / f"{method.start}-{seed}" / "encoder"
    shutil.rmtree(output, ignore_errors=True)
    began = time.perf_counter()
    trained = run.train(config(method, work / "data", model, seed), str(output))
    seconds = time.perf_counter() - began
    figures = {"method": name, "seed": seed, "seconds": round(seconds, 1), "loss": trained.loss, **measure(trained.encoder, data)}
    if method.evaluation:
        figures["accuracy"] = 100 * float(trained.score or 0)
    if name not in STARTS:
        shutil.rmtree(output)
    return figures


def depth(name: str) -> int:
    """How many methods come before one."""
    start = METHODS[name].start
    return 1 + depth(start) if start in METHODS else 0


def results(work: Path) -> list[dict[str, Any]]:
    path = work / RESULTS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def study(given: argparse.Namespace) -> None:
    """Make the runs that are missing: first what others go on from."""
    work: Path = given.work
    if not (work / "data").exists():
        study_data.prepare(given.data, work / "data")
    done = {(line["method"], line["seed"]) for line in results(work)}
    for seed in range(given.seeds):
        if (RANDOM, seed) not in done:
            study_data.save_random(work / f"{RANDOM}-{seed}", work / "data" / "tokenizer", seed)
            write(work, {"method": RANDOM, "seed": seed, "seconds": 0, **measure(str(work / f"{RANDOM}-{seed}"), given.data, "mean")})
    names = {*STARTS, *(given.only or METHODS)}
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        for stage in range(1 + max(map(depth, METHODS))):
            of = [name for name in METHODS if name in names and depth(name) == stage]
            tasks = [(name, seed, given.data, work) for seed in range(given.seeds) for name in of if (name, seed) not in done]
            for figures in pool.imap_unordered(one, tasks):
                print(json.dumps(figures), flush=True)
                write(work, figures)


def write(work: Path, figures: Mapping[str, Any]) -> None:
    with (work / RESULTS).open("a") as file:
        file.write(json.dumps(figures) + "\n")


def table(given: argparse.Namespace) -> None:
    """Means over the seeds, and the standard deviation."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in results(given.work):
        for name, value in line.items():
            if name not in ("method", "seed"):
                found[line["method"]][name].append(value)
    print("| method | start | retrieval | cosine of two sentences | accuracy | seeds |\n|---|---|---|---|---|---|")
    for method in [RANDOM, *METHODS]:
        if method in found:
            values, start = found[method], METHODS[method].start if method in METHODS else NOTHING
            cells = [_cell(values[name], digits) for name, digits in (("retrieval", 1), ("alike", 3), ("accuracy", 1))]
            print(f"| {method} | {start} | {' | '.join(cells)} | {len(values['seconds'])} |")


def _cell(values: list[float], digits: int) -> str:
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--data", type=Path, help="the folder that configs/builtin_data.py reads, too; for run")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="*")
    given = parser.parse_args()
    if unknown := set(given.only or ()) - set(METHODS):
        sys.exit(f"no method {', '.join(unknown)}; there are {', '.join(METHODS)}")
    if given.command == "run" and given.data is None:
        parser.error("run wants --data")
    {"run": study, "table": table}[given.command](given)


if __name__ == "__main__":
    main()
