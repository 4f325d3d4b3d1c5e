"""Counts as text."""

from collections.abc import Mapping


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 pair`, `2,000 pairs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def list_counts(counts: Mapping[str, int]) -> str:
    """Return the counts above 0, by name: `1,200 too long, 3 empty`."""
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count)
