"""The steps of benchmarks/gpu.py that search: they need torch, numpy and pyarrow only."""

import hashlib
import importlib.util
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from miner.io.tables import embeddings_schema, read_vectors, vectors_to_arrow
from miner.search.blocks import BlockCache, search_shards
from miner.search.exact import SearchOptions, search_block
from miner.search.group_maxima import both_maxima, has_kernel, row_maxima
from miner.search.neighbours import Neighbours, VectorBlock
from miner.search.precision import full_precision_matmul
from miner.search.readers import ShardReader

BENCHMARKS = Path(__file__).parent
K = 4
ROW_GROUP = 32768
BASELINE_QUERIES = 131_072  # that the two float32 passes search, at most; their time is scaled to all queries


@dataclass(frozen=True)
class Step:
    """Where a step runs, and where its figures go."""

    device: torch.device
    is_small: bool
    path: Path
    name: str
    figures: dict[str, Any] = field(default_factory=dict)

    def record(self, figure: str, value: Any) -> None:
        self.figures[figure] = value
        self.write({"figure": figure, "value": value})

    def write(self, record: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def size(self, large: int, small: int) -> int:
        return small if self.is_small else large

    def seconds(self, work: Callable[[], object], repeats: int = 1) -> float:
        """Return the median seconds of `work`, with all that it started on the device."""
        samples = []
        for _ in range(repeats):
            self.synchronise()
            start = time.perf_counter()
            work()
            self.synchronise()
            samples.append(time.perf_counter() - start)
        return statistics.median(samples)

    def synchronise(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def vectors(self, rows: int, dim: int, seed: int) -> np.ndarray:
        """Return unit float16 vectors (rows, dim) in clusters that are the same for every seed, like sentences of two languages."""
        generator = torch.Generator(self.device).manual_seed(1000)
        centres = torch.randn(max(1, rows // 10), dim, generator=generator, device=self.device)
        generator.manual_seed(seed)
        result = np.empty((rows, dim), dtype=np.float16)
        for start in range(0, rows, 1 << 17):
            count = min(1 << 17, rows - start)
            members = torch.randint(len(centres), (count,), generator=generator, device=self.device)
            values = centres[members] + 0.8 * torch.randn(count, dim, generator=generator, device=self.device)
            result[start : start + count] = torch.nn.functional.normalize(values, dim=1).half().cpu().numpy()
        return result

    def block(self, rows: int, dim: int, seed: int) -> VectorBlock:
        return VectorBlock(np.arange(rows), self.vectors(rows, dim, seed))

    @property
    def options(self) -> SearchOptions:
        return SearchOptions(str(self.device))


def exact(step: Step) -> None:
    """Compare both directions with all similarities in float64, for vectors with many ties."""
    rows = step.size(20_000, 300)
    for dim in (256, 1024):
        x, y = (np.array(step.vectors(rows, dim, seed)) for seed in (1, 2))
        y[: rows // 4] = y[0]
        x[: rows // 8] = x[0]
        y[-5:] = 0
        found = search_block(VectorBlock(np.arange(rows), x), VectorBlock(np.arange(rows), y), K, step.options)
        for name, neighbours, sides in (("forward", found[0], (x, y)), ("backward", found[1], (y, x))):
            ids, similarities = nearest_in_float64(*(torch.from_numpy(side).to(step.device) for side in sides))
            assert np.array_equal(neighbours.ids, ids), f"{name} neighbours differ at dimension {dim}"
            assert np.array_equal(neighbours.similarities, similarities), f"{name} similarities differ at dimension {dim}"
        step.record(f"{rows} x {rows} x {dim}", "both directions equal float64 to the bit")


def nearest_in_float64(queries: torch.Tensor, keys: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Sort all similarities of each query (n, dim) -> positions and similarities (n, K), ties by position."""
    keys64, parts = keys.double(), []
    for rows in queries.split(1024):
        similarities, order = (rows.double() @ keys64.T).sort(dim=1, descending=True, stable=True)
        parts.append((order[:, :K].cpu().numpy(), similarities[:, :K].cpu().numpy()))
    return np.concatenate([ids for ids, _ in parts]), np.concatenate([similarities for _, similarities in parts])


def search(step: Step) -> None:
    """Time a search of both directions, and two float32 passes; the name of the step gives rows and dimensions."""
    _, size, dim_text = step.name.split("-")
    rows, dim = step.size({"250k": 250_000, "1m": 1_000_000}[size], 600), int(dim_text)
    source, target = step.block(rows, dim, 1), step.block(rows, dim, 2)
    few = VectorBlock(source.ids[:1000], source.vectors[:1000])
    search_block(few, few, K, step.options)  # loads libraries
    if step.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(step.device)
    results: list[tuple[Neighbours, Neighbours]] = []
    seconds = step.seconds(lambda: results.append(search_block(source, target, K, step.options)))
    step.record("both directions, s", seconds)
    step.record("TFLOP/s of one pass", 2 * rows * rows * dim / seconds / 1e12)
    if step.device.type == "cuda":
        step.record("peak memory of torch, GiB", torch.cuda.max_memory_allocated(step.device) / 2**30)
    values = torch.randn(2, min(rows, 16384), dim, device=step.device).half()
    with full_precision_matmul():
        torch.mm(values[0], values[1].T)
        product_seconds = step.seconds(lambda: torch.mm(values[0], values[1].T), 5)
    step.record("share of the speed of a product in float16", product_seconds * (rows / values.shape[1]) ** 2 / seconds)
    compare_with_float32(step, source, target, results[0][0], seconds)


def compare_with_float32(step: Step, source: VectorBlock, target: VectorBlock, forward: Neighbours, seconds: float) -> None:
    """Time float32 products and the best of each row, for both directions, and compare the forward neighbours."""
    num_queries = min(len(source.ids), BASELINE_QUERIES)
    x, y = (torch.from_numpy(side.vectors).to(step.device) for side in (source, target))
    results: list[tuple[np.ndarray, np.ndarray]] = []
    search_float32(x[:1024], y)
    one_way = step.seconds(lambda: results.append(search_float32(x[:num_queries], y)))
    other_way = step.seconds(lambda: search_float32(y[:num_queries], x))
    baseline = (one_way + other_way) * len(source.ids) / num_queries
    step.record("queries of the float32 passes", num_queries)
    step.record("two float32 passes, s", baseline)
    step.record("times as fast as two float32 passes", baseline / seconds)
    similarities, positions = results[0]
    step.record("rows with the same neighbours as in float32", float((forward.ids[:num_queries] == positions).all(axis=1).mean()))
    difference = np.abs(forward.similarities[:num_queries] - similarities).max()
    step.record("largest difference of a similarity to float32", float(difference))
    assert difference < 1e-5, "float32 finds other similarities"


def search_float32(queries: torch.Tensor, keys: torch.Tensor, tile: int = 8192) -> tuple[np.ndarray, np.ndarray]:
    """Return similarities and positions (n, K) of the nearest keys, as a brute-force search computes them."""
    keys32, values, positions = keys.float(), [], []
    with full_precision_matmul():
        for rows in queries.split(tile):
            best = torch.full((len(rows), K), -torch.inf, device=queries.device)
            where = torch.zeros_like(best, dtype=torch.int64)
            for start in range(0, len(keys), 4 * tile):
                nearest, order = (rows.float() @ keys32[start : start + 4 * tile].T).topk(K, dim=1)
                best, kept = torch.cat([best, nearest], 1).topk(K, dim=1)
                where = torch.cat([where, order + start], 1).gather(1, kept)
            values.append(best.cpu())
            positions.append(where.cpu())
    return torch.cat(values).numpy(), torch.cat(positions).numpy()


def tile(step: Step) -> None:
    """Record the time of each operation of a search, and the number of launches and of waits for the device."""
    record_maxima_speed(step)
    rows, dim = step.size(131_072, 300), step.size(1024, 32)
    source, target = step.block(rows, dim, 1), step.block(rows, dim, 2)
    search_block(source, target, K, step.options)
    on_gpu = step.device.type == "cuda"
    activities = [torch.profiler.ProfilerActivity.CPU] + [torch.profiler.ProfilerActivity.CUDA] * on_gpu
    with torch.profiler.profile(activities=activities) as profile:
        search_block(source, target, K, step.options)
        step.synchronise()
    events = profile.key_averages()
    attribute = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    total = sum(getattr(event, attribute) for event in events)
    step.record("all operations, ms", total / 1000)
    for event in sorted(events, key=lambda event: -getattr(event, attribute))[:14]:
        milliseconds = getattr(event, attribute) / 1000
        step.record(event.key[:60], f"{milliseconds:.2f} ms, {100 * milliseconds * 1000 / max(1, total):.1f} %, {event.count} calls")
    for name in ("cudaLaunchKernel", "cudaStreamSynchronize", "cudaMemcpyAsync", "cudaMalloc"):
        step.record(f"calls of {name}", sum(event.count for event in events if event.key.startswith(name)))


def record_maxima_speed(step: Step) -> None:
    """Record the speed of the maxima of a tile, for which a kernel reads its products once, and torch twice."""
    rows = step.size(32768, 256)
    products = torch.empty(rows, rows, dtype=torch.float16, device=step.device).normal_()
    ways = {"one kernel" if has_kernel(step.device, products.dtype) else "torch": both_maxima, "the rows alone, torch": row_maxima}
    for name, maxima in ways.items():
        maxima(products)
        seconds = step.seconds(lambda maxima=maxima: maxima(products), 5)
        step.record(f"maxima of a tile, {name}, GB/s of its products", products.nbytes / seconds / 1e9)


def read(step: Step) -> None:
    """Time the loop of the search stage: row groups from Parquet, blocks, and the search."""
    rows, dim, row_group = step.size(500_000, 500), step.size(1024, 32), step.size(ROW_GROUP, 100)
    with tempfile.TemporaryDirectory() as name:
        paths = []
        for seed in (1, 2):
            paths.append(Path(name) / f"{seed}.parquet")
            write_shard(paths[-1], step.block(rows, dim, seed), row_group)
        step.record("size of a shard, MB", paths[0].stat().st_size / 1e6)
        step.record("reading one shard, s", step.seconds(lambda: [len(ids) for ids, _ in row_groups(paths[0])]))
        results: list[tuple[Neighbours, Neighbours]] = []
        step.record("reading and searching, s", step.seconds(lambda: results.append(search_files(paths, dim, step.device))))
    source, target = step.block(rows, dim, 1), step.block(rows, dim, 2)
    expected: list[tuple[Neighbours, Neighbours]] = []
    step.record("searching vectors in memory, s", step.seconds(lambda: expected.append(search_block(source, target, K, step.options))))
    for neighbours, others in zip(results[0], expected[0], strict=True):
        assert np.array_equal(neighbours.ids, others.ids), "reading in blocks changes the neighbours"


def write_shard(path: Path, block: VectorBlock, row_group: int) -> None:
    schema = embeddings_schema(block.vectors.shape[1], "gpu")
    table = pa.table([pa.array(block.ids), vectors_to_arrow(block.vectors)], schema=schema)
    pq.write_table(table, path, compression="none", use_dictionary=False, row_group_size=row_group, write_page_checksum=True)


def row_groups(path: Path) -> Any:
    with pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as file:
        yield from read_vectors(file)


def search_files(paths: list[Path], dim: int, device: torch.device) -> tuple[Neighbours, Neighbours]:
    source, target = (ShardReader(path, dim, lambda path=path: row_groups(path)) for path in paths)
    (forward,), (backward,) = search_shards([source], [target], K, BlockCache.of(device), lambda _: None)
    return forward, backward


def kill(step: Step) -> None:
    """Kill a process in the middle of a search. The next one must find the memory free, and the same neighbours."""
    free = free_memory(step)
    expected = search_digest(step)
    command = [sys.executable, str(BENCHMARKS / "gpu_steps.py"), "search-forever", str(step.path), "--device", str(step.device)]
    with subprocess.Popen(command + ["--small"] * step.is_small, stdout=subprocess.PIPE, text=True) as process:
        first = process.stdout.readline().strip()
        time.sleep(step.size(3, 1))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "the search ended by itself"
    assert first == expected, "the process that was killed had other neighbours"
    assert search_digest(step) == expected, "other neighbours after the kill"
    step.record("neighbours before and after", "the same")
    if free is not None:
        torch.cuda.empty_cache()
        step.record("memory that is not free again, MB", (free - free_memory(step)) / 1e6)
    if importlib.util.find_spec("apache_beam") is None:
        step.record("miner run", "not killed: apache_beam is not installed")
    elif not step.is_small:
        command = [sys.executable, str(BENCHMARKS / "kill.py"), "--times", "1", "--rows", "100", "--languages", "de", "en"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        step.record("miner run", done.stdout.strip() or done.stderr[-1000:])
        assert done.returncode == 0, "a killed `miner run` did not resume"


def free_memory(step: Step) -> int | None:
    return torch.cuda.mem_get_info(step.device)[0] if step.device.type == "cuda" else None


def search_digest(step: Step) -> str:
    rows, dim = step.size(100_000, 500), step.size(256, 32)
    found = search_block(step.block(rows, dim, 1), step.block(rows, dim, 2), K, step.options)
    return hashlib.sha256(b"".join(neighbours.ids.tobytes() + neighbours.similarities.tobytes() for neighbours in found)).hexdigest()


def search_forever(step: Step) -> None:
    """Search until the process is killed; print the digest of the first result."""
    print(search_digest(step), flush=True)
    while True:
        search_digest(step)
