"""Compare all training methods on real data at a small scale, from the same start and over several seeds.

    python benchmarks/training_study.py run --data DATA --work DIR [--seeds 3] [--only NAME ...]
    python benchmarks/training_study.py table --work DIR

A transformer of two layers and 64 dimensions with random weights learns words from lexicons. That is the start, in place of the
pretrained model of the papers: words of five languages share a space, but it has seen no sentences. Methods continue from there, from
random weights or, for classification, from the method `parallel`. The last state is measured, so nothing is selected on the test
sets. DIR/results.jsonl has a line per run; finished runs are skipped.
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

os.environ.setdefault("OMP_NUM_THREADS", "1")  # runs are parallel instead
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import study_data
import torch
from study_methods import METHODS, MIXTURES, NOTHING, RANDOM, WORDS, Method

from miner.config.commands import EncoderSettings
from miner.encoders import load_encoder
from miner.research.tasks.sts import StsTask
from miner.training import run
from miner.training.config import TrainConfig

RESULTS = "results.jsonl"
STARTS = {method.start for method in METHODS.values()} & set(METHODS)


def config(method: Method, data: Path, model: Path, seed: int) -> TrainConfig:
    """Return the config of a method, with its files in DATA."""
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


def measure(encoder: str, data: Path, work: Path, pooling: str | None = None) -> dict[str, float]:
    """Return Tatoeba retrieval in percent (mean over languages and directions), the mean cosine of two English sentences, and STS-B."""
    loaded = load_encoder(encoder, EncoderSettings(pooling=pooling, dtype="float32"))
    accuracies, cosines = [], []
    for pairs in study_data.read_test_pairs(data).values():
        source, target = (loaded.encode([pair[side] for pair in pairs]) for side in (0, 1))
        count, similarity = len(source), source @ target.T
        accuracies += [100 * float((similarity.argmax(axis=axis) == np.arange(count)).mean()) for axis in (0, 1)]
        cosines.append((float(np.square(source.sum(axis=0)).sum()) - count) / (count * (count - 1)))
    correlations = StsTask(data=str(work / "data" / study_data.STS)).evaluate(loaded).figures
    figures = {"retrieval": statistics.fmean(accuracies), "alike": statistics.fmean(cosines)}
    return {**figures, "sts": 100 * float(correlations["all"]["spearman"])}


def train_and_measure(task: tuple[str, int, Path, Path]) -> dict[str, Any]:
    """Train and measure one method with one seed."""
    name, seed, data, work = task
    torch.set_num_threads(1)
    method, output = METHODS[name], work / f"{name}-{seed}"
    model = work / f"{RANDOM}-{seed}" if method.start == RANDOM else work / f"{method.start}-{seed}" / "encoder"
    shutil.rmtree(output, ignore_errors=True)
    start = time.perf_counter()
    result = run.train(config(method, work / "data", model, seed), str(output))
    seconds = time.perf_counter() - start
    figures = {"method": name, "seed": seed, "seconds": round(seconds, 1), "loss": result.loss, **measure(result.encoder, data, work)}
    figures["epochs"] = {title: counts.epochs for title, counts in result.sources.items()}
    if method.evaluation:
        figures["accuracy"] = 100 * float(result.score or 0)
    if name not in STARTS:
        shutil.rmtree(output)
    return figures


def depth(name: str) -> int:
    """Return the number of methods that must be trained before this one."""
    start = METHODS[name].start
    return 1 + depth(start) if start in METHODS else 0


def read_results(work: Path) -> list[dict[str, Any]]:
    path = work / RESULTS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def study(arguments: argparse.Namespace) -> None:
    """Train the missing runs, those that others start from first."""
    work: Path = arguments.work
    if not (work / "data").exists():
        study_data.prepare(arguments.data, work / "data")
    finished = {(line["method"], line["seed"]) for line in read_results(work)}
    for seed in range(arguments.seeds):
        if (RANDOM, seed) not in finished:
            study_data.save_random(work / f"{RANDOM}-{seed}", work / "data" / "tokenizer", seed)
            figures = measure(str(work / f"{RANDOM}-{seed}"), arguments.data, work, "mean")
            write(work, {"method": RANDOM, "seed": seed, "seconds": 0, **figures})
    names = {*STARTS, *(arguments.only or METHODS)}
    with multiprocessing.get_context("spawn").Pool(arguments.workers) as pool:
        for stage in range(1 + max(map(depth, METHODS))):
            stage_names = [name for name in METHODS if name in names and depth(name) == stage]
            tasks = [
                (name, seed, arguments.data, work)
                for seed in range(arguments.seeds)
                for name in stage_names
                if (name, seed) not in finished
            ]
            for figures in pool.imap_unordered(train_and_measure, tasks):
                print(json.dumps(figures), flush=True)
                write(work, figures)


def write(work: Path, figures: Mapping[str, Any]) -> None:
    with (work / RESULTS).open("a") as file:
        file.write(json.dumps(figures) + "\n")


def table(arguments: argparse.Namespace) -> None:
    """Print means and standard deviations over the seeds."""
    figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in read_results(arguments.work):
        for name, value in line.items():
            if name == "epochs":
                for title, epochs in value.items():
                    figures[line["method"]][f"epochs of {title}"].append(epochs)
            elif name not in ("method", "seed"):
                figures[line["method"]][name].append(value)
    print("| method | start | retrieval | cosine of two sentences | accuracy | seeds |\n|---|---|---|---|---|---|")
    for method in [RANDOM, *METHODS]:
        if method in figures and method not in MIXTURES:
            values, start = figures[method], METHODS[method].start if method in METHODS else NOTHING
            cells = [
                study_data.mean_and_deviation(values[name], digits) for name, digits in (("retrieval", 1), ("alike", 3), ("accuracy", 1))
            ]
            print(f"| {method} | {start} | {' | '.join(cells)} | {len(values['seconds'])} |")

    heads = ("retrieval", "sts", "epochs of pairs", "epochs of nli")
    print(f"\n| mixture | {' | '.join(heads)} | seeds |\n{'|---' * (len(heads) + 2)}|")
    for method in (WORDS, *MIXTURES):
        if method in figures:
            cells = [study_data.mean_and_deviation(figures[method][head], 1) for head in heads]
            print(f"| {method.removeprefix('mixture: ')} | {' | '.join(cells)} | {len(figures[method]['seconds'])} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--data", type=Path, help="input folder of configs/builtin_data.py; required by run")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    if unknown := set(arguments.only or ()) - set(METHODS):
        sys.exit(f"unknown methods {', '.join(unknown)}; choose from {', '.join(METHODS)}")
    if arguments.command == "run" and arguments.data is None:
        parser.error("run needs --data")
    {"run": study, "table": table}[arguments.command](arguments)


if __name__ == "__main__":
    main()
