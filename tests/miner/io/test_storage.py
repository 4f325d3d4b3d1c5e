"""Writes are atomic, and a stage that was stopped resumes with exactly the missing shards."""

import json
import pickle
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from miner.errors import StorageError
from miner.io import records, stages, storage, table_files
from miner.io.stages import Manifest, Shard, Stage
from miner.io.storage import write_folder

TABLE = pa.table({"id": pa.array([3, 5], pa.int64()), "text": ["three", "five"]})


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_failed_write_keeps_the_previous_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    storage.write_json(str(path), [1])

    def interrupted_write() -> None:
        with storage.atomic(str(path)) as handle:
            handle.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_write()
    assert storage.read_json(str(path)) == [1]
    assert list_names(tmp_path) == ["file"]


def test_tables_round_trip(tmp_path: Path) -> None:
    table = TABLE.append_column("source", pa.array(["a", "a"]).dictionary_encode())
    table_files.write_table(str(tmp_path / "deep" / "t.parquet"), table)
    assert table_files.read_table(str(tmp_path / "deep" / "t.parquet")).equals(table)
    assert table_files.read_table(str(tmp_path / "deep" / "t.parquet"), ["text"]).column_names == ["text"]


def test_the_checksum_of_a_written_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    for rows in (1, 30_000, 20_000):  # the same name again: another version
        table = pa.table({"id": pa.array(range(rows)), "text": [f"text {number * 7919}" for number in range(rows)]})
        table_files.write_table(str(path), table)
        assert storage.checksum(str(path)) == xxhash.xxh3_128_hexdigest(path.read_bytes())
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert storage.checksum(str(path)) == xxhash.xxh3_128_hexdigest(path.read_bytes())
    with pytest.raises(StorageError, match="in order"), storage.atomic(str(path)) as handle:
        handle.seek(0)


def limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def test_a_full_disk_is_one_error_and_leaves_no_file(tmp_path: Path) -> None:
    code = (
        "import sys, pyarrow as pa\n"
        "from miner.io import table_files\n"
        "from miner.errors import StorageError\n"
        "try:\n"
        "    table_files.write_table(sys.argv[1], pa.table({'text': [str(n) * 9 for n in range(100_000)]}))\n"
        "except StorageError as error:\n"
        "    print(error)\n"
    )
    path = tmp_path / "t.parquet"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, preexec_fn=limit_file_size, timeout=60)
    assert done.stdout == f"{path}: File too large; allow larger files or choose another path, then run the same command again\n"
    assert list_names(tmp_path) == []


def test_writing_over_a_directory_fails(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(StorageError, match="taken: Is a directory; choose another path"):
        storage.write_json(str(tmp_path / "taken"), {})
    assert list_names(tmp_path) == ["taken"]
    assert list_names(tmp_path / "taken") == []


@pytest.mark.parametrize("length", [0, 10, -4])
def test_a_truncated_table_is_an_error_that_names_the_file(tmp_path: Path, length: int) -> None:
    path = tmp_path / "t.parquet"
    table_files.write_table(str(path), TABLE)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(StorageError, match=r"t\.parquet: not a complete Parquet file"):
        table_files.read_table(str(path))


@pytest.mark.parametrize(
    ("uri", "message"),
    [("nowhere://x/y", "nowhere"), ("{}/missing", "missing: no such file"), ("{}", "Is a directory")],
)
def test_reading_a_missing_file_is_an_error_that_names_it(tmp_path: Path, uri: str, message: str) -> None:
    with pytest.raises(StorageError, match=message):
        storage.read_json(uri.format(tmp_path))


def test_shard_names_contain_the_index() -> None:
    assert stages.shard_name(7, 42) == "part-00007-of-00042.parquet"
    assert stages.shard_index("part-00007-of-00042.parquet") == 7


class NumberStage:
    """A small stage: shard i contains the number i and depends on the input i."""

    def __init__(self, folder: str, config: dict[str, object] | None = None, inputs: Sequence[str] = ("a", "b", "c")) -> None:
        self.stage = Stage(folder, "numbers", config or {"base": 10}, dict(enumerate_inputs(inputs)))
        self.keys = {name: self.stage.key({name: value}) for name, value in enumerate_inputs(inputs)}

    def write(self, *, only: Sequence[str] | None = None) -> list[str]:
        """Write the pending shards, or `only` some, and return the names of the pending shards."""
        self.stage.start()
        pending = self.stage.reopen(self.keys)
        for name in pending if only is None else only:
            storage.write_json(self.stage.path(name), stages.shard_index(name))
            self.stage.mark_done(name, 1, self.keys[name], {"seen": 2})
        return pending

    def finish(self) -> Manifest:
        return self.stage.finish(self.keys, lambda shards: {"seen": sum(shard.counts["seen"] for shard in shards)})


def enumerate_inputs(inputs: Sequence[str]) -> list[tuple[str, str]]:
    return [(stages.shard_name(index, len(inputs), ".json"), value) for index, value in enumerate(inputs)]


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "stage") if request.param == "local" else f"memory://{tmp_path}/stage"


def test_a_stage_is_complete_when_it_has_a_manifest(folder: str) -> None:
    numbers = NumberStage(folder)
    with pytest.raises(StorageError, match="no finished stage"):
        stages.read_manifest(folder, "numbers")
    assert numbers.write() == list(numbers.keys)
    assert len(numbers.stage.marked_shards()) == 3
    with pytest.raises(StorageError, match="no finished stage"):
        stages.read_manifest(folder, "numbers")
    finished = numbers.finish()
    assert stages.read_manifest(folder, "numbers") == finished
    assert (finished.rows, finished.details) == (3, {"seen": 6})
    assert storage.names_in(folder) == ["_shards", "manifest.json", *numbers.keys]
    with pytest.raises(StorageError, match="contains the stage `numbers`, but `letters` was expected"):
        stages.read_manifest(folder, "letters")


def test_a_second_run_changes_nothing(folder: str) -> None:
    NumberStage(folder).write()
    NumberStage(folder).finish()
    expected = storage.checksum(storage.join(folder, stages.MANIFEST))
    assert NumberStage(folder).write() == []
    NumberStage(folder).finish()
    assert storage.checksum(storage.join(folder, stages.MANIFEST)) == expected


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_missing_damaged_and_outdated_shards_are_written_again(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("stage")
    inputs = ["a", "b", "c", "d"]
    NumberStage(str(folder), inputs=inputs).write()
    NumberStage(str(folder), inputs=inputs).finish()
    expected = []
    for index, (name, _) in enumerate(enumerate_inputs(inputs)):
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
    assert NumberStage(str(folder), inputs=inputs).write() == expected
    assert (folder / stages.MANIFEST).exists() is (not expected)  # not complete while a shard is pending
    assert NumberStage(str(folder), inputs=inputs).finish().rows == 4


def test_a_killed_run_resumes_and_its_temporary_files_are_removed(tmp_path: Path) -> None:
    numbers = NumberStage(str(tmp_path))
    first, second, third = numbers.keys
    numbers.write(only=[second])
    (tmp_path / f".{first}.0123.tmp").write_text("half")  # left by a killed worker
    (tmp_path / stages.MARKERS / f".{first}.json.0123.tmp").write_text("half")
    assert len(numbers.stage.marked_shards()) == 1
    with pytest.raises(StorageError, match=f"{first}: this shard was not written; run the same command again"):
        numbers.finish()
    assert numbers.write() == [first, third]
    numbers.finish()
    assert list_names(tmp_path) == ["_shards", "manifest.json", first, second, third]
    assert list_names(tmp_path / stages.MARKERS) == [f"{name}.json" for name in (first, second, third)]


def test_shards_of_an_earlier_partition_are_removed(tmp_path: Path) -> None:
    for inputs in ("abcd", "ab"):
        numbers = NumberStage(str(tmp_path), inputs=list(inputs))
        numbers.write()
        numbers.finish()
    assert list_names(tmp_path) == ["_shards", "manifest.json", *numbers.keys]
    assert len(numbers.stage.marked_shards()) == 2


@pytest.mark.parametrize("finished", [True, False])
def test_another_configuration_is_an_error_with_both_values_and_the_remedy(folder: str, finished: bool) -> None:
    NumberStage(folder).write()
    if finished:
        NumberStage(folder).finish()
    with pytest.raises(StorageError, match="made with base 10, now 16; choose another --output, or delete"):
        NumberStage(folder, {"base": 16}).write()
    with pytest.raises(StorageError, match="contains the stage `numbers`, not `letters`"):
        Stage(folder, "letters", {"base": 10}, {}).start()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stage": 1}', json.dumps({"stage": "numbers", "shards": [{"name": "x"}]})])
def test_an_invalid_manifest_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / stages.MANIFEST).write_text(text)
    with pytest.raises(StorageError, match=r"manifest\.json: not "):
        stages.read_manifest(str(tmp_path))


def test_a_stage_refuses_a_directory_with_an_invalid_manifest(tmp_path: Path) -> None:
    (tmp_path / stages.MANIFEST).write_text("[]")
    with pytest.raises(StorageError, match=r"manifest\.json: not valid .*; delete"):
        Stage(str(tmp_path), "numbers", {}, {}).start()


def test_keys_are_equal_for_equal_values_only() -> None:
    assert storage.key({"a": 1, "b": [2]}) == storage.key({"b": [2], "a": 1})
    assert storage.key({"a": 1}) != storage.key({"a": "1"})
    assert Shard("x", 1, "y") == Shard("x", 1, "y", {})


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_the_records_of_a_directory_are_read_once_per_version(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(tmp_path / "records") if place == "disk" else f"memory://{tmp_path.name}"
    records_of = records.RecordFolder(folder, dict[str, int])
    assert records_of.read() == {}
    records.write(f"{folder}/a.json", {"n": 1})
    records.write(f"{folder}/b.json", {"n": 2})
    storage.write_json(f"{folder}/damaged.json", {"n": 3, records.CHECKSUM: "of something else"})
    assert records_of.read() == {"a.json": {"n": 1}, "b.json": {"n": 2}}
    names: list[str] = []
    read_files = storage.read_files
    monkeypatch.setattr(storage, "read_files", lambda folder, new: names.extend(new) or read_files(folder, new))
    records.write(f"{folder}/b.json", {"n": 22})
    storage.remove_files([f"{folder}/a.json", f"{folder}/damaged.json", f"{folder}/never-there.json"])
    assert records_of.read() == {"b.json": {"n": 22}}
    assert names == ["b.json"]
    assert records_of.names() == {"b.json"}
    assert pickle.loads(pickle.dumps(records_of)).read() == {"b.json": {"n": 22}}


def write_file(folder: Path, text: str) -> None:
    with write_folder(folder) as temporary:
        (temporary / "file").write_text(text)


def test_a_folder_replaces_the_one_before(tmp_path: Path) -> None:
    for text in ("first", "second"):
        write_file(tmp_path / "new" / "folder", text)
        assert (tmp_path / "new" / "folder" / "file").read_text() == text
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["folder"]


def test_an_error_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write_file(folder, "first")
    with pytest.raises(UnicodeEncodeError), write_folder(folder) as temporary:
        (temporary / "file").write_text("\udc80", encoding="utf-8")
    with pytest.raises(FileNotFoundError), write_folder(folder) as temporary:
        shutil.rmtree(temporary)  # the rename to the folder fails
    assert (folder / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
