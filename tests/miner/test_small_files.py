"""Small JSON files that a command reads again: a flipped bit, a missing key and an odd value are errors of one line."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bitexts
import pytest
import yaml
from command import error_of, miner, output_of

from miner.errors import StorageError
from miner.io import records, storage
from miner.report import charts

RUN = {
    "pairs": {"en-fr": {"pairs": 3, "threshold": 1.0, "unique": {"source": 3, "target": 3}, "seconds": {"search": 1.0}}},
    "corpora": {"en": {"lang": "eng", "unique": 3}},
    "skipped": {},
    "seconds": 1.0,
}
LOOP = {"start": {"dev": {"a": 0.5}}, "rounds": [], "best": "seed", "stop_reason": None}


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit a file, and write its checksum again if it has one, as a version of the program with other keys would."""
    values = json.loads(path.read_text())
    write = storage.write_json if values.pop(records.CHECKSUM, None) is None else records.write
    edit(values)
    write(str(path), values)


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The command that resumes a finished training run, in a folder that tests change and restore."""
    folder = tmp_path_factory.mktemp("trained")
    rows = [f"one {number}\tun {number}" for number in range(40)]
    (folder / "pairs.tsv").write_text("\n".join(["source\ttarget", *rows]) + "\n")
    config = {
        "encoder": {"kind": "static", "dim": 8, "spelling_buckets": 64, "vocabulary": {"size": 16}},
        "data": [{"strategy": "parallel", "files": [str(folder / "pairs.tsv")], "columns": {"source": "source", "target": "target"}}],
        "objective": [{"loss": "info_nce"}],
        "training": {"steps": 2, "batch_size": 4},
    }
    (folder / "train.yaml").write_text(yaml.safe_dump(config))
    command = ("train", str(folder / "train.yaml"), "--output", str(folder / "out"))
    output_of(*command)
    return (*command, "--resume")


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("result.json", lambda values: values.pop("steps"), "result.json: not valid (steps: Field required); delete it"),
        ("result.json", lambda values: values.update(loss="low"), "result.json: not valid (loss: "),
        ("result.json", lambda values: values.update(sources=[]), "result.json: not valid (sources: "),
        ("train.json", lambda values: values.update(training=[]), "train.json: not valid (training: "),
        ("train.json", lambda values: values["training"].update(steps=9), "the run was started with training.steps 9 instead of 2"),
    ],
)
def test_odd_files_of_a_training_run(name: str, edit: Callable[[dict[str, Any]], object], message: str, trained: tuple[str, ...]) -> None:
    path = Path(trained[3]) / name
    content = path.read_bytes()
    change(path, edit)
    assert message in error_of(*trained)
    path.write_bytes(content)
    assert "2 steps" in output_of(*trained)


@pytest.mark.parametrize("text", ["[]", "3", "{", "[" * 5000, "\x00", '{"training": ' * 300 + "1" + "}" * 300])
@pytest.mark.parametrize("name", ["result.json", "train.json"])
def test_other_json_of_a_training_run(name: str, text: str, trained: tuple[str, ...]) -> None:
    path = Path(trained[3]) / name
    content = path.read_bytes()
    path.write_text(text)
    assert name in error_of(*trained)
    path.write_bytes(content)


def test_flipped_bits_of_a_result(trained: tuple[str, ...]) -> None:
    path = Path(trained[3]) / "result.json"
    content = path.read_bytes()
    for position in range(0, len(content), 17):
        flip(path, position)
        result = miner(*trained)
        assert result.exit_code == 1
        assert "result.json: " in result.stderr
        path.write_bytes(content)


def test_verify_covers_encoders_and_records(trained: tuple[str, ...]) -> None:
    output = Path(trained[3])
    assert output_of("verify", output) == "intact: 3 JSON files and the files listed there\n"
    for name in ("train.json", "result.json", "encoder/checksums.json", "encoder/vectors.safetensors"):
        content = (output / name).read_bytes()
        flip(output / name, len(content) // 2)
        result = miner("verify", output)
        assert (result.exit_code, result.stdout.count("\n")) == (1, 1)
        assert f"{output / name}: " in result.stdout
        (output / name).write_bytes(content)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["/etc/hostname"], "'/etc/hostname' is not a file in"),
        (["../notes"], "'../notes' is not a file in"),
        (["data/../../notes"], "is not a file in"),
        ("train.jsonl", "export.json: not valid (files: "),
        (None, "export.json: not valid (files: "),
    ],
)
def test_the_record_of_an_export_names_files_of_the_export_only(files: Any, message: str, tmp_path: Path) -> None:
    """The next export removes what the record lists."""
    (tmp_path / "notes").write_text("mine")
    (tmp_path / "out").mkdir()
    records.write(str(tmp_path / "out" / "export.json"), {"files": files})
    mined = bitexts.write(tmp_path / "mined", [(1.5, "one two", "un deux")])
    assert message in error_of("export", mined, "--output", tmp_path / "out", "--format", "jsonl")
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "figures", "message"),
    [
        ("run.json", {**RUN, "pairs": {"../other": RUN["pairs"]["en-fr"]}}, "'../other' is not the name of a pair"),
        ("run.json", {**RUN, "pairs": ["/"]}, "'/' is not the name of a pair"),
        ("run.json", {**RUN, "seconds": "long"}, "run.json: not the figures of a run"),
        ("loop.json", {**LOOP, "rounds": [{"dev": {"a": "high"}}]}, "loop.json: not the figures of a loop"),
        ("loop.json", {**LOOP, "start": {"dev": {"a": []}}}, "loop.json: not the figures of a loop"),
        ("log.jsonl", {"step": 1e999, "loss": 1.0}, "log.jsonl: not the journal of a training run"),
    ],
)
def test_odd_figures_in_a_report(name: str, figures: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "out").mkdir()
    if name == "log.jsonl":
        (tmp_path / "out" / name).write_text(json.dumps(figures))
    else:
        records.write(str(tmp_path / "out" / name), figures)
    assert message in error_of("report", tmp_path / "out")
    assert not list((tmp_path / "other").iterdir())


def test_intact_figures_of_a_run_are_reported_and_flipped_ones_are_not(tmp_path: Path) -> None:
    records.write(str(tmp_path / "run.json"), RUN)
    output_of("report", tmp_path)
    assert "3 pairs of 1 pairs of corpora in 1 s" in (tmp_path / "report.html").read_text()
    flip(tmp_path / "run.json", (tmp_path / "run.json").read_bytes().index(b'"pairs": 3') + 9)
    assert "run.json: changed since it was written" in error_of("report", tmp_path)


@pytest.mark.parametrize("name", ["run.json", "loop.json"])
@pytest.mark.parametrize("value", [RUN, LOOP, {}, [], 3])
def test_a_record_without_its_checksum_is_an_error(name: str, value: Any, tmp_path: Path) -> None:
    storage.write_json(str(tmp_path / name), value)
    assert f"{name}: not valid (no checksum `xxh3`); delete it and run the command that made it again" in error_of("report", tmp_path)


@pytest.mark.parametrize("name", ["run.json", "loop.json", "log.jsonl", "manifest.json", "bitext.parquet", "figures.json"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_files_that_do_not_end_are_not_read(name: str, kind: str, tmp_path: Path) -> None:
    if name in ("manifest.json", "bitext.parquet"):  # both make a bitext
        bitexts.write(tmp_path, [(1.5, "one two", "un deux")])
        (tmp_path / name).unlink()
    if kind == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to("/dev/zero")
    message = error_of("report", tmp_path)
    assert "nothing to show" in message if name == "figures.json" else "not a regular file" in message


def test_small_files_are_small(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('"' + "x" * 100)
    with pytest.raises(StorageError, match=r"a\.json: more than 99 bytes"):
        storage.read_bytes(str(tmp_path / "a.json"), max_bytes=99)
    assert len(storage.read_bytes(str(tmp_path / "a.json"), max_bytes=101)) == 101


def test_only_the_first_of_very_many_things_are_drawn(caplog: pytest.LogCaptureFixture) -> None:
    few = range(charts.MAX_SHOWN)
    assert charts.shown(few, "sets") == list(few)
    assert not caplog.records
    assert charts.shown(iter(range(10**12)), "sets") == list(few)
    assert f"only the first {charts.MAX_SHOWN} sets are drawn" in caplog.text
    with charts.style():
        for count, expected in ((3, ["0", "1", "2"]), (charts.MAX_TICKS, None), (20_000, None)):
            ax = charts.axes("x", "y")
            charts.label_ticks(ax, [str(number) for number in range(count)])
            texts = [label.get_text() for label in ax.get_xticklabels()]
            assert len(texts) <= charts.MAX_TICKS
            assert texts == (expected or texts)
            assert [int(text) for text in texts] == ax.get_xticks().tolist()


@pytest.mark.slow
def test_a_report_on_twenty_thousand_groups_ends(tmp_path: Path) -> None:
    groups = {f"topic {number:05d} <b>": {"n": 10, "purity": number / 20_000} for number in range(20_000)}
    (tmp_path / "clusters.json").write_text(json.dumps({"task": "clustering", "languages": groups}))
    output_of("report", tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert page.count("<figure>") <= 25
    assert page.count("topic ") >= 20_000
