"""Kill a run again and again, at random moments, and see that what comes out is what an uninterrupted run gives.

    python benchmarks/kill.py --times 50
    python benchmarks/kill.py --times 50 -- --direct_running_mode=multi_processing --direct_num_workers=2

`miner run` mines the pairs of real sentences in a process of its own. At a random moment the driver, or with worker processes one of
them, gets SIGKILL; then the same command is given again. Afterwards the files must be the same to the byte, `miner verify` must
find nothing, and no lock and no half-written file may be left.
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


def config(folder: Path, rows: int, shards: int, languages: list[str]) -> Path:
    """Real corpora, and a config of all their pairs."""
    corpora = {}
    for lang in languages:
        path = folder / f"{lang}.txt"
        path.write_text("\n".join((EXAMPLES / path.name).read_text(encoding="utf-8").splitlines()[:rows]), encoding="utf-8")
        corpora[lang] = str(path)
    settings = {"output": str(folder / "whole"), "corpora": corpora, "shards": shards, "engine": "exact", "threshold": 1.05}
    (folder / "run.yaml").write_text(json.dumps(settings))  # which is YAML
    return folder / "run.yaml"


def begin(settings: Path, output: Path, options: list[str]) -> subprocess.Popen[bytes]:
    command = [*MINER, "run", str(settings), "--set", f"output={output}", "--", *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def kill(process: subprocess.Popen[bytes], after: float, chance: random.Random) -> bool:
    """Kill the driver or one of its workers after some seconds; False where it was over by then."""
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        victims = psutil.Process(process.pid).children(recursive=True)
        victim = chance.choice([psutil.Process(process.pid), *victims])
        victim.kill()
        process.communicate()
        return True
    return False


def digest(output: Path) -> dict[str, str]:
    """The files that must be the same: the pairs, and every shard on the way to them."""
    files = [path for path in output.rglob("*") if path.is_file() and (path.name.startswith("part-") or path.name in RESULTS)]
    return {str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=50, help="kills")
    parser.add_argument("--rows", type=int, default=300, help="sentences of a language")
    parser.add_argument("--shards", type=int, default=3, help="shards of a language")
    parser.add_argument("--languages", nargs="+", default=["de", "en", "hi"], help="of examples/")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("beam", nargs="*", help="options for Beam, after --")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="kill-") as name:
        folder = Path(name)
        settings = config(folder, arguments.rows, arguments.shards, arguments.languages)
        start = time.perf_counter()
        whole = begin(settings, folder / "whole", arguments.beam)
        assert whole.wait() == 0, whole.communicate()[1].decode()
        seconds = time.perf_counter() - start
        expected = digest(folder / "whole")
        kills = runs = finished = 0
        while kills < arguments.times:
            output = folder / f"killed-{finished}"
            while kills < arguments.times and kill(begin(settings, output, arguments.beam), chance.uniform(0, seconds), chance):
                kills += 1
                runs += 1
            last = begin(settings, output, arguments.beam)
            assert last.wait() == 0, last.communicate()[1].decode()
            finished, runs = finished + 1, runs + 1
            check(output, expected)
        print(f"{kills} kills of {runs} runs, {len(expected)} files the same in {finished} folders; a run takes {seconds:.1f} s")


def check(output: Path, expected: dict[str, str]) -> None:
    found = digest(output)
    wrong = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
    assert not wrong, f"not as without a kill: {', '.join(wrong)}"
    left = [path.name for path in output.rglob("*") if path.name.endswith(".tmp") or path.name.startswith("_lock")]
    assert not left, f"left behind: {', '.join(left)}"
    verified = subprocess.run([*MINER, "verify", str(output)], capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr


if __name__ == "__main__":
    main()
