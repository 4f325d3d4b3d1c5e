"""What `miner mine` costs: time by stage and peak memory, from text; and on ready embeddings beside a script in LASER's manner.

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
    whole, given_embeddings, script = (commands.add_parser(name) for name in ("mine", "ready", "script"))
    whole.add_argument("sides", nargs="*", help="source and target; without them, made-up sentences")
    whole.set_defaults(run=lambda given: mine(given.sides, given.lines, given.encoder))
    given_embeddings.add_argument("--runs", type=int, default=3, help="of each; medians are printed")
    given_embeddings.add_argument("--alone", action="store_true", help="`miner mine` alone, once")
    given_embeddings.set_defaults(run=lambda given: ready(given.lines, given.encoder, given.runs, given.alone))
    for command in (whole, given_embeddings):
        command.add_argument("--lines", type=int, default=100_000, help="made-up sentences on each side")
        command.add_argument("--encoder", default="builtin")
    script.add_argument("folder", type=Path)
    script.set_defaults(run=lambda given: in_lasers_manner(given.folder))
    given = parser.parse_args()
    given.run(given)


def mine(sides: list[str], lines: int, encoder: str) -> None:
    """Run the command in a process of its own, and print its seconds and its largest resident memory."""
    with tempfile.TemporaryDirectory() as folder:
        paths = sides or [made_up(EXAMPLES / name, Path(folder) / name, lines) for name in ("en.txt", "de.txt")]
        figures = Path(folder) / "figures.json"
        took, peak = run([*MINER, "mine", *paths, "--output", f"{folder}/out", "--encoder", encoder, "--json", str(figures)])
        found = json.loads(figures.read_text())
    print(f"{found['unique']['source']:,} x {found['unique']['target']:,} unique sentences, {found['pairs']:,} pairs")
    stages = {**found["seconds"], "start and end": took - sum(found["seconds"].values())}
    for name, seconds in stages.items():
        print(f"{name:16}{seconds:8.1f} s{seconds / took:7.0%}")
    print(f"{'together':16}{took:8.1f} s, peak resident memory {peak:.2f} GB")


def made_up(like: Path, path: Path, lines: int) -> str:
    """Write `lines` sentences of the words, and with the lengths, of a real text; returns the path."""
    chance = random.Random(like.name)
    sentences = [line.split() for line in like.read_text(encoding="utf-8").splitlines()]
    words = [word for sentence in sentences for word in sentence]
    made = (" ".join(chance.choices(words, k=len(chance.choice(sentences)))) for _ in range(lines))
    path.write_text("".join(f"{line}\n" for line in made), encoding="utf-8")
    return str(path)


def run(command: list[str]) -> tuple[float, float]:
    """Run a process to its end -> its seconds and its largest resident memory in GB."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    usage = os.wait4(process.pid, 0)
    if usage[1]:
        raise SystemExit(f"{' '.join(command)}: ended with status {usage[1]}")
    return time.perf_counter() - start, usage[2].ru_maxrss / 2**20  # Linux tells KB


MINER = [sys.executable, "-m", "miner.cli.main"]


def ready(lines: int, encoder: str, runs: int, alone: bool) -> None:
    """Time `miner mine` on two folders of `miner embed`, start-up and all, and the script, which reads arrays and lines."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side in ("en", "de"):
            text = made_up(EXAMPLES / f"{side}.txt", folder / f"{side}.txt", lines)
            run([*MINER, "embed", text, "--output", str(folder / side), "--encoder", encoder])
        ours, theirs = [], []
        for turn in range(1 if alone else runs):
            sides = [str(folder / side) for side in ("en", "de")]
            options = ["--k", str(K), "--threshold", str(THRESHOLD), "--json", str(folder / "figures.json")]
            ours.append(run([*MINER, "mine", *sides, "--output", str(folder / f"out{turn}"), *options]))
            if not alone:
                for side in ("en", "de"):
                    as_arrays(folder / side, folder)
                theirs.append(run([sys.executable, __file__, "script", str(folder)]))
            told = "" if alone else f", in LASER's manner {theirs[-1][0]:.1f} s"
            print(f"run {turn + 1}: miner mine {ours[-1][0]:.1f} s{told}", flush=True)
        found = json.loads((folder / "figures.json").read_text())
        stages = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in found["seconds"].items())
        print(f"{lines:,} x {lines:,} lines, {found['pairs']:,} pairs above {THRESHOLD}")
        tell("miner mine", ours, f" ({stages})")
        if theirs:
            tell("in LASER's manner", theirs)
            seconds = [statistics.median(second for second, _ in times) for times in (theirs, ours)]
            print(f"{seconds[0] / seconds[1]:.1f} times as fast; {agreement(folder):.4%} of the pairs are the same")


def tell(name: str, times: list[tuple[float, float]], more: str = "") -> None:
    seconds, memory = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"{name:20}{seconds:8.1f} s, peak resident memory {memory:.2f} GB{more}")


def as_arrays(corpus: Path, folder: Path) -> None:
    """What LASER's script is given: FOLDER/NAME.npy of float32 vectors, and FOLDER/NAME.lines of their sentences."""
    from miner.corpus import open_corpus

    opened = open_corpus(str(corpus))
    np.save(
        folder / f"{corpus.name}.npy", np.concatenate([opened.read_vectors(shard.name)[1] for shard in opened.shards]).astype(np.float32)
    )
    with (folder / f"{corpus.name}.lines").open("w", encoding="utf-8", newline="\n") as file:
        for shard in opened.shards:
            for table in opened.sentences(shard.name, ["text"]):
                file.writelines(f"{text}\n" for text in table["text"].to_pylist())


def in_lasers_manner(folder: Path) -> None:
    """Ratio margins of both directions and greedy one-to-one matching: two searches by FAISS, and loops over what they find."""
    import faiss

    texts = [(folder / f"{side}.lines").read_text(encoding="utf-8").split("\n")[:-1] for side in ("en", "de")]
    x, y = (np.load(folder / f"{side}.npy") for side in ("en", "de"))
    for vectors in (x, y):
        faiss.normalize_L2(vectors)
    near, ids = faiss.knn(x, y, K, metric=faiss.METRIC_INNER_PRODUCT)
    near_back, ids_back = faiss.knn(y, x, K, metric=faiss.METRIC_INNER_PRODUCT)
    mean, mean_back = near.mean(axis=1), near_back.mean(axis=1)
    listed = [best(x, y, i, row, mean[i], mean_back) for i, row in enumerate(ids)]
    listed += [(score, j, i) for score, i, j in (best(y, x, j, row, mean_back[j], mean) for j, row in enumerate(ids_back))]
    taken: tuple[set[int], set[int]] = (set(), set())
    with (folder / "script.tsv").open("w", encoding="utf-8") as file:
        for score, i, j in sorted(listed, key=lambda pair: -pair[0]):
            if i not in taken[0] and j not in taken[1]:
                taken[0].add(i)
                taken[1].add(j)
                if score > THRESHOLD:
                    file.write(f"{score}\t{texts[0][i]}\t{texts[1][j]}\n")


def best(x: np.ndarray, y: np.ndarray, row: int, neighbours: np.ndarray, mean: float, means: np.ndarray) -> tuple[float, int, int]:
    """The largest margin of a row with its neighbours, the row, and that neighbour."""
    scores = [float(x[row].dot(y[at])) / ((float(mean) + float(means[at])) / 2) for at in neighbours]
    place = int(np.argmax(scores))
    return scores[place], row, int(neighbours[place])


def agreement(folder: Path) -> float:
    """The share of the pairs of either that are among those of both."""
    theirs = {line.split("\t", 1)[1] for line in (folder / "script.tsv").read_text(encoding="utf-8").splitlines()}
    with gzip.open(folder / "out0" / "bitext.tsv.gz", "rt", encoding="utf-8", newline="\n") as file:
        ours = {line.rstrip("\n").split("\t", 1)[1] for line in file}
    return len(ours & theirs) / len(ours | theirs)


if __name__ == "__main__":
    main()
