"""A flipped bit of any file is an error or changes nothing: benchmarks/faults.py with few flips."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "faults.py"


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [["mine)"], ["index"], ["candidates", "bitext"], ["again"], ["static", "checkpoint", "training"]])
def test_flipped_bits_are_errors(kinds: list[str]) -> None:
    command = [sys.executable, str(SCRIPT), "--flips", "2", "--only", *kinds]
    done = subprocess.run(command, capture_output=True, text=True, cwd=SCRIPT.parent.parent, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) > 2
