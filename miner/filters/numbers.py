"""Whether the numbers of a pair agree. Near misses often differ in them alone: the same template with another year or price.

Numbers are those written in digits, of any script. Notation is forgiven: separators of thousands and of decimals, zeros at either
end of a fraction (`.5` and `0.50`), words of magnitude (`2万`, `20 thousand` and `20,000`), and two digits for a year (`the 90s`, `1990`).
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np

from miner.filters import Floats

# Digits, and what may stand between those of one number; a space only before groups of three.
NUMBER = re.compile(r"((?<!\d)\d{1,3}(?: \d{3})+(?!\d)|(?:(?<!\S)\.)?\d+(?:[.,:'’٫٬h]\d+)*)(?: ?([百백千천万萬만億亿억兆조]|लाख|करोड़))?")
SEPARATOR = re.compile(r"\D")
POWERS = {**dict.fromkeys("百백", 2), **dict.fromkeys("千천", 3), **dict.fromkeys("万萬만", 4), **dict.fromkeys("億亿억", 8)}
POWERS |= {**dict.fromkeys("兆조", 12), "लाख": 5, "करोड़": 7}
LEAST_MAGNITUDE = 3  # zeros that a word such as "thousand" may stand for; a page 10 is not a page 1
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
        one, other = _without_magnitudes(one, other)
    return min(one.total(), other.total()) / fewer


def _without_years(short: Numbers, full: Numbers) -> tuple[Numbers, Numbers]:
    """Both without the two digits of `short` that end the four of a year of `full`, and without that year."""
    endings = {year[-2:]: year for year in full if len(year) == YEAR and year.isdigit()}
    found = Counter({digits: min(times, full[endings[digits]]) for digits, times in short.items() if digits in endings})
    return short - found, full - Counter({endings[digits]: times for digits, times in found.items()})


def _without_magnitudes(one: Numbers, other: Numbers) -> tuple[Numbers, Numbers]:
    """Both without pairs of numbers that differ by zeros alone, as many as a word of magnitude stands for."""
    for number in list(one.elements()):
        digits, power = _scientific(number)
        for found in list(other):
            same, others = _scientific(found)
            if digits == same and abs(power - others) >= LEAST_MAGNITUDE:
                one, other = one - Counter([number]), other - Counter([found])
                break
    return one, other


def _scientific(number: str) -> tuple[str, int]:
    """A number as `numbers` writes it -> its digits without zeros at either end, and the power of ten of the last of them."""
    whole, _, fraction = number.partition(".")
    digits = (whole + fraction).rstrip("0")
    return digits.lstrip("0"), len(whole) - len(digits)


def numbers(text: str) -> Numbers:
    """The numbers of a text in ASCII, without zeros that say nothing (`1000`, `0.5`), and how often."""
    return Counter(number for found, magnitude in NUMBER.findall(text) for number in _values(found, POWERS.get(magnitude, 0)))


def _values(number: str, power: int) -> list[str]:
    """One, or the parts of a date or a version, to the last of which `power` zeros are added."""
    parts = [part if part.isascii() else "".join(str(unicodedata.decimal(digit)) for digit in part) for part in SEPARATOR.split(number)]
    grouped = all(parts) and len(parts[-1]) == 3 and all(len(part) in (2, 3) for part in parts[1:-1])
    # One separator parts decimals, hours or thousands; several, if not thousands or lakhs, the parts of a date or a version.
    if grouped:
        parts = ["".join(parts)]
    if len(parts) == 2:
        whole, fraction = parts[0], parts[1].ljust(power, "0")
        return [_plain(whole + fraction[:power], fraction[power:])]
    return [*(_plain(part) for part in parts[:-1]), _plain(parts[-1] + "0" * power)]


def _plain(whole: str, fraction: str = "") -> str:
    fraction = fraction.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{fraction}" if fraction else "")
