"""Dual momentum contrast with two models, trained from scratch, mined and evaluated through the command line.

    python benchmarks/two_towers.py run --data DATA --work DIR [--seeds 2]
    python benchmarks/two_towers.py table --work DIR

Two transformers of two layers and 64 dimensions with random weights, one with an English tokenizer and one with a German one, train on
Tatoeba pairs and on words of MUSE. `shared` is one transformer for both languages, `momentum 0` copies the encoders at every step.
Three disjoint sets are held out: pairs that choose the checkpoint, and two sets in the layout of BUCC, where a part of the sentences has
no translation. The margin is distance with k = 3, as in the paper. DIR/results.jsonl has a line per run; finished runs are skipped.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import study_data
import yaml

RESULTS = "results.jsonl"
DEV, MINED = 500, {"dev": 500, "test": 1000}  # pairs; pairs of each set to mine
SINGLES = 500  # further sentences on each side of a set, without a translation
MARGIN = ["--margin", "distance", "--k", "3"]
VARIANTS: dict[str, dict[str, Any]] = {
    "two towers": {"positive_model": "de"},
    "shared": {"model": "both"},
    "two towers, momentum 0": {"positive_model": "de", "momentum": 0},
}


def prepare(data: Path, folder: Path) -> None:
    """Write training pairs, held-out pairs, the two sets to mine, the Tatoeba test set and the tokenizers."""
    folder.mkdir(parents=True)
    pairs = iter(study_data.read_pairs(data, "de", seed=0))
    study_data.write(folder / "dev.tsv", "source target", [next(pairs) for _ in range(DEV)])
    for split, count in MINED.items():
        gold = [next(pairs) for _ in range(count)]
        singles = [[next(pairs)[side] for _ in range(SINGLES)] for side in (0, 1)]
        write_set(folder / "bucc", split, gold, singles)
    train = list(pairs)
    words = study_data.read_words(data, "de")
    study_data.write(folder / "pairs.tsv", "source target", train)
    study_data.write(folder / "words.tsv", "source target", words)
    (folder / "tatoeba").mkdir()
    shutil.copyfile(data / "eval/tatoeba/tatoeba.deu-eng.tsv.gz", folder / "tatoeba" / "tatoeba.deu-eng.tsv.gz")
    texts = [[pair[side] for pair in [*train, *words]] for side in (0, 1)]
    for name, corpus in (("en", texts[0]), ("de", texts[1]), ("both", texts[0] + texts[1])):
        study_data.save_tokenizer(folder / "tokenizers" / name, corpus)


def write_set(folder: Path, split: str, gold: Sequence[tuple[str, str]], singles: Sequence[list[str]]) -> None:
    """Write de-en.SPLIT.{de,en,gold} in random order, and the lines of the gold pairs and the plain texts for `miner mine`."""
    folder.mkdir(exist_ok=True)
    numbers: dict[str, dict[str, int]] = {}
    for side, lang in ((0, "en"), (1, "de")):
        texts = [pair[side] for pair in gold] + singles[side]
        random.Random(f"{split} {lang}").shuffle(texts)
        numbers[lang] = {text: number for number, text in enumerate(texts, 1)}
        study_data.write_lines(folder / f"de-en.{split}.{lang}", (f"{lang}-{number:09d}\t{text}" for text, number in numbers[lang].items()))
        study_data.write_lines(folder.parent / f"{split}.{lang}.txt", texts)
    lines = [(numbers["en"][english], numbers["de"][german]) for english, german in gold]
    study_data.write_lines(folder / f"de-en.{split}.gold", (f"de-{german:09d}\ten-{english:09d}" for english, german in lines))
    study_data.write_lines(folder.parent / f"{split}.gold.tsv", (f"{english}\t{german}" for english, german in lines))
    study_data.write_lines(folder.parent / f"{split}.pairs.tsv", ("\t".join(pair) for pair in gold))


def config(work: Path, variant: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the config of configs/dual-momentum/parallel.yaml at a small scale."""
    models = {name: str(work / f"{variant[name]}-{seed}") for name in ("model", "positive_model") if name in variant}
    sides = {"languages": ["en"], "positive_languages": ["de"]} if "positive_model" in variant else {}
    columns = {"source": "source", "target": "target"}
    return {
        "encoder": {"kind": "transformer", "model": str(work / f"en-{seed}"), **models, **sides, "pooling": "mean", "max_tokens": 16},
        "data": [
            {"strategy": "parallel", "name": name, "files": [str(work / "data" / f"{name}.tsv")], "columns": columns}
            for name in ("pairs", "words")
        ],
        "objective": [{"loss": "momentum", "temperature": 0.04, "momentum": variant.get("momentum", 0.99), "queue": 4096}],
        "training": {
            "lr": 2e-3, "batch_size": 128, "mix": "batches", "steps": 300, "schedule": "cosine", "warmup": 50, "clip": 10,
            "weight_decay": 1e-4, "seed": seed,
        },
        "cleaning": {"decontaminate": [str(work / "data/tatoeba/tatoeba.deu-eng.tsv.gz")]},
        "evaluation": {"metric": "retrieval", "files": [str(work / "data/dev.tsv")], "columns": columns, "every": 100},
    }  # fmt: skip


def miner(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "miner.cli.main", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def train_and_measure(work: Path, name: str, seed: int) -> dict[str, Any]:
    """Train, mine and evaluate by commands; return the figures in percent."""
    data, run = work / "data", work / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}"
    run.mkdir(exist_ok=True)
    (run / "train.yaml").write_text(yaml.safe_dump(config(work, VARIANTS[name], seed)))
    start = time.perf_counter()
    miner("train", run / "train.yaml", "--output", run / "trained", "--resume")
    seconds = time.perf_counter() - start
    encoder = ["--encoder", run / "trained" / "encoder"]
    langs = ["--source-lang", "en", "--target-lang", "de", "--gold", data / "test.gold.tsv"]
    auto = ["--threshold", "auto", "--planted", data / "dev.pairs.tsv", "--precision", "0.9"]
    shutil.rmtree(run / "mined", ignore_errors=True)
    with contextlib.suppress(subprocess.CalledProcessError):  # where no threshold has the precision
        miner(
            "mine",
            data / "test.en.txt",
            data / "test.de.txt",
            "--output",
            run / "mined",
            *langs,
            *encoder,
            *MARGIN,
            *auto,
            "--filter",
            "none",
        )
    miner("eval", "bucc", "--data", data / "bucc", *encoder, *MARGIN, "--json", run / "bucc.json", "--no-report")
    miner("eval", "tatoeba", "--data", data / "tatoeba", *encoder, "--json", run / "tatoeba.json", "--no-report")
    bucc = json.loads((run / "bucc.json").read_text())["pairs"]["de-en"]
    tatoeba = json.loads((run / "tatoeba.json").read_text())["languages"]["deu"]
    trained = json.loads((run / "trained" / "result.json").read_text())
    gold = {tuple(map(int, line.split("\t"))) for line in (data / "test.gold.tsv").read_text().splitlines()}
    return {
        "variant": name, "seed": seed, "seconds": round(seconds), "loss": trained["loss"], "dev": 100 * trained["score"],
        "tatoeba": 100 * tatoeba["mean"], "bucc": 100 * bucc["test"]["f1"], **mined_figures(run / "mined", gold),
    }  # fmt: skip


def mined_figures(folder: Path, gold: set[tuple[int, ...]]) -> dict[str, float]:
    """Return the pairs of `miner mine` above the threshold by planted pairs, with their precision and recall."""
    import pyarrow.parquet as pq

    if not (folder / "bitext.parquet").exists():
        return {"mined": 0, "precision": 0.0, "recall": 0.0}
    table = pq.read_table(folder / "bitext.parquet")
    lines = set(zip(table["source_line"].to_pylist(), table["target_line"].to_pylist(), strict=True))
    right = len(lines & gold)
    return {"mined": len(lines), "precision": 100 * right / max(1, len(lines)), "recall": 100 * right / len(gold)}


def read_results(work: Path) -> list[dict[str, Any]]:
    path = work / RESULTS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_all(arguments: argparse.Namespace) -> None:
    work: Path = arguments.work
    if not (work / "data").exists():
        prepare(arguments.data, work / "data")
    finished = {(line["variant"], line["seed"]) for line in read_results(work)}
    for seed in range(arguments.seeds):
        for number, name in enumerate(("en", "de", "both")):
            if not (work / f"{name}-{seed}").exists():
                study_data.save_random(work / f"{name}-{seed}", work / "data/tokenizers" / name, 10 * seed + number)
        for name in VARIANTS:
            if (name, seed) not in finished:
                figures = train_and_measure(work, name, seed)
                print(json.dumps(figures), flush=True)
                with (work / RESULTS).open("a") as file:
                    file.write(json.dumps(figures) + "\n")


def print_table(arguments: argparse.Namespace) -> None:
    """Print means and standard deviations over the seeds."""
    heads = ("loss", "dev", "tatoeba", "bucc", "mined", "precision", "recall")
    print(f"| encoder | {' | '.join(heads)} | seeds |\n{'|---' * (len(heads) + 2)}|")
    for name in VARIANTS:
        lines = [line for line in read_results(arguments.work) if line["variant"] == name]
        cells = [study_data.mean_and_deviation([line[head] for line in lines], 1) for head in heads]
        print(f"| {name} | {' | '.join(cells)} | {len(lines)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--data", type=Path, help="input folder of configs/builtin_data.py; required by run")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.command == "run" and arguments.data is None:
        parser.error("run needs --data")
    {"run": run_all, "table": print_table}[arguments.command](arguments)


if __name__ == "__main__":
    main()
