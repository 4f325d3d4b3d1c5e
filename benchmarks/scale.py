"""A large pair of corpora from end to end: time by stage, peak memory by process and bytes on disk, beside what `miner plan` said.

    python benchmarks/scale.py make FOLDER --data DATA --sentences 1000000
    python benchmarks/scale.py plan FOLDER
    python benchmarks/scale.py run FOLDER              # resumes if it was stopped or killed
    python benchmarks/scale.py report FOLDER

`make` writes N English sentences and N of other languages. A line is two sentences of real bitext put one after the other; in the
first fifth of each file both lines of a number are translations of each other, in the others they were drawn apart. `run` is one
`miner run` in a process of its own, which is watched: what is measured is added to FOLDER/measured.json, so that the times of a
run that was stopped are those of all its parts. Threads are a matter of OMP_NUM_THREADS and taskset.
"""

import argparse
import gzip
import itertools
import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

MULTI = ("bible", "l10n", "newstest_multi", "python_docs", "tico19")  # folders of train/: a file for each language, joined by id
FILES = 8  # of each side: enough to spread reading over the workers
PARALLEL = 0.2  # of the lines are translations of each other
LEAST, MOST = 15, 150  # characters of a real sentence that is taken
POLL, NOTE = 1.0, 10.0  # seconds from one look at the run to the next, and from one note to the next
OTHER = "between stages"
GROUPS = {
    "read": ("ranges", "sentences"),
    "embed": ("embeddings",),
    "index": ("index",),
    "search": ("search", "neighbours"),
    "mine": ("joining", "candidates", "matching", "ordered"),
}
MINER = [sys.executable, "-m", "miner.cli.main"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, act in (("make", make), ("plan", plan), ("run", run), ("report", report)):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        command.set_defaults(act=act)
        if name == "make":
            command.add_argument("--data", type=Path, required=True, help="collected corpora, with train/")
            command.add_argument("--sentences", type=int, default=5_000_000, help="on each side")
            command.add_argument("--shards", type=int, help="of each side; without it, what the pipeline chooses")
    given = parser.parse_args()
    given.act(given)


def make(given: argparse.Namespace) -> None:
    """Write the text and the config."""
    pairs = {lang: rows for lang, rows in read_pairs(given.data / "train").items() if len(rows) >= FILES}
    langs, upto = list(pairs), list(itertools.accumulate(map(len, pairs.values())))
    given.folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        chance = random.Random(number)
        lines = given.sentences * (number + 1) // FILES - given.sentences * number // FILES
        both = [given.folder / f"{side}-{number}.txt" for side in ("en", "xx")]
        with both[0].open("w", encoding="utf-8") as english, both[1].open("w", encoding="utf-8") as other:
            for line in range(lines):
                rows = pairs[chance.choices(langs, cum_weights=upto)[0]]
                one, two = chance.choice(rows), chance.choice(rows)
                english.write(f"{one[0]} {two[0]}\n")
                if line >= PARALLEL * lines:
                    rows = pairs[chance.choices(langs, cum_weights=upto)[0]]
                    one, two = chance.choice(rows), chance.choice(rows)
                other.write(f"{one[1]} {two[1]}\n")
    config = {
        "output": str(given.folder / "out"),
        "corpora": {"en": {"files": [str(given.folder / "en-*.txt")]}, "xx": {"files": [str(given.folder / "xx-*.txt")], "lang": "und"}},
        **({"shards": given.shards} if given.shards else {}),
    }
    (given.folder / "run.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    print(f"{sum(map(len, pairs.values())):,} real sentence pairs of English and {len(pairs)} languages")


def read_pairs(train: Path) -> dict[str, list[tuple[str, str]]]:
    """Language -> English sentences and their translations."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for lang, english, other in rows_of(train / "tatoeba.en-xx.tsv.gz"):
        found[lang].add((english, other))
    for folder in MULTI:
        english = dict(rows_of(train / folder / "en.tsv.gz"))
        for path in sorted((train / folder).glob("*.tsv.gz")):
            lang = path.name.removesuffix(".tsv.gz")
            if lang != "en":
                found[lang].update((english[name], text) for name, text in rows_of(path) if name in english)
    return {lang: sorted(pair for pair in pairs if all(LEAST <= len(text) <= MOST for text in pair)) for lang, pairs in found.items()}


def rows_of(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t")


def plan(given: argparse.Namespace) -> None:
    """What `miner plan` says of the whole, whatever is done already."""
    elsewhere = ["--set", f"output={given.folder / 'nothing-yet'}"]
    subprocess.run([*MINER, "plan", str(given.folder / "run.yaml"), *elsewhere, "--json", str(given.folder / "plan.json")], check=True)


def run(given: argparse.Namespace) -> None:
    """Run, or go on with, `miner run`, and write down what it takes."""
    command = [*MINER, "-v", "run", str(given.folder / "run.yaml"), "--no-report", "--json", str(given.folder / "run.json")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    watch = Watch(given.folder / "measured.json", given.folder / "out", process)
    reader = threading.Thread(target=watch.listen, daemon=True)
    reader.start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # `timeout` asks this process alone to end
    try:
        watch.follow()
    finally:
        process.terminate()
        watch.note()
    if process.wait():
        reader.join(5)
        raise SystemExit(f"{' '.join(command)}: ended with status {process.returncode}: {watch.last}")


class Watch:
    """Which stage a run is at, by what it logs, and what each stage takes of time, processors, memory and disk."""

    def __init__(self, path: Path, output: Path, process: subprocess.Popen[str]) -> None:
        self.path = path
        self.output = output
        self.process = process
        self.root = psutil.Process(process.pid)
        self.measured = json.loads(path.read_text()) if path.exists() else {"parts": 0, "disk": 0, "stages": {}}
        self.measured["parts"] += 1
        self.task, self.stage, self.last = "run", OTHER, ""
        self.spent: dict[int, float] = {}  # processor seconds of each process, when last looked at
        self.looked = time.monotonic()
        self.lock = threading.Lock()

    def listen(self) -> None:
        """Follow the log, in a thread of its own."""
        for line in self.process.stderr or ():
            self.last = line.strip()
            text = self.last.removeprefix("miner: ")
            if task := re.fullmatch(r"(embed|mine) (\S+)", text):
                self.enter(task[2], OTHER)
            elif begun := re.match(r"([\w-]+): \d+ of \d+ shards to write", text):
                self.enter(self.task, begun[1])
            elif re.match(r"[\w-]+: finished in ", text):
                self.enter(self.task, OTHER)

    def enter(self, task: str, stage: str) -> None:
        """Count what passed to the stage that ends."""
        if (task, stage) != (self.task, self.stage):
            self.add()
            self.task, self.stage = task, stage

    def follow(self) -> None:
        """Until the run ends."""
        noted = time.monotonic()
        while self.process.poll() is None:
            time.sleep(POLL)
            self.add()
            if time.monotonic() - noted >= NOTE:
                noted = time.monotonic()
                self.note()

    def add(self) -> None:
        """Count what passed since the last look to the stage of now."""
        with self.lock:
            stage = self.measured["stages"].setdefault(f"{self.task}: {self.stage}", {"seconds": 0.0, "processor": 0.0, "peaks": {}})
            now = time.monotonic()
            stage["seconds"] += now - self.looked
            self.looked = now
            for name, process in self.processes():
                try:
                    used, resident = process.cpu_times(), process.memory_info().rss
                except psutil.Error:
                    continue
                total = used.user + used.system
                stage["processor"] += total - self.spent.get(process.pid, 0.0)
                self.spent[process.pid] = total
                stage["peaks"][name] = max(stage["peaks"].get(name, 0), resident)

    def processes(self) -> list[tuple[str, psutil.Process]]:
        """The run and its children, by names that are the same each time."""
        try:
            children = sorted(self.root.children(recursive=True), key=lambda child: child.pid)
        except psutil.Error:
            children = []
        return [("run", self.root), *((f"child {number}", child) for number, child in enumerate(children, 1))]

    def note(self) -> None:
        """Write down what is known by now."""
        self.measured["disk"] = max(self.measured["disk"], size_of([self.output]))
        aside = self.path.with_suffix(".tmp")
        with self.lock:
            aside.write_text(json.dumps(self.measured, indent=2))
        aside.replace(self.path)


def size_of(places: Iterable[Path]) -> int:
    """Bytes of all files below; a file that is gone by the time it is looked at has none."""
    total = 0
    for path in (path for place in places for path in place.rglob("*")):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def report(given: argparse.Namespace) -> None:
    """Print what was measured, beside what was planned, as Markdown."""
    measured = json.loads((given.folder / "measured.json").read_text())
    planned = json.loads((given.folder / "plan.json").read_text())
    print(f"In {measured['parts']} parts; at most {measured['disk'] / 1e9:.2f} GB on disk, planned {planned['peak_disk'] / 1e9:.2f} GB\n")
    print("| stage | seconds | of processors | planned | peak memory, GB | planned |\n|---|---|---|---|---|---|")
    for name, parts in grouped(measured["stages"]).items():
        seconds, processor = (sum(part[kind] for part in parts) for kind in ("seconds", "processor"))
        peaks = {process: max(part["peaks"].get(process, 0) for part in parts) for part in parts for process in part["peaks"]}
        memory_peaks = ", ".join(f"{peak / 1e9:.2f}" for peak in peaks.values())
        plans = [stage for stage in planned["stages"] if stage["name"] == name or (name[:5], stage["name"][:5]) == ("index", "index")]
        expected = f"{sum(stage['seconds'] for stage in plans):.0f}" if plans else ""
        memory = f"{max(stage['memory'] for stage in plans) / 1e9:.2f}" if plans else ""
        print(f"| {name} | {seconds:.0f} | {processor:.0f} | {expected} | {memory_peaks} | {memory} |")
    print("\n| below out/ | GB |\n|---|---|")
    for place in sorted({path.parent for path in (given.folder / "out").rglob("manifest.json")}):
        held = sum(path.stat().st_size for path in place.iterdir() if path.is_file())
        print(f"| {place.relative_to(given.folder / 'out')} | {held / 1e9:.3f} |")
    mined = given.folder / "out/pairs/en-xx/bitext.parquet"
    if mined.exists():
        found(given.folder, mined)


def grouped(stages: dict[str, dict]) -> dict[str, list[dict]]:
    """What was measured, by the stages of a plan. An index is built for a pair, so those of both sides are one."""
    found: dict[str, list[dict]] = defaultdict(list)
    for name, stage in stages.items():
        task, _, kind = name.partition(": ")
        group = next((group for group, kinds in GROUPS.items() if kind.startswith(kinds)), OTHER)
        found[f"{group} {task}"].append(stage)
    return found


def found(folder: Path, mined: Path) -> None:
    """How many of the pairs that were planted came back, by where their lines stand."""
    table = pq.read_table(mined, columns=["source_file", "source_line", "target_file", "target_line"])
    files = [pc.replace_substring_regex(table[f"{side}_file"].cast("string"), r".*-(\d+)\.txt$", r"\1") for side in ("source", "target")]
    lines = [sum(1 for _ in (folder / f"en-{number}.txt").open("rb")) for number in range(FILES)]
    planted = {str(number): PARALLEL * count for number, count in enumerate(lines)}
    within = pc.less_equal(table["source_line"], int(min(planted.values())))
    same = pc.and_(pc.and_(pc.equal(*files), pc.equal(table["source_line"], table["target_line"])), within)
    right = pc.sum(same).as_py()
    print(f"\n{len(table):,} pairs, of which {right:,} are among the {int(sum(planted.values())):,} that were planted")


if __name__ == "__main__":
    main()
