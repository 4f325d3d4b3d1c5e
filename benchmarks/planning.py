"""What `miner plan` says of runs, beside what they take.

    python benchmarks/planning.py FOLDER/static.yaml FOLDER/faiss.yaml ...

Each config is planned, then run into an output directory that must not exist yet. Memory is the peak of the sum of all processes, every
tenth of a second: own memory (RssAnon and RssShmem of /proc/PID/status), which the plan states, and apart from it the resident pages of
mapped files (RssFile), which the system can evict.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import psutil

POLL_SECONDS = 0.1
MINER = [sys.executable, "-m", "miner.cli.main"]
STAGE_OF = {
    **dict.fromkeys(("sentences", "ranges"), "read"),
    **dict.fromkeys(("embeddings", "embed"), "embed"),
    **dict.fromkeys(("index", "index-trained", "index-parts", "index-vectors"), "index"),
    **dict.fromkeys(("search", "neighbours", "tuning"), "search"),
    **dict.fromkeys(("offers", "meetings", "texts", "rescored"), "rescore"),
}  # the others are `mine`


def resident_bytes(process: psutil.Process) -> tuple[int, int]:
    """Return the own memory and the resident pages of mapped files of a process and its children."""
    own = mapped = 0
    for each in [process, *process.children(recursive=True)]:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{each.pid}/status").read_text().splitlines())
        sizes = {name: 1024 * int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem", "RssFile") if name in fields}
        own, mapped = own + sizes.get("RssAnon", 0) + sizes.get("RssShmem", 0), mapped + sizes.get("RssFile", 0)
    return own, mapped


def watch(command: list[str]) -> tuple[float, float, float, float]:
    """Run a command. Return its seconds, its processor seconds, and the peaks of own and of mapped memory."""
    start, peaks, processor = time.perf_counter(), (0, 0), 0.0
    process = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        try:
            peaks = tuple(map(max, peaks, resident_bytes(process)))
            times = process.cpu_times()
            processor = times.user + times.system
        except (psutil.Error, OSError, KeyError):
            pass
        time.sleep(POLL_SECONDS)
    assert process.returncode == 0, " ".join(command)
    return time.perf_counter() - start, processor, *peaks


def measure(config: Path) -> None:
    """Print what was planned and measured of a run: the stages, and the whole."""
    with tempfile.TemporaryDirectory() as folder:
        plan_file, run_file = Path(folder, "plan.json"), Path(folder, "run.json")
        subprocess.run([*MINER, "plan", str(config), "--json", str(plan_file)], check=True, stdout=subprocess.DEVNULL)
        seconds, processor, own, mapped = watch([*MINER, "run", str(config), "--no-report", "--json", str(run_file)])
        plan, run = (json.loads(path.read_text()) for path in (plan_file, run_file))
    planned, measured = defaultdict[str, float](float), defaultdict[str, float](float)
    memory = defaultdict[str, float](float)
    for stage in plan["stages"]:
        name = stage["name"].split()[0]
        planned[name] += stage["seconds"]
        memory[name] = max(memory[name], stage["memory"])
    for stage in run["stages"]:
        measured[STAGE_OF.get(stage["stage"], "mine")] += stage["seconds"]
    for name in planned | measured:
        print(f"  {name:8} {measured[name]:6.1f} s, planned {planned[name]:6.1f} s, {memory[name] / 1e9:.2f} GB")
    engines = ", ".join(sorted({choice["engine"] for choice in plan["pairs"].values()}))
    times = f"{plan['seconds']:.0f} | {seconds:.0f} | {100 * (plan['seconds'] / seconds - 1):+.0f} %"
    sizes = f"{plan['memory'] / 1e9:.2f} | {own / 1e9:.2f} | {100 * (plan['memory'] / own - 1):+.0f} % | {mapped / 1e9:.2f}"
    print(f"| {config.stem} | {engines} | {times} | {processor:.0f} | {sizes} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", type=Path, nargs="+")
    print("| run | engine | planned, s | measured | error | processor | planned, GB | own | error | mapped files |")
    for config in parser.parse_args().configs:
        measure(config)


if __name__ == "__main__":
    main()
