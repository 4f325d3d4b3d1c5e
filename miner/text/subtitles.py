"""Subtitles (.srt, .vtt) -> the cues with their texts and times, read by pysubs2."""

from collections.abc import Iterator, Sequence
from typing import BinaryIO

from miner.errors import DataError, first_line, require
from miner.text.records import Fault, Rows, Value, checked

FORMATS = {".srt": "srt", ".vtt": "vtt"}
COLUMNS = ("text", "start", "end")  # the times in seconds
MAX_BYTES = 64 << 20  # of a file: ten times the subtitles of a long film, many times over


def read_cues(handle: BinaryIO, extension: str, columns: Sequence[str | None], name: str) -> Iterator[Rows]:
    """Yield columns of a file of subtitles, of COLUMNS or None for the text, a row for each cue in order.

    Raises DataError for a file that is too large, or that has no cue, and for another column.
    """
    unknown = [column for column in columns if column not in (None, *COLUMNS)]
    if unknown:
        raise DataError(f"{name}: no column {unknown[0]!r}; subtitles have {', '.join(COLUMNS)}")
    data = handle.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise DataError(f"{name}: more than {MAX_BYTES >> 20} MB, so not one film; cut the file")
    try:
        cues = require("pysubs2").SSAFile.from_string(data.decode("utf-8-sig", "surrogateescape"), FORMATS[extension]).events
    except Exception as error:  # pysubs2 raises many kinds
        raise DataError(f"{name}: not subtitles ({first_line(error)}); check the file") from error
    if not cues:
        raise DataError(f"{name}: no cue, so not subtitles; check the file, or rename it to .txt")
    values: dict[str, list[Value]] = {
        "text": [_text(cue.plaintext) for cue in cues],
        "start": [f"{cue.start / 1000:.3f}" for cue in cues],
        "end": [f"{cue.end / 1000:.3f}" for cue in cues],
    }
    yield Rows(1, [values[column or "text"] for column in columns])


def _text(text: str) -> Value:
    value: str | Fault = checked(text)
    return " ".join(value.split()) if isinstance(value, str) else value
