"""Writes are whole or not at all, and a stage that stopped goes on with exactly what is missing."""

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miner import stages, storage
from miner.errors import StorageError
from miner.stages import Manifest, Shard, Stage

TABLE = pa.table({"id": pa.array([3, 5], pa.int64()), "text": ["three", "five"]})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    storage.write_json(str(path), [1])

    def stopped() -> None:
        with storage.atomic(str(path)) as handle:
            handle.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert storage.read_json(str(path)) == [1]
    assert names(tmp_path) == ["file"]


def test_a_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    coded = TABLE.append_column("source", pa.array(["a", "a"]).dictionary_encode())
    storage.write_table(str(tmp_path / "deep" / "t.parquet"), coded)
    assert storage.read_table(str(tmp_path / "deep" / "t.parquet")).equals(coded)
    assert storage.read_table(str(tmp_path / "deep" / "t.parquet"), ["text"]).column_names == ["text"]


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def test_a_full_disk_is_one_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, pyarrow as pa\n"
        "from miner import storage\n"
        "from miner.errors import StorageError\n"
        "try:\n"
        "    storage.write_table(sys.argv[1], pa.table({'text': [str(n) * 9 for n in range(100_000)]}))\n"
        "except StorageError as error:\n"
        "    print(error)\n"
    )
    path = tmp_path / "t.parquet"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, preexec_fn=small_files, timeout=60)
    assert done.stdout == f"{path}: File too large; allow larger files or choose another place, then run the same command again\n"
    assert names(tmp_path) == []


def test_writing_where_a_folder_is_fails(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(StorageError, match="taken: Is a directory; choose another place"):
        storage.write_json(str(tmp_path / "taken"), {})
    assert names(tmp_path) == ["taken"]
    assert names(tmp_path / "taken") == []


@pytest.mark.parametrize("length", [0, 10, -4])
def test_a_truncated_table_is_an_error_that_names_it(tmp_path: Path, length: int) -> None:
    path = tmp_path / "t.parquet"
    storage.write_table(str(path), TABLE)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(StorageError, match=r"t\.parquet: not a complete Parquet file"):
        storage.read_table(str(path))


@pytest.mark.parametrize(
    ("uri", "message"),
    [("nowhere://x/y", "nowhere"), ("{}/missing", "missing: no such file"), ("{}", "Is a directory")],
)
def test_reading_what_is_not_there_is_an_error_that_names_it(tmp_path: Path, uri: str, message: str) -> None:
    with pytest.raises(StorageError, match=message):
        storage.read_json(uri.format(tmp_path))


def test_names_of_shards_tell_their_number() -> None:
    assert stages.shard_name(7, 42) == "part-00007-of-00042.parquet"
    assert stages.shard_index("part-00007-of-00042.parquet") == 7


class Numbers:
    """A small stage: shard i holds the number i, made from the input `i`."""

    def __init__(self, folder: str, config: dict[str, object] | None = None, inputs: Sequence[str] = ("a", "b", "c")) -> None:
        self.stage = Stage(folder, "numbers", config or {"base": 10}, dict(enumerate_names(inputs)))
        self.made_from = {name: self.stage.key({name: made}) for name, made in enumerate_names(inputs)}

    def make(self, *, only: Sequence[str] | None = None) -> list[str]:
        """Make what is pending, or `only` some of it; returns the names of what was pending."""
        self.stage.start()
        pending = self.stage.reopen(self.made_from)
        for name in pending if only is None else only:
            storage.write_json(self.stage.path(name), stages.shard_index(name))
            self.stage.mark_done(name, 1, self.made_from[name], {"seen": 2})
        return pending

    def finish(self) -> Manifest:
        return self.stage.finish(self.made_from, lambda shards: {"seen": sum(shard.counts["seen"] for shard in shards)})


def enumerate_names(inputs: Sequence[str]) -> list[tuple[str, str]]:
    return [(stages.shard_name(index, len(inputs), ".json"), made) for index, made in enumerate(inputs)]


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "stage") if request.param == "local" else f"memory://{tmp_path}/stage"


def test_a_stage_is_complete_when_its_manifest_is_there(folder: str) -> None:
    numbers = Numbers(folder)
    with pytest.raises(StorageError, match="is not finished"):
        stages.read_manifest(folder, "numbers")
    assert numbers.make() == list(numbers.made_from)
    assert len(numbers.stage.marked_shards()) == 3
    with pytest.raises(StorageError, match="is not finished"):
        stages.read_manifest(folder, "numbers")
    finished = numbers.finish()
    assert stages.read_manifest(folder, "numbers") == finished
    assert (finished.rows, finished.details) == (3, {"seen": 6})
    assert storage.names_in(folder) == ["_shards", "manifest.json", *numbers.made_from]
    with pytest.raises(StorageError, match="contains numbers, but letters was expected"):
        stages.read_manifest(folder, "letters")


def test_a_second_run_changes_nothing(folder: str) -> None:
    Numbers(folder).make()
    Numbers(folder).finish()
    before = storage.checksum(storage.join(folder, stages.MANIFEST))
    assert Numbers(folder).make() == []
    Numbers(folder).finish()
    assert storage.checksum(storage.join(folder, stages.MANIFEST)) == before


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_what_is_missing_damaged_or_made_from_something_else_is_made_again(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("stage")
    inputs = ["a", "b", "c", "d"]
    Numbers(str(folder), inputs=inputs).make()
    Numbers(str(folder), inputs=inputs).finish()
    expected = []
    for index, (name, _) in enumerate(enumerate_names(inputs)):
        damage = data.draw(st.sampled_from(["none", "remove", "truncate", "marker", "marker garbage", "input"]))
        if damage == "remove":
            (folder / name).unlink()
        elif damage == "truncate":
            (folder / name).write_bytes(b"")
        elif damage.startswith("marker"):
            (folder / stages.MARKERS / f"{name}.json").write_text(data.draw(st.sampled_from(["", "[]", '{"key": 1}'])))
        elif damage == "input":
            inputs[index] = "changed"
        if damage != "none":
            expected.append(name)
    assert Numbers(str(folder), inputs=inputs).make() == expected
    assert (folder / stages.MANIFEST).exists() is (not expected)  # not complete while a shard is to be made again
    assert Numbers(str(folder), inputs=inputs).finish().rows == 4


def test_a_run_that_was_killed_goes_on_and_is_cleared_up_after(tmp_path: Path) -> None:
    numbers = Numbers(str(tmp_path))
    first, second, third = numbers.made_from
    numbers.make(only=[second])
    (tmp_path / f".{first}.0123.tmp").write_text("half")  # what a killed worker leaves
    (tmp_path / stages.MARKERS / f".{first}.json.0123.tmp").write_text("half")
    assert len(numbers.stage.marked_shards()) == 1
    with pytest.raises(StorageError, match=f"{first}: this shard was not written; run the same command again"):
        numbers.finish()
    assert numbers.make() == [first, third]
    numbers.finish()
    assert names(tmp_path) == ["_shards", "manifest.json", first, second, third]
    assert names(tmp_path / stages.MARKERS) == [f"{name}.json" for name in (first, second, third)]


def test_shards_of_an_earlier_partition_are_cleared_away(tmp_path: Path) -> None:
    for inputs in ("abcd", "ab"):
        numbers = Numbers(str(tmp_path), inputs=list(inputs))
        numbers.make()
        numbers.finish()
    assert names(tmp_path) == ["_shards", "manifest.json", *numbers.made_from]
    assert len(numbers.stage.marked_shards()) == 2


@pytest.mark.parametrize("finished", [True, False])
def test_another_configuration_is_refused_with_both_sides_and_the_remedy(folder: str, finished: bool) -> None:
    Numbers(folder).make()
    if finished:
        Numbers(folder).finish()
    with pytest.raises(StorageError, match="made with base 10, now 16; choose another --output, or delete"):
        Numbers(folder, {"base": 16}).make()
    with pytest.raises(StorageError, match="contains numbers, not letters"):
        Stage(folder, "letters", {"base": 10}, {}).start()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stage": 1}', json.dumps({"stage": "numbers", "shards": [{"name": "x"}]})])
def test_a_manifest_that_is_none_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / stages.MANIFEST).write_text(text)
    with pytest.raises(StorageError, match=r"manifest\.json: not "):
        stages.read_manifest(str(tmp_path))


def test_a_stage_refuses_a_folder_whose_manifest_is_no_mapping(tmp_path: Path) -> None:
    (tmp_path / stages.MANIFEST).write_text("[]")
    with pytest.raises(StorageError, match="not a manifest of this program; delete"):
        Stage(str(tmp_path), "numbers", {}, {}).start()


def test_keys_are_equal_for_equal_values_only() -> None:
    assert storage.key({"a": 1, "b": [2]}) == storage.key({"b": [2], "a": 1})
    assert storage.key({"a": 1}) != storage.key({"a": "1"})
    assert Shard("x", 1, "y") == Shard("x", 1, "y", {})
