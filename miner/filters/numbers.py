"""Number agreement of a pair. Wrong pairs often differ only in their numbers: the same template with another year or price.

A number is a run of digits of any script. Differences in notation are ignored: thousands and decimal separators, leading zeros and
trailing zeros of a fraction (`.5`, `0.50`), magnitude words (`2万`, `20 thousand`, `20,000`), two-digit years (`the 90s`, `1990`), and the
parts of dates, times and decimals (`18.12`, `12月18日`).
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np

from miner.arrays import Floats

# Digits with separators inside, and a magnitude character. A space is a separator only before groups of three digits.
_GROUPED_BY_SPACES = r"(?<!\d)\d{1,3}(?: \d{3})+(?:[.,٫]\d+)?(?!\d)"
_SEPARATED = r"(?:(?<!\S)\.)?\d+(?:[.,:'’٫٬h]\d+)*"
NUMBER = re.compile(rf"({_GROUPED_BY_SPACES}|{_SEPARATED})(?: ?([百백千천万萬만億亿억兆조]|लाख|करोड़))?")
DIGIT = re.compile(r"\d")  # found in a tenth of the time that NUMBER takes, and most sentences have none
SEPARATOR = re.compile(r"\D")
DECIMAL_SEPARATORS = {".", ",", "٫"}
MAGNITUDE_POWERS = {**dict.fromkeys("百백", 2), **dict.fromkeys("千천", 3), **dict.fromkeys("万萬만", 4), **dict.fromkeys("億亿억", 8)}
MAGNITUDE_POWERS |= {**dict.fromkeys("兆조", 12), "लाख": 5, "करोड़": 7}
MIN_MAGNITUDE_ZEROS = 3  # a word such as "thousand" can replace at least this many zeros; a page 10 is not a page 1
YEAR_DIGITS = 4

Numbers = Counter[str]


def number_disagreement(sources: Sequence[str], targets: Sequence[str]) -> Floats:
    """Return (n,) the share of numbers that the other side lacks, of the side with fewer numbers; NaN if a side has none.

    Only the side with fewer numbers counts, so a number that one side spells out in words is no disagreement.
    """
    scores = (
        _disagreement(extract_numbers(source), extract_numbers(target)) if DIGIT.search(source) and DIGIT.search(target) else np.nan
        for source, target in zip(sources, targets, strict=True)
    )
    return np.fromiter(scores, dtype=np.float64, count=len(sources))


def _disagreement(source: Numbers, target: Numbers) -> float:
    num_fewer = min(source.total(), target.total())
    if not num_fewer:
        return np.nan
    source, target = source - target, target - source
    if source and target:
        source, target = _cancel_years(source, target)
        target, source = _cancel_years(target, source)
        source, target = _cancel_magnitudes(source, target)
        source, target = _cancel_parts(source, target)
        target, source = _cancel_parts(target, source)
    return min(source.total(), target.total()) / num_fewer


def _cancel_years(short: Numbers, full: Numbers) -> tuple[Numbers, Numbers]:
    """Remove two-digit numbers of `short` that end a four-digit year of `full`, and those years."""
    endings = {year[-2:]: year for year in full if len(year) == YEAR_DIGITS and year.isdigit()}
    matches = Counter({digits: min(count, full[endings[digits]]) for digits, count in short.items() if digits in endings})
    return short - matches, full - Counter({endings[digits]: count for digits, count in matches.items()})


def _cancel_magnitudes(source: Numbers, target: Numbers) -> tuple[Numbers, Numbers]:
    """Remove pairs of numbers that differ only by as many zeros as a magnitude word can replace."""
    for number in list(source.elements()):
        digits, power = _scientific(number)
        for other in list(target):
            other_digits, other_power = _scientific(other)
            if digits == other_digits and abs(power - other_power) >= MIN_MAGNITUDE_ZEROS:
                source, target = source - Counter([number]), target - Counter([other])
                break
    return source, target


def _cancel_parts(source: Numbers, target: Numbers) -> tuple[Numbers, Numbers]:
    """Remove numbers with a fraction of `source`, and two numbers of `target` that are its whole part and its fraction.

    So are dates, times and decimals that one side writes with words or other signs: 18.12 and 12月18日, 5.30 and 5：30, 1.55 and １・５５.
    """
    for number in [number for number in source.elements() if "." in number]:
        whole, _, fraction = number.partition(".")
        parts = target - Counter([whole])
        last = next((other for other in parts if other.rstrip("0") == fraction), None)  # trailing zeros of a fraction are not kept
        if whole in target and last is not None:
            source, target = source - Counter([number]), parts - Counter([last])
    return source, target


def _scientific(number: str) -> tuple[str, int]:
    """Split a number as `extract_numbers` writes it into its significant digits and the power of ten of the last of them."""
    whole, _, fraction = number.partition(".")
    digits = (whole + fraction).rstrip("0")
    return digits.lstrip("0"), len(whole) - len(digits)


def extract_numbers(text: str) -> Numbers:
    """Count the numbers of a text, written in ASCII without insignificant zeros (`1000`, `0.5`)."""
    return Counter(
        number for digits, magnitude in NUMBER.findall(text) for number in _normalise(digits, MAGNITUDE_POWERS.get(magnitude, 0))
    )


def _normalise(number: str, power: int) -> list[str]:
    """Return the number times 10^power; for a date or a version, its parts, the last of them times 10^power."""
    parts = [part if part.isascii() else "".join(str(unicodedata.decimal(digit)) for digit in part) for part in SEPARATOR.split(number)]
    # One separator marks decimals, hours or thousands; several, unless thousands or lakhs, mark the parts of a date or a version.
    if _has_grouped_decimals(parts, SEPARATOR.findall(number)):
        parts = ["".join(parts[:-1]), parts[-1]]
    elif _is_grouped(parts):
        parts = ["".join(parts)]
    if len(parts) == 2:
        whole, fraction = parts[0], parts[1].ljust(power, "0")
        return [_strip_zeros(whole + fraction[:power], fraction[power:])]
    return [*(_strip_zeros(part) for part in parts[:-1]), _strip_zeros(parts[-1] + "0" * power)]


def _has_grouped_decimals(parts: Sequence[str], separators: Sequence[str]) -> bool:
    """Whether the last separator is that of decimals, after groups with another one, as in 1,234.56 and 1 234,56."""
    *groups, last = separators or [""]
    return last in DECIMAL_SEPARATORS and len({*groups}) == 1 and last not in groups and _is_grouped(parts[:-1])


def _is_grouped(parts: Sequence[str]) -> bool:
    """Whether the digits are groups of thousands or lakhs: the last of three digits, the others of two or three, the first not only 0."""
    is_first_group = len(parts) > 1 and len(parts[0]) <= 3 and parts[0].strip("0") != ""
    return is_first_group and len(parts[-1]) == 3 and all(len(part) in (2, 3) for part in parts[1:-1])


def _strip_zeros(whole: str, fraction: str = "") -> str:
    fraction = fraction.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{fraction}" if fraction else "")
