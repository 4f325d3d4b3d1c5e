"""Sentences a second through `miner embed`, text in to Parquet out, beside model2vec's StaticModel of the same shape.

    python benchmarks/encode.py                               # a million lines of about 40 characters, made from examples/
    python benchmarks/encode.py --text news.txt --cores 2     # the lines of a file

`miner embed` runs as a user would run it: a new process that reads the text, cleans, hashes and drops duplicates, encodes, and
writes both tables. Its start-up is counted, less the first second. model2vec gets the same lines, already read and unique, and
only returns an array; its model has our pieces, scores and vectors, in a tokenizer of Hugging Face's.
"""

import argparse
import itertools
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"
WIDTH = 40  # characters of a made-up line, about


def made_lines(count: int) -> list[str]:
    """Unique lines of about WIDTH characters, spliced from the sentences of examples/; always the same."""
    chance = random.Random(0)
    halves = [half for path in sorted(EXAMPLES.glob("*.txt")) for half in _halves(path)]
    lines: dict[str, None] = {}
    while len(lines) < count:
        lines[f"{chance.choice(halves)} {chance.choice(halves)}"] = None
    return list(lines)


def _halves(path: Path) -> Iterator[str]:
    """Runs of words of about WIDTH / 2 characters."""
    held = ""
    for word in path.read_text(encoding="utf-8").split():
        held = f"{held} {word}".strip()
        if len(held) >= WIDTH / 2 - 3:
            yield held
            held = ""


def time_miner(text: Path, encoder: str) -> float:
    """Seconds of `miner embed` from the start of its process to the end; prints what it says, and what it took of the cores."""
    with tempfile.TemporaryDirectory() as folder:
        program = "from miner.cli.main import main; main()"
        command = [sys.executable, "-c", program, "embed", str(text), "--encoder", encoder, "--output", f"{folder}/out"]
        started = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        seconds = time.perf_counter() - started
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    print("".join(f"  {line}\n" for line in done.stdout.splitlines()), end="")
    print(f"  {use.ru_utime + use.ru_stime:.1f} s of the cores, peak resident memory {use.ru_maxrss / 2**20:.2f} GB")
    return seconds


def time_model2vec(lines: list[str], encoder: str) -> float:
    """Seconds of StaticModel.encode on the same pieces and vectors."""
    from model2vec import StaticModel
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    from miner.encoders import load_encoder
    from miner.encoders.static import StaticEncoder

    ours = load_encoder(encoder)
    if not isinstance(ours, StaticEncoder):
        raise SystemExit(f"{encoder}: not a static encoder, so model2vec has nothing of its shape")
    pieces = [(ours.pieces.id_to_piece(number), ours.pieces.get_score(number)) for number in range(len(ours.vectors))]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=ours.pieces.unk_id(), byte_fallback=False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    theirs = StaticModel(ours.vectors, tokenizer, normalize=True)
    started = time.perf_counter()
    theirs.encode(lines)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="a text file with a sentence on each line")
    parser.add_argument("--lines", type=int, default=1_000_000, help="how many lines to make, or to take of the text")
    parser.add_argument("--encoder", default="builtin")
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[: arguments.cores]
    os.sched_setaffinity(0, cores)
    if arguments.text is None:
        lines = made_lines(arguments.lines)
    else:
        with arguments.text.open(encoding="utf-8", newline="\n") as handle:
            lines = list(dict.fromkeys(line.strip() for line in itertools.islice(handle, arguments.lines) if line.strip()))
    characters = sum(map(len, lines)) / len(lines)
    print(f"{len(lines):,} unique lines of {characters:.1f} characters on {len(cores)} cores, encoder {arguments.encoder}")
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "lines.txt"
        text.write_text("\n".join(lines) + "\n", encoding="utf-8")
        ours = time_miner(text, arguments.encoder)
    print(f"miner embed: {ours:.1f} s, {len(lines) / (ours - 1):,.0f} sentences a second past the first second")
    theirs = time_model2vec(lines, arguments.encoder)
    print(f"model2vec StaticModel.encode: {theirs:.1f} s, {len(lines) / theirs:,.0f} sentences a second")


if __name__ == "__main__":
    main()
