"""Kill `miner mine` at random moments, start it again, and compare every byte with that of a run that nobody disturbed.

python benchmarks/soak.py [--lines 20000] [--minutes 4] [--seed 0] [--multi]

The texts are those of the demo over and over, each time with another number in front, so that every stage takes some time and the texts
hold real sentences; `--multi` runs the stages in two worker processes. A round that ends is compared, and the next begins from nothing.
"""

import argparse
import filecmp
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"
WORKERS = ["--", "--direct_running_mode=multi_processing", "--direct_num_workers=2"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=20_000, help="on each side")
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--multi", action="store_true")
    given = parser.parse_args()
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = [written(EXAMPLES / f"{side}.txt", folder / f"{side}.txt", given.lines) for side in ("en", "de")]
        start = time.monotonic()
        mine(texts, folder / "expected", given.multi, None)
        whole = time.monotonic() - start
        print(f"undisturbed: {whole:.1f} s")
        rounds = kills = 0
        while time.monotonic() - start < 60 * given.minutes:
            shutil.rmtree(folder / "out", ignore_errors=True)
            while not mine(texts, folder / "out", given.multi, chance.uniform(0.2, 0.9) * whole):
                kills += 1
            rounds += 1
            different = compare(folder / "expected", folder / "out")
            if different:
                kept = Path(tempfile.mkdtemp(prefix="soak-"))
                shutil.copytree(folder, kept, dirs_exist_ok=True)
                sys.exit(f"round {rounds}, after {kills} kills: {', '.join(different)} differ; both runs are in {kept}")
        print(f"{rounds} rounds, {kills} kills: every file is the same")


def written(like: Path, path: Path, lines: int) -> str:
    """`lines` different lines made of those of a text; returns the path."""
    real = like.read_text(encoding="utf-8").splitlines()
    path.write_text("".join(f"{at // len(real)} {real[at % len(real)]}\n" for at in range(lines)), encoding="utf-8")
    return str(path)


def mine(texts: list[str], output: Path, multi: bool, seconds: float | None) -> bool:
    """Run the command, and kill it and its workers after some seconds; whether it ended by itself."""
    options = ["--output", str(output), "--shards", "7", "--threshold", "1"]
    command = [sys.executable, "-m", "miner.cli.main", "mine", *texts, *options, *(WORKERS if multi else [])]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        if process.wait(seconds):
            sys.exit(f"{' '.join(command)}: ended with status {process.returncode}")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return False
    return True


def compare(expected: Path, found: Path) -> list[str]:
    """The files that are in one folder only, or differ."""
    names = [{str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} for folder in (expected, found)]
    both = sorted(names[0] & names[1])
    return sorted(names[0] ^ names[1]) + [name for name in both if not filecmp.cmp(expected / name, found / name, shallow=False)]


if __name__ == "__main__":
    main()
