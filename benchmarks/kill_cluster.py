"""Attack `miner mine` on clusters of this machine, and run the command again where it ended: same bytes, nothing lost, no job left.

    python benchmarks/kill_cluster.py flink spark dask s3 --times 3

deploy/clusters/clusters.py starts Flink, Spark and the S3 server; Dask is a scheduler and two workers. Each attack comes at a random moment
of a job that embeds or searches. A run must succeed, or end with one line of error; then the command is run again, and must succeed with
the bytes of a run without a cluster. Results are kept in build/attacks.jsonl, so a stopped benchmark resumes; the table is made from them.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
RESULTS = ROOT / "build" / "attacks.jsonl"
EMBED, SEARCH, START = "embeddings", "neighbours", ""  # when an attack comes: directories that a job of this kind creates
MAX_DELAY_SECONDS = 4  # after the directory exists
LOCK_SECONDS = 65  # after which the lock of a dead run on another machine is void
HEAL_SECONDS = 5  # until a process that is started again is ready
SECONDS = 1200  # for a run, also on a busy machine
LOST = ("goes on", "error")  # outcomes of a run whose cluster is attacked: it succeeds, or ends with one line

spec = importlib.util.spec_from_file_location("clusters", ROOT / "deploy" / "clusters" / "clusters.py")
assert spec is not None
assert spec.loader is not None
clusters = importlib.util.module_from_spec(spec)
spec.loader.exec_module(clusters)
clusters.START_SECONDS = 900


@dataclass
class Cluster:
    """A cluster that runs: its processes by name, and the options and the environment of `miner`."""

    name: str
    folder: Path
    options: list[str]
    environment: dict[str, str]

    @property
    def processes(self) -> dict[str, int]:
        return json.loads((self.folder / f"{self.name}.state" / "processes.json").read_text())

    def tree(self, name: str) -> list[psutil.Process]:
        """The processes whose names begin with `name`, with their children."""
        found = []
        for key, pid in self.processes.items():
            if key.startswith(name):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process = psutil.Process(pid)
                    if process.status() == psutil.STATUS_ZOMBIE:
                        continue
                    found += [process, *process.children(recursive=True)]
        return found

    def workers(self) -> list[psutil.Process]:
        """The processes that run tasks in Python."""
        words = {"dask": "dask_worker"}.get(self.name, "miner-worker")
        return [process for process in self.tree("") if any(word.endswith((words, f"cli.{words}")) for word in _command_of(process))]

    def __post_init__(self) -> None:
        processes = {name: psutil.Process(pid) for name, pid in self.processes.items()}
        self.commands = {name: (process.cmdline(), process.environ(), process.cwd()) for name, process in processes.items()}

    def restart(self, name: str, pause_seconds: float = 0) -> None:
        """Kill a process with its children, and start it again by the same command."""
        self.kill(name)
        time.sleep(pause_seconds)
        command, environment, folder = self.commands[name]
        with (Path(folder) / f"{name}.out").open("ab") as log:
            started = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        file = self.folder / f"{self.name}.state" / "processes.json"
        file.write_text(json.dumps({**self.processes, name: started.pid}))

    def heal(self) -> None:
        """Start what an attack has ended; of Dask everything, because workers end with their scheduler."""
        ended = [name for name in self.processes if not self.tree(name)]
        for name in self.processes if ended and self.name == "dask" else ended:
            self.restart(name)
            time.sleep(HEAL_SECONDS)

    def kill(self, name: str) -> None:
        _signal(self.tree(name), signal.SIGKILL)

    def unfinished_jobs(self) -> int:
        """The number of jobs that the cluster still runs."""
        if self.name == "flink":
            (address,) = (word.removeprefix("--flink_rest=") for word in self.options if word.startswith("--flink_rest="))
            jobs = clusters.read_json(f"{address}/jobs/overview")["jobs"]
            return sum(job["state"] not in ("FINISHED", "CANCELED", "FAILED") for job in jobs)
        if self.name == "spark":
            web = _command_of(psutil.Process(self.processes["master"]))
            return len(clusters.read_json(f"http://127.0.0.1:{web[web.index('--webui-port') + 1]}/json/")["activeapps"])
        if self.name == "dask":
            from distributed import Client

            with Client(self.options[-1].partition("=")[2], timeout=20) as client:
                return sum(map(len, client.processing().values()))
        return 0


def _command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _signal(processes: Sequence[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


@contextlib.contextmanager
def serve(name: str, folder: Path = clusters.FOLDER) -> Iterator[Cluster]:
    """Start a cluster, and stop it after the block."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        printed = start_dask(folder) if name == "dask" else clusters.start(name, folder)
        lines = [line.removeprefix("export ").split("=", 1) for line in printed.splitlines() if name == "s3"]
        yield Cluster(name, folder, [] if name == "s3" else shlex.split(printed), dict(lines))
    finally:
        clusters.stop(name, folder)


def start_dask(folder: Path) -> str:
    """Start a scheduler and two workers; return the options of miner."""
    state, port = folder / "dask.state", clusters.free_port()
    state.mkdir(exist_ok=True)
    processes, python = clusters.Processes(state), [sys.executable, "-m"]
    processes.start("scheduler", [*python, "distributed.cli.dask_scheduler", "--host=127.0.0.1", f"--port={port}", "--no-dashboard"])
    worker = ["distributed.cli.dask_worker", f"tcp://127.0.0.1:{port}", "--nthreads=1", "--no-dashboard", "--memory-limit=2GB"]
    for number in (1, 2):
        processes.start(f"worker-{number}", [*python, *worker])
    processes.wait_for_port(port)
    time.sleep(4)  # until both workers have connected
    return f"--runner=DaskRunner --dask_client_address=tcp://127.0.0.1:{port}"


Driver = subprocess.Popen[str]


@dataclass(frozen=True)
class Attack:
    """What happens to a run, and how it may end."""

    name: str
    clusters: str  # names
    act: Callable[[Cluster, Driver], None]
    moment: str = SEARCH
    outcomes: Sequence[str] = LOST
    worker: str = ""  # a shell script that is started instead of miner-worker
    environment: dict[str, str] | None = None
    elsewhere: bool = False  # whether the command is run again on another machine, as far as locks know


def nothing(_cluster: Cluster, _driver: Driver) -> None:
    """Let the run go on."""


def kill_workers(cluster: Cluster, _driver: Driver) -> None:
    _signal(cluster.workers(), signal.SIGKILL)


def kill_one_worker(cluster: Cluster, _driver: Driver) -> None:
    _signal(cluster.workers()[:1], signal.SIGKILL)


def kill(name: str) -> Callable[[Cluster, Driver], None]:
    return lambda cluster, _driver: cluster.kill(name)


def restart(name: str, pause_seconds: float = 3) -> Callable[[Cluster, Driver], None]:
    return lambda cluster, _driver: cluster.restart(name, pause_seconds)


def hang(name: str, seconds: float) -> Callable[[Cluster, Driver], None]:
    """Stop the processes of a machine for a time."""

    def act(cluster: Cluster, _driver: Driver) -> None:
        processes = cluster.tree(name)
        _signal(processes, signal.SIGSTOP)
        time.sleep(seconds)
        _signal(processes, signal.SIGCONT)

    return act


def stop_driver(number: int) -> Callable[[Cluster, Driver], None]:
    return lambda _cluster, driver: driver.send_signal(number)


def kill_executor(cluster: Cluster, _driver: Driver) -> None:
    """Kill the first of Spark's executors, with its workers in Python."""
    executors = [
        process for process in cluster.tree("worker-") if any("CoarseGrainedExecutorBackend" in word for word in _command_of(process))
    ]
    for executor in executors[:1]:
        _signal([executor, *executor.children(recursive=True)], signal.SIGKILL)


OTHER_PYTHON = "exec env -u PYTHONPATH /usr/bin/python3 -m pipelines.beam.cluster_worker"
IMPATIENT = {"MINER_RETRY_SECONDS": "15"}
SMALL_MEMORY = "ulimit -v 600000; exec miner-worker"  # 600 MB of addresses, with which numpy's libraries cannot be loaded
STOPPED = ("stopped",)
ATTACKS = (
    Attack("none", "flink spark dask s3", nothing, outcomes=("goes on",)),
    Attack("all workers killed while they embed", "flink spark", kill_workers, EMBED),
    Attack("all workers killed while they search", "flink spark", kill_workers),
    Attack("a worker killed", "dask", kill_one_worker, EMBED),
    Attack("a worker killed while it searches", "dask", kill_one_worker),
    Attack("a task manager killed", "flink", kill("task-manager-1")),
    Attack("a task manager hangs for 20 s", "flink", hang("task-manager-1", 20)),
    Attack("the job manager restarted", "flink", restart("job-manager")),
    Attack("the job server restarted", "flink spark", restart("job-server")),
    Attack("an executor killed", "spark", kill_executor),
    Attack("a worker with its executors killed", "spark", kill("worker-1")),
    Attack("the master restarted", "spark", restart("master")),
    Attack("the scheduler killed", "dask", kill("scheduler")),
    Attack("a worker hangs for 20 s", "dask spark", hang("worker-1", 20)),
    Attack("workers without memory", "flink spark", nothing, START, ("error",), SMALL_MEMORY),
    Attack("workers whose Python lacks the package", "flink spark", nothing, START, ("error",), OTHER_PYTHON),
    Attack("SIGTERM to the driver", "flink spark dask s3", stop_driver(signal.SIGTERM), outcomes=STOPPED),
    Attack("the driver killed, run again elsewhere", "flink dask s3", stop_driver(signal.SIGKILL), outcomes=STOPPED, elsewhere=True),
    Attack("the driver killed, run again", "spark", stop_driver(signal.SIGKILL), outcomes=STOPPED),
    Attack("the server restarted after 8 s", "s3", restart("s3", 8), outcomes=("goes on",)),
    Attack("the server restarted after 40 s", "s3", restart("s3", 40), outcomes=("goes on",)),
    Attack("the server down for longer than MINER_RETRY_SECONDS", "s3", restart("s3", 90), environment=IMPATIENT),
    Attack("the server hangs for 20 s", "s3", hang("s3", 20), outcomes=("goes on",)),
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What one attack did."""

    cluster: str
    attack: str
    came: str  # during the run, or after its end
    first: str  # outcome
    again: str
    is_same: bool
    jobs_left: int
    seconds: float
    message: str

    @property
    def is_right(self) -> bool:
        attack = next(each for each in ATTACKS if each.name == self.attack)
        expected = attack.outcomes if self.came == "during" else ("goes on",)
        return self.first in expected and self.again in ("", "goes on") and self.is_same and not self.jobs_left


def run_attack(attack: Attack, cluster: Cluster, folder: Path, whole: Path, delay_seconds: float) -> Result:
    """Attack a run in a new folder; compare with the run `whole`, which used no cluster."""
    is_s3 = cluster.name == "s3"
    output = f"s3://miner/{folder.name}" if is_s3 else str(folder)
    stored = cluster.folder / "s3.state" / "data" / "miner" / folder.name if is_s3 else folder
    sides = [str(whole / side) for side in ("source", "target")] if attack.moment == SEARCH and not is_s3 else texts()
    start = time.monotonic()
    driver = start_driver(sides, output, cluster, attack)
    is_during = wait_for(driver, stored, attack.moment)
    time.sleep(delay_seconds if is_during and attack.act is not nothing else 0)
    is_during = driver.poll() is None
    attack.act(cluster, driver)
    first, message = end_of(driver)
    again = ""
    if first != "goes on":
        cluster.heal()
        time.sleep(LOCK_SECONDS if attack.elsewhere else 0)
        again, message_again = end_of(start_driver(sides, output, cluster, attack, is_again=True))
        message += f" || again: {message_again}"
    is_same = (stored / "bitext.tsv.gz").exists() and pairs(stored) == pairs(whole)
    came = "during" if is_during else "after"
    return Result(cluster.name, attack.name, came, first, again, is_same, jobs_left(cluster), round(time.monotonic() - start, 1), message)


def jobs_left(cluster: Cluster) -> int:
    """The jobs that have not ended half a minute after the last run."""
    number = 0
    for _ in range(30):
        with contextlib.suppress(OSError):
            if (number := cluster.unfinished_jobs()) == 0:
                break
        time.sleep(1)
    return number


def texts() -> list[str]:
    return [str(EXAMPLES / "en.txt"), str(EXAMPLES / "de.txt")]


def pairs(output: Path) -> bytes:
    return (output / "bitext.tsv.gz").read_bytes()


def start_driver(
    sides: Sequence[str], output: str, cluster: Cluster | None = None, attack: Attack | None = None, is_again: bool = False
) -> Driver:
    """Start `miner mine`; the second run of an attack has workers as they should be."""
    shards = ["--shards", "3"] if sides == texts() else []
    command = [sys.executable, "-m", "miner", "mine", *sides, "--source-lang=en", "--target-lang=de", "--engine=exact", *shards]
    command += ["--no-report", "--output", output]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if cluster is not None and attack is not None:
        options = cluster.options
        if attack.worker and not is_again:
            script = cluster.folder / f"{cluster.name}.state" / "attacked-worker"
            miner_worker = json.loads(next(o for o in options if o.startswith("--environment_config=")).partition("=")[2])["command"]
            script.write_text(f'#!/bin/sh\n{attack.worker.replace("miner-worker", miner_worker)} "$@"\n')
            script.chmod(0o755)
            options = [*options, "--environment_config=" + json.dumps({"command": str(script)})]
        command += ["--", *options] if options else []
        environment |= {**cluster.environment, **((attack.environment or {}) if not is_again else {})}
        if is_again and attack.elsewhere:
            command = ["unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh", *command]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)


def wait_for(driver: Driver, output: Path, moment: str) -> bool:
    """Wait until a run has come to a moment; return whether it has before it ended."""
    while driver.poll() is None:
        if not moment or any(output.glob(f"**/{moment}*")):
            return True
        time.sleep(0.05)
    return False


def end_of(driver: Driver) -> tuple[str, str]:
    """Wait for a driver; return its outcome, and the last line that it printed."""
    try:
        _, text = driver.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        driver.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return "hangs", "".join(driver.communicate(timeout=100)[1].splitlines()[-3:])
        driver.kill()
        return "hangs", "".join(driver.communicate()[1].splitlines()[-3:])
    lines = text.splitlines()
    errors = [line for line in lines if line.startswith("miner: error: ")]
    if driver.returncode == 1 and len(errors) == 1 and "internal error" not in text and "Traceback" not in text:
        return "error", errors[0]
    outcome = {0: "goes on", -signal.SIGKILL: "stopped", 128 + signal.SIGTERM: "stopped"}.get(driver.returncode, "traceback")
    return outcome, " | ".join(lines[-2:] if outcome != "traceback" else lines[-12:])


def read_results() -> list[Result]:
    return [Result(**json.loads(line)) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def print_table(results: Sequence[Result]) -> None:
    """Print a row for each attack."""
    print("| cluster | attack | times | the run | run again | same bytes | jobs left | seconds |\n|---|---|---|---|---|---|---|---|")
    for attack in ATTACKS:
        for name in attack.clusters.split():
            rows = [each for each in results if (each.cluster, each.attack) == (name, attack.name)]
            if rows:
                firsts = ", ".join(
                    f"{sum(each.first == first for each in rows)} {first}" for first in sorted({each.first for each in rows})
                )
                again = sum(each.again == "goes on" for each in rows) if any(each.again for each in rows) else ""
                same, left = sum(each.is_same for each in rows), sum(each.jobs_left for each in rows)
                seconds = sorted(each.seconds for each in rows)[len(rows) // 2]
                print(f"| {name} | {attack.name} | {len(rows)} | {firsts} | {again} | {same} | {left} | {seconds:.0f} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clusters", nargs="*", default=["dask", "s3", "flink", "spark"], help="dask, s3, flink, spark; by default all")
    parser.add_argument("--times", type=int, default=3, help="repetitions of each attack (default: 3)")
    parser.add_argument("--only", default="", help="attacks whose names have this text")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, folder = random.Random(arguments.seed), ROOT / "build" / "attacks"
    whole = folder / "whole"
    if not (whole / "bitext.tsv.gz").exists():
        outcome, message = end_of(start_driver(texts(), str(whole)))
        assert outcome == "goes on", message
    for name in arguments.clusters:
        attacks = [each for each in ATTACKS if name in each.clusters.split() and arguments.only in each.name]
        done = Counter(each.attack for each in read_results() if each.cluster == name)
        waiting = [each for number in range(arguments.times) for each in attacks if number >= done[each.name]]
        while waiting:
            if name != "dask":
                clusters.fetch(name, clusters.FOLDER)
            with serve(name) as cluster:
                while waiting:
                    attack, output = waiting.pop(0), folder / f"{name}-{rng.randrange(10**9)}"
                    result = run_attack(attack, cluster, output, whole, rng.uniform(0, MAX_DELAY_SECONDS))
                    shutil.rmtree(output, ignore_errors=True)
                    with RESULTS.open("a") as file:
                        file.write(json.dumps(asdict(result)) + "\n")
                    print("right" if result.is_right else "WRONG", result, flush=True)
                    if not result.is_right:
                        break  # the next attack gets another cluster
                    cluster.heal()
    print_table(read_results())
    return int(not all(result.is_right for result in read_results()))


if __name__ == "__main__":
    sys.exit(main())
