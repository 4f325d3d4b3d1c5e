"""benchmarks/fuzz.py with few files of each format, and with readers that fail."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAILING = """
import os, sys, time
sys.path.insert(0, "benchmarks")
import fuzz
from fuzz_files import Target
from miner.errors import DataError

def fail(folder):
    data = (folder / "a").read_bytes()
    if data != b"abcd":
        {failure}
    return [data]

fuzz.SECONDS = 1
fuzz.list_targets = lambda: {{"a": Target({{"a": b"abcd"}}, fail)}}
sys.argv = ["fuzz.py", "--files", "3", "--keep", sys.argv[1]]
sys.exit(fuzz.main())
"""
FORMATS = {"tsv", "csv", "jsonl", "json", "tmx", "parquet", "txt", "moses", "tsv.gz", "zip of moses", "candidates", "model2vec"}
FAILURES = {
    "traceback": "raise ValueError",
    "hang": "time.sleep(100)",
    "crash": "os.abort()",
    "error": "raise DataError('one line')",
    "rows": "pass",
}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)


def outcomes(table: str) -> list[dict[str, str]]:
    header, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines())
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_changed_files_of_every_format_are_rows_or_an_error() -> None:
    done = run("benchmarks/fuzz.py", "--files", "540", "--seed", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = outcomes(done.stdout)
    assert {row["format"] for row in rows} >= FORMATS
    assert sum(int(row["rows"]) + int(row["error"]) for row in rows) == sum(int(row["files"]) for row in rows) >= 540
    assert min(sum(int(row[outcome]) for row in rows) for outcome in ("rows", "error")) > 100


@pytest.mark.parametrize("outcome", FAILURES)
def test_failures_are_counted_and_kept(outcome: str, tmp_path: Path) -> None:
    done = run("-c", FAILING.format(failure=FAILURES[outcome]), str(tmp_path))
    (row,) = outcomes(done.stdout)
    assert row[outcome] == "3"
    is_fault = outcome not in ("rows", "error")
    assert done.returncode == is_fault
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(kept) == 3 * is_fault
