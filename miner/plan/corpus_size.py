"""Count or estimate the lines of a corpus without reading all of it, and keep a sample of them.

Parquet files record their number of rows, and small text is counted. Larger text is sampled: evenly spread windows of a plain file, and the
start of a compressed one, or of one whose records are not lines (CSV, JSON, TMX). The rest is assumed to have as many lines per byte.
"""

import math
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from miner import progress
from miner.config.commands import TextSettings
from miner.errors import DataError
from miner.io import storage, table_files
from miner.text import formats, readers, streams
from miner.units import format_bytes

MAX_SAMPLED_SENTENCES = 50_000  # maximum number of sampled sentences of a corpus
SAMPLE = "sample"  # name of the work of reading it
RECORDS = (".csv", ".json", ".tmx")  # extensions of files whose records may span lines, or share one


@dataclass(frozen=True)
class SamplingSettings:
    """How much of a large corpus is read."""

    counted_bytes: int = 64 << 20  # text up to this size is counted completely
    max_files: int = 16  # maximum number of files that are sampled
    num_windows: int = 8  # number of windows of a plain file
    window_bytes: int = 1 << 20
    head_bytes: int = streams.HEAD_BYTES  # start of a compressed file, or of records
    head_step_bytes: int = streams.HEAD_STEP_BYTES  # bytes decompressed at a time
    kept_bytes: int = 1 << 17  # bytes kept of the lines of a window or head


DEFAULT_SAMPLING = SamplingSettings()


@dataclass(frozen=True)
class FileSample:
    """What was read of one file."""

    uri: str
    size: int  # bytes of the file
    bytes_read: int
    lines: int  # or records, in the bytes read
    kept_lines: bytes | None  # the first line of the file among them; None for Parquet and records, which are read from the file


@dataclass(frozen=True)
class LineCount:
    """The number of lines of a corpus, and how it was determined."""

    lines: float
    files: tuple[FileSample, ...]
    exact: bool
    reason: str


def count_lines(uris: Sequence[str], settings: TextSettings, sampling: SamplingSettings = DEFAULT_SAMPLING) -> LineCount:
    """Count or estimate the lines of these inputs. Raises DataError for one that cannot be read."""
    sizes = {uri: _file_size(uri) for uri in uris}
    tables = [_read_table_size(uri, size) for uri, size in sizes.items() if streams.split_extensions(uri)[0] == ".parquet"]
    texts: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)  # extension of records, compression -> sizes of the files
    for uri in sizes.keys() - {table.uri for table in tables}:
        extension, compression = streams.split_extensions(uri)
        texts[extension if extension in RECORDS else "", compression][uri] = sizes[uri]
    is_exact = sum(sum(files.values()) for files in texts.values()) <= sampling.counted_bytes
    samples, lines = list(tables), float(sum(table.lines for table in tables))
    for (records, compression), files in texts.items():
        sampled_uris = sorted(files) if is_exact else _spread(sorted(files), sampling.max_files)
        if records:
            text_samples = [_sample_records(uri, files[uri], settings, sampling, is_exact) for uri in sampled_uris]
        else:
            text_samples = [_sample_text(uri, files[uri], compression, sampling, is_exact) for uri in sampled_uris]
        bytes_read = sum(sample.bytes_read for sample in text_samples)
        lines += sum(sample.lines for sample in text_samples) * sum(files.values()) / max(1, bytes_read)
        samples += text_samples
    reason = "counted" if is_exact else _estimate_reason(samples, lines, sum(sizes.values()))
    return LineCount(lines, tuple(samples), is_exact, reason)


def _estimate_reason(samples: Sequence[FileSample], lines: float, size: int) -> str:
    bytes_read = sum(sample.bytes_read for sample in samples)
    return f"estimated by {format_bytes(bytes_read)} of {format_bytes(size)}, {size / max(1.0, lines):,.0f} bytes a line"


def _file_size(uri: str) -> int:
    fs, path = storage.filesystem(uri)
    with streams.convert_read_errors(uri, ""):
        size = fs.size(path)
    return 0 if size is None else int(size)  # a web server may not report a size; the file is read completely then


def _spread(uris: list[str], count: int) -> list[str]:
    """Return `count` evenly spread URIs, or all if there are fewer."""
    return uris if len(uris) <= count else [uris[number * len(uris) // count] for number in range(count)]


def _read_table_size(uri: str, size: int) -> FileSample:
    with table_files.open_parquet(uri) as file:
        return FileSample(uri, size, size, file.metadata.num_rows, None)


def _sample_records(uri: str, size: int, settings: TextSettings, sampling: SamplingSettings, is_exact: bool) -> FileSample:
    """Read records from the start of a file until `head_bytes` of it are read; all of them if `is_exact`."""
    num_records, bytes_read, parsed = 0, 0, (0, 0)  # bytes and records when the next bytes were read, since the reader reads ahead
    with progress.count_work(SAMPLE, uri):
        for _, values in formats.read_values(uri, settings, uri):
            work = progress.running_work(SAMPLE)[uri]
            if work > bytes_read:
                parsed, bytes_read = (bytes_read, num_records), work
            if parsed[0] >= sampling.head_bytes and not is_exact:
                return FileSample(uri, size, *parsed, None)
            num_records += len(values)
    return FileSample(uri, size, size, num_records, None)


def _sample_text(uri: str, size: int, compression: str, sampling: SamplingSettings, is_exact: bool) -> FileSample:
    """Read the windows or the head of a file; all of it if `is_exact`, or if it is not larger than these."""
    sampled_bytes = sampling.head_bytes if compression else sampling.num_windows * sampling.window_bytes
    if is_exact or size <= sampled_bytes:
        parts = _read_whole(uri, size, compression)
    else:
        parts = _read_head(uri, compression, sampling) if compression else _read_windows(uri, size, sampling)
    bytes_read, lines, kept_lines = 0, 0, []
    for part_bytes, text in parts:
        bytes_read += part_bytes
        lines += text.count(b"\n") + (text[-1:] not in (b"\n", b""))
        kept_lines.append(text[: text.rfind(b"\n", 0, sampling.kept_bytes) + 1])
    return FileSample(uri, size, bytes_read, lines, b"".join(kept_lines))


def _read_whole(uri: str, size: int, compression: str) -> Iterator[tuple[int, bytes]]:
    """Yield bytes of the file, and the lines in them."""
    yield size, b""
    with streams.open_bytes(uri, compression) as handle:
        for block in streams.read_line_blocks(handle, streams.MAX_LINE_BYTES):
            yield 0, b"\n" if block is None else block


def _read_windows(uri: str, size: int, sampling: SamplingSettings) -> Iterator[tuple[int, bytes]]:
    """Yield the same for evenly spread windows of a plain file: complete lines, and the first line of the file."""
    fs, path = storage.filesystem(uri)
    with streams.convert_read_errors(uri, ""), fs.open(path, "rb") as handle:
        for number in range(sampling.num_windows):
            handle.seek(number * (size - sampling.window_bytes) // (sampling.num_windows - 1))
            text = handle.read(sampling.window_bytes)
            text = text[(text.find(b"\n") + 1 if number else 0) : text.rfind(b"\n") + 1]
            yield len(text), text


def _read_head(uri: str, compression: str, sampling: SamplingSettings) -> Iterator[tuple[int, bytes]]:
    """Yield the same for the start of a compressed file."""
    bytes_read, text = streams.read_head(uri, compression, sampling.head_bytes, sampling.head_step_bytes)
    if not text:
        raise DataError(f"{uri}: truncated or not {compression}; copy or download it again")
    yield bytes_read, text[: text.rfind(b"\n") + 1]


def sample_sentences(count: LineCount, settings: TextSettings, split_lang: str | None = None) -> tuple[int, list[str]]:
    """Return the number of sampled lines, and the cleaned sentences among them, split as of `readers.read_sentences`. Raises its errors."""
    sentences_per_file = math.ceil(MAX_SAMPLED_SENTENCES / max(1, len(count.files)))
    lines, texts = 0, []
    with tempfile.TemporaryDirectory(prefix="miner-") as folder:
        for number, file in enumerate(count.files):
            path = file.uri
            if file.kept_lines is not None:
                path = storage.join(folder, f"{number}{streams.split_extensions(file.uri)[0]}")
                Path(path).write_bytes(file.kept_lines)
            missing = sentences_per_file
            for block in readers.read_sentences(path, settings, file.uri, split_lang=split_lang):
                lines += block.counts["lines"]
                texts += block.texts
                missing -= len(block.texts)
                if missing <= 0:
                    break
    return lines, texts
