"""Run work in a background thread: calls while the caller prepares the next, or an iterator one item ahead of the caller."""

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar, cast

Submit = Callable[..., None]
T = TypeVar("T")


@contextlib.contextmanager
def background_thread() -> Iterator[Submit]:
    """Yield `submit(function, *arguments)`, which waits for the previous call, raises its exception, and starts the next.

    At most two calls hold their arguments at a time. The block ends when the last call has returned.
    """
    with ThreadPoolExecutor(1) as pool:
        pending: Future[None] | None = None

        def submit(function: Callable[..., None], *arguments: object) -> None:
            nonlocal pending
            if pending is not None:
                pending.result()
            pending = pool.submit(function, *arguments)

        yield submit
        if pending is not None:
            pending.result()


def read_ahead(items: Iterable[T]) -> Generator[T, None, None]:
    """Yield the items of `items`, which runs in a background thread: the next item is computed while the caller works on this one.

    The thread ends with the items, or on `close`.
    """
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(next, iterator, end)
        while (item := pending.result()) is not end:
            pending = pool.submit(next, iterator, end)
            yield cast(T, item)
            del item
