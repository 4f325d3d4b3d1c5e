"""What `miner mine` costs: time by stage and peak memory, from text; and its search beside two searches by FAISS.

python benchmarks/mine.py mine [SOURCE TARGET] [--lines 100000] [--encoder builtin]
python benchmarks/mine.py search [--sizes 20000 50000] [--dim 256] [--k 4]
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).parent.parent / "examples"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    whole = commands.add_parser("mine")
    whole.add_argument("sides", nargs="*", help="source and target; without them, made-up sentences")
    whole.add_argument("--lines", type=int, default=100_000, help="made-up sentences on each side")
    whole.add_argument("--encoder", default="builtin")
    whole.set_defaults(run=lambda given: mine(given.sides, given.lines, given.encoder))
    search = commands.add_parser("search")
    search.add_argument("--sizes", nargs=2, type=int, default=(20_000, 50_000))
    search.add_argument("--dim", type=int, default=256)
    search.add_argument("--k", type=int, default=4)
    search.set_defaults(run=lambda given: compare(*given.sizes, given.dim, given.k))
    given = parser.parse_args()
    given.run(given)


def mine(sides: list[str], lines: int, encoder: str) -> None:
    """Run the command in a process of its own, and print its seconds and its largest resident memory."""
    with tempfile.TemporaryDirectory() as folder:
        paths = sides or [made_up(EXAMPLES / name, Path(folder) / name, lines) for name in ("en.txt", "de.txt")]
        figures = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "miner.cli.main", "mine", *paths, "--output", f"{folder}/out", "--encoder", encoder]
        start = time.perf_counter()
        subprocess.run([*command, "--json", str(figures)], check=True, stdout=subprocess.DEVNULL)
        took = time.perf_counter() - start
        found = json.loads(figures.read_text())
    print(f"{found['unique']['source']:,} x {found['unique']['target']:,} unique sentences, {found['pairs']:,} pairs")
    stages = {**found["seconds"], "start and end": took - sum(found["seconds"].values())}
    for name, seconds in stages.items():
        print(f"{name:16}{seconds:8.1f} s{seconds / took:7.0%}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20  # Linux tells KB
    print(f"{'together':16}{took:8.1f} s, peak resident memory {peak:.2f} GB")


def made_up(like: Path, path: Path, lines: int) -> str:
    """Write `lines` sentences of the words, and with the lengths, of a real text; returns the path."""
    chance = random.Random(like.name)
    sentences = [line.split() for line in like.read_text(encoding="utf-8").splitlines()]
    words = [word for sentence in sentences for word in sentence]
    made = (" ".join(chance.choices(words, k=len(chance.choice(sentences)))) for _ in range(lines))
    path.write_text("".join(f"{line}\n" for line in made), encoding="utf-8")
    return str(path)


def compare(rows: int, columns: int, dim: int, k: int) -> None:
    """Time one pass for both directions, and FAISS once for each; check that they find the same."""
    import faiss

    from miner.search.exact import Block, search_block

    chance = np.random.default_rng(0)
    x, y = (unit(chance.normal(size=(count, dim))) for count in (rows, columns))
    start = time.perf_counter()
    forward, backward = search_block(Block(np.arange(rows), x), Block(np.arange(columns), y), k)
    ours = time.perf_counter() - start
    x, y = x.astype(np.float32), y.astype(np.float32)
    start = time.perf_counter()
    found = [faiss.knn(one, other, k, metric=faiss.METRIC_INNER_PRODUCT)[1] for one, other in ((x, y), (y, x))]
    theirs = time.perf_counter() - start
    same = np.mean([np.mean(ids == mine.ids) for ids, mine in zip(found, (forward, backward), strict=True)])
    print(f"{rows:,} x {columns:,} x {dim}, k {k}: one pass {ours:.1f} s, faiss.knn both ways {theirs:.1f} s; {same:.4%} of the ids agree")


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


if __name__ == "__main__":
    main()
