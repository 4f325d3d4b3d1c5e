"""What `miner plan` says of runs, beside what they take.

    python benchmarks/planning.py FOLDER/static.yaml FOLDER/faiss.yaml ...

Each config is planned, then run into an output directory that must not exist yet. Memory is the peak of the sum of all processes, every
tenth of a second: own memory (RssAnon and RssShmem of /proc/PID/status), which the plan states, and apart from it the resident pages of
mapped files (RssFile), which the system can evict.
"""

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import psutil

POLL_SECONDS = 0.1
MINER = [sys.executable, "-m", "miner.cli.main"]
STAGE_OF = {
    **dict.fromkeys(("sentences", "ranges"), "read"),
    **dict.fromkeys(("embeddings", "embed"), "embed"),
    **dict.fromkeys(("index", "index-trained", "index-parts", "index-vectors"), "index"),
    **dict.fromkeys(("search", "neighbours", "tuning"), "search"),
    **dict.fromkeys(("forward-edges", "merged-edges", "texts", "rescored"), "rescore"),
}  # the others are `mine`


def resident_bytes(process: psutil.Process) -> tuple[int, int]:
    """Return the own memory and the resident pages of mapped files of a process and its children."""
    own = mapped = 0
    for each in [process, *process.children(recursive=True)]:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{each.pid}/status").read_text().splitlines())
        sizes = {name: 1024 * int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem", "RssFile") if name in fields}
        own, mapped = own + sizes.get("RssAnon", 0) + sizes.get("RssShmem", 0), mapped + sizes.get("RssFile", 0)
    return own, mapped


@dataclass
class Watch:
    """What a command takes: seconds, processor seconds, and the peaks of own and mapped memory, by stage."""

    process: psutil.Popen
    stage: str = "start"
    seconds: float = 0.0
    processor: float = 0.0
    peaks: dict[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def run(cls, command: list[str]) -> "Watch":
        """Run a command that logs its stages."""
        start = time.perf_counter()
        watched = cls(psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        threading.Thread(target=watched.follow_log, daemon=True).start()
        while watched.process.poll() is None:
            with contextlib.suppress(psutil.Error, OSError, KeyError):
                peak = watched.peaks.get(watched.stage, (0, 0))
                own, mapped = resident_bytes(watched.process)
                watched.peaks[watched.stage] = max(peak[0], own), max(peak[1], mapped)
                watched.processor = sum(watched.process.cpu_times()[:2])
            time.sleep(POLL_SECONDS)
        watched.seconds = time.perf_counter() - start
        if watched.process.returncode:
            sys.exit(f"{' '.join(command)}: exit status {watched.process.returncode}")
        return watched

    def follow_log(self) -> None:
        """Note the stage that the log says has begun."""
        for line in self.process.stderr:
            if begun := re.match(r"miner: ([\w-]+): \d+ of \d+ shards to write", line):
                self.stage = STAGE_OF.get(begun[1], "mine")


def measure(config: Path) -> None:
    """Print what was planned and measured of a run: the stages, and the whole."""
    with tempfile.TemporaryDirectory() as folder:
        plan_file, run_file = Path(folder, "plan.json"), Path(folder, "run.json")
        subprocess.run([*MINER, "plan", str(config), "--json", str(plan_file)], check=True, stdout=subprocess.DEVNULL)
        watched = Watch.run([*MINER, "-v", "run", str(config), "--no-report", "--json", str(run_file)])
        plan, run = (json.loads(path.read_text()) for path in (plan_file, run_file))
    seconds, planned, memory = (defaultdict[str, float](float) for _ in range(3))
    for stage in plan["stages"]:
        name = stage["name"].split()[0]
        planned[name] += stage["seconds"]
        memory[name] = max(memory[name], stage["memory"])
    jobs = {stage["stage"]: stage["seconds"] for stage in sorted(run["stages"], key=lambda stage: stage["seconds"])}  # stages share jobs
    for stage, stage_seconds in jobs.items():
        seconds[STAGE_OF.get(stage, "mine")] += stage_seconds
    for name in {**planned, **seconds, **watched.peaks}:
        own, mapped = watched.peaks.get(name, (0, 0))
        sizes = f"{memory[name] / 1e9:.2f} GB, own {own / 1e9:.2f}, mapped {mapped / 1e9:.2f}"
        print(f"  {name:8} planned {planned[name]:6.1f} s, measured {seconds[name]:6.1f} s; planned {sizes}")
    engines = ", ".join(sorted({choice["engine"] for choice in plan["pairs"].values()}))
    own, mapped = (max(sizes) for sizes in zip(*watched.peaks.values(), strict=True))
    times = f"{plan['seconds']:.0f} | {watched.seconds:.0f} | {100 * (plan['seconds'] / watched.seconds - 1):+.0f} %"
    sizes = f"{plan['memory'] / 1e9:.2f} | {own / 1e9:.2f} | {100 * (plan['memory'] / own - 1):+.0f} % | {mapped / 1e9:.2f}"
    print(f"| {config.stem} | {engines} | {times} | {watched.processor:.0f} | {sizes} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", type=Path, nargs="+")
    print("| run | engine | planned, s | measured | error | processor | planned, GB | own | error | mapped files |")
    for config in parser.parse_args().configs:
        measure(config)


if __name__ == "__main__":
    main()
