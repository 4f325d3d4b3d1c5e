"""A run that was killed, and given again, gives the bytes of one that was not: benchmarks/kill.py with one kill."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kill.py"


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_to_the_same_bytes() -> None:
    few = ("--times", "1", "--rows", "40", "--shards", "2", "--languages", "de", "en")
    command = [sys.executable, str(SCRIPT), *few, "--seed", "2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=SCRIPT.parent.parent, timeout=220, check=False)
    assert done.returncode == 0, done.stderr
    assert " files the same in " in done.stdout
