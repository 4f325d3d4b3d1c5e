"""Long texts are cleaned in several processes, with the sentences, counts and errors of one."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from miner.config.commands import TextSettings
from miner.errors import DataError, MinerError
from miner.text.clean_blocks import Block, BlockCleaner, clean_blocks
from miner.text.formats import read_values

LINES = [f"  line {number}  with\ttabs" if number % 7 else "" for number in range(2000)]


def blocks_of(path: Path, lines: list[str], settings: TextSettings) -> Iterator[Block]:
    path.write_text("".join(f"{line}\n" for line in lines))
    return read_values(str(path), settings, "text", block_bytes=1000)


def test_blocks_are_the_same_in_order_whatever_the_number_of_processes(tmp_path: Path) -> None:
    settings = TextSettings()
    one, two = (
        list(clean_blocks(blocks_of(tmp_path / "text", LINES, settings), BlockCleaner("text", settings), number, first_blocks=3))
        for number in (1, 2)
    )
    assert len(one) > 20
    assert one == two
    assert sum(block.sentences.num_rows for block in two) == sum(map(bool, LINES))
    assert two[-1].sentences["text"][-1].as_py() == "line 1999 with tabs"


def cleaning_processes() -> list[psutil.Process]:
    """The processes that clean text for this one, which may have others."""
    return [process for process in psutil.Process().children() if "miner.text.clean_blocks" in process.cmdline()]


def test_the_first_error_of_a_process_ends_the_text(tmp_path: Path) -> None:
    settings = TextSettings(strict=True, max_chars=30)
    lines = [*LINES[:1500], "x" * 31, *LINES[1500:], "y" * 31]
    cleaned = clean_blocks(blocks_of(tmp_path / "text", lines, settings), BlockCleaner("text", settings), 2, first_blocks=1)
    with pytest.raises(DataError, match=r"^text:1501: longer than 30 characters"):
        list(cleaned)
    assert not cleaning_processes()


def test_a_process_that_dies_is_an_error(tmp_path: Path) -> None:
    settings = TextSettings()
    cleaned = clean_blocks(blocks_of(tmp_path / "text", LINES, settings), BlockCleaner("text", settings), 2, first_blocks=1)
    for _ in range(2):
        next(cleaned)
    for process in cleaning_processes():
        process.kill()
    with pytest.raises(MinerError, match=r"^text: a process that cleans text ended \(-9: killed, perhaps out of memory\)"):
        list(cleaned)
