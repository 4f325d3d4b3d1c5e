"""benchmarks/gpu.py on a CPU with small sizes: what it needs, what it skips, and that a failed step loses nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Packages of this project that a machine with a GPU may lack; search must not need them.
ABSENT = [
    "anyascii",
    "apache_beam",
    "click",
    "faiss",
    "fsspec",
    "langcodes",
    "psutil",
    "pydantic",
    "pydantic_core",
    "rapidfuzz",
    "regex",
    "safetensors",
    "scipy",
    "sentence_transformers",
    "sentencepiece",
    "threadpoolctl",
    "tokenizers",
    "tqdm",
    "transformers",
    "xxhash",
    "yaml",
]

# Python imports this module when it starts: it hides packages as if they were not installed.
HIDE_PACKAGES = f"""
import sys

class Finder:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {ABSENT!r} else self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Finder(finder) for finder in sys.meta_path]
"""


def run_benchmark(output: Path, *options: str, path: Path | None = None) -> tuple[subprocess.CompletedProcess[str], dict]:
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--small", "--output", str(output), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(str, filter(None, [path, ROOT])))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    return done, json.loads(output.read_text(encoding="utf-8"))


@pytest.fixture
def bare_machine(tmp_path: Path) -> Path:
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "sitecustomize.py").write_text(HIDE_PACKAGES, encoding="utf-8")
    return tmp_path / "bare"


@pytest.mark.slow
def test_search_needs_torch_numpy_and_pyarrow_only(bare_machine: Path, tmp_path: Path) -> None:
    done, results = run_benchmark(tmp_path / "gpu.json", "--device", "cpu", "--steps", "exact", "train", path=bare_machine)
    assert done.returncode == 0, done.stdout
    assert results["exact"]["status"] == "done"
    assert results["exact"]["figures"]["300 x 300 x 1024"] == "both directions equal float64 to the bit"
    assert (results["train"]["status"], results["train"]["reason"]) == ("skipped", "No module named 'transformers'")


@pytest.mark.slow
def test_a_step_that_fails_or_is_late_leaves_the_results_of_the_others(tmp_path: Path) -> None:
    done, results = run_benchmark(tmp_path / "gpu.json", "--device", "nonsense", "--steps", "versions")
    assert done.returncode == 1
    assert results["versions"]["status"] == "failed"
    assert "nonsense" in results["versions"]["reason"]
    done, results = run_benchmark(tmp_path / "gpu.json", "--device", "cpu", "--steps", "versions", "exact", "--seconds", "0.2")
    assert done.returncode == 1
    assert (results["versions"]["status"], results["exact"]["reason"]) == ("stopped", "no time left")
    assert "not done: versions" in done.stdout


@pytest.mark.slow
def test_every_step_runs_on_a_cpu(tmp_path: Path) -> None:
    done, results = run_benchmark(tmp_path / "gpu.json", "--device", "cpu")
    assert done.returncode == 0, done.stdout
    statuses = {step: result["status"] for step, result in results.items()}
    assert {step for step, status in statuses.items() if status == "skipped"} <= {"tests", "train"}, "without a GPU, and without `datasets`"
    assert set(statuses.values()) <= {"done", "skipped"}
    assert results["search-1m-256"]["figures"]["rows with the same neighbours as in float32"] > 0.99
    assert results["kill"]["figures"]["neighbours before and after"] == "the same"
