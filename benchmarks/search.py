"""Exact search of both directions compared with two searches by FAISS, and the time and memory of a large search.

    python benchmarks/search.py speed [--dims 256 384 768 1024] [--rows 50000] [--precision float32] [--data made|text|near]
    python benchmarks/search.py speed --device cuda --rows 1000000 --dims 1024
    python benchmarks/search.py memory [--rows 500000] [--dim 256]

`speed` alternates both in one process, with the same number of threads, and prints medians. `made` vectors are in clusters, like those of
sentences: the nearest have a similarity of about 0.6. `text` vectors are those of the built-in encoder for the lines of --text. `near`
vectors are hard for fast arithmetic: a hundred near-duplicates of each. The run fails where a neighbour differs from FAISS's that is no tie
in float32; and where FAISS, with the block sizes that are fastest here, reaches less than 70 % of the speed of float32 products, which are
printed: such a baseline proves nothing. On a GPU without faiss-gpu, float32 products and `topk` in torch replace FAISS.

`memory` runs `miner mine` on synthetic embeddings in a separate process.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from search_baselines import SearchResult, product_rates, two_searches

from miner.io import corpus, stages, table_files
from miner.io.stages import Stage
from miner.io.tables import SENTENCES, embeddings_schema, vectors_to_arrow
from miner.search.exact import SearchOptions, search_block
from miner.search.neighbours import Neighbours, VectorBlock
from miner.text.normalise import sentence_ids

K = 4
SHARD_ROWS = 250_000
TOLERANCE = 4 * 2.0**-24  # of a float32 similarity, times the square root of the dimension
MIN_BASELINE_SHARE = 0.7  # of the speed of float32 products


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    speed_ = commands.add_parser("speed")
    speed_.add_argument("--dims", nargs="+", type=int, default=[256, 384, 768, 1024])
    speed_.add_argument("--rows", type=int, default=50_000)
    speed_.add_argument("--precision", help="instead of the fastest")
    speed_.add_argument("--data", choices=["made", "text", "near"], default="made")
    speed_.add_argument("--text", nargs=2, metavar="FILE", help="plain text of two languages, for --data text")
    speed_.add_argument("--device", default="cpu")
    speed_.add_argument("--rounds", type=int, default=3)
    speed_.set_defaults(run=speed)
    memory_ = commands.add_parser("memory")
    memory_.add_argument("--rows", type=int, default=500_000)
    memory_.add_argument("--dim", type=int, default=256)
    memory_.set_defaults(run=memory)
    arguments = parser.parse_args()
    arguments.run(arguments)


def speed(arguments: argparse.Namespace) -> None:
    """Print a line for each dimension."""
    size = f"{arguments.rows:,} x {arguments.rows:,}, k {K}"
    print(f"{size}, {arguments.data}, {torch.get_num_threads()} threads, medians of {arguments.rounds}")
    for dim in [256] if arguments.data == "text" else arguments.dims:
        x, y = (
            text_vectors(*arguments.text, arguments.rows)
            if arguments.data == "text"
            else synthetic_vectors(arguments.rows, dim, arguments.data)
        )
        sides = VectorBlock(np.arange(len(x)), x), VectorBlock(np.arange(len(y)), y)
        rates = product_rates(dim) if arguments.device == "cpu" else {}
        theirs = two_searches(x, y, K, arguments.device)

        def ours(sides: tuple[VectorBlock, VectorBlock] = sides) -> tuple[Neighbours, Neighbours]:
            return search_block(*sides, K, SearchOptions(arguments.device, arguments.precision))

        seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
        for _ in range(arguments.rounds):
            found = timed(ours, seconds["ours"])
            reference = timed(theirs, seconds["theirs"])
        mine, other = (statistics.median(seconds[name]) for name in ("ours", "theirs"))
        same = [agreement(*pair) for pair in zip(found, reference, ((x, y), (y, x)), strict=True)]
        line = f"dim {dim:5}: one pass {mine:7.2f} s, two searches {other:7.2f} s, {other / mine:5.1f} x"
        print(
            f"{line}; {np.mean(same):.4%} of rows identical"
            + (peak_share(len(x) * len(y) * dim, mine) if arguments.device != "cpu" else ""),
            flush=True,
        )
        if rates:
            check_baseline(4 * len(x) * len(y) * dim / other, rates)


def check_baseline(rate: float, products: dict[str, float]) -> None:
    """Print the FLOP/s of the baseline beside those of float32 products, and fail if they are too few."""
    share = rate / max(products.values())
    shown = ", ".join(f"{name} {value / 1e9:.0f}" for name, value in products.items())
    print(f"           two searches {rate / 1e9:.0f} GFLOP/s, {share:.0%} of float32 products: {shown} GFLOP/s", flush=True)
    if share < MIN_BASELINE_SHARE:
        sys.exit(f"the baseline is slower than {MIN_BASELINE_SHARE:.0%} of float32 products, so no speedup can be stated")


def timed(run: Callable[[], tuple], seconds: list[float]) -> tuple:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    found = run()
    seconds.append(time.perf_counter() - start)
    return found


def agreement(found: Neighbours, reference: SearchResult, sides: SearchResult) -> float:
    """Return the share of rows with the same neighbours in the same order. Raises AssertionError for a difference beyond float32 ties."""
    values, places = reference
    same = (found.ids == places).all(axis=1)
    rows = np.flatnonzero(~same)
    x, y = (side.astype(np.float64) for side in (sides[0][rows], sides[1]))
    exactly = np.einsum("nd,nkd->nk", x, y[places[rows]])
    tolerance = TOLERANCE * np.sqrt(x.shape[1])
    assert np.abs(exactly - found.similarities[rows]).max(initial=0) <= tolerance, "a neighbour differs that is no tie"
    assert (np.abs(values - found.similarities).max() <= tolerance) or len(rows) < len(same)
    return float(same.mean())


def peak_share(products: int, seconds: float) -> str:
    """Return the share of the measured speed of bfloat16 matrix products that the whole search reaches."""
    one = torch.randn((16384, 16384), dtype=torch.bfloat16, device="cuda")
    took: list[float] = []
    for _ in range(10):
        timed(lambda: (one @ one, torch.cuda.synchronize()), took)
    peak = 2 * 16384**3 / min(took)
    return f"; {2 * products / seconds / peak:.0%} of {peak / 1e12:.0f} TFLOP/s of bfloat16"


def synthetic_vectors(rows: int, dim: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return two sides of unit vectors, each with near ones on the other side; deterministic."""
    numbers = np.random.default_rng(0)
    size = 100 if kind == "near" else 10
    noise = 0.02 if kind == "near" else 0.8  # length of what is added to a centre of length 1
    centres = numbers.standard_normal((max(1, rows // size), dim), dtype=np.float32) / np.sqrt(dim)
    return tuple(unit(centres[numbers.integers(0, len(centres), rows)], noise, numbers) for _ in range(2))


def unit(vectors: np.ndarray, noise: float, numbers: np.random.Generator) -> np.ndarray:
    vectors = vectors + numbers.standard_normal(vectors.shape, dtype=np.float32) * np.float32(noise / np.sqrt(vectors.shape[1]))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def text_vectors(source: str, target: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Embed the first unique lines of two files with the built-in encoder."""
    from miner.config.commands import EncoderSettings
    from miner.encoders import load_encoder

    encoder = load_encoder("builtin", EncoderSettings())
    lines = (dict.fromkeys(Path(path).read_text(encoding="utf-8").splitlines()) for path in (source, target))
    return tuple(encoder.encode(list(some)[:rows]).astype(np.float16) for some in lines)


def memory(arguments: argparse.Namespace) -> None:
    """Print the seconds and the peak resident memory of `miner mine` on ready embeddings."""
    with tempfile.TemporaryDirectory() as folder:
        for seed, side in enumerate(("source", "target")):
            write_corpus(Path(folder) / side, arguments.rows, arguments.dim, seed)
        figures = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "miner.cli.main", "mine", f"{folder}/source", f"{folder}/target", "--output", f"{folder}/out"]
        subprocess.run([*command, "--engine", "exact", "--json", str(figures)], check=True, stdout=subprocess.DEVNULL)
        found = json.loads(figures.read_text())
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20  # KB on Linux
    stages = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in found["seconds"].items())
    print(
        f"{arguments.rows:,} x {arguments.rows:,} x {arguments.dim}: {stages}; {found['pairs']:,} pairs; peak resident memory {peak:.2f} GB"
    )


def line_of(seed: int, number: int) -> str:
    return f"sentence {seed} of {number} that is about as long as they are in the news"


def write_corpus(folder: Path, rows: int, dim: int, seed: int) -> None:
    """Write an embeddings directory whose vectors are near those of the other side, one row group at a time."""
    numbers = np.random.default_rng(seed)
    centres = np.random.default_rng(2).standard_normal((rows // 10, dim), dtype=np.float32) / np.sqrt(dim)
    chunks = np.array_split(np.arange(rows), -(-rows // SHARD_ROWS))
    ids = np.concatenate([sentence_ids([line_of(seed, number) for number in chunk.tolist()]) for chunk in chunks])
    by_id = np.argsort(ids)
    texts = Stage(str(folder / stages.SENTENCES), stages.SENTENCES, {}, {"made": "0"})
    parts = np.array_split(ids[by_id], -(-rows // SHARD_ROWS))
    lines_of_parts = np.array_split(by_id, len(parts))
    names = [stages.shard_name(number, len(parts)) for number in range(len(parts))]
    for name, part, part_lines in zip(names, parts, lines_of_parts, strict=True):
        lines = [line_of(seed, number) for number in part_lines.tolist()]
        columns = [part, lines, np.ones(len(part), np.int32), ["made"] * len(part), np.arange(1, len(part) + 1)]
        table_files.write_table(texts.path(name), pa.table(columns, names=SENTENCES.names).cast(SENTENCES))
        texts.mark_done(name, len(part), "made")
    counts = {"lines": rows, "kept": rows, "empty": 0, "invalid": 0, "too_long": 0, "duplicate": 0}
    manifest = texts.finish(dict.fromkeys(names, "made"), lambda _: {"counts": counts})
    made_with = {"fingerprint": "made", "dim": dim, "lang": "und"}
    stage = Stage(str(folder / stages.EMBEDDINGS), stages.EMBEDDINGS, made_with, {each.name: each.checksum for each in manifest.shards})
    schema = embeddings_schema(dim, "made")
    for name, part in zip(names, parts, strict=True):
        with table_files.parquet_writer(stage.path(name), schema) as writer:
            for some in np.array_split(part, -(-len(part) // corpus.ROW_GROUP)):
                vectors = unit(centres[numbers.integers(0, len(centres), len(some))], 0.8, numbers)
                writer.write_table(pa.table([pa.array(some), vectors_to_arrow(vectors)], schema=schema))
        stage.mark_done(name, len(part), "made")
    stage.finish(dict.fromkeys(names, "made"))


if __name__ == "__main__":
    main()
