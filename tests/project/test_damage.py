"""Kills and flipped bits, by benchmarks/kill.py and benchmarks/faults.py with few of them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_script(*words: str) -> str:
    command = [sys.executable, f"benchmarks/{words[0]}", *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bytes() -> None:
    options = ("--times", "1", "--rows", "40", "--shards", "2", "--languages", "de", "en", "--seed", "2")
    assert " files the same in " in run_script("kill.py", *options)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [["mine)"], ["index"], ["candidates", "bitext"], ["again"], ["static", "checkpoint", "training"]])
def test_a_flipped_bit_of_any_file_is_an_error_or_changes_nothing(kinds: list[str]) -> None:
    assert len(run_script("faults.py", "--flips", "2", "--only", *kinds).splitlines()) > 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [["archive ."], ["flips in", "miner fetch"], ["edited", "killed over", "clock"], ["crafted", "records", "cut, empty"]]
)
def test_attacks_lose_nothing_and_are_reported(names: list[str]) -> None:
    assert len(run_script("faults.py", "--flips", "3", "--attempts", "5", "--only", *names).splitlines()) > 2
