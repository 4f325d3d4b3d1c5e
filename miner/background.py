"""Run calls in a background thread, one after the other, while the caller prepares the next."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

Submit = Callable[..., None]


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
