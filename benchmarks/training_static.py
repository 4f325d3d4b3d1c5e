"""Training of the static encoder: this version against the first one that could train it, alternately.

    python benchmarks/training_static.py --groups build/builtin-data/groups.parquet --work DIR [--first COMMIT]

The first version is extracted from the history of the repository. Both train 58,000 pieces on the same groups and draw 8 blocks of 1,024
pairs per step, as configs/builtin.yaml does. Steps after the tenth are timed. DIR/first-0 and DIR/this-0 contain the encoders, for
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
FIRST_COMMIT = "03d252f"  # trained the built-in encoder
PAIRS_PER_STEP, WARMUP_STEPS = 8192, 10

# Runs with the extracted version of `miner` first on the path; prints the seconds of the steps after warm-up.
TIMED_TRAINING = """
import logging, sys, time, miner.cli.main
times = []
class StepTimer(logging.Handler):
    def emit(self, record):
        progress = getattr(record, "progress", None)  # a dict in old versions
        if (progress["stage"] if isinstance(progress, dict) else getattr(progress, "stage", "")) == "train":
            times.append(time.perf_counter())
logging.getLogger("miner").addHandler(StepTimer())
if status := miner.cli.main.main(["train", *sys.argv[2:]], standalone_mode=False):
    sys.exit(status)
assert miner.__file__.startswith(sys.argv[1]), miner.__file__
print("seconds", times[-1] - times[WARMUP_STEPS - 1])
""".replace("WARMUP_STEPS", str(WARMUP_STEPS))


def first_config(groups: Path, steps: int, sentences: int) -> dict[str, Any]:
    """Return the config of the first version."""
    return {"data": str(groups), "vocabulary": {"size": 58000, "sentences": sentences}, "encoder": {"steps": steps}}


def this_config(groups: Path, steps: int, sentences: int) -> dict[str, Any]:
    """Return the recipe of the built-in encoder with fewer steps, from random vectors and without words."""
    values: dict[str, Any] = yaml.safe_load((ROOT / "configs" / "builtin.yaml").read_text(encoding="utf-8"))
    values["data"] = [{**values["data"][0], "files": [str(groups)]}]
    values["encoder"] = {"kind": "static", "vocabulary": {"size": 115_000, "sentences": sentences}}
    values["training"]["steps"] = steps
    return values


def extract(commit: str, folder: Path) -> None:
    """Extract the package at a commit to FOLDER/miner, without the built-in encoder."""
    shutil.rmtree(folder, ignore_errors=True)
    packed = subprocess.run(
        ["git", "archive", commit, "miner", ":(exclude)miner/encoders/assets"], cwd=ROOT, check=True, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")


def train(root: Path, config: dict[str, Any], output: Path) -> float:
    """Train with the version in ROOT; return the seconds per step."""
    path = output.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(config))
    shutil.rmtree(output, ignore_errors=True)
    options = ["--no-report"] if root == ROOT else []
    command = [sys.executable, "-c", TIMED_TRAINING, str(root), str(path), "--output", str(output), *options]
    done = subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    steps = json.loads((output / "log.jsonl").read_text().splitlines()[-1])["step"]
    return float(done.stdout.split()[-1]) / (steps - WARMUP_STEPS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=Path, required=True, help="output of configs/builtin_data.py")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--first", default=FIRST_COMMIT, metavar="COMMIT")
    parser.add_argument("--texts", type=int, default=400_000, help="number of texts of the groups to train on")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sentences", type=int, default=100_000, help="number of texts to train the pieces on")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    groups = arguments.work.resolve() / "groups.parquet"
    pq.write_table(pq.read_table(arguments.groups).slice(0, arguments.texts), groups)
    extract(arguments.first, arguments.work.resolve() / "source")
    versions = {"first": (arguments.work.resolve() / "source", first_config), "this": (ROOT, this_config)}
    seconds_per_step: dict[str, list[float]] = {name: [] for name in versions}
    for number in range(arguments.rounds):
        for name, (root, config) in versions.items():
            output = arguments.work.resolve() / f"{name}-{number}"
            seconds_per_step[name].append(train(root, config(groups, arguments.steps, arguments.sentences), output))
            loss = json.loads((output / "log.jsonl").read_text().splitlines()[-1])["loss"]
            seconds = seconds_per_step[name][-1]
            print(f"{name}: {PAIRS_PER_STEP / seconds:,.0f} pairs/s, {seconds:.3f} s per step, final loss {loss:.3f}", flush=True)
    first, this = (statistics.median(seconds_per_step[name]) for name in versions)
    print(
        f"median: first {PAIRS_PER_STEP / first:,.0f} pairs/s, this {PAIRS_PER_STEP / this:,.0f} pairs/s, {first / this:.2f} times as many"
    )


if __name__ == "__main__":
    main()
