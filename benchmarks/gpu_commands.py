"""The steps of benchmarks/gpu.py that run FAISS on the GPU, and whole commands: they need faiss-gpu, and apache-beam."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from gpu_search import K, Step

from miner.search.exact import search_block
from miner.search.neighbours import VectorBlock

QUERIES = 2000
MINER = [sys.executable, "-c", "from miner.cli.main import main; main()"]


def faiss(step: Step) -> None:
    """Build the index that `--factory auto` chooses, search it on the device, and compare with exact search."""
    from miner.search import cost_model, faiss_index

    faiss_index.require_faiss()
    has_gpu = step.device.type == "cuda" and faiss_index.num_gpus() > 0
    step.record("GPUs that FAISS finds", faiss_index.num_gpus())
    rows, dim = step.size(500_000, 30_000), 256
    keys, queries = step.vectors(rows, dim, 1), step.vectors(QUERIES, dim, 2)
    factory = cost_model.choose_factory(rows, dim, 4 << 30, has_gpu)
    step.record("factory", factory)
    start = time.perf_counter()
    sample = np.random.default_rng(0).choice(rows, min(rows, faiss_index.num_training_rows(factory, dim)), replace=False)
    index = faiss_index.train_index(factory, dim, keys[np.sort(sample)], 0)
    step.record("training, s", time.perf_counter() - start)
    start = time.perf_counter()
    faiss_index.add_vectors(index, np.arange(rows), keys)
    step.record("adding, s", time.perf_counter() - start)
    true, _ = search_block(VectorBlock(np.arange(QUERIES), queries), VectorBlock(np.arange(rows), keys), K, step.options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        path.write_bytes(faiss_index.dump(index).tobytes())
        for device in dict.fromkeys((str(step.device), "cpu")):
            opened = faiss_index.open_file(str(path), device)
            step.record(f"opened for {device}", f"{type(opened.index).__name__} on {opened.device}")
            for effort in (16, 64):
                opened.propose(queries[:10], 4 * K, effort)
                found: list[np.ndarray] = []
                seconds = step.seconds(lambda e=effort, o=opened, f=found: f.append(o.propose(queries, 4 * K, e)))
                recall = float(np.mean([(ids[:, None] == found[0]).any(1).mean() for ids in true.ids.T]))
                step.record(f"{device}, {opened.effort_name} {effort}: queries/s, recall@{K}", f"{QUERIES / seconds:,.0f}, {recall:.4f}")


def commands(step: Step) -> None:
    """Embed with a transformer, mine and index on the device; mine the same embeddings on the CPU, which must give the same pairs."""
    import apache_beam  # noqa: F401
    from encode import splice_lines
    from training import prepare

    lines = splice_lines(step.size(40_000, 400))
    half = len(lines) // 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, "tiny" if step.is_small else "small")
        for side, part in (("en", lines[:half]), ("de", lines[half:] + lines[: half // 2])):
            (folder / f"{side}.txt").write_text("\n".join(part) + "\n", encoding="utf-8")
            encoder = ["--encoder", str(folder / "model"), "--pooling", "mean", "--device", str(step.device)]
            for rescore in ("none", "late"):
                output = ["--rescore", rescore, "--output", f"{folder}/{rescore}/{side}"]
                seconds, _ = run(["embed", f"{folder}/{side}.txt", "--lang", side, *encoder, *output])
                step.record(f"miner embed {side}, {len(part):,} lines, --rescore {rescore}, s", seconds)
        pairs = {}
        for device in ("cpu", str(step.device)):
            for rescore in ("none", "late"):
                sides = [f"{folder}/{rescore}/{side}" for side in ("en", "de")]
                output = [
                    "--rescore",
                    rescore,
                    "--engine",
                    "exact",
                    "--no-report",
                    "--threshold",
                    "1",
                    "--output",
                    f"{folder}/mined-{rescore}-{device}",
                ]
                seconds, done = run(["mine", *sides, "--device", device, *output])
                step.record(f"miner mine on {device}, --rescore {rescore}, s", seconds)
                step.record(f"miner mine on {device}, --rescore {rescore}", done.strip().splitlines()[0])
                pairs[rescore, device] = (folder / f"mined-{rescore}-{device}" / "bitext.tsv.gz").read_bytes()
        for rescore in ("none", "late"):
            same = pairs[rescore, "cpu"] == pairs[rescore, str(step.device)]
            step.record(f"pairs of the CPU and of the device, --rescore {rescore}", "the same bytes" if same else "DIFFER")
        seconds, done = run(["index", f"{folder}/none/de", "--device", str(step.device), "--output", f"{folder}/index"])
        step.record("miner index, s", seconds)
        step.record("miner index", done.strip().splitlines()[-1])


def run(arguments: list[str]) -> tuple[float, str]:
    """Run a command of `miner`; return its seconds and what it printed."""
    start = time.perf_counter()
    done = subprocess.run([*MINER, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"miner {arguments[0]}: {json.dumps(done.stderr[-600:])}")
    return time.perf_counter() - start, done.stdout


STEPS = {"faiss": faiss, "commands": commands}
