"""Clean the blocks of a text, those of a long one in several processes: cleaning is Python, of which a process uses one core.

The processes are started by a command, not forked or spawned: threads are running here, and a script that calls this may not be
importable.
"""

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

import miner
from miner.config.commands import TextSettings
from miner.errors import MinerError
from miner.io.tables import SENTENCES, hash_ids
from miner.text import readers, splitting
from miner.text.records import Value

FIRST_BLOCKS = 32  # cleaned in this process, because others take as long to start
MAX_PROCESSES = 8  # more are not kept busy by the process that reads

# The columns of sentences whose source is known.
SCHEMA = pa.schema([SENTENCES.field(name) for name in ("id", "text", "count", "line")])

Block = tuple[int, list[Value]]  # number of the first line, values of consecutive lines


class CleanedBlock(NamedTuple):
    """The sentences of a block, of SCHEMA, and its lines by outcome (see `readers.SentenceBlock`)."""

    sentences: pa.RecordBatch
    counts: Counter[str]


@dataclass(frozen=True)
class BlockCleaner:
    """How the blocks of an input are cleaned. Picklable."""

    name: str  # of the input, for errors
    settings: TextSettings
    split_lang: str | None = None  # language of lines that are split into sentences; None: each line is one

    @cached_property
    def _split(self) -> splitting.Splitter | None:
        return None if self.split_lang is None else splitting.load_splitter(self.split_lang)

    def clean(self, block: Block) -> CleanedBlock:
        """Clean a block. Raises DataError as `readers.read_sentences` does."""
        cleaned = readers.clean_block(self.name, *block, self.settings, self._split)
        encoded = "\n".join(cleaned.texts).encode().split(b"\n") if cleaned.texts else []  # a cleaned text contains no LF
        offsets = np.fromiter(accumulate(map(len, encoded), initial=0), dtype=np.int32, count=len(encoded) + 1)
        # From buffers: Arrow's own conversion of Python strings takes four times as long.
        texts = pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))
        ones = np.ones(len(encoded), dtype=np.int32)
        return CleanedBlock(pa.record_batch([hash_ids(encoded), texts, ones, cleaned.lines], schema=SCHEMA), cleaned.counts)


def clean_blocks(
    blocks: Iterable[Block], cleaner: BlockCleaner, num_processes: int = 1, first_blocks: int = FIRST_BLOCKS
) -> Iterator[CleanedBlock]:
    """Yield the cleaned blocks in order. Those after the first ones are cleaned in several processes, if more than one is allowed."""
    remaining = iter(blocks)
    yield from map(cleaner.clean, islice(remaining, first_blocks if num_processes > 1 else None))
    following = next(remaining, None)
    if following is not None:
        yield from _clean_in_processes(chain([following], remaining), cleaner, min(num_processes, MAX_PROCESSES))


def _clean_in_processes(blocks: Iterable[Block], cleaner: BlockCleaner, num_processes: int) -> Iterator[CleanedBlock]:
    idle = queue.SimpleQueue[_CleaningProcess]()

    def clean(block: Block) -> CleanedBlock:
        process = idle.get()
        try:
            return process.clean(block)
        finally:
            idle.put(process)

    pending = deque[Future[CleanedBlock]]()
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(num_processes))
        for _ in range(num_processes):
            process = _CleaningProcess(cleaner)
            stack.callback(process.end)
            idle.put(process)
        for block in blocks:
            pending.append(pool.submit(clean, block))
            if len(pending) > 2 * num_processes:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


class _CleaningProcess:
    """A process that runs `serve`."""

    def __init__(self, cleaner: BlockCleaner) -> None:
        path = os.pathsep.join(filter(None, [str(Path(miner.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
        # -P: or a file in the working directory can shadow a module.
        command = [sys.executable, "-P", "-m", "miner.text.clean_blocks"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path})
        self.name = cleaner.name
        self.cleaner: BlockCleaner | None = replace(cleaner)  # without a splitter, which cannot be pickled

    def clean(self, block: Block) -> CleanedBlock:
        """Clean a block. Raises the DataError of the process, and MinerError if it has ended."""
        assert self.process.stdin is not None, "a pipe"
        assert self.process.stdout is not None, "a pipe"
        try:
            if self.cleaner is not None:
                pickle.dump(self.cleaner, self.process.stdin)
                self.cleaner = None
            pickle.dump(block, self.process.stdin)
            self.process.stdin.flush()
            cleaned: CleanedBlock | Exception = pickle.load(self.process.stdout)
        except (OSError, EOFError) as error:
            reason = f"a process that cleans text ended ({self.process.wait()}: killed, perhaps out of memory)"
            raise MinerError(f"{self.name}: {reason}; run the same command again to resume") from error
        if isinstance(cleaned, Exception):
            raise cleaned
        return cleaned

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def serve() -> None:
    """Clean the blocks that another process sends to standard input, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by that process
    requests, responses = sys.stdin.buffer, sys.stdout.buffer
    with contextlib.suppress(EOFError, BrokenPipeError):
        cleaner: BlockCleaner = pickle.load(requests)
        while True:
            block: Block = pickle.load(requests)
            response: CleanedBlock | Exception
            try:
                response = cleaner.clean(block)
            except Exception as error:
                response = error
            pickle.dump(response, responses)
            responses.flush()


if __name__ == "__main__":
    serve()
