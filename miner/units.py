"""Counts, durations and sizes as text."""

from collections.abc import Mapping


def format_seconds(seconds: float) -> str:
    """Format a duration in seconds, minutes, hours or days: 45 s, 2.5 min, 12 h."""
    for unit, minimum, length in (("days", 172_800, 86_400), ("h", 7200, 3600), ("min", 120, 60)):
        if seconds >= minimum:
            return f"{seconds / length:,.{int(seconds < 10 * length)}f} {unit}"
    return f"{seconds:.0f} s"


def format_bytes(amount: float) -> str:
    """Format bytes as kB, MB, GB or TB."""
    for unit, length in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if amount >= length:
            return f"{amount / length:,.1f} {unit}"
    return f"{amount / 1e3:,.0f} kB"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 pair`, `2,000 pairs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def list_counts(counts: Mapping[str, int]) -> str:
    """Return the counts above 0, by name: `1,200 too long, 3 empty`."""
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count)
