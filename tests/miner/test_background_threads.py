"""Work in a background thread beside the caller."""

import threading
from collections.abc import Iterator

import pytest

from miner.devices import read_ahead


def test_items_are_read_one_ahead_in_order_and_in_another_thread() -> None:
    reached, threads = [threading.Event() for _ in range(4)], set()

    def items() -> Iterator[int]:
        for number, event in enumerate(reached):
            threads.add(threading.current_thread())
            event.set()
            yield number

    seen = []
    for number in read_ahead(items()):
        seen.append(number)
        if number + 1 < len(reached):
            assert reached[number + 1].wait(10), "the next item is read while this one is used"
        if number + 2 < len(reached):
            assert not reached[number + 2].is_set(), "no item after the next one"
    assert seen == [0, 1, 2, 3]
    assert threading.current_thread() not in threads
    assert list(read_ahead([])) == []


def test_an_error_is_raised_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("the second")

    ahead = read_ahead(items())
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="the second"):
        next(ahead)
