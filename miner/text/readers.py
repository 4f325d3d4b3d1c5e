"""Read sentences: resolve inputs, and yield the cleaned sentences of each in blocks of lines."""

import glob
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import xxhash

from miner.arrays import Ints
from miner.config.commands import TextSettings
from miner.errors import DataError
from miner.io import storage
from miner.text import repair, splitting
from miner.text.formats import read_values
from miner.text.normalise import clean_all
from miner.text.records import Fault, Value
from miner.text.streams import BLOCK_BYTES, convert_read_errors
from miner.units import list_counts

STDIN = "-"
REPAIRED = "repaired_"  # start of the counts of lines that a rule of `repair` changed
LINE_COUNTS = ("lines", "kept", "empty", "invalid", "too_long")


def list_repairs(counts: Mapping[str, int]) -> str:
    """Return how many lines each rule of `repair` changed, among the counts of lines, as text."""
    repairs = list_counts({name.removeprefix(REPAIRED): count for name, count in counts.items() if name.startswith(REPAIRED)})
    return f"; lines repaired: {repairs}" if repairs else ""


@dataclass(frozen=True)
class SentenceBlock:
    """The sentences of consecutive lines."""

    texts: list[str]  # n cleaned sentences, none of them empty
    lines: Ints  # (n,) their line numbers, from 1, ascending
    end: int  # number of the last line of the block, dropped or not
    # Lines by outcome: `lines` is the sum of the other LINE_COUNTS. Lines that are split count once per sentence; `split` is how many more
    # sentences than lines that makes.
    counts: Counter[str]


def read_sentences(
    uri: str, settings: TextSettings, name: str | None = None, block_bytes: int = BLOCK_BYTES, split_lang: str | None = None
) -> Iterator[SentenceBlock]:
    """Yield the cleaned sentences of one input in order, in bounded memory. Errors call the input `name`, by default `uri`.

    With `split_lang`, the language of the text, lines are split into sentences. Raises DataError for a missing or corrupt input and, if
    `settings.strict`, for the first line that is invalid or too long.
    """
    name = name or uri
    split = None if split_lang is None else splitting.load_splitter(split_lang)
    for first, values in read_values(uri, settings, name, block_bytes):
        yield clean_block(name, first, values, settings, split)


def clean_block(
    name: str, first: int, values: list[Value], settings: TextSettings, split: splitting.Splitter | None = None
) -> SentenceBlock:
    """Clean the values of consecutive lines from number `first`, and split them. DataError as of `read_sentences`."""
    texts = [value for value in values if isinstance(value, str)]
    lines = np.arange(first, first + len(values), dtype=np.int64)
    faults = {index: value for index, value in enumerate(values) if isinstance(value, Fault)} if len(texts) < len(values) else {}
    if faults:
        lines = np.delete(lines, list(faults))
    counts = Counter(lines=len(values))
    if settings.clean:
        texts, repairs = repair.repair(texts)
        counts.update({f"{REPAIRED}{rule}": count for rule, count in repairs.items()})
    if split is None:
        texts = clean_all(texts)
    else:
        texts, num_sentences = splitting.split_texts(texts, split)
        counts["split"] = len(texts) - len(lines)
        lines = np.repeat(lines, num_sentences)
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    too_long = lengths > settings.max_chars
    if settings.strict and (faults or too_long.any()):
        errors = [(first + index, fault.reason) for index, fault in faults.items()]
        errors += [(int(line), f"longer than {settings.max_chars} characters; cut the line") for line in lines[too_long]]
        line, reason = min(errors)
        raise DataError(f"{name}:{line}: {reason}, or leave out --strict to drop such lines")
    kept = (lengths > 0) & ~too_long
    counts.update(kept=int(kept.sum()), empty=int((lengths == 0).sum()), too_long=int(too_long.sum()))
    counts.update(fault.kind for fault in faults.values())
    if not kept.all():
        texts, lines = list(compress(texts, kept)), lines[kept]
    return SentenceBlock(texts, lines, first + len(values) - 1, counts)


def expand(inputs: Sequence[str]) -> list[str]:
    """Expand files, globs, fsspec URIs and `-` to the inputs they name, sorted, without repeats, spelled as given.

    Raises DataError for a directory, for anything but a regular file, and for a name or pattern without a match.
    """
    if not inputs:
        raise DataError("no input; name text files, or `-` for standard input")
    spellings: dict[str, str] = {}  # path -> the least spelling of it
    for name in inputs:
        for uri in [STDIN] if name == STDIN else _match_files(str(name)):
            if not uri.isprintable():  # includes names that are not UTF-8, which a manifest cannot record
                raise DataError(f"{uri!r}: a file name that cannot be printed; rename the file")
            path = uri if uri == STDIN else storage.filesystem(uri)[1]
            spellings[path] = min(uri, spellings.get(path, uri))
    return sorted(spellings.values())


def _match_files(name: str) -> list[str]:
    fs, path = storage.filesystem(name)
    with convert_read_errors(name, ""):
        if fs.isfile(path):
            return [name]
        if fs.isdir(path):
            raise DataError(f"{name}: a directory, not a text; name its files, as in `{name.rstrip('/')}/*.txt`")
        if fs.exists(path):
            raise DataError(f"{name}: not a regular file; send it to standard input and give `-`")
        if not glob.has_magic(name):
            raise DataError(f"{name}: no such file; check the name")
        matches = [uri for uri in _glob(name) if storage.filesystem(uri)[0].isfile(storage.filesystem(uri)[1])]
    if not matches:
        raise DataError(f"{name}: no file matches this pattern; check it, and quote it so that the shell does not expand it")
    return matches


def _glob(pattern: str) -> list[str]:
    if "://" not in pattern and "::" not in pattern:
        return glob.glob(pattern, recursive=True)  # noqa: PTH207  # fsspec returns absolute paths, Path drops a leading `./`
    fs, path = storage.filesystem(pattern)
    return [pattern.replace(path, str(match), 1) if path in pattern else str(fs.unstrip_protocol(match)) for match in fs.glob(path)]


@dataclass(frozen=True)
class InputState:
    """An input at one moment."""

    signature: str  # changes when the input does
    num_bytes: int | None  # None where it is not known


def input_state(uri: str) -> InputState:
    """Return the state of an input: by size and mtime of a local file, elsewhere by the file system's own checksum."""
    fs, path = storage.filesystem(uri)
    with convert_read_errors(uri, ""):
        info = fs.info(path)
        signature = f"{info['size']}-{info['mtime']}" if "mtime" in info else storage.remote_checksum(fs, path, info)
    return InputState(signature, None if info.get("size") is None else int(info["size"]))


def input_signature(uri: str) -> str:
    """Return a string that changes when an input does."""
    return input_state(uri).signature


def spool_stdin(path: str) -> str:
    """Copy standard input to the file `path`, atomically, and return the xxh3-128 of its bytes.

    Workers can be other processes, which cannot read the standard input of this one.
    """
    digest = xxhash.xxh3_128()
    with storage.atomic(path) as handle:
        if sys.stdin is None:  # closed
            raise DataError("standard input is closed; give a file, or write to standard input")
        while block := sys.stdin.buffer.read(BLOCK_BYTES):
            digest.update(block)
            handle.write(block)
    return digest.hexdigest()


Lines = list[str | None]  # cleaned texts of consecutive lines, None for a dropped line


def read_pairs(source: str, target: str, settings: tuple[TextSettings, TextSettings]) -> Iterator[tuple[Lines, Lines]]:
    """Yield equally many lines of both sides at a time, in bounded memory.

    Raises what `readers.read_sentences` raises, and DataError if one side has fewer lines than the other.
    """
    sides = [_read_lines(uri, side_settings) for uri, side_settings in zip((source, target), settings, strict=True)]
    pending: list[Lines] = [[], []]
    num_read = 0
    while True:
        for side, lines in enumerate(sides):
            if not pending[side]:
                pending[side] = next(lines, [])
        count = min(map(len, pending))
        if not count:
            break
        yield pending[0][:count], pending[1][:count]
        pending = [lines[count:] for lines in pending]
        num_read += count
    if any(pending):
        longer, shorter = (source, target) if pending[0] else (target, source)
        raise DataError(
            f"{shorter}: ends after {num_read} lines, and {longer} continues; line i of one must be the translation of line i of the other"
        )


def _read_lines(uri: str, settings: TextSettings) -> Iterator[Lines]:
    for block in read_sentences(uri, settings):
        count = block.counts["lines"]
        lines: Lines = [None] * count
        for row, text in zip((block.lines - (block.end - count + 1)).tolist(), block.texts, strict=True):
            lines[row] = text
        if lines:
            yield lines
