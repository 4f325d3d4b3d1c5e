"""A killed run that is repeated gives the same bytes as an uninterrupted one: benchmarks/kill.py with one kill."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kill.py"


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bytes() -> None:
    options = ("--times", "1", "--rows", "40", "--shards", "2", "--languages", "de", "en")
    command = [sys.executable, str(SCRIPT), *options, "--seed", "2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=SCRIPT.parent.parent, timeout=220, check=False)
    assert done.returncode == 0, done.stderr
    assert " files the same in " in done.stdout
