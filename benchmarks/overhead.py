"""What the pipeline costs beyond the library's own calls, and what a second worker gains.

    python benchmarks/overhead.py pipeline --data DATA [--sources 980000] [--targets 20000] [--runs 3]
    python benchmarks/overhead.py workers --data DATA [--sentences 4000000] [--searched 200000] [--runs 3]
    python benchmarks/overhead.py jobs [--pairs 1 10 100] [--large] [--set shards=2 ...]
    python benchmarks/overhead.py requests [embed|mine] [--store gs] [--engine faiss] [--shards 20 60]

`pipeline` times `miner embed` and `miner mine`, from text files to pairs, beside a process that does the same with the functions of
`miner` alone, in memory: nothing is written but the pairs, and no vector is read again. Both are timed from start to end, in turns, on
all cores. The targets are few so that the time is not that of exact search alone.

`workers` times the stages of both commands with one worker process, held on one core, and with two, each with one thread.

`jobs` counts the Beam jobs of `miner run` from text, with one pivot and as many other corpora as pairs, of 20 lines each; their elements;
the bytes of the graphs that a cluster receives; and the bytes that Dask sends, where each element carries its DoFn. With `--large`, the
steps that join neighbours and pairs run as jobs too, as they do with more than 8 million neighbours.

`requests` counts the requests of `miner embed` or `miner mine` to S3 or GCS per shard, those of the driver and of a worker apart
(`benchmarks/object_requests.py`).
"""

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import object_requests
import scale

MINER = [sys.executable, "-m", "miner.cli.main"]
K, THRESHOLD = 4, 1.2
STRETCH = 1 << 16  # vectors that are compared at a time
ALLOWED = (0.15, 5.0)  # overhead: a share, and seconds
GAIN = 1.7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, act in (("pipeline", pipeline), ("workers", workers)):
        command = commands.add_parser(name)
        command.add_argument("--data", type=Path, required=True, help="collected corpora, with train/")
        command.add_argument("--runs", type=int, default=3, help="of each, in turns; medians are compared")
        command.set_defaults(act=act)
        if name == "pipeline":
            command.add_argument("--sources", type=int, default=980_000)
            command.add_argument("--targets", type=int, default=20_000)
        else:
            command.add_argument("--sentences", type=int, default=4_000_000, help="to embed")
            command.add_argument("--searched", type=int, default=200_000, help="on each side")
    jobs_ = commands.add_parser("jobs")
    jobs_.add_argument("--pairs", type=int, nargs="+", default=[1, 10, 100])
    jobs_.add_argument("--large", action="store_true", help="run every step as a job")
    jobs_.add_argument("--set", nargs="*", default=[], help="of the config, KEY=VALUE", dest="changes")
    jobs_.set_defaults(act=jobs)
    requests_ = commands.add_parser("requests")
    requests_.add_argument("command", choices=["embed", "mine"], default="embed", nargs="?")
    requests_.add_argument("--shards", type=int, nargs="+", help="numbers of shards: one more than the degree of the polynomial")
    requests_.add_argument("--engine", choices=["exact", "faiss"], default="exact", help="of `miner mine`")
    requests_.add_argument("--store", choices=["s3", "gs"], default="s3", help="by moto, or by an emulator of GCS")
    requests_.set_defaults(act=requests)
    bare_ = commands.add_parser("bare")
    bare_.add_argument("act_", choices=["embed", "mine"])
    bare_.add_argument("folder", type=Path)
    bare_.set_defaults(act=lambda given: bare(given.act_, given.folder))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # else what is at work would go on alone
    given = parser.parse_args()
    given.act(given)


def text(data: Path, folder: Path, sources: int, targets: int) -> None:
    """Write FOLDER/source.txt and FOLDER/target.txt, of sentences made of real ones."""
    scale.make(argparse.Namespace(folder=folder, data=data, sentences=max(sources, targets), shards=None))
    for side, name, rows in (("source", "en", sources), ("target", "xx", targets)):
        left = rows
        with (folder / f"{side}.txt").open("wb") as file:
            for number in range(scale.FILES):
                lines = (folder / f"{name}-{number}.txt").read_bytes().splitlines(keepends=True)[:left]
                file.writelines(lines)
                left -= len(lines)


def pipeline(given: argparse.Namespace) -> None:
    """Print the seconds of both ways, and what the one takes longer."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text(given.data, folder, given.sources, given.targets)
        sides = [str(folder / f"{side}.txt") for side in ("source", "target")]
        for act, inputs in (("embed", sides[:1]), ("mine", sides)):
            options = [] if act == "embed" else ["--engine", "exact", "--no-report", "--k", str(K), "--threshold", str(THRESHOLD)]
            ours, theirs = [], []
            for turn in range(given.runs):
                ours.append(timed([*MINER, act, *inputs, "--output", str(folder / f"{act}{turn}"), *options]))
                theirs.append(timed([sys.executable, __file__, "bare", act, str(folder)]))
            (wall, busy), (bare_wall, bare_busy) = (tuple(map(statistics.median, zip(*times, strict=True))) for times in (ours, theirs))
            most = bare_wall * (1 + ALLOWED[0]) + ALLOWED[1]
            print(
                f"{act}: miner {wall:.1f} s ({busy:.1f} s of processors), bare calls {bare_wall:.1f} s ({bare_busy:.1f} s);"
                f" {wall - bare_wall:+.1f} s, {'within' if wall <= most else 'BEYOND'} {ALLOWED[0]:.0%} and {ALLOWED[1]:g} s",
                flush=True,
            )
        pairs = [sum(1 for _ in scale.rows_of(path)) for path in (folder / "mine0/bitext.tsv.gz", folder / "bare.tsv.gz")]
        print(f"{given.sources:,} and {given.targets:,} lines; {pairs[0]:,} and {pairs[1]:,} pairs")


def timed(command: list[str], **how: Any) -> tuple[float, float]:
    """Run a process to its end: its seconds, and those of processors."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, **how) as process:
        try:
            status = process.wait()
        finally:
            process.terminate()
    if status:
        raise SystemExit(f"{' '.join(command)}: ended with status {status}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def bare(act: str, folder: Path) -> None:
    """The same by the library's own calls: embed the sources or, to mine, both sides, and search, join, rank and match."""
    from miner.encoders import load_encoder
    from miner.mining import candidates as scoring
    from miner.mining import matching, writers

    encoder = load_encoder("builtin")
    ids, vectors, texts = zip(
        *(embedded(encoder, folder / f"{side}.txt") for side in ("source", "target")[: 1 + (act == "mine")]), strict=True
    )
    if act == "embed":
        return
    forward, backward = compared(ids, vectors)
    means = [scoring.means_of(*side) for side in zip(ids, (forward, backward), strict=True)]
    edges = scoring.forward_edges(ids[0], forward), scoring.backward_edges(ids[1], backward)
    found = matching.match(matching.rank(scoring.score(scoring.join(*edges, *means), "ratio", THRESHOLD)), "max")
    with writers.text_writer(str(folder / "bare.tsv.gz")) as file:
        for margin, source, target in zip(found.margins, found.source_ids, found.target_ids, strict=True):
            file.write(f"{margin:.6f}\t{texts[0][source]}\t{texts[1][target]}\n")


def embedded(encoder: object, path: Path) -> tuple:
    """Ids (n,) ascending, vectors (n, dim) float16, and the texts by id."""
    import numpy as np

    from miner.config.commands import TextSettings
    from miner.text import normalise, readers

    by_id: dict[int, str] = {}
    for block in readers.read_sentences(str(path), TextSettings()):
        by_id.update(zip(normalise.sentence_ids(block.texts).tolist(), block.texts, strict=True))
    ids = np.sort(np.fromiter(by_id, dtype=np.int64, count=len(by_id)))
    texts = [by_id[each] for each in ids.tolist()]
    parts = [encoder.encode(texts[at : at + STRETCH]).astype(np.float16) for at in range(0, len(texts), STRETCH)]
    return ids, np.concatenate(parts), by_id


def compared(ids: tuple, vectors: tuple) -> tuple:
    """The neighbours of both sides."""
    from miner.search.exact import VectorBlock, search_block
    from miner.search.neighbours import empty_neighbours, stack_neighbours

    stretches = [
        [VectorBlock(side[at : at + STRETCH], rows[at : at + STRETCH]) for at in range(0, len(side), STRETCH)]
        for side, rows in zip(ids, vectors, strict=True)
    ]
    known = [[empty_neighbours(len(part.ids), K) for part in side] for side in stretches]
    for i, source in enumerate(stretches[0]):
        for j, target in enumerate(stretches[1]):
            known[0][i], known[1][j] = search_block(source, target, K, previous=(known[0][i], known[1][j]))
    return stack_neighbours(known[0]), stack_neighbours(known[1])


def workers(given: argparse.Namespace) -> None:
    """Print the seconds of each stage with one worker and with two."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scale.make(argparse.Namespace(folder=folder, data=given.data, sentences=given.sentences, shards=None))
        for side in ("en", "xx"):
            some = folder / f"some-{side}.txt"
            some.write_bytes(b"".join((folder / f"{side}-0.txt").read_bytes().splitlines(keepends=True)[: given.searched]))
            timed([*MINER, "embed", str(some), "--output", str(folder / side), "--shards", "4"])
        jobs = {
            "embed": (["embed", *(str(path) for path in sorted(folder.glob("en-*.txt")))], ("sentences", "embeddings")),
            "mine": (["mine", str(folder / "en"), str(folder / "xx"), "--engine", "exact", "--no-report"], ("search",)),
        }
        for act, (command, stages) in jobs.items():
            took: dict[int, list[dict[str, float]]] = {1: [], 2: []}
            for turn in range(given.runs):
                for number in took:
                    took[number].append(by_workers(number, command, folder / f"{act}-{number}-{turn}"))
            for stage in stages:
                one, two = (statistics.median(each[stage] for each in took[number]) for number in (1, 2))
                verdict = "" if stage == "sentences" else f", {'enough' if one / two >= GAIN else 'LESS than'} {GAIN}"
                print(f"{stage}: one worker {one:.1f} s, two workers {two:.1f} s: {one / two:.2f} times as fast{verdict}", flush=True)


def by_workers(number: int, command: list[str], output: Path) -> dict[str, float]:
    """Return the seconds of each stage with this number of worker processes, and as many cores."""
    cores = sorted(os.sched_getaffinity(0))[:number]
    figures = output.with_suffix(".json")
    options = ["--output", str(output), "--json", str(figures), "--", "--direct_running_mode=multi_processing"]
    timed(
        [*MINER, *command, *options, f"--direct_num_workers={number}"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    return dict(json.loads(figures.read_text())["seconds"])


def jobs(given: argparse.Namespace) -> None:
    """Print a row of a table for each number of pairs."""
    print("| pairs | jobs | elements | graphs, kB | sent by Dask, kB | seconds |\n|---|---|---|---|---|---|")
    for pairs in given.pairs:
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            counts = counted_run(Path(folder), pairs, given.changes, given.large)
            seconds = time.perf_counter() - start
        names = ("jobs", "elements", "graphs", "sent")
        count, elements, graphs, sent = (sum(each[name] for each in counts) for name in names)
        print(f"| {pairs} | {count} | {elements:,} | {graphs / 1e3:,.0f} | {sent / 1e3:,.0f} | {seconds:.1f} |", flush=True)


def counted_run(folder: Path, pairs: int, changes: list[str], is_large: bool) -> list[dict[str, int]]:
    """Run `miner run` in this process: one pivot and as many other corpora as pairs. Return the counts of each job."""
    import apache_beam as beam
    import yaml
    from apache_beam.internal import pickler

    from miner.config.base import load_yaml
    from miner.config.runs import RunConfig
    from pipelines.beam import beam_job
    from pipelines.beam.beam_job import PendingFile
    from pipelines.mining import mine
    from pipelines.mining.candidates import MiningLimits
    from pipelines.runs import run

    corpora = {}
    for number in range(pairs + 1):
        path = folder / f"c{number:03d}.txt"
        path.write_text("".join(f"sentence {line} of some corpus, {number}\n" for line in range(20)))
        corpora[path.stem] = {"files": str(path), "lang": "eng"}
    values = {"output": str(folder / "out"), "corpora": corpora, "pairs": {"pivot": "c000"}, "threshold": 1.0, "engine": "exact"}
    (folder / "run.yaml").write_text(yaml.safe_dump(values))
    counts: list[dict[str, int]] = []
    build = beam_job.build_pipeline

    def build_counted(missing: Any, options: Any) -> beam.Pipeline:
        built = build(missing, options)
        elements = sum(len(shards.shard_keys) for shards in missing)
        sent = elements * len(pickler.dumps(beam_job.WriteShard(PendingFile.write(missing, is_remote=True))))
        counts.append({"jobs": 1, "elements": elements, "graphs": len(built.to_runner_api().SerializeToString()), "sent": sent})
        return built

    beam_job.build_pipeline = build_counted
    mine_pair = mine.pipeline
    if is_large:
        mine.pipeline = lambda config, options, warns: mine_pair(config, options, MiningLimits(in_process_rows=0), warns)
    try:
        run.run(load_yaml(RunConfig, str(folder / "run.yaml"), changes))
    finally:
        beam_job.build_pipeline, mine.pipeline = build, mine_pair
    return counts


def requests(given: argparse.Namespace) -> None:
    """Print a table of the requests to an object store per shard."""
    log = object_requests.connect(given.store)
    counted = {}
    with tempfile.TemporaryDirectory() as folder:
        for shards in given.shards or ([20, 60] if given.command == "embed" else [4, 8, 12]):
            if given.command == "embed":
                counted[shards] = object_requests.count_embed(Path(folder), shards, log, given.store)
            else:
                counted[shards] = object_requests.count_mine(Path(folder), shards, log, given.store, given.engine)
    object_requests.print_table(counted)


if __name__ == "__main__":
    main()
