"""Attacks of more than one flipped bit, for faults.py: one function each, which runs in a copy of the intact files.

A function gets a random generator and the number of the attempt. It returns one of `outcomes.OUTCOMES`; `other` is a wrong result: another
one than that of intact files, a loss, or damage that nobody reports.
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
from outcomes import CODES, OUTCOMES, Arguments, hash_files, invoke, outcome_of, run, run_killed, start

TEXTS: Arguments = ["mine", "texts/en/*.txt", "texts/de/*.txt", "--source-lang", "en", "--target-lang", "de", "--encoder", "encoder"]
GROWN: Arguments = [*TEXTS, "--threshold", 1, "--engine", "exact", "--no-report", "--output", "grown"]
ARCHIVES = {".tar.gz": "w:gz", ".tar.bz2": "w:bz2", ".tar.xz": "w:xz", ".zip": "w"}
MAX_FETCH_SECONDS, MAX_EXPORT_SECONDS = 0.6, 0.1  # before a command is killed
LARGE_BYTES = 80 << 20
MISSPELT, CONTRADICTED, OTHER_TEXTS = range(3)  # kinds of edited marks

Attack = Callable[[random.Random, int], str]


def prepare(rows: int) -> None:
    """Add what attacks need to the intact files: archives of a dataset, a bitext with deltas, and marks."""
    texts = {lang: Path(f"{lang}.txt").read_text(encoding="utf-8").splitlines() for lang in ("en", "de")}
    for lang, lines in texts.items():
        Path("release").mkdir(exist_ok=True)
        Path(f"release/News.de-en.{lang}").write_text("\n".join(lines * 20), encoding="utf-8")
        Path(f"texts/{lang}").mkdir(parents=True)
    for extension, mode in ARCHIVES.items():
        with zipfile.ZipFile(f"release{extension}", mode) if extension == ".zip" else tarfile.open(f"release{extension}", mode) as archive:
            for path in sorted(Path("release").iterdir()):
                (archive.write if extension == ".zip" else archive.add)(path, path.name)
    for number in range(3):
        for lang, lines in texts.items():
            part = lines[number * rows // 3 : (number + 1) * rows // 3]
            Path(f"texts/{lang}/{number}.txt").write_text("\n".join(part), encoding="utf-8")
        assert run(GROWN) == "done"
    assert list(Path("grown/deltas").glob("*.parquet"))
    pairs = pq.read_table("mined/bitext.parquet", columns=["source_text", "target_text"]).to_pydict().values()
    rows_of_marks = "".join(f"right\t{source}\t{target}\n" for source, target in zip(*pairs, strict=True))
    Path("marks.tsv").write_text(f"mark\tsource\ttarget\n{rows_of_marks}", encoding="utf-8")
    assert run(["eval", "bitext", "mined", "--gold", "marks.tsv"]) == "done"


def contents(folders: str, names: tuple[str, ...] = ("**/*",)) -> set[str]:
    """Return the hashes of the files in folders."""
    paths = [path for name in names for path in Path().glob(f"{folders}/{name}") if path.is_file()]
    return {hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def flip_deltas(rng: random.Random, _: int) -> str:
    """Flip a bit in the deltas and mine again: deltas that were delivered must remain, and the damage be reported."""
    expected = hash_files("grown/bitext.tsv.gz")
    path = rng.choice(sorted(path for path in Path("grown/deltas").rglob("*") if path.is_file()))
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(data))
    delivered = contents("grown/deltas", ("*.parquet", "*.gz"))
    results = [invoke(GROWN), invoke(GROWN)]
    outcomes = [outcome_of(result) for result in results]
    if "traceback" in outcomes or outcomes[0] == "error":
        return "traceback" if "traceback" in outcomes else "error"
    is_kept = delivered <= contents("grown*") and hash_files("grown/bitext.tsv.gz") == expected
    return "same" if is_kept and path.parts[1] in results[0].stderr and run(["verify", "grown"]) == "done" else "other"


def kill_fetch(rng: random.Random, _: int) -> str:
    """Kill `miner fetch`, and run it again."""
    fetch: Arguments = ["fetch", "encoder", "--output", "copied"]
    run_killed(fetch, rng.uniform(0, MAX_FETCH_SECONDS))
    return _copied(run(fetch))


def fetch_at_once(_: random.Random, __: int) -> str:
    """Run three `miner fetch` into one directory: each has it or is refused."""
    children = [start(["fetch", "encoder", "--output", "copied"]) for _ in range(3)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if CODES["traceback"] in codes or any(code < 0 for code in codes):
        return "traceback"
    return _copied("done" if len(OUTCOMES) in codes else "other")


def _copied(outcome: str) -> str:
    if outcome != "done":
        return "other" if outcome == "error" else outcome
    assert run(["fetch", "encoder", "--output", "intact"]) == "done"
    expected, copied = ({path.name: path.read_bytes() for path in Path(folder).iterdir()} for folder in ("intact", "copied"))
    return "same" if copied == expected else "other"


def edit_settings(rng: random.Random, _: int) -> str:
    """Add, rename, delete or change a key in the `miner.json` of a static encoder."""
    path = Path("encoder/miner.json")
    expected, settings = json.loads(path.read_text()), json.loads(path.read_text())
    key = rng.choice(sorted(settings))
    values = [0, -1, 1, 7, 1e9, "x", None, True, [1], {"a": 1}, not settings[key]]
    edit = rng.randrange(4)
    if edit == 0:
        settings[rng.choice(("dims", "lower", "max_tokens", key.upper(), f" {key}"))] = rng.choice(values)
    elif edit == 1:
        settings[f"{key}_"] = settings.pop(key)
    elif edit == 2:
        del settings[key]
    else:
        settings[key] = rng.choice(values)
    path.write_text(json.dumps(settings))
    embed: Arguments = ["embed", "en.txt", "--lang", "en", "--encoder", "encoder", "--output", "out"]
    outcome = run(embed)
    if outcome != "done":
        return outcome
    return "same" if settings == expected or contents("out/embeddings") & contents("en/embeddings") else "other"


def edit_marks(rng: random.Random, number: int) -> str:
    """Misspell marks, contradict them, or change the texts, in half of the rows: an error, since the precision would be of other pairs."""
    header, *rows = (line.split("\t") for line in Path("marks.tsv").read_text(encoding="utf-8").splitlines())
    for row in rng.sample(rows, len(rows) // 2):
        if number % 3 == MISSPELT:
            row[0] = rng.choice(("rigth", "wrnog", "1", "yes", "ok", "falsch"))
        elif number % 3 == CONTRADICTED:
            rows.append(["wrong", *row[1:]])
        else:
            row[rng.choice((1, 2))] += " and more"
    Path("marks.tsv").write_text("\n".join("\t".join(row) for row in [header, *rows]) + "\n", encoding="utf-8")
    by_marks: Arguments = ["mine", "--from-candidates", "mined", "--threshold", 1, "--no-report", "--output", "out"]
    outcome = run([*(by_marks if number % 3 == OTHER_TEXTS else ["eval", "bitext", "mined"]), "--gold", "marks.tsv"])
    return "other" if outcome == "done" else outcome


def interrupt_export(rng: random.Random, number: int) -> str:
    """Kill an export over an export of another format; the next one leaves no file that no record lists."""
    formats = rng.sample(["moses", "jsonl", "parquet", "tmx", "tsv"], 2)
    command: Arguments = ["export", "mined", "--output", "exported", "--format"]
    run_killed([*command, formats[0]], number % 4 * MAX_EXPORT_SECONDS / 3)
    outcome = run([*command, formats[1]])
    if outcome != "done" or run(["export", "mined", "--output", "intact", "--format", formats[1]]) != "done":
        return outcome
    expected = {path.name: path.stat().st_size for path in Path("intact").iterdir()}
    written = {path.name: path.stat().st_size for path in Path("exported").iterdir() if not path.name.startswith(".")}
    has_all = written.keys() == expected.keys()
    return "same" if has_all and all(written[name] == size for name, size in expected.items() if name.startswith("train")) else "other"


UNIT = '<tu><tuv xml:lang="en"><seg>one</seg></tuv><tuv xml:lang="de"><seg>eins</seg></tuv></tu>'
LARGE = b"x" * LARGE_BYTES
CRAFTED: list[Callable[[], bytes]] = [
    lambda: b"<tmx><!--" + LARGE + b"--></tmx>",
    lambda: b'<tmx a="' + LARGE + b'"/>',
    lambda: b"<tmx><" + LARGE + b"/></tmx>",
    lambda: b"<tmx><?x " + LARGE + b"?></tmx>",
    lambda: b'<tmx><body><tu><tuv xml:lang="en"><seg>' + LARGE + b"</seg></tuv></tu></body></tmx>",
    lambda: b"<tmx><body><tu>" + b'<tuv xml:lang="en"><seg>x</seg></tuv>' * (LARGE_BYTES // 37) + b"</tu></body></tmx>",
    lambda: b"<!DOCTYPE tmx [" + b"<!ATTLIST tmx a CDATA 'x'>" * (LARGE_BYTES // 26) + b"]><tmx/>",
    lambda: b"<tmx>" + b"<a>" * 1_000_000 + b"</a>" * 1_000_000 + b"</tmx>",
    lambda: b'<!DOCTYPE tmx [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]><tmx><body>&b;</body></tmx>',
    lambda: (
        b'<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/hostname">]><tmx><body><tu><tuv lang="en"><seg>&x;</seg></tuv></tu></body></tmx>'
    ),
    lambda: b"<html><body><p>Not found</p></body></html>",
    lambda: b'<?xml version="1.0" encoding="klingon"?><tmx/>',
    lambda: b'<?xml version="1.0" encoding="shift_jis"?><tmx/>',
    lambda: b'<?xml version="1.0" encoding="undefined"?><tmx/>',
    lambda: b'<?xml version="1.0" encoding="UTF-16"?><tmx/>',
    lambda: f"<tmx><body>{UNIT}".encode(),
    lambda: f"<tmx><body>{UNIT.replace('one', chr(0))}</body></tmx>".encode(),
    lambda: f"<tmx><body>{UNIT.replace('one', 'caf' + chr(233))}</body></tmx>".encode("latin-1"),
    lambda: b"",
]


RECORDS_WITHOUT_END = [
    ("a.csv", "en\n", "x"),
    ("a.csv", "en\n", "x,"),
    ("a.csv", 'en\n"', 'x\n","'),
    ("a.json", '[{"en": "', "x"),
]


def craft_tmx(_: random.Random, number: int) -> str:
    """Read a file that is no TMX or made to take time and memory, as a text and as a dataset."""
    Path("de-en.tmx").write_bytes(CRAFTED[number]())
    outcomes = [
        run(["embed", "de-en.tmx", "--text-column", "en", "--lang", "en", "--encoder", "encoder", "--output", "out"]),
        run(["data", "convert", "opus-tmx", "de-en.tmx", "--output", "out.tsv"]),
    ]
    return "other" if "done" in outcomes else max(outcomes, key=OUTCOMES.index)


def craft_records(_: random.Random, number: int) -> str:
    """Read a CSV or JSON record of 80 MB."""
    name, head, part = RECORDS_WITHOUT_END[number]
    Path(name).write_bytes(head.encode() + part.encode() * (LARGE_BYTES // len(part)))
    outcome = run(["embed", name, "--text-column", "en", "--lang", "en", "--encoder", "encoder", "--output", "out"])
    return "other" if outcome == "done" else outcome


def damage_index(rng: random.Random, number: int) -> str:
    """Cut, empty, extend or exchange a file of a FAISS index, and search it."""
    expected = hash_files("mined/bitext.tsv.gz")
    path = rng.choice(sorted(path for path in Path("index").rglob("part-*") if path.is_file()))
    data = path.read_bytes()
    others = [file.read_bytes() for file in Path("en/embeddings").glob("part-*")]
    path.write_bytes([data[: rng.randrange(len(data))], b"", data + rng.randbytes(8), rng.choice(others), data * 2][number % 5])
    outcome = run(["mine", "index", "de", "--engine", "faiss", "--threshold", 1, "--no-report", "--output", "out"])
    return outcome if outcome != "done" else "same" if hash_files("out/bitext.tsv.gz") == expected else "other"


def step_clock(rng: random.Random, _: int) -> str:
    """Mine again while the clock jumps by days in both directions, and with inputs of the future."""
    expected = hash_files("grown/bitext.tsv.gz")
    shutil.rmtree("grown")
    for path in Path("texts").rglob("*.txt"):
        moment = time.time() + rng.uniform(-1e6, 1e6)
        os.utime(path, (moment, moment))
    with _jumping_clock(rng):
        outcomes = [run(GROWN), run(GROWN)]
    if outcomes != ["done", "done"]:
        return max(outcomes, key=[*OUTCOMES, "done"].index) if "traceback" in outcomes else "other"
    return "same" if hash_files("grown/bitext.tsv.gz") == expected else "other"


@contextlib.contextmanager
def _jumping_clock(rng: random.Random) -> Iterator[None]:
    real = time.time
    time.time = lambda: real() + rng.uniform(-1e6, 1e6)
    try:
        yield
    finally:
        time.time = real


# Name -> number of attempts, and the attack.
ATTACKS: dict[str, tuple[int, Attack]] = {
    "flips in `deltas/`, then `mine` again": (30, flip_deltas),
    "`miner fetch` killed, then run again": (9, kill_fetch),
    "`miner fetch`, three at once": (8, fetch_at_once),
    "edited `miner.json` of a static encoder": (30, edit_settings),
    "edited marks of the review page": (30, edit_marks),
    "`export` killed over an export of another format": (12, interrupt_export),
    "crafted TMX": (len(CRAFTED), craft_tmx),
    "records of 80 MB in CSV and JSON": (len(RECORDS_WITHOUT_END), craft_records),
    "cut, empty, extended and exchanged files of an index": (20, damage_index),
    "clock that jumps by days": (10, step_clock),
}
