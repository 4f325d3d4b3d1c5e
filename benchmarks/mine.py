"""Time by stage and peak memory of `miner mine` from text, and on existing embeddings compared with a LASER-style script.

python benchmarks/mine.py mine [SOURCE TARGET] [--lines 100000] [--encoder builtin]
python benchmarks/mine.py ready [--lines 100000] [--encoder builtin] [--runs 3] [--alone]
"""

import argparse
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).parent.parent / "examples"
K, THRESHOLD = 4, 1.06


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    mine_parser, ready_parser, script_parser = (commands.add_parser(name) for name in ("mine", "ready", "script"))
    mine_parser.add_argument("sides", nargs="*", help="source and target; default: random sentences")
    mine_parser.set_defaults(run=lambda arguments: mine(arguments.sides, arguments.lines, arguments.encoder))
    ready_parser.add_argument("--runs", type=int, default=3, help="runs of each; medians are printed")
    ready_parser.add_argument("--alone", action="store_true", help="only `miner mine`, once")
    ready_parser.set_defaults(run=lambda arguments: compare(arguments.lines, arguments.encoder, arguments.runs, arguments.alone))
    for command in (mine_parser, ready_parser):
        command.add_argument("--lines", type=int, default=100_000, help="random sentences on each side")
        command.add_argument("--encoder", default="builtin")
    script_parser.add_argument("folder", type=Path)
    script_parser.set_defaults(run=lambda arguments: mine_like_laser(arguments.folder))
    arguments = parser.parse_args()
    arguments.run(arguments)


def mine(sides: list[str], lines: int, encoder: str) -> None:
    """Run the command in its own process, and print its seconds and peak resident memory."""
    with tempfile.TemporaryDirectory() as folder:
        paths = sides or [write_random_text(EXAMPLES / name, Path(folder) / name, lines) for name in ("en.txt", "de.txt")]
        figures = Path(folder) / "figures.json"
        total, peak = run([*MINER, "mine", *paths, "--output", f"{folder}/out", "--encoder", encoder, "--json", str(figures)])
        result = json.loads(figures.read_text())
    print(f"{result['unique']['source']:,} x {result['unique']['target']:,} unique sentences, {result['pairs']:,} pairs")
    stages = {**result["seconds"], "start and end": total - sum(result["seconds"].values())}
    for name, seconds in stages.items():
        print(f"{name:16}{seconds:8.1f} s{seconds / total:7.0%}")
    print(f"{'total':16}{total:8.1f} s, peak resident memory {peak:.2f} GB")


def write_random_text(like: Path, path: Path, lines: int) -> str:
    """Write `lines` sentences with the words and the sentence lengths of a real text. Return the path."""
    generator = random.Random(like.name)
    sentences = [line.split() for line in like.read_text(encoding="utf-8").splitlines()]
    words = [word for sentence in sentences for word in sentence]
    random_sentences = (" ".join(generator.choices(words, k=len(generator.choice(sentences)))) for _ in range(lines))
    path.write_text("".join(f"{line}\n" for line in random_sentences), encoding="utf-8")
    return str(path)


def run(command: list[str]) -> tuple[float, float]:
    """Run a process to its end. Return its seconds and its peak resident memory in GB."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    usage = os.wait4(process.pid, 0)
    if usage[1]:
        raise SystemExit(f"{' '.join(command)}: ended with status {usage[1]}")
    return time.perf_counter() - start, usage[2].ru_maxrss / 2**20  # KB on Linux


MINER = [sys.executable, "-m", "miner.cli.main"]


def compare(lines: int, encoder: str, runs: int, alone: bool) -> None:
    """Time `miner mine` on two embeddings directories, start-up included, and the script, which reads arrays and lines."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side in ("en", "de"):
            text = write_random_text(EXAMPLES / f"{side}.txt", folder / f"{side}.txt", lines)
            run([*MINER, "embed", text, "--output", str(folder / side), "--encoder", encoder])
        miner_runs, script_runs = [], []
        for turn in range(1 if alone else runs):
            sides = [str(folder / side) for side in ("en", "de")]
            options = ["--k", str(K), "--threshold", str(THRESHOLD), "--rescore", "none", "--json", str(folder / "figures.json")]
            miner_runs.append(run([*MINER, "mine", *sides, "--output", str(folder / f"out{turn}"), *options]))
            if not alone:
                for side in ("en", "de"):
                    write_arrays(folder / side, folder)
                script_runs.append(run([sys.executable, __file__, "script", str(folder)]))
            script_time = "" if alone else f", LASER-style script {script_runs[-1][0]:.1f} s"
            print(f"run {turn + 1}: miner mine {miner_runs[-1][0]:.1f} s{script_time}", flush=True)
        result = json.loads((folder / "figures.json").read_text())
        stages = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in result["seconds"].items())
        print(f"{lines:,} x {lines:,} lines, {result['pairs']:,} pairs above {THRESHOLD}")
        print_medians("miner mine", miner_runs, f" ({stages})")
        if script_runs:
            print_medians("LASER-style script", script_runs)
            seconds = [statistics.median(second for second, _ in times) for times in (script_runs, miner_runs)]
            print(f"{seconds[0] / seconds[1]:.1f} times as fast; {agreement(folder):.4%} of the pairs are the same")


def print_medians(name: str, times: list[tuple[float, float]], more: str = "") -> None:
    seconds, memory = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"{name:20}{seconds:8.1f} s, peak resident memory {memory:.2f} GB{more}")


def write_arrays(corpus: Path, folder: Path) -> None:
    """Write the input of the script: FOLDER/NAME.npy of float32 vectors, and FOLDER/NAME.lines of their sentences."""
    from miner.io.corpus import open_corpus

    embedded = open_corpus(str(corpus))
    np.save(
        folder / f"{corpus.name}.npy",
        np.concatenate([embedded.read_vectors(shard.name)[1] for shard in embedded.shards]).astype(np.float32),
    )
    with (folder / f"{corpus.name}.lines").open("w", encoding="utf-8", newline="\n") as file:
        for shard in embedded.shards:
            for table in embedded.sentences(shard.name, ["text"]):
                file.writelines(f"{text}\n" for text in table["text"].to_pylist())


def mine_like_laser(folder: Path) -> None:
    """Mine with ratio margins of both directions and greedy one-to-one matching: two FAISS searches and loops over their results."""
    import faiss

    texts = [(folder / f"{side}.lines").read_text(encoding="utf-8").split("\n")[:-1] for side in ("en", "de")]
    x, y = (np.load(folder / f"{side}.npy") for side in ("en", "de"))
    for vectors in (x, y):
        faiss.normalize_L2(vectors)
    similarities, ids = faiss.knn(x, y, K, metric=faiss.METRIC_INNER_PRODUCT)
    similarities_back, ids_back = faiss.knn(y, x, K, metric=faiss.METRIC_INNER_PRODUCT)
    mean, mean_back = similarities.mean(axis=1), similarities_back.mean(axis=1)
    candidates = [best(x, y, i, row, mean[i], mean_back) for i, row in enumerate(ids)]
    candidates += [(score, j, i) for score, i, j in (best(y, x, j, row, mean_back[j], mean) for j, row in enumerate(ids_back))]
    taken: tuple[set[int], set[int]] = (set(), set())
    with (folder / "script.tsv").open("w", encoding="utf-8") as file:
        for score, i, j in sorted(candidates, key=lambda pair: -pair[0]):
            if i not in taken[0] and j not in taken[1]:
                taken[0].add(i)
                taken[1].add(j)
                if score > THRESHOLD:
                    file.write(f"{score}\t{texts[0][i]}\t{texts[1][j]}\n")


def best(x: np.ndarray, y: np.ndarray, row: int, neighbours: np.ndarray, mean: float, means: np.ndarray) -> tuple[float, int, int]:
    """Return the largest margin of a row with its neighbours, the row, and that neighbour."""
    scores = [float(x[row].dot(y[key])) / ((float(mean) + float(means[key])) / 2) for key in neighbours]
    nearest = int(np.argmax(scores))
    return scores[nearest], row, int(neighbours[nearest])


def agreement(folder: Path) -> float:
    """Return the share of all pairs that both have."""
    script_pairs = {line.split("\t", 1)[1] for line in (folder / "script.tsv").read_text(encoding="utf-8").splitlines()}
    with gzip.open(folder / "out0" / "bitext.tsv.gz", "rt", encoding="utf-8", newline="\n") as file:
        miner_pairs = {line.rstrip("\n").split("\t", 1)[1] for line in file}
    return len(miner_pairs & script_pairs) / len(miner_pairs | script_pairs)


if __name__ == "__main__":
    main()
