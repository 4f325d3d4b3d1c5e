"""Training of the static encoder, by this version and by the first one that could, in turn.

    python benchmarks/training_static.py --groups build/builtin-data/groups.parquet --work DIR [--first COMMIT]

The first version is taken from the history of the repository. Both train 58,000 pieces on the same groups and draw 8 blocks of 1,024
pairs a step, as configs/builtin.yaml does. What is timed is the steps after the tenth; DIR/first-0 and DIR/this-0 hold the encoders, for
`python benchmarks/builtin.py --encoder DIR/this-0/encoder`.
"""

import argparse
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

ROOT = Path(__file__).parent.parent
FIRST = "03d252f"  # the trainer of the encoder that ships
PAIRS, WARM = 8192, 10

# Run where the version of `miner` that is asked for is found first; prints how long the steps after the first few took.
CLOCK = """
import logging, sys, time, miner.cli.main
times = []
class Clock(logging.Handler):
    def emit(self, record):
        progress = getattr(record, "progress", None)  # a dict in old versions
        if (progress["stage"] if isinstance(progress, dict) else getattr(progress, "stage", "")) == "train":
            times.append(time.perf_counter())
logging.getLogger("miner").addHandler(Clock())
if status := miner.cli.main.main(["train", *sys.argv[2:]], standalone_mode=False):
    sys.exit(status)
assert miner.__file__.startswith(sys.argv[1]), miner.__file__
print("seconds", times[-1] - times[WARM - 1])
""".replace("WARM", str(WARM))


def first_config(groups: Path, steps: int, sentences: int) -> dict[str, Any]:
    """The config of the first version."""
    return {"data": str(groups), "vocabulary": {"size": 58000, "sentences": sentences}, "encoder": {"steps": steps}}


def this_config(groups: Path, steps: int, sentences: int) -> dict[str, Any]:
    """The recipe of the built-in encoder, shortened."""
    values: dict[str, Any] = yaml.safe_load((ROOT / "configs" / "builtin.yaml").read_text(encoding="utf-8"))
    values["data"][0]["files"] = [str(groups)]
    values["encoder"]["vocabulary"]["sentences"] = sentences
    values["training"]["steps"] = steps
    return values


def extract(commit: str, folder: Path) -> None:
    """The package as it was at a commit, to FOLDER/miner; without encoders, which training does not want."""
    shutil.rmtree(folder, ignore_errors=True)
    packed = subprocess.run(
        ["git", "archive", commit, "miner", ":(exclude)miner/encoders/assets"], cwd=ROOT, check=True, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")


def train(root: Path, config: dict[str, Any], output: Path) -> float:
    """Train by the version in ROOT; the seconds of a step."""
    path = output.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(config))
    shutil.rmtree(output, ignore_errors=True)
    more = ["--no-report"] if root == ROOT else []
    command = [sys.executable, "-c", CLOCK, str(root), str(path), "--output", str(output), *more]
    done = subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    steps = json.loads((output / "log.jsonl").read_text().splitlines()[-1])["step"]
    return float(done.stdout.split()[-1]) / (steps - WARM)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=Path, required=True, help="what configs/builtin_data.py writes")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--first", default=FIRST, metavar="COMMIT")
    parser.add_argument("--texts", type=int, default=400_000, help="of the groups, the first so many")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sentences", type=int, default=100_000, help="that the pieces are learned from")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    groups = given.work.resolve() / "groups.parquet"
    pq.write_table(pq.read_table(given.groups).slice(0, given.texts), groups)
    extract(given.first, given.work.resolve() / "source")
    versions = {"first": (given.work.resolve() / "source", first_config), "this": (ROOT, this_config)}
    taken: dict[str, list[float]] = {name: [] for name in versions}
    for number in range(given.rounds):
        for name, (root, config) in versions.items():
            output = given.work.resolve() / f"{name}-{number}"
            taken[name].append(train(root, config(groups, given.steps, given.sentences), output))
            loss = json.loads((output / "log.jsonl").read_text().splitlines()[-1])["loss"]
            print(f"{name}: {PAIRS / taken[name][-1]:,.0f} pairs/s, {taken[name][-1]:.3f} s a step, loss {loss:.3f} at the end", flush=True)
    first, this = (statistics.median(taken[name]) for name in versions)
    print(f"median: first {PAIRS / first:,.0f} pairs/s, this {PAIRS / this:,.0f} pairs/s, {first / this:.2f} times as many")


if __name__ == "__main__":
    main()
