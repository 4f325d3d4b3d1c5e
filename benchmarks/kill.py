"""Kill a command repeatedly at random moments, and check that its output equals that of an uninterrupted one.

    python benchmarks/kill.py --times 50
    python benchmarks/kill.py --times 50 -- --direct_running_mode=multi_processing --direct_num_workers=2
    python benchmarks/kill.py --times 20 --commands embed index mine faiss export train loop

A command reads real sentences in a separate process; `run` mines pairs of several corpora. At a random moment the driver, or with worker
processes one of them, receives SIGKILL; then the same command is repeated. Afterwards the files must be byte-identical, `miner verify`
must report no faults, and no lock and no temporary file may be left.
"""

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

EXAMPLES = Path(__file__).parent.parent / "examples"
MINER = [sys.executable, "-c", "from miner.cli.main import main; main()"]
RESULTS = ("bitext.tsv.gz", "bitext.parquet", "vectors.safetensors", "sentencepiece.model", "train.jsonl")  # besides shards
COMMANDS = {  # FOLDER has the inputs
    "run": ["run", "FOLDER/run.yaml", "--no-report", "--set", "output=OUTPUT"],
    "embed": ["embed", "FOLDER/en.txt", "--lang", "en", "--shards", "4", "--output", "OUTPUT"],
    "index": ["index", "FOLDER/corpora/en", "--output", "OUTPUT"],
    "mine": ["mine", "FOLDER/corpora/en", "FOLDER/corpora/de", "--engine", "exact", "--no-report", "--output", "OUTPUT"],
    "faiss": ["mine", "FOLDER/corpora/en", "FOLDER/corpora/de", "--engine", "faiss", "--no-report", "--output", "OUTPUT"],
    "export": ["export", "FOLDER/mined", "--format", "jsonl", "--output", "OUTPUT"],
    "train": ["train", "FOLDER/train.yaml", "--resume", "--no-report", "--output", "OUTPUT"],
    "loop": ["loop", "FOLDER/loop.yaml", "--resume", "--no-report", "--output", "OUTPUT"],
}


def write_inputs(folder: Path, rows: int, shards: int, languages: list[str]) -> None:
    """Write corpora of real sentences, configs, and what some commands read."""
    corpora = {}
    for lang in languages:
        path = folder / f"{lang}.txt"
        path.write_text("\n".join((EXAMPLES / path.name).read_text(encoding="utf-8").splitlines()[:rows]), encoding="utf-8")
        corpora[lang] = str(path)
    settings = {"output": str(folder / "whole"), "corpora": corpora, "shards": shards, "engine": "exact", "threshold": 1.05}
    pairs = [f"one {number} of {number % 7}\teins {number} von {number % 7}" for number in range(300)]
    (folder / "pairs.tsv").write_text("\n".join(["source\ttarget", *pairs]), encoding="utf-8")
    source = {"strategy": "parallel", "columns": {"source": "source", "target": "target"}, "files": [str(folder / "pairs.tsv")]}
    training = {
        "encoder": {"kind": "static", "dim": 16, "spelling_buckets": 64, "vocabulary": {"size": 40}},
        "data": [source],
        "objective": [{"loss": "info_nce"}],
        "training": {"steps": 200, "batch_size": 32, "checkpoint_every": 10},
    }
    mined = {"strategy": "mined", "name": "mined", "files": ["{round}/pairs/*"]}
    dev = {"source": source["files"][0], "target": source["files"][0], "source_column": "source", "target_column": "target"}
    loop = {
        "corpora": {"eng_Latn": [corpora["en"]], "deu_Latn": [corpora["de"]]},
        "training": {
            "encoder": {**training["encoder"], "vocabulary": {"size": 150}},  # the letters of two languages need more than 40
            "data": [source, mined],
            "objective": training["objective"],
            "training": {"steps": 40, "batch_size": 32, "checkpoint_every": 10},
        },
        "evaluation": {"dev": {"pairs": dev}},
        "stop": {"rounds": 1, "least_pairs": 1},
    }
    for name, values in (("run", settings), ("train", training), ("loop", loop)):
        (folder / f"{name}.yaml").write_text(json.dumps(values))  # JSON is YAML
    for lang in ("en", "de"):
        run_whole(["embed", corpora[lang], "--lang", lang, "--output", str(folder / "corpora" / lang)])
    run_whole(["mine", *(str(folder / "corpora" / lang) for lang in ("en", "de")), "--no-report", "--output", str(folder / "mined")])


def run_whole(arguments: list[str]) -> None:
    done = subprocess.run([*MINER, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def start(name: str, folder: Path, output: Path, options: list[str]) -> subprocess.Popen[bytes]:
    """Start a command with an output directory."""
    arguments = [argument.replace("FOLDER", str(folder)).replace("OUTPUT", str(output)) for argument in COMMANDS[name]]
    return subprocess.Popen([*MINER, *arguments, "--", *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def kill(process: subprocess.Popen[bytes], seconds: float, rng: random.Random) -> bool:
    """Kill the driver or one of its workers after some seconds. Return False if the run has ended before."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        workers = psutil.Process(process.pid).children(recursive=True)
        rng.choice([psutil.Process(process.pid), *workers]).kill()
        process.communicate()
        return True
    return False


def hash_files(output: Path) -> dict[str, str]:
    """Hash the files that must be identical: the pairs and all shards."""
    files = [path for path in output.rglob("*") if path.is_file() and (path.name.startswith("part-") or path.name in RESULTS)]
    return {str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commands", nargs="+", default=["run"], choices=COMMANDS, help="what is killed")
    parser.add_argument("--times", type=int, default=50, help="number of kills of each command")
    parser.add_argument("--rows", type=int, default=300, help="sentences per language")
    parser.add_argument("--shards", type=int, default=3, help="shards per language of `run`")
    parser.add_argument("--languages", nargs="+", default=["de", "en", "hi"], help="of examples/, de and en among them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("beam", nargs="*", help="options for Beam, after --")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kill-") as name:
        write_inputs(Path(name), arguments.rows, arguments.shards, arguments.languages)
        for command in arguments.commands:
            kill_repeatedly(command, Path(name), arguments)


def kill_repeatedly(command: str, folder: Path, arguments: argparse.Namespace) -> None:
    """Kill a command a number of times, in as many output directories as it finishes, and print the counts."""
    rng = random.Random(f"{arguments.seed} {command}")
    begin = time.perf_counter()
    uninterrupted = start(command, folder, folder / command / "whole", arguments.beam)
    assert uninterrupted.wait() == 0, uninterrupted.communicate()[1].decode()
    seconds = time.perf_counter() - begin
    expected = hash_files(folder / command / "whole")
    num_kills = num_runs = num_finished = 0
    while num_kills < arguments.times:
        output = folder / command / f"killed-{num_finished}"
        while num_kills < arguments.times and kill(start(command, folder, output, arguments.beam), rng.uniform(0, seconds), rng):
            num_kills += 1
            num_runs += 1
        last = start(command, folder, output, arguments.beam)
        assert last.wait() == 0, last.communicate()[1].decode()
        num_finished, num_runs = num_finished + 1, num_runs + 1
        check(output, expected)
    counts = f"{num_kills} kills of {num_runs} runs, {len(expected)} files the same in {num_finished} folders"
    print(f"{command}: {counts}; a run takes {seconds:.1f} s", flush=True)


def check(output: Path, expected: dict[str, str]) -> None:
    hashes = hash_files(output)
    different = sorted(name for name in {*hashes, *expected} if hashes.get(name) != expected.get(name))
    assert not different, f"different from the uninterrupted run: {', '.join(different)}"
    left = [path.name for path in output.rglob("*") if path.name.endswith(".tmp") or path.name.startswith("_lock")]
    assert not left, f"left behind: {', '.join(left)}"
    verified = subprocess.run([*MINER, "verify", str(output)], capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr


if __name__ == "__main__":
    main()
