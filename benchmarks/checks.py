"""What it costs to check what is written and read: the share of `miner embed` and `miner mine`.

    python benchmarks/checks.py --data DATA [--sentences 100000] [--targets 100000] [--runs 3]

Each run is a process of its own whose checks are timed, in processor seconds of their threads: hashing files that are read, the checksums
of the encoder, and comparing ids with the hashes of their texts. The rest is timed afterwards: hashing the files that were written, and the
CRCs of Parquet pages, for which each file is read with and without them, in turns; the difference counts for every time the run opened the
file and once for writing it. Medians of the runs are printed.
"""

import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import overhead

REPEATS = 5  # of reading a file, of which the fastest counts
MAX_SHARE = 0.03


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="collected corpora, with train/")
    parser.add_argument("--sentences", type=int, default=100_000, help="to embed, and on the source side to mine")
    parser.add_argument("--targets", type=int, default=100_000, help="on the target side")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--commands", nargs="+", choices=["embed", "mine"], default=["embed", "mine"])
    parser.add_argument("--timed", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)  # FIGURES ARGUMENTS: a run in its process
    given = parser.parse_args()
    if given.timed:
        timed(Path(given.timed[0]), given.timed[1:])
        return
    if given.data is None:
        parser.error("--data is required")
    compare(given)


def compare(given: argparse.Namespace) -> None:
    """Print the cost of each kind of check in both commands."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        overhead.text(given.data, folder, given.sentences, given.targets)
        sides = [str(folder / f"{side}.txt") for side in ("source", "target")]
        langs = ["--source-lang", "en", "--no-report", "--engine", "exact"]
        commands = {"embed": ["embed", sides[0], "--lang", "en"], "mine": ["mine", *sides, *langs]}
        for command in given.commands:
            runs = [run([*commands[command], "--output", str(folder / f"{command}{number}")], folder) for number in range(given.runs)]
            print_costs(command, runs)


def run(arguments: list[str], folder: Path) -> dict[str, float]:
    """Return the processor seconds of a run, by `total` and by kind of check."""
    figures = folder / "figures.json"
    subprocess.run([sys.executable, __file__, "--timed", str(figures), *arguments], check=True, stdout=subprocess.DEVNULL)
    return json.loads(figures.read_text())


def print_costs(command: str, runs: list[dict[str, float]]) -> None:
    seconds = {name: statistics.median(each[name] for each in runs) for name in runs[0]}
    checks = {name: value for name, value in seconds.items() if name != "total"}
    share = sum(checks.values()) / seconds["total"]
    details = ", ".join(f"{name} {value:.3f}" for name, value in checks.items())
    verdict = "within" if share <= MAX_SHARE else "BEYOND"
    print(f"{command}: {seconds['total']:.1f} s of processors, checks {share:.2%} ({verdict} {MAX_SHARE:.0%}): {details}", flush=True)


def timed(figures: Path, arguments: list[str]) -> None:
    """Run a command in this process with its checks timed, and write the seconds."""
    from miner.cli.main import main as miner
    from miner.io import checksums, storage, table_files, tables

    seconds: dict[str, float] = collections.defaultdict(float)
    opened: collections.Counter[str] = collections.Counter()
    open_parquet = table_files.open_parquet

    def count_opened(uri: str, *options: Any, **named: Any) -> Any:
        opened[uri] += 1
        return open_parquet(uri, *options, **named)

    replace(table_files.open_parquet, count_opened)
    for name, function in (("file hashes", storage.checksum), ("encoder", checksums.check), ("ids", tables.check_ids)):
        replace(function, timer(function, name, seconds))
    try:
        miner(arguments)
    except SystemExit as error:
        if error.code:
            raise
    total = sum(os.times()[:4])
    seconds["file hashes"] -= seconds.get("encoder", 0)  # its files are hashed by the same function
    output = arguments[arguments.index("--output") + 1]
    written = [path for path in Path(output).rglob("*") if path.is_file()]
    seconds["hashes of written files"] = sum(map(hash_seconds, written))
    opened.update(str(path) for path in written if path.suffix == ".parquet")  # written once
    seconds["page CRCs"] = sum(times * crc_seconds(uri) for uri, times in opened.items() if Path(uri).exists())
    figures.write_text(json.dumps({"total": total, **seconds}))


def replace(function: Any, by: Any) -> None:
    """Replace a function wherever it has been imported; a later import finds the new one."""
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items() if hasattr(module, "__dict__") else ()):
            if value is function:
                setattr(module, name, by)


def timer(function: Callable[..., Any], name: str, seconds: dict[str, float]) -> Callable[..., Any]:
    """Return a function that adds the processor seconds of its thread."""

    def call(*arguments: Any, **named: Any) -> Any:
        start = time.thread_time()
        try:
            return function(*arguments, **named)
        finally:
            seconds[name] += time.thread_time() - start

    return call


def hash_seconds(path: Path) -> float:
    """Return the processor seconds of hashing the bytes of a file in memory, as it is hashed while it is written."""
    import xxhash

    data = path.read_bytes()
    start = time.process_time()
    xxhash.xxh3_128_hexdigest(data)
    return time.process_time() - start


def crc_seconds(path: str) -> float:
    """Return the processor seconds by which reading a file takes longer with CRCs."""
    import pyarrow.parquet as pq

    def read(checks: bool) -> float:
        start = time.process_time()
        with pq.ParquetFile(path, page_checksum_verification=checks) as file:
            for group in range(file.num_row_groups):
                file.read_row_group(group, use_threads=False)
        return time.process_time() - start

    pairs = [(read(True), read(False)) for _ in range(REPEATS)]
    return max(0.0, min(with_crcs for with_crcs, _ in pairs) - min(without for _, without in pairs))


if __name__ == "__main__":
    main()
