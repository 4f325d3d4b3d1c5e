"""Work in a thread of its own, while the next is made ready."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

Begin = Callable[..., None]


@contextlib.contextmanager
def aside() -> Iterator[Begin]:
    """Gives `begin(work, *arguments)`, which starts a piece of work when the one before is done, and raises what that one raised.

    So no more than two pieces are held. The last one is waited for at the end.
    """
    with ThreadPoolExecutor(1) as pool:
        last: Future[None] | None = None

        def begin(work: Callable[..., None], *arguments: object) -> None:
            nonlocal last
            if last is not None:
                last.result()
            last = pool.submit(work, *arguments)

        yield begin
        if last is not None:
            last.result()
