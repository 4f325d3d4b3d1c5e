"""Read the lines, or one column, of a file whose line numbers matter."""

from miner.config.commands import TextSettings
from miner.errors import DataError
from miner.text.formats import read_values
from miner.text.normalise import clean_all
from miner.text.records import Fault


def read_lines(uri: str, text_column: str | None = None) -> list[str]:
    """Return every line of a text file, cleaned. Empty lines are kept, so line numbers are preserved.

    Raise DataError for a missing or broken file, and for the first unreadable line: dropping it would shift the others.
    """
    lines: list[str] = []
    for first_line, values in read_values(uri, TextSettings(text_column=text_column), uri):
        for offset, value in enumerate(values):
            if isinstance(value, Fault):
                raise DataError(f"{uri}:{first_line + offset}: {value.reason}")
        lines += clean_all([value for value in values if isinstance(value, str)])
    return lines
