"""After damage of any file of an output, a command gives the right result, or an error whose remedy, if it is followed, ends in it."""

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from command import error_lines, miner, output_of

Command = tuple[object, ...]

TEXT = {"en": ["one two three", "four five", "six one", "three four five", "two six"], "fr": ["un deux trois", "quatre cinq", "six un"]}
EMBED = {lang: ("embed", f"{lang}.txt", "--lang", lang, "--encoder", "encoder", "--output", lang) for lang in TEXT}
INDEX = ("index", "en", "--output", "index")
SIDES = ("--encoder", "encoder", "--threshold", 0.5, "--engine")
MINE = ("mine", "en", "fr", *SIDES, "exact", "--output", "mined")
AGAIN = ("mine", "--from-candidates", "mined", "--threshold", 0.6, "--output", "again")
FAISS = ("mine", "index", "fr", *SIDES, "faiss", "--output", "with-index")
EXPORT = ("export", "mined", "--format", "jsonl", "--output", "exported")
RUN = ("run", "run.yaml")
TRAIN = ("train", "train.yaml", "--resume", "--output", "trained")
FETCH = ("fetch", "encoder", "--output", "fetched")
MAKERS: tuple[Command, ...] = (*EMBED.values(), INDEX, MINE, EXPORT, RUN, TRAIN, FETCH)

# Command, the directories whose files it reads, its result.
READERS: dict[str, tuple[Command, Sequence[str], str]] = {
    "embed": (EMBED["en"], ["en"], "en/embeddings/part-*"),
    "index": (INDEX, ["en", "index"], "index/vectors/part-*"),
    "mine": (MINE, ["en", "fr", "mined"], "mined/bitext.tsv.gz"),
    "mine --from-candidates": (AGAIN, ["en", "fr", "mined/candidates"], "again/bitext.tsv.gz"),
    "mine with an index": (FAISS, ["index", "fr"], "with-index/bitext.tsv.gz"),
    "export": (EXPORT, ["mined", "exported"], "exported/*.jsonl"),
    "run": (RUN, ["ran"], "ran/pairs/*/bitext.tsv.gz"),
    "train": (TRAIN, ["trained"], "trained/encoder/vectors.safetensors"),
    "fetch": (FETCH, ["fetched"], "fetched/*"),
}
DAMAGE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "a flipped bit": lambda data, rng: flip(data, rng.randrange(8 * len(data))) if data else b"\0",
    "cut": lambda data, rng: data[: rng.randrange(len(data))] if data else b"\0",
    "empty": lambda data, rng: b"",  # noqa: ARG005
    "extended": lambda data, rng: data + bytes([rng.randrange(256)]),
}


def flip(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory, toy_encoder: Path) -> Iterator[Path]:
    """A directory with the outputs of all commands, which are made where the tests use copies of them."""
    folder = tmp_path_factory.mktemp("remedies")
    work = folder / "work"
    shutil.copytree(toy_encoder, work / "encoder")
    for lang, lines in TEXT.items():
        (work / f"{lang}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    corpora = {lang: f"{lang}.txt" for lang in TEXT}
    run = {"output": "ran", "corpora": corpora, "encoder": "encoder", "threshold": 0.5, "engine": "exact", "shards": 2}
    (work / "pairs.tsv").write_text("source\ttarget\n" + "".join(f"one {n}\tun {n}\n" for n in range(40)), encoding="utf-8")
    train = {
        "encoder": {"kind": "static", "dim": 8, "spelling_buckets": 64, "vocabulary": {"size": 16}},
        "data": [{"strategy": "parallel", "files": ["pairs.tsv"], "columns": {"source": "source", "target": "target"}}],
        "objective": [{"loss": "info_nce"}],
        "training": {"steps": 3, "batch_size": 4, "checkpoint_every": 1},
    }
    for name, values in (("run", run), ("train", train)):
        (work / f"{name}.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    previous = Path.cwd()
    os.chdir(work)
    for command in MAKERS:
        output_of(*command)
    shutil.copytree(work, folder / "intact")
    yield folder / "intact"
    os.chdir(previous)


def copy_intact(intact: Path) -> None:
    for path in Path.cwd().iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(intact, Path.cwd(), dirs_exist_ok=True)


def result_of(pattern: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path.cwd().glob(pattern)) if path.is_file()}


def attempt(command: Command) -> str | None:
    """Run a command; None if it succeeds, else its error line, which is the only one."""
    result = miner(*command)
    if result.exit_code == 0:
        return None
    assert isinstance(result.exception, SystemExit), result.exception
    lines = [line for line in error_lines(result) if line.startswith("miner: error: ")]
    assert (result.exit_code, len(lines)) == (1, 1), result.output
    return lines[0].removeprefix("miner: error: ")


def follow(message: str, command: Command) -> None:
    """Do what an error message of a command says: delete what it names, and run the commands that it names."""
    path, remedy = Path(message.partition(": ")[0]), message.rpartition(";")[2]
    if "choose another --output" in remedy:
        remove(Path(str(command[-1])))
        return
    if "delete it" in remedy:
        remove(path)
    elif "delete the directory" in remedy:
        remove(path.parent)
    elif deleted := re.search(r"delete (\S+)", remedy):
        remove(Path(deleted[1].rstrip(",")))
    named = re.search(r"`miner (\w+)", remedy)
    makers = [command for command in MAKERS if named is None or command[0] == named[1]]
    assert re.search(r"\bagain\b", remedy), message
    for maker in makers:
        attempt(maker)


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def check_remedy(name: str, path: Path, damage: str | None, rng: random.Random) -> None:
    """Damage or delete a file of a copy, run a command, and follow the remedy of its error."""
    command, _, result = READERS[name]
    expected = result_of(result)
    assert expected
    data = path.read_bytes()
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(DAMAGE[damage](data, rng))
    message = attempt(command)
    if message is not None:
        follow(message, command)
        again = attempt(command)
        assert again is None, f"{message}\nafter the remedy: {again}"
    actual = result_of(result)
    assert [file for file in sorted({*actual, *expected}) if actual.get(file) != expected.get(file)] == [], message


def kinds_of_files(intact: Path, folders: Sequence[str]) -> list[list[Path]]:
    """Return the files in some directories, those of one kind together."""
    kinds: dict[str, list[Path]] = {}
    for path in (path for folder in folders for path in sorted((intact / folder).rglob("*")) if path.is_file()):
        kinds.setdefault(re.sub(r"\d+", "0", str(path.relative_to(intact))), []).append(path.relative_to(intact))
    return list(kinds.values())


@pytest.mark.slow
@pytest.mark.parametrize("damage", [*DAMAGE, None])
@pytest.mark.parametrize("name", READERS)
def test_the_remedy_of_each_damage_ends_in_the_right_result(name: str, damage: str | None, intact: Path) -> None:
    rng = random.Random(f"{name} {damage}")
    for files in kinds_of_files(intact, READERS[name][1]):
        copy_intact(intact)
        output_of(*READERS[name][0])
        check_remedy(name, rng.choice(files), damage, rng)


@pytest.mark.parametrize("name", READERS)
def test_the_remedy_of_a_damage_ends_in_the_right_result(name: str, intact: Path) -> None:
    """One damage of one file, another one for each command: the nightly test has all."""
    rng = random.Random(name)
    copy_intact(intact)
    output_of(*READERS[name][0])
    files = kinds_of_files(intact, READERS[name][1])
    check_remedy(name, rng.choice(rng.choice(files)), rng.choice(list(DAMAGE)), rng)
