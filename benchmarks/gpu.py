"""Everything that a first run on a GPU should show: correctness, ceilings, and time of search, encoding, training and commands.

    python benchmarks/gpu.py                               # on the first CUDA device
    python benchmarks/gpu.py --steps exact search-1m-1024
    python benchmarks/gpu.py --device cpu --small          # checks the benchmark itself, with sizes for which a CPU takes two minutes

Search needs torch, numpy and pyarrow only. A step that needs a package which is missing is skipped, with the reason. Each step runs in a
process with a deadline. Its results are written to --output as JSON and printed as a table when it ends, however it ends.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# Step -> its deadline in seconds. The most important come first, because later ones get only the time that is left.
STEPS = {
    "versions": 40,
    "ceilings": 60,
    "tests": 120,
    "exact": 60,
    "search-250k-256": 45,
    "search-250k-1024": 45,
    "search-1m-1024": 120,
    "search-1m-256": 75,
    "tile": 45,
    "read": 75,
    "kill": 60,
    "encode": 75,
    "train": 75,
    "faiss": 90,
    "commands": 150,
}
TOTAL_SECONDS = 10 * 60 - 10  # 10 s to stop the last step and to write its results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--small", action="store_true", help="small sizes, to check that every step works")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS), metavar="STEP", help=f"of {', '.join(STEPS)}")
    parser.add_argument("--output", type=Path, default=Path("build/gpu.json"), help="JSON file of the results")
    parser.add_argument("--seconds", type=float, default=TOTAL_SECONDS, help="for all steps together")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    start, results = time.monotonic(), {}
    with tempfile.TemporaryDirectory(prefix="gpu-") as folder:
        for step in arguments.steps:
            seconds = min(STEPS[step], arguments.seconds - (time.monotonic() - start))
            results[step] = run_step(step, arguments, seconds, Path(folder))
            write_results(arguments.output, results)
            print(format_step(step, results[step]), flush=True)
    if arguments.small:
        print("\nThese are small sizes: they show that each step works, and nothing about speed.")
    failed = [step for step, result in results.items() if result["status"] not in ("done", "skipped")]
    print(f"{time.monotonic() - start:.0f} s; results in {arguments.output}" + (f"; not done: {', '.join(failed)}" if failed else ""))
    sys.exit(1 if failed else 0)


def run_step(step: str, arguments: argparse.Namespace, seconds: float, folder: Path) -> dict[str, Any]:
    """Run one step in a process. Return its status, its seconds and the figures that it recorded before it ended."""
    if seconds <= 0:
        return {"status": "skipped", "reason": "no time left", "seconds": 0.0, "figures": {}}
    figures, log = folder / f"{step}.jsonl", folder / f"{step}.log"
    command = [sys.executable, str(Path(__file__).with_name("gpu_steps.py")), step, str(figures), "--device", arguments.device]
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
    start = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command + ["--small"] * arguments.small, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, env=environment
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
            code = process.wait()
    result = read_figures(figures)
    if "status" not in result:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        is_late = code == -signal.SIGKILL and time.monotonic() - start >= seconds
        reason = f"stopped after {seconds:.0f} s" if is_late else f"exit status {code}: {' | '.join(lines[-3:])}"
        result |= {"status": "stopped" if is_late else "failed", "reason": reason, "log": lines[-40:]}
    return {**result, "seconds": round(time.monotonic() - start, 1)}


def read_figures(path: Path) -> dict[str, Any]:
    """Read what a step recorded: a line for each figure and, where it ended by itself, one for its status."""
    result: dict[str, Any] = {"figures": {}}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):  # the last line of a process that was killed
            record = json.loads(line)
            if "figure" in record:
                result["figures"][record["figure"]] = record["value"]
            else:
                result |= record
    return result


def write_results(path: Path, results: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def format_step(step: str, result: dict[str, Any]) -> str:
    """Return the table of a step."""
    reason = f": {result['reason']}" if result.get("reason") else ""
    lines = [f"\n{step}: {result['status']} in {result['seconds']:.0f} s{reason}"]
    width = max(map(len, result["figures"]), default=0)
    lines += [f"  {name:{width}}  {format_value(value)}" for name, value in result["figures"].items()]
    return "\n".join(lines)


def format_value(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    main()
