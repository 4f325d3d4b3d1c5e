"""Commands with too little of something: each ends in one line, leaves no temporary file, and resumes when there is enough.

Every command runs in a process of its own, forked from this one, which has imported everything.
"""

import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import yaml
from click.testing import CliRunner
from command import output_of

from miner.cli import console
from miner.cli.main import main

MODULES = ("miner.encoders.static", "miner.training.run", "miner.report.build", "miner.export.export", "pipelines.mining.mine", "faiss")
SECONDS = 100
MEGABYTE = 1 << 20

COMMANDS = {
    "embed": ("embed", "en.txt", "--lang", "en", "--encoder", "encoder", "--shards", 3, "--output", "out"),
    "index": ("index", "en", "--output", "out"),
    "mine": ("mine", "en", "de", "--threshold", 0.5, "--no-report", "--output", "out"),
    "mine by FAISS": ("mine", "index", "de", "--engine", "faiss", "--threshold", 0.5, "--no-report", "--output", "out"),
    "export": ("export", "mined", "--format", "moses", "--output", "out"),
    "report": ("report", "mined"),
    "train": ("train", "train.yaml", "--no-report", "--output", "out"),
}

Limit = Callable[[], object]


def forked(arguments: tuple[object, ...], limit: Limit = lambda: None) -> tuple[int, str]:
    """Run a command in a process to which a limit applies. Return its exit status, negative for a signal, and its stderr."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        limit()
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        is_caught = result.exception is None or isinstance(result.exception, SystemExit)
        os.write(write_end, json.dumps(result.stderr[-5000:] if is_caught else f"Traceback {result.exception!r}").encode())
        os._exit(result.exit_code)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), json.loads(text) if text else ""


@pytest.fixture(scope="module")
def intact(toy_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands read."""
    for module in MODULES:
        importlib.import_module(module)
    folder = tmp_path_factory.mktemp("intact")
    for lang, text in (
        ("en", "one two three four five six seven eight nine ten"),
        ("de", "un deux trois quatre cinq six sept huit neuf dix"),
    ):
        numbers = text.split()
        lines = [f"{numbers[row % 10]} {numbers[row // 10 % 10]} {numbers[row // 100]}" for row in range(400)]
        (folder / f"{lang}.txt").write_text("\n".join(lines) + "\n")
    shutil.copytree(toy_encoder, folder / "encoder")
    (folder / "pairs.tsv").write_text("source\ttarget\n" + "".join(f"one {row}\tun {row}\n" for row in range(40)))
    config = {
        "encoder": {"kind": "static", "dim": 64, "spelling_buckets": 64, "vocabulary": {"size": 16}},
        "data": [{"strategy": "parallel", "files": ["pairs.tsv"], "columns": {"source": "source", "target": "target"}}],
        "objective": [{"loss": "info_nce"}],
        "training": {"steps": 3, "batch_size": 4, "checkpoint_every": 1},
    }
    (folder / "train.yaml").write_text(yaml.safe_dump(config))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for lang in ("en", "de"):
            output_of("embed", f"{lang}.txt", "--lang", lang, "--encoder", "encoder", "--output", lang)
        output_of("index", "en", "--output", "index")
        output_of("mine", "en", "de", "--threshold", 0.5, "--output", "mined")
    return folder


@pytest.fixture
def folder(intact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    shutil.copytree(intact, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def results(folder: Path) -> dict[str, bytes]:
    """Read what a command wrote, but for journals and records of time."""
    names = ("part-*", "bitext*", "train.*", "report.html", "vectors.safetensors")
    files = [path for name in names for path in (folder / "out").rglob(name) if "_shards" not in path.parts and path.name != "train.json"]
    files += list(folder.glob("mined/report.html"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def check_limited(name: str, folder: Path, limit: Limit) -> int:
    """Run a command under a limit, then without it. Return the exit status of the first."""
    command = COMMANDS[name]
    status, stderr = forked(command, limit)
    errors = [line for line in stderr.splitlines() if line.startswith("miner: error: ")]
    assert "Traceback" not in stderr, stderr
    assert console.INTERNAL_ERROR not in stderr, stderr
    assert (status, len(errors)) in ((0, 0), (1, 1)), (status, stderr)
    assert not list(folder.rglob("*.tmp"))
    assert not list(folder.rglob("_lock-*"))
    assert forked((*command, "--resume") if name == "train" else command)[0] == 0
    written = results(folder)
    shutil.rmtree(folder / "out", ignore_errors=True)
    assert forked(command)[0] == 0
    assert written == results(folder)
    return status


def limit_of(kind: int, amount: int) -> Limit:
    return lambda: resource.setrlimit(kind, (amount, amount))


@pytest.mark.slow
@pytest.mark.parametrize("num_bytes", [0, 5000])
@pytest.mark.parametrize("name", COMMANDS)
def test_files_that_may_not_grow(name: str, num_bytes: int, folder: Path) -> None:
    """Writing fails as on a full disk, at another moment of the command for each size."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    status = check_limited(name, folder, limit_of(resource.RLIMIT_FSIZE, num_bytes))
    assert status == 1 or num_bytes


@pytest.mark.slow
@pytest.mark.parametrize("more", [5])
@pytest.mark.parametrize("name", COMMANDS)
def test_few_open_files(name: str, more: int, folder: Path) -> None:
    process = psutil.Process()
    highest = max(int(path.name) for path in Path(f"/proc/{process.pid}/fd").iterdir())
    check_limited(name, folder, limit_of(resource.RLIMIT_NOFILE, highest + 1 + more))


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [20])
@pytest.mark.parametrize("name", COMMANDS)
def test_little_memory(name: str, megabytes: int, folder: Path) -> None:
    check_limited(name, folder, limit_of(resource.RLIMIT_AS, psutil.Process().memory_info().vms + megabytes * MEGABYTE))


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("megabytes", [60, 100, 150, 600, 1000, 4000])
def test_little_memory_from_the_start(megabytes: int) -> None:
    """As by `ulimit -v`: shared libraries cannot be loaded, or threads not started."""
    command = [sys.executable, "-m", "miner.cli.main", *map(str, COMMANDS["mine"])]
    limit = limit_of(resource.RLIMIT_AS, megabytes * MEGABYTE)
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, timeout=SECONDS, check=False)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("miner: warning: ")]
    assert (done.returncode, len(lines)) == ((1, 1) if megabytes < 4000 else (0, 0)), done.stderr
    assert console.INTERNAL_ERROR not in done.stderr


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Callable[[str], None]]:
    """A function that gives the file system of the output a size."""

    def mount(*options: object) -> bool:
        return not subprocess.run(["mount", *map(str, options), folder / "out"], capture_output=True, check=False).returncode

    (folder / "out").mkdir()
    if not mount("-t", "tmpfs", "-o", "size=4k", "tmpfs"):
        pytest.skip("mounting is not allowed")
    yield lambda size: mount("-o", f"remount,size={size}") or pytest.fail("cannot be mounted again")
    subprocess.run(["umount", folder / "out"], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("size", ["4k", "24k", "100k"])
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "report"])
def test_a_full_disk(name: str, size: str, folder: Path, small_disk: Callable[[str], None]) -> None:
    small_disk(size)
    status, stderr = forked(COMMANDS[name])
    errors = [line for line in stderr.splitlines() if line.startswith("miner: error: ")]
    assert (status, len(errors)) in ((0, 0), (1, 1)), (status, stderr)
    assert "free some space or choose another path" in errors[0] if status else size != "4k"
    assert not [path for path in folder.rglob("*") if path.name.endswith(".tmp") or path.name.startswith("_lock-")]
    small_disk("100m")
    assert forked((*COMMANDS[name], "--resume") if name == "train" else COMMANDS[name])[0] == 0
    written = results(folder)
    for path in (folder / "out").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert forked(COMMANDS[name])[0] == 0
    assert written == results(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "report"])
def test_a_read_only_file_system(name: str, folder: Path) -> None:
    (folder / "out").mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", folder / "out"], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed")
    try:
        status, stderr = forked(COMMANDS[name])
    finally:
        subprocess.run(["umount", folder / "out"], check=True)
    assert (status, stderr.count("miner: error: ")) == (1, 1)
    assert "Read-only file system; choose another path" in stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "report"])
def test_two_runs_in_one_folder(name: str, folder: Path) -> None:
    """One of them has the folder, or they run one after the other. The result is that of one run."""
    command = [*map(str, COMMANDS[name]), *(["--resume"] if name == "train" else [])]
    read_end, write_end = os.pipe()
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            signal.alarm(SECONDS)
            os.read(read_end, 1)  # both start at once
            result = CliRunner().invoke(main, command)
            is_refused = "held by" in result.stderr or "another run starts" in result.stderr
            os._exit(0 if result.exit_code == 0 else 10 if is_refused and result.stderr.count("miner: error: ") == 1 else 11)
        children.append(child)
    os.write(write_end, b"go")
    statuses = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    assert statuses in ([0, 0], [0, 10])
    written = results(folder)
    shutil.rmtree(folder / "out")
    assert forked(COMMANDS[name])[0] == 0
    assert written == results(folder)
