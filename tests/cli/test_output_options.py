"""`--quiet`, `--json -`, `python -m miner`, and commands without the packages that only others need."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
from command import miner

ROOT = Path(__file__).parents[2]


def run_without(packages: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a process in which these packages are not installed."""
    code = f"import sys\nsys.modules.update(dict.fromkeys({packages.split()!r}))\nfrom miner.cli.main import main\nmain()"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code, *map(str, words)], env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def sides(tmp_path: Path) -> list[Path]:
    for lang, text in (("en", "one two\nthree four\n"), ("fr", "un deux\ntrois quatre\n")):
        (tmp_path / lang).write_text(text)
    return [tmp_path / "en", tmp_path / "fr"]


def test_quiet_prints_errors_only(sides: list[Path], toy_encoder: Path, tmp_path: Path) -> None:
    words = ["mine", *sides, "--encoder", toy_encoder, "--output", tmp_path / "out"]
    for quiet in (miner("--quiet", *words, "--no-report"), miner(*words, "-q")):
        assert (quiet.exit_code, quiet.output) == (0, "")
    assert "2 pairs" in miner(*words).stdout
    failed = miner(*words, "--quiet", "--k", "9")
    assert failed.exit_code == 1
    assert failed.output.startswith("miner: error: ")


def test_figures_go_to_standard_output(sides: list[Path], toy_encoder: Path, tmp_path: Path) -> None:
    words = ["mine", *sides, "--encoder", toy_encoder, "--output", tmp_path / "out", "--json", "-"]
    result = miner(*words)
    assert json.loads(result.stdout)["pairs"] == 2
    assert "2 pairs" in result.stderr
    quiet = miner(*words, "--quiet")
    assert (json.loads(quiet.stdout)["pairs"], quiet.stderr) == (2, "")
    evaluated = miner("eval", "retrieval", *sides, "--encoder", toy_encoder, "--json", "-")
    assert json.loads(evaluated.stdout)["task"] == "retrieval"
    assert not Path("report.html").exists()


def test_the_package_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "miner", "--version"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("miner, version ")


@pytest.mark.slow
def test_commands_work_without_the_packages_of_others_and_name_their_own(folder: Path, sides: list[Path], toy_encoder: Path) -> None:
    missing = "matplotlib accelerate sklearn"
    mined = run_without(missing, "mine", *sides, "--encoder", toy_encoder, "--output", folder / "out")
    assert mined.returncode == 0, mined.stderr
    assert "no report: matplotlib is not installed; pip install 'bitext-miner[report]'" in mined.stderr
    reported = run_without(missing, "report", folder / "out")
    assert (reported.returncode, reported.stderr) == (1, "miner: error: matplotlib is not installed; pip install 'bitext-miner[report]'\n")
    (folder / "train.json").write_text(json.dumps(tiny.config(folder)))
    trained = run_without(missing, "train", folder / "train.json", "--output", folder / "trained")
    assert (trained.returncode, trained.stderr) == (1, "miner: error: accelerate is not installed; pip install 'bitext-miner[train]'\n")
    evaluated = run_without(missing, "eval", "retrieval", *sides, "--encoder", toy_encoder)
    assert evaluated.returncode == 0, evaluated.stderr
