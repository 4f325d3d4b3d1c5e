"""Change files of every format that users give, read them, and count the outcomes.

    python benchmarks/fuzz.py --files 100000
    python benchmarks/fuzz.py --files 1000 --only tmx csv --keep faults

A file is changed at random places: bits, bytes, cuts, repeats, marks of its format, parts of other files. Compressed formats are changed
before or after they are compressed. A reader yields rows (`rows`) or raises one MinerError of one line (`error`). `traceback` is another
exception, `hang` is more than SECONDS, `crash` a signal or more than MAX_BYTES of memory. Exit status 1 if there is any of these three;
--keep writes such files into a folder. The same seed makes the same files.
"""

import argparse
import mmap
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from fuzz_files import Files, Target, list_targets

from miner.errors import MinerError

OUTCOMES = ("rows", "error", "traceback", "hang", "crash")
STARTED, WAITING = 254, 255  # in place of the number of an outcome
SECONDS = 20
MAX_BYTES = 2 << 30  # of memory that a reader may take in addition to what its process has
NUM_CHANGES = (1, 1, 1, 1, 2, 3, 8)  # of a file
MARKS = [  # bytes that mean something to a format
    *(b'"', b"\n", b"\r\n", b"\t", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\x7f\xff\xff\xff", b"\xff" * 8),
    *(b"[", b"{", b"]", b"}", b",", b"\\", b"\\ud800", b"9" * 400, b"1e999", b"-1", b"NaN", b"null", b"PK\x03\x04", b"PAR1"),
    *(b"<tu>", b"</tu>", b"<!--", b"]]>", b"<![CDATA[", b"<?", b"&#0;", b"&a;", b"<!DOCTYPE a [<!ENTITY a 'b'>]>", b'encoding="utf-7"'),
    *(b"&a [*a, *a]", b"!!python/object:os.system", b": ", b"- ", b"? ", b"'", b"%", b"|"),
]
REPEATS = (2, 100, 5000)


def change(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """Return a file that is changed at one or more places."""
    changed = data
    for _ in range(rng.choice(NUM_CHANGES)):
        changed = change_once(changed, rng, others)
    return changed if changed != data else change(data, rng, others)


def change_once(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """Return a file with a part in which bits are flipped, or that is replaced, deleted, the last one, repeated or followed by another."""
    start = rng.randint(0, len(data))
    end = min(len(data), start + rng.choice((1, 2, 8, 100)))
    part, other = data[start:end], rng.choice(others)
    cut = rng.randint(0, len(other))
    parts = [
        bytes([byte ^ 1 << rng.randrange(8) for byte in part[:1]]) + part[1:],
        rng.randbytes(len(part)),
        b"",
        part * rng.choice(REPEATS),
        part + rng.choice(MARKS),
        rng.choice(MARKS) * rng.choice((1, 1, 1, *REPEATS)),
        other[cut : cut + rng.choice((4, 64, len(other)))],
    ]
    kind = rng.randrange(len(parts) + 1)
    return data[:start] + parts[kind] + data[end:] if kind < len(parts) else data[:start]


def changed_files(target: Target, rng: random.Random, others: list[bytes]) -> Files:
    """Return the files of a format, of which one is changed: before it is compressed, or else after."""
    is_inside = rng.randrange(2) == 0
    files = target.files if is_inside else target.compress(target.files)
    name = rng.choice(sorted(files))
    files = files | {name: change(files[name], rng, others)}
    return target.compress(files) if is_inside else files


def write_files(folder: Path, files: Files) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def outcome_of(read: Callable[[Path], Iterable[object]], folder: Path) -> str:
    """Read files to their end."""
    try:
        errors = [part for part in read(folder) if isinstance(part, MinerError)]
    except MinerError as error:
        errors = [error]
    except BaseException:
        traceback.print_exc()
        return "traceback"
    is_one_line = all("\n" not in str(error) for error in errors)
    return "traceback" if not is_one_line else "error" if errors else "rows"


def read_many(target: Target, work: Path, numbers: Iterable[int], seed: str, counts: mmap.mmap, others: list[bytes]) -> None:
    """Read changed files in this process; `counts` has the outcome of each that was read, and the number of the one that is read."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # also ends a loop in C
    used = int(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmSize")).split()[1]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_BYTES, used + MAX_BYTES))
    for number in numbers:
        shutil.rmtree(work, ignore_errors=True)
        write_files(work, changed_files(target, random.Random(f"{seed} {number}"), others))
        counts[number] = STARTED
        signal.alarm(SECONDS)
        counts[number] = OUTCOMES.index(outcome_of(target.read, work))
        signal.alarm(0)


def read_changed(target: Target, folder: Path, num_files: int, seed: str, others: list[bytes]) -> list[str]:
    """Return the outcomes of changed files, which are read by processes, one after the other."""
    counts = mmap.mmap(-1, num_files)
    counts[:] = bytes([WAITING]) * num_files
    while waiting := [number for number in range(num_files) if counts[number] == WAITING]:
        child = os.fork()
        if child == 0:
            with (folder / "stderr").open("a") as log:
                os.dup2(log.fileno(), 2)
            read_many(target, folder / "work", waiting, seed, counts, others)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        started = counts.find(bytes([STARTED]))
        if started >= 0:
            counts[started] = OUTCOMES.index("hang" if code == -signal.SIGALRM else "crash")
        elif code:
            sys.exit(f"a process ended with {code} before it read a file")
    return [OUTCOMES[code] for code in counts[:]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000, help="changed files, of all formats together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the names of formats")
    parser.add_argument("--keep", type=Path, help="folder for the files whose outcome is a fault")
    arguments = parser.parse_args()
    targets = {name: target for name, target in list_targets().items() if any(part in name for part in arguments.only)}
    others = [content for target in targets.values() for content in target.files.values()]
    num_files, num_faults = -(-arguments.files // len(targets)), 0
    print(f"| format | files | {' | '.join(OUTCOMES)} |\n|---|{'---|' * (1 + len(OUTCOMES))}")
    with tempfile.TemporaryDirectory(prefix="miner-fuzz-") as folder:
        for name, target in targets.items():
            write_files(Path(folder) / name, target.compress(target.files))
            if outcome_of(target.read, Path(folder) / name) != "rows":
                sys.exit(f"{name}: the intact files cannot be read")
            seed = f"{arguments.seed} {name}"
            outcomes = read_changed(target, Path(folder), num_files, seed, others)
            counts = Counter(outcomes)
            print(f"| {name} | {num_files} | {' | '.join(str(counts[outcome]) for outcome in OUTCOMES)} |", flush=True)
            faults = [number for number, outcome in enumerate(outcomes) if outcome not in ("rows", "error")]
            num_faults += len(faults)
            for number in faults if arguments.keep else ():
                changed = changed_files(target, random.Random(f"{seed} {number}"), others)
                write_files(arguments.keep / name / f"{number} {outcomes[number]}", changed)
        sys.stderr.write((Path(folder) / "stderr").read_text()[-20_000:])
    return min(1, num_faults)


if __name__ == "__main__":
    sys.exit(main())
