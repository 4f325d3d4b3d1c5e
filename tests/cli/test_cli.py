"""The command line: output, error messages and exit statuses."""

import contextlib
import gzip
import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import click
import pytest
from command import error_of, miner, output_of

from miner import __version__
from miner.cli.main import COMMANDS, main
from miner.config.commands import EmbedConfig
from miner.io.corpus import open_corpus

ROOT = Path(__file__).parents[2]
MINER = [sys.executable, "-c", "from miner.cli.main import main; main()"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("one two\nthree\none two\n")
    return path


def test_embed_prints_a_summary_and_writes_it_as_json(text: Path, tmp_path: Path, toy_encoder: Path) -> None:
    out, figures = tmp_path / "out", tmp_path / "figures.json"
    result = miner("embed", text, "--lang", "en", "--encoder", toy_encoder, "--output", out, "--json", figures)
    assert (result.exit_code, result.stderr) == (0, "")
    first, second, _ = result.stdout.splitlines()
    assert first == "3 lines: 3 kept, 1 duplicate"
    assert second == f"2 unique sentences (eng_Latn) x 32 dimensions in {out}"
    values = json.loads(figures.read_text())
    assert values["counts"] == {"lines": 3, "kept": 3, "empty": 0, "invalid": 0, "too_long": 0, "few_letters": 0, "duplicate": 1}
    assert (values["unique"], values["lang"], values["dim"]) == (2, "eng_Latn", 32)
    assert set(values["seconds"]) == {"encoder", "sentences", "embeddings"}


def test_embed_reads_standard_input(tmp_path: Path, toy_encoder: Path) -> None:
    out = tmp_path / "out"
    arguments = ["embed", "-", "--encoder", toy_encoder, "--output", out]
    assert miner(*arguments, stdin=b"one two\nthree\n").exit_code == 0
    opened = open_corpus(str(out))
    tables = list(opened.sentences(opened.shards[0].name, ["text", "source", "line"]))
    assert sorted(tables[0].to_pylist(), key=lambda row: row["line"]) == [
        {"text": "one two", "source": "-", "line": 1},
        {"text": "three", "source": "-", "line": 2},
    ]
    modified = (out / "embeddings" / opened.shards[0].name).stat().st_mtime_ns
    assert miner(*arguments, stdin=b"one two\nthree\n").exit_code == 0
    assert (out / "embeddings" / opened.shards[0].name).stat().st_mtime_ns == modified
    assert sorted(path.name for path in out.iterdir()) == ["embeddings", "sentences"]


def bad_inputs(folder: Path) -> dict[str, Path]:
    """Files without a readable sentence, by name."""
    contents = {
        "empty.txt": b"",
        "blank.txt": b"\n \n\t\n",
        "binary.txt": b"one\n\xff\xfe\x00\ntwo\n",
        "long.txt": b"one\n" + b"two " * 20 + b"\n",
        "table.tsv": b"text\tlang\none\ten\n",
        "table.jsonl": b'{"text": "one"}\nnot json\n',
        "cut.txt.gz": gzip.compress(b"one two three\n" * 99)[:-9],
        "not.txt.gz": b"one\ntwo\n",
        "not.txt.zst": b"one\ntwo\n",
        "not.txt.xz": b"one\ntwo\n",
        "not.txt.bz2": b"one\ntwo\n",
        "not.parquet": b"PAR1",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    return {name: folder / name for name in [*contents, "folder", "missing.txt", "*.nothing"]}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("missing.txt", [], "missing.txt: no such file"),
        ("*.nothing", [], "no file matches"),
        ("folder", [], "folder: a directory, not a text; name its files"),
        ("empty.txt", [], "empty.txt: no sentence in 0 lines"),
        ("blank.txt", [], "no sentence in 3 lines (3 empty)"),
        ("binary.txt", ["--strict"], "binary.txt:2: not UTF-8"),
        ("long.txt", ["--strict", "--max-chars", "20"], "long.txt:2: longer than 20 characters"),
        ("table.tsv", [], "--text-column"),
        ("table.tsv", ["--text-column", "words"], "table.tsv:1: no column 'words' in the header (text, lang)"),
        ("table.jsonl", ["--text-column", "text", "--strict"], "table.jsonl:2: not JSON"),
        ("cut.txt.gz", [], "cut.txt.gz: truncated or not .gz"),
        ("not.txt.gz", [], "not.txt.gz: truncated or not .gz"),
        ("not.txt.zst", [], "not.txt.zst: truncated or not .zst"),
        ("not.txt.xz", [], "not.txt.xz: truncated or not .xz"),
        ("not.txt.bz2", [], "not.txt.bz2: truncated or not .bz2"),
        ("not.parquet", ["--text-column", "text"], "not.parquet: truncated or not Parquet"),
    ],
)
def test_invalid_text_is_one_line_and_leaves_no_output(
    tmp_path: Path, toy_encoder: Path, name: str, options: list[str], message: str
) -> None:
    path = bad_inputs(tmp_path)[name]
    out = tmp_path / "out"
    assert message in error_of("embed", path, "--encoder", toy_encoder, "--output", out, *options)
    assert not out.exists()
    out.mkdir()
    assert message in error_of("embed", path, "--encoder", toy_encoder, "--output", out, *options)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lang", "klingonese"], "unknown language code 'klingonese'"),
        (["--encoder", "./nowhere"], "nowhere"),
        (["--pooling", "cls"], "static encoder, whose pooling is always mean"),
        (["--max-chars", "0"], "--max-chars: expected at least 1, not '0'"),
        (["--shards", "-1"], "--shards: expected at least 1, not '-1'"),
        (["--", "--runner=NoSuchRunner"], "--runner=NoSuchRunner: "),
        (["--", "--direct_num_workers=many"], "invalid int value: 'many'"),
    ],
)
def test_invalid_options_are_one_line_and_leave_no_output(
    text: Path, tmp_path: Path, toy_encoder: Path, options: list[str], message: str
) -> None:
    assert message in error_of("embed", text, "--encoder", toy_encoder, "--output", tmp_path / "out", *options)
    assert not (tmp_path / "out").exists()


def test_an_impossible_output_is_one_line(text: Path, toy_encoder: Path) -> None:
    for out in (text, text / "below"):
        assert "Not a directory; choose another path" in error_of("embed", text, "--encoder", toy_encoder, "--output", out)
    assert text.read_text() == "one two\nthree\none two\n"


def test_output_of_other_settings_is_refused_in_one_line(text: Path, tmp_path: Path, toy_encoder: Path) -> None:
    arguments = ["embed", text, "--encoder", toy_encoder, "--output", tmp_path / "out", "--lang"]
    assert miner(*arguments, "en").exit_code == 0
    assert "made with lang 'eng_Latn', now 'deu_Latn'; choose another --output" in error_of(*arguments, "de")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mounts a small file system")
def test_a_full_disk_is_one_line_and_leaves_no_partial_file(tmp_path: Path, toy_encoder: Path) -> None:
    text, disk = tmp_path / "text.txt", tmp_path / "disk"
    text.write_text("".join(f"one two {n}\n" for n in range(20_000)))
    disk.mkdir()
    script = 'mount -t tmpfs -o size=1m tmpfs "$1" || exit 77; shift; "$@"; status=$?; ls -AR "$0"; exit $status'
    command = ["unshare", "-rm", "sh", "-c", script, disk, disk, *MINER, "embed", text, "--encoder", toy_encoder, "--output", disk / "out"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("mounting is not allowed")
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("miner: error: ")
    assert "No space left on device; free some space or choose another path, then run `miner embed " in done.stderr
    assert done.stderr.count("\n") == 1
    assert ".tmp" not in done.stdout


def test_debug_prints_the_traceback_before_or_after_the_command(tmp_path: Path) -> None:
    arguments = ["embed", tmp_path / "missing", "--output", tmp_path / "out"]
    for words in (["--debug", *arguments], [*arguments, "--debug"]):
        result = miner(*words)
        assert result.exit_code == 1
        assert result.stderr.startswith("Traceback")
        assert result.stderr.splitlines()[-1].startswith("miner: error: ")


def test_options_after_two_dashes_are_passed_to_beam(text: Path, tmp_path: Path, toy_encoder: Path) -> None:
    options = ["--runner=DirectRunner", "--direct_running_mode=in_memory"]
    assert miner("embed", text, "--encoder", toy_encoder, "--output", tmp_path / "out", "--", *options).exit_code == 0
    assert open_corpus(str(tmp_path / "out")).rows == 2


@pytest.mark.slow
def test_worker_processes_write_the_same_output_and_print_nothing(tmp_path: Path, toy_encoder: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text("".join(f"one two {n}\n" for n in range(100)))
    arguments = ["embed", text, "--encoder", toy_encoder, "--shards", "4", "--output", out]
    assert miner(*arguments).exit_code == 0
    expected = open_corpus(str(out))
    shutil.rmtree(out / "embeddings")
    processes = ["--", "--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    done = subprocess.run([*MINER, *arguments, *processes], cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    # Only progress may be printed, if it takes long enough.
    assert all(re.fullmatch(r"miner: [a-z]+: \d+ of \d+ (shards|sentences)", line) for line in done.stderr.splitlines()), done.stderr
    assert done.stdout.startswith("100 lines: 100 kept\n")
    assert open_corpus(str(out)) == expected


def test_a_progress_bar_is_drawn_in_a_terminal(text: Path, tmp_path: Path, toy_encoder: Path) -> None:
    terminal, process_end = pty.openpty()
    termios.tcsetwinsize(process_end, (24, 80))
    command = [*MINER, "embed", text, "--encoder", toy_encoder, "--output", tmp_path / "out"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=process_end, text=True) as process:
        os.close(process_end)
        screen = b""
        with contextlib.suppress(OSError):  # at the end of the output
            while part := os.read(terminal, 4096):
                screen += part
        os.close(terminal)
        assert process.stdout is not None
        printed = process.stdout.read()
    assert process.returncode == 0
    for bar in ("sentences: +0%.* 0/1 .*shard/s", "embeddings: +0%.* 0/2 sentences .*, out"):
        assert re.search(bar, screen.decode())
    assert printed.startswith("3 lines: 3 kept")


def test_ctrl_c_stops_with_one_line(tmp_path: Path, toy_encoder: Path) -> None:
    command = [*MINER, "embed", "-", "--encoder", toy_encoder, "--output", tmp_path / "out"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    started = time.monotonic()
    while not (tmp_path / "out").exists() and time.monotonic() - started < 120:
        time.sleep(0.05)  # then it waits for standard input
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert (process.returncode, out) == (130, "")
    assert err == f"miner: stopped; run `miner {shlex.join(map(str, command[len(MINER) :]))}` again to resume\n"
    assert not [path for path in (tmp_path / "out").rglob("*") if path.suffix == ".tmp"]


def test_a_closed_pipe_prints_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*MINER, "--help"], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=180)
    os.close(writer)
    assert done.stderr == b""


@pytest.mark.parametrize("arguments", [["embed"], ["embed", "text.txt"], ["no-such-command"], ["embed", "--no-such-option"]])
def test_usage_errors_exit_with_status_2(arguments: list[str]) -> None:
    result = miner(*arguments)
    assert result.exit_code == 2
    assert "Usage: miner" in result.stderr


def test_version() -> None:
    assert miner("--version").stdout == f"miner, version {__version__}\n"


def test_help_names_every_command() -> None:
    for arguments in ([], ["--help"], ["-h"]):
        text = miner(*arguments).output
        assert [line.split()[0] for line in text.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()] == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_and_debug(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    commands = [[name, other] for other in command.commands] if isinstance(command, click.Group) else [[name]]
    for words in commands:
        stdout = output_of(*words, "--help")
        assert re.search(rf"^ +miner {' '.join(words)}( |$)", stdout, re.MULTILINE)
        assert "--debug" in stdout


def test_help_shows_the_defaults_of_the_settings() -> None:
    text = " ".join(miner("embed", "--help").stdout.split())
    assert f"Drop lines with more characters, after cleaning. [default: {EmbedConfig.model_fields['max_chars'].default}; x>=1]" in text
    assert f"[default: {EmbedConfig.model_fields['encoder'].default}]" in text
