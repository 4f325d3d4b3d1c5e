"""Inputs that are made to take memory, or are in another encoding."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import error_of

from miner.config.commands import TextSettings
from miner.text.formats import read_values

MEGABYTE = 1 << 20
COUNT_BYTES = (
    "import sys\n"
    "from miner.config.commands import TextSettings\n"
    "from miner.text.formats import read_values\n"
    "print(sum(len(value) for _, values in read_values(sys.argv[1], TextSettings(text_column='text'), 'x') for value in values))\n"
    "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))\n"
)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_small_file_of_large_cells_takes_little_memory(tmp_path: Path) -> None:
    rows, path = 1500, tmp_path / "bomb.parquet"
    cells = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * MEGABYTE]))
    options = {"compression": "zstd", "dictionary_pagesize_limit": 16 * MEGABYTE, "store_schema": False}
    pq.write_table(pa.table({"text": cells}), path, **options)
    assert path.stat().st_size < 1000
    done = subprocess.run([sys.executable, "-c", COUNT_BYTES, path], capture_output=True, text=True, check=True, timeout=100)
    num_bytes, max_kilobytes = map(int, done.stdout.split())
    assert num_bytes == rows * MEGABYTE
    assert max_kilobytes < 900_000, "all cells together take 1.5 GB"


def test_a_page_that_expands_without_bounds_is_an_error(tmp_path: Path) -> None:
    table = pa.table({"text": pa.array(["x" * MEGABYTE] * 300)})
    pq.write_table(table, tmp_path / "bomb.parquet", use_dictionary=False, compression="zstd")
    message = error_of("embed", tmp_path / "bomb.parquet", "--text-column", "text", "--lang", "en", "--output", tmp_path / "out")
    assert "bomb.parquet: column 'text' expands to 314,5" in message


@pytest.mark.parametrize("dtype", [pa.string(), pa.binary(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_batches_hold_all_rows_in_order(dtype: pa.DataType, tmp_path: Path) -> None:
    texts = [f"text {number % 977}" if number % 11 else None for number in range(10_000)]
    values = texts if dtype != pa.binary() else [text and text.encode() for text in texts]
    pq.write_table(pa.table({"n": range(10_000), "text": pa.array(values).cast(dtype)}), tmp_path / "t.parquet", row_group_size=3000)
    blocks = list(read_values(str(tmp_path / "t.parquet"), TextSettings(text_column="text"), "t"))
    assert [value for _, block in blocks for value in block] == [text or "" for text in texts]
    assert [first for first, _ in blocks] == [1 + sum(len(block) for _, block in blocks[:index]) for index in range(len(blocks))]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["hello world\nnothing else\n", "Грузия страна\n"])
def test_utf16_is_an_error(encoding: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(text.encode(encoding))
    message = error_of("embed", tmp_path / "text.txt", "--lang", "en", "--output", tmp_path / "out")
    assert "text.txt: UTF-16 text; convert it" in message
