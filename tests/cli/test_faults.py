"""What a process meets besides its input: closed and full streams, signals, odd names, hostile names, and bugs."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from command import error_of, output_of
from s3fs import S3FileSystem

from miner.cli import console
from miner.cli.main import main

TEXT = "one two three\nfour five six\nseven eight nine\n"


def run(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "miner.cli.main", *map(os.fspath, map(_word, arguments))]
    return subprocess.run(command, capture_output="stdout" not in options, text=True, timeout=120, check=False, **options)  # type: ignore[call-overload, no-any-return]


def _word(argument: object) -> str | bytes:
    return argument if isinstance(argument, bytes) else str(argument)


def test_a_bug_is_one_line_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.runs import verify

    def fail(_: str) -> None:
        raise KeyError("where\nit is")

    monkeypatch.setattr(verify, "run", fail)
    result = CliRunner().invoke(main, ["verify", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"miner: error: {console.INTERNAL_ERROR}: KeyError: 'where\\nit is'; run with --debug for the traceback, and report it\n"
    )
    assert "Traceback" in CliRunner().invoke(main, ["--debug", "verify", str(tmp_path)]).stderr


@pytest.mark.parametrize("command", [("--help",), ("verify",), ("verify", "--json", "-"), ("embed", "--help")])
def test_a_full_standard_output_is_one_line(command: tuple[str, ...], tmp_path: Path, toy_encoder: Path) -> None:
    if command[0] == "verify":
        (tmp_path / "text.txt").write_text(TEXT)
        output_of("embed", tmp_path / "text.txt", "--lang", "en", "--encoder", toy_encoder, "--output", tmp_path / "out")
        command = (*command, str(tmp_path / "out"))
    with Path("/dev/full").open("w") as full:
        done = run(*command, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("miner: error: ")
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("options", [[], ["--json", "-"]])
def test_a_closed_pipe_says_nothing(options: list[str]) -> None:
    command = [sys.executable, "-m", "miner.cli.main", "reproduce", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=100) == 1


def test_closed_standard_input(tmp_path: Path) -> None:
    command = f"exec {sys.executable} -m miner.cli.main embed - --lang en --output {tmp_path / 'out'} <&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "miner: error: standard input is closed; give a file, or write to standard input\n"
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    done = run("verify", os.fsencode(tmp_path) + b"/\xff")
    assert done.returncode == 1
    assert "not UTF-8; rename it" in done.stderr
    assert done.stderr.count("\n") == 1


def test_docstrings_are_needed(tmp_path: Path) -> None:
    done = run("verify", tmp_path, env={**os.environ, "PYTHONOPTIMIZE": "2"})
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "unset it" in done.stderr


@pytest.mark.parametrize("text", ["\x1b]0;title\x07", "\x1b[31mred", "\u202eevil", "\x9b31m"])
def test_escape_sequences_are_not_printed(text: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["verify", str(tmp_path / text)])
    assert result.exit_code == 1
    assert text.isprintable() or not set(text) & set(result.output) - set(map(chr, range(0x20, 0x7F)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://user:pass@host/a.txt: gone", "https://host/a.txt: gone"),
        ("s3://bucket/a.txt?X-Amz-Signature=abc&x=1: gone", "s3://bucket/a.txt: gone"),
        ("https://host/a?token=abc' is", "https://host/a' is"),
        ("https://user:p@ss@host/a.php?id=1, then", "https://host/a.php, then"),
        ('{"url": "https://host/a?x=1\\""}', '{"url": "https://host/a\\""}'),
        ("s3://bucket/part-?.txt", "s3://bucket/part-?.txt"),
        ("why? because", "why? because"),
    ],
)
def test_credentials_are_not_printed(text: str, expected: str) -> None:
    assert console.printable(text) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("mode", ["in_memory", "multi_processing"])
def test_a_stopped_run_says_so_leaves_no_workers_and_resumes(
    number: int, status: int, mode: str, tmp_path: Path, toy_encoder: Path
) -> None:
    (tmp_path / "text.txt").write_text("".join(f"one two {number}\n" for number in range(200_000)))
    command = ["embed", tmp_path / "text.txt", "--lang", "en", "--encoder", toy_encoder, "--shards", 40, "--output", tmp_path / "out"]
    arguments = [sys.executable, "-m", "miner.cli.main", *map(str, command), "--", f"--direct_running_mode={mode}"]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    while not list((tmp_path / "out").glob("embeddings/_shards/*.json")):
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(number)
    start = time.monotonic()
    _, stderr = process.communicate(timeout=60)
    assert time.monotonic() - start < 20
    assert process.returncode == status, stderr
    assert stderr.splitlines()[-1] == f"miner: stopped; run `miner {shlex.join(arguments[3:])}` again to resume"
    assert "Traceback" not in stderr
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    output_of(*command)


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("http://127.0.0.1:1/text.txt", r"Connect call failed \('127.0.0.1', 1\)"),
        ("http://[bad", "Invalid IPv6 URL; check the address"),
        ("s3://", "names no file or folder; check the address"),
        ("zip://a::TEXT", "File is not a zip file; check the address"),
        ("s3://no-bucket/text.txt", "Unable to locate credentials"),
    ],
)
def test_an_address_that_cannot_be_reached_is_an_error_that_names_it(
    uri: str, reason: str, tmp_path: Path, toy_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    text = tmp_path / "text.txt"
    text.write_text("one two\n")
    uri = uri.replace("TEXT", str(text))
    S3FileSystem.clear_instance_cache()
    for arguments in ((uri, "--output", tmp_path / "out"), (text, "--output", uri)):
        message = error_of("embed", *arguments, "--lang", "en", "--encoder", toy_encoder)
        assert re.search(rf"{re.escape(uri)}: .*{reason}", message), message
        assert "check the address" in message or "choose another path" in message
