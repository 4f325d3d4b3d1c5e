"""Whether the numbers of a pair agree. Near misses often differ in them alone: the same template with another year or price.

Numbers are those written in digits, of any script. Notation is forgiven: separators of thousands and of decimals, zeros at either
end (`2万`, `20 thousand` and `20,000`; `.5` and `0.50`), and two digits for a year (`the 90s`, `1990`).
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from miner.filters import Floats

# Digits, and what may stand between those of one number; a space only before groups of three.
NUMBER = re.compile(r"(?<!\d)\d{1,3}(?: \d{3})+(?!\d)|\d+(?:[.,:'’٫٬h]\d+)*")
SEPARATOR = re.compile(r"\D")
YEAR = 4  # digits

Numbers = Counter[str]


def disagreement(sources: Sequence[str], targets: Sequence[str]) -> Floats:
    """n pairs -> (n,) numbers of the side with fewer of them that the other has not, among those; NaN where a side has none.

    A number that one side spells out in words is thus no disagreement.
    """
    scores = (_disagreement(numbers(source), numbers(target)) for source, target in zip(sources, targets, strict=True))
    return np.fromiter(scores, dtype=np.float64, count=len(sources))


def _disagreement(one: Numbers, other: Numbers) -> float:
    fewer = min(one.total(), other.total())
    if not fewer:
        return np.nan
    one, other = one - other, other - one
    if one and other:
        one, other = _without_years(one, other)
        other, one = _without_years(other, one)
        one, other = _without_zeros(one), _without_zeros(other)
        one, other = one - other, other - one
    return min(one.total(), other.total()) / fewer


def _without_years(short: Numbers, full: Numbers) -> tuple[Numbers, Numbers]:
    """Both without the two digits of `short` that end the four of a year of `full`, and without that year."""
    endings = {year[-2:]: year for year in full if len(year) == YEAR}
    found = Counter({digits: min(times, full[endings[digits]]) for digits, times in short.items() if digits in endings})
    return short - found, full - Counter({endings[digits]: times for digits, times in found.items()})


def _without_zeros(numbers: Numbers) -> Numbers:
    return _counted((digits.rstrip("0"), times) for digits, times in numbers.items())


def _counted(numbers: Iterable[tuple[str, int]]) -> Numbers:
    counted: Numbers = Counter()
    for digits, times in numbers:
        counted[digits] += times
    return counted


def numbers(text: str) -> Numbers:
    """The numbers of a text, each by its digits in ASCII without zeros in front, and how often."""
    return Counter(digits for found in NUMBER.findall(text) for digits in _digits(found))


def _digits(number: str) -> list[str]:
    parts = [part if part.isascii() else "".join(str(unicodedata.decimal(digit)) for digit in part) for part in SEPARATOR.split(number)]
    grouped = len(parts) > 2 and len(parts[-1]) == 3 and all(len(part) in (2, 3) for part in parts[1:-1])
    # One separator parts decimals, hours or thousands; several, if not thousands or lakhs, the parts of a date or a version.
    joined = ["".join(parts)] if len(parts) == 2 or grouped else parts
    return [digits.lstrip("0") or "0" for digits in joined]
