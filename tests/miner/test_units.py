"""Durations and sizes as text."""

import pytest

from miner.units import format_bytes, format_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0 s"),
        (9.96, "10 s"),
        (89, "89 s"),
        (130, "2.2 min"),
        (600, "10 min"),
        (9000, "2.5 h"),
        (400_000, "4.6 days"),
        (3e6, "35 days"),
    ],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(("amount", "text"), [(12, "0 kB"), (5e6, "5.0 MB"), (2.5e9, "2.5 GB"), (4e14, "400.0 TB")])
def test_sizes_have_a_unit(amount: float, text: str) -> None:
    assert format_bytes(amount) == text
