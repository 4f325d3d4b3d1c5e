"""The steps of benchmarks/gpu.py, each run in a process of its own: `python benchmarks/gpu_steps.py STEP FIGURES --device cuda`.

A step records figures as lines of JSON while it works, so that those of a step that fails or is stopped are kept.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import traceback
import xml.etree.ElementTree as ElementTree
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import gpu_commands
import numpy as np
import torch
from gpu_search import Step, exact, kill, read, search, search_forever, tile

from miner.search.precision import full_precision_matmul

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "torch",
    "triton",
    "numpy",
    "pyarrow",
    "pytest",
    "pydantic",
    "transformers",
    "sentence-transformers",
    "apache-beam",
    "faiss-cpu",
)
GPU_TESTS = (
    "tests/miner/search/test_cuda.py",
    "tests/miner/search/test_group_maxima.py",
    "tests/miner/encoders/test_transformer.py",
)


class StepSkippedError(Exception):
    """A step cannot run here; the message says why."""


def versions(step: Step) -> None:
    """Record what the machine is."""
    step.record("python", platform.python_version())
    step.record("machine", f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads")
    for package in PACKAGES:
        try:
            step.record(package, version(package))
        except PackageNotFoundError:
            step.record(package, "not installed")
    if step.device.type == "cuda":
        device = torch.cuda.get_device_properties(step.device)
        step.record("device", f"{device.name}, compute capability {device.major}.{device.minor}, {device.multi_processor_count} processors")
        step.record("devices", torch.cuda.device_count())
        step.record("cuda", f"{torch.version.cuda}, for {', '.join(torch.cuda.get_arch_list())}")
        free, total = torch.cuda.mem_get_info(step.device)
        step.record("memory, GiB", f"{free / 2**30:.1f} of {total / 2**30:.1f} free")


def ceilings(step: Step) -> None:
    """Record the speed of copies and of the matrix products that a search consists of."""
    record_copy_speed(step, step.size(1 << 30, 1 << 22))
    rows = step.size(16384, 128)
    for dim in (256, 1024):
        for name in ("float16", "bfloat16", "float32", "int8"):
            record_product_speed(step, name, rows, dim)


def record_copy_speed(step: Step, size: int) -> None:
    one, other = (torch.empty(size, dtype=torch.uint8, device=step.device).random_() for _ in range(2))
    one.copy_(other)
    step.record("copy on the device, GB/s read and written", 2 * size / step.seconds(lambda: one.copy_(other), 5) / 1e9)
    if step.device.type != "cuda":
        return
    pageable = torch.zeros(size, dtype=torch.uint8)
    for kind, host in (("pageable", pageable), ("pinned", pageable.pin_memory())):
        one.copy_(host)
        step.record(f"copy from {kind} memory, GB/s", size / step.seconds(lambda host=host: one.copy_(host), 3) / 1e9)


def record_product_speed(step: Step, name: str, rows: int, dim: int) -> None:
    values = torch.randn(2, rows, dim, device=step.device).mul_(20).to(getattr(torch, name))
    left, right = values[0], values[1].T
    multiply = torch._int_mm if name == "int8" else torch.mm
    try:
        with full_precision_matmul():
            multiply(left, right)
            seconds = step.seconds(lambda: multiply(left, right), 5)
    except RuntimeError as error:  # a format that this device lacks
        step.record(f"product in {name}, K {dim}", str(error).splitlines()[0])
        return
    step.record(f"product in {name}, K {dim}, TFLOP/s", 2 * rows * rows * dim / seconds / 1e12)


def tests(step: Step) -> None:
    """Run the tests that are marked `gpu`."""
    support = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH", "")])
    total_failed, num_run = 0, 0
    for file in GPU_TESTS:
        report = step.path.with_suffix(f".{Path(file).stem}.xml")
        # No configuration and no conftest: they need more packages than the tests do.
        options = ["-c", os.devnull, "--rootdir", str(ROOT), "--noconftest", "-p", "no:cacheprovider", "-q", "-m", "gpu", "-W", "ignore"]
        command = [sys.executable, "-m", "pytest", *options, "--junitxml", str(report), str(ROOT / file)]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": support}, capture_output=True, text=True, check=False)
        if not report.exists():
            raise StepSkippedError((done.stderr or done.stdout).strip().splitlines()[-1])
        suite = ElementTree.parse(report).getroot().find("testsuite")
        counts = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
        num_run += counts["tests"] - counts["skipped"]
        missing = [line for line in done.stdout.splitlines() if "ModuleNotFoundError" in line or "ImportError" in line]
        step.record(file, missing[0].strip() if missing else ", ".join(f"{count} {name}" for name, count in counts.items()))
        if not missing and counts["failures"] + counts["errors"]:
            total_failed += 1
            step.record(f"{file}, output", done.stdout[-3000:])
    if total_failed:
        raise AssertionError(f"tests failed in {total_failed} of {len(GPU_TESTS)} files")
    if not num_run:
        raise StepSkippedError("no test ran: they need a GPU")


def encode(step: Step) -> None:
    """Compare sentences per second with sentence-transformers, by a transformer with random weights."""
    from encode import splice_lines
    from training import prepare

    from miner.config.commands import EncoderSettings
    from miner.encoders import load_encoder

    lines = splice_lines(step.size(50_000, 60))
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name), "tiny" if step.is_small else "base")
        model = f"{name}/model"
        vectors = {}
        for dtype in ("float32",) if step.device.type == "cpu" else ("float32", "bfloat16"):
            encoder = load_encoder(model, EncoderSettings(pooling="mean", device=str(step.device), dtype=dtype))
            encoder.encode(lines[:1000])
            seconds = step.seconds(lambda encoder=encoder, dtype=dtype: vectors.update({dtype: encoder.encode(lines)}))
            step.record(f"miner in {dtype}, sentences/s", len(lines) / seconds)
        del encoder
        from sentence_transformers import SentenceTransformer

        other = SentenceTransformer(model, device=str(step.device), model_kwargs={"dtype": getattr(torch, dtype)})
        for batch in (32, 128, 512):
            other.encode(lines[:1000], batch_size=batch)
            rows: list[np.ndarray] = []
            seconds = step.seconds(
                lambda batch=batch, rows=rows: rows.append(other.encode(lines, batch_size=batch, normalize_embeddings=True))
            )
            step.record(f"sentence-transformers in {dtype}, batches of {batch}, sentences/s", len(lines) / seconds)
        similarity = float((vectors[dtype] * rows[0].astype(np.float32)).sum(axis=1).min())
    step.record("least similarity of a vector to that of sentence-transformers", similarity)
    assert similarity > 0.98, "other vectors than sentence-transformers"


def train(step: Step) -> None:
    """Compare pairs per second of training with sentence-transformers."""
    from training import prepare, time_miner, time_sentence_transformers

    batch, steps = step.size(512, 8), step.size(40, 2)
    dtype = "float32" if step.device.type == "cpu" else "bfloat16"
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name), "tiny" if step.is_small else "small")
        step.record(f"miner in {dtype}, pairs/s", batch * steps / time_miner(Path(name), batch, steps, None, dtype))
        step.record(
            f"sentence-transformers in {dtype}, pairs/s", batch * steps / time_sentence_transformers(Path(name), batch, steps, dtype)
        )


STEPS = {"versions": versions, "ceilings": ceilings, "tests": tests, "exact": exact, "tile": tile, "read": read, "kill": kill}
STEPS |= gpu_commands.STEPS | {"encode": encode, "train": train, "search-forever": search_forever}
STEPS |= {f"search-{size}-{dim}": search for size in ("250k", "1m") for dim in (256, 1024)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=STEPS)
    parser.add_argument("figures", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    step = Step(torch.device(arguments.device), arguments.small, arguments.figures, arguments.name)
    try:
        if step.device.type == "cuda" and not torch.cuda.is_available():
            raise StepSkippedError("torch finds no CUDA device; give --device cpu")
        STEPS[arguments.name](step)
        step.write({"status": "done"})
    except (StepSkippedError, ModuleNotFoundError) as error:
        step.write({"status": "skipped", "reason": str(error)})
    except Exception as error:
        step.write({"status": "failed", "reason": f"{type(error).__name__}: {error}", "log": traceback.format_exc().splitlines()[-20:]})
        raise


if __name__ == "__main__":
    main()
