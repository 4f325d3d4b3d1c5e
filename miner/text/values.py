"""Values of a text column, and how a column is named."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from miner.errors import ConfigError, DataError


@dataclass(frozen=True)
class Fault:
    """Why a line is dropped: the count that it adds to, and the reason in words."""

    kind: Literal["invalid", "too_long"]
    reason: str


Value = str | Fault
NumberedValues = tuple[int, list[Value]]  # number of the first line, values

NOT_UTF8 = Fault("invalid", "not UTF-8; convert the file")


def require_column(name: str, column: str | None) -> str:
    """Return the column. Raises ConfigError if the settings name none."""
    if column is None:
        raise ConfigError(f"{name}: is a table; name the column with the text by --text-column")
    return column


def column_number(column: str) -> int | None:
    """Return the index, from 0, of a column that is given by its number; None for a name."""
    if not column.isdecimal():
        return None
    if int(column) == 0:
        raise ConfigError("--text-column 0: columns count from 1")
    return int(column) - 1


def find_in_header(cells: Sequence[str], column: str, name: str) -> int:
    """Return the index of a column in the header. Raises DataError if it is not there."""
    columns = [cell.strip() for cell in cells]
    if column not in columns:
        header = ", ".join(columns[:20])
        raise DataError(
            f"{name}:1: no column {column!r} in the header ({header}); name one of them, give its number from 1, or embed plain text only"
        )
    return columns.index(column)
