"""Kill `miner mine` on an object store at random moments, or damage its objects, and run the same command again.

    go install github.com/fsouza/fake-gcs-server@v1.56.1
    fake-gcs-server -backend memory -scheme http -host 127.0.0.1 -port 4455 -public-host 127.0.0.1:4455 &
    curl -X POST 127.0.0.1:4455/storage/v1/b -d '{"name": "bucket"}' -H 'Content-Type: application/json'
    export FSSPEC_GS_TOKEN=anon FSSPEC_GS_ENDPOINT_URL=http://127.0.0.1:4455 GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT=false
    python benchmarks/attack_store.py gs://bucket --kills 5 --damage 20

A killed run is killed twice. The last run must give the pairs of an undisturbed one, `miner verify` no fault, and no lock may be left. An
object is cut, emptied, deleted or has a flipped bit; the same command must repair it, or end in one line that names it.
"""

import argparse
import contextlib
import hashlib
import random
import subprocess
import sys
from pathlib import Path

from miner.io import storage

EXAMPLES = Path(__file__).parent.parent / "examples"
SECONDS = 600  # a run at most
DAMAGE = ("flipped", "cut", "emptied", "deleted")


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "miner.cli.main", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def mine(output: str) -> subprocess.Popen[str]:
    sides = [str(EXAMPLES / "en.txt"), str(EXAMPLES / "de.txt"), "--source-lang", "en", "--target-lang", "de"]
    return start("mine", *sides, "--engine", "exact", "--shards", "4", "--threshold", "1.1", "--no-report", "--output", output)


def end_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for a command; return `done`, `error` or `traceback`, and its last line."""
    _, text = process.communicate(timeout=SECONDS)
    lines = [line for line in text.splitlines() if line.startswith("miner: error: ")]
    is_error = process.returncode == 1 and len(lines) == 1 and "internal error" not in lines[0]
    return {0: "done"}.get(process.returncode, "error" if is_error else "traceback"), lines[-1] if lines else ""


def digest(output: str) -> str:
    return hashlib.sha256(storage.read_bytes(storage.join(output, "bitext.tsv.gz"))).hexdigest()


def kill(output: str, expected: str, rng: random.Random) -> bool:
    """Kill a run twice, and return whether the third is right."""
    for _ in range(2):
        process = mine(output)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(2, 25))
        process.kill()
        process.communicate()
    last, verified = end_of(mine(output))[0], end_of(start("verify", output))[0]
    left = [name for name in storage.files_below(output) if storage.LOCK_PREFIX in name]
    is_right = (last, verified, left) == ("done", "done", []) and digest(output) == expected
    print(f"killed twice: then {last}, verify {verified}, {'right' if is_right else 'WRONG'}", flush=True)
    return is_right


def damage(output: str, expected: str, rng: random.Random) -> bool:
    """Damage an object, run the same command, and return whether it repaired the object or named it."""
    name, how = rng.choice(storage.files_below(output)), rng.choice(DAMAGE)
    uri = storage.join(output, name)
    intact = storage.read_bytes(uri)
    data, position = bytearray(intact), rng.randrange(len(intact))
    data[position] ^= 1 << rng.randrange(8)
    fs, path = storage.filesystem(uri)
    storage.remove(uri)
    if how != "deleted":
        fs.pipe_file(path, bytes({"flipped": data, "cut": data[:position], "emptied": b""}[how]))
    again, line = end_of(mine(output))
    is_right = again == "error" and name in line
    if again == "done":
        is_right = digest(output) == expected and end_of(start("verify", output))[0] == "done"
    print(f"{how} {name}: {again}, {'right' if is_right else 'WRONG'}", flush=True)
    if again != "done":
        fs.pipe_file(path, intact)
    return is_right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bucket", help="a URI, such as gs://bucket")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--damage", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, whole = random.Random(arguments.seed), storage.join(arguments.bucket, "whole")
    assert end_of(mine(whole))[0] == "done"
    expected = digest(whole)
    killed = [kill(storage.join(arguments.bucket, f"killed-{number}"), expected, rng) for number in range(arguments.kills)]
    damaged = [damage(whole, expected, rng) for _ in range(arguments.damage)]
    return int(not all([*killed, *damaged]))


if __name__ == "__main__":
    sys.exit(main())
