"""Kill a run repeatedly at random moments, and check that its output equals that of an uninterrupted run.

    python benchmarks/kill.py --times 50
    python benchmarks/kill.py --times 50 -- --direct_running_mode=multi_processing --direct_num_workers=2

`miner run` mines pairs of real sentences in a separate process. At a random moment the driver, or with worker processes one of them,
receives SIGKILL; then the same command is repeated. Afterwards the files must be byte-identical, `miner verify` must report no faults,
and no lock and no temporary file may be left.
"""

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

EXAMPLES = Path(__file__).parent.parent / "examples"
MINER = [sys.executable, "-c", "from miner.cli.main import main; main()"]
RESULTS = ("bitext.tsv.gz", "bitext.parquet")


def write_config(folder: Path, rows: int, shards: int, languages: list[str]) -> Path:
    """Write corpora of real sentences, and a config of all their pairs."""
    corpora = {}
    for lang in languages:
        path = folder / f"{lang}.txt"
        path.write_text("\n".join((EXAMPLES / path.name).read_text(encoding="utf-8").splitlines()[:rows]), encoding="utf-8")
        corpora[lang] = str(path)
    settings = {"output": str(folder / "whole"), "corpora": corpora, "shards": shards, "engine": "exact", "threshold": 1.05}
    (folder / "run.yaml").write_text(json.dumps(settings))  # JSON is YAML
    return folder / "run.yaml"


def start_run(settings: Path, output: Path, options: list[str]) -> subprocess.Popen[bytes]:
    command = [*MINER, "run", str(settings), "--set", f"output={output}", "--", *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def kill(process: subprocess.Popen[bytes], seconds: float, rng: random.Random) -> bool:
    """Kill the driver or one of its workers after some seconds. Return False if the run has ended before."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        workers = psutil.Process(process.pid).children(recursive=True)
        rng.choice([psutil.Process(process.pid), *workers]).kill()
        process.communicate()
        return True
    return False


def hash_files(output: Path) -> dict[str, str]:
    """Hash the files that must be identical: the pairs and all shards."""
    files = [path for path in output.rglob("*") if path.is_file() and (path.name.startswith("part-") or path.name in RESULTS)]
    return {str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=50, help="number of kills")
    parser.add_argument("--rows", type=int, default=300, help="sentences per language")
    parser.add_argument("--shards", type=int, default=3, help="shards per language")
    parser.add_argument("--languages", nargs="+", default=["de", "en", "hi"], help="of examples/")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("beam", nargs="*", help="options for Beam, after --")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="kill-") as name:
        folder = Path(name)
        settings = write_config(folder, arguments.rows, arguments.shards, arguments.languages)
        start = time.perf_counter()
        uninterrupted = start_run(settings, folder / "whole", arguments.beam)
        assert uninterrupted.wait() == 0, uninterrupted.communicate()[1].decode()
        seconds = time.perf_counter() - start
        expected = hash_files(folder / "whole")
        num_kills = num_runs = num_finished = 0
        while num_kills < arguments.times:
            output = folder / f"killed-{num_finished}"
            while num_kills < arguments.times and kill(start_run(settings, output, arguments.beam), rng.uniform(0, seconds), rng):
                num_kills += 1
                num_runs += 1
            last = start_run(settings, output, arguments.beam)
            assert last.wait() == 0, last.communicate()[1].decode()
            num_finished, num_runs = num_finished + 1, num_runs + 1
            check(output, expected)
        print(
            f"{num_kills} kills of {num_runs} runs, {len(expected)} files the same in {num_finished} folders; a run takes {seconds:.1f} s"
        )


def check(output: Path, expected: dict[str, str]) -> None:
    hashes = hash_files(output)
    different = sorted(name for name in {*hashes, *expected} if hashes.get(name) != expected.get(name))
    assert not different, f"different from the uninterrupted run: {', '.join(different)}"
    left = [path.name for path in output.rglob("*") if path.name.endswith(".tmp") or path.name.startswith("_lock")]
    assert not left, f"left behind: {', '.join(left)}"
    verified = subprocess.run([*MINER, "verify", str(output)], capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr


if __name__ == "__main__":
    main()
