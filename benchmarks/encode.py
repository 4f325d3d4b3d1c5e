"""Sentences per second of `miner embed`, from text to Parquet, compared with model2vec's StaticModel of the same size.

    python benchmarks/encode.py                               # a million lines of about 40 characters, spliced from examples/
    python benchmarks/encode.py --text news.txt --cores 2     # the lines of a file

`miner embed` runs in a new process, which reads the text, cleans, hashes, deduplicates and encodes it, and writes both tables. Its
time includes start-up, minus the first second. model2vec gets the same unique lines in memory and only returns an array; its model has
the same pieces, scores and vectors, in a Hugging Face tokenizer.
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
LINE_CHARACTERS = 40  # approximate length of a spliced line


def splice_lines(count: int) -> list[str]:
    """Return unique lines of about LINE_CHARACTERS, spliced from the sentences of examples/ with a fixed seed."""
    chance = random.Random(0)
    halves = [half for path in sorted(EXAMPLES.glob("*.txt")) for half in _split_halves(path)]
    lines: dict[str, None] = {}
    while len(lines) < count:
        lines[f"{chance.choice(halves)} {chance.choice(halves)}"] = None
    return list(lines)


def _split_halves(path: Path) -> Iterator[str]:
    """Yield runs of words of about half of LINE_CHARACTERS."""
    half = ""
    for word in path.read_text(encoding="utf-8").split():
        half = f"{half} {word}".strip()
        if len(half) >= LINE_CHARACTERS / 2 - 3:
            yield half
            half = ""


def time_miner(text: Path, encoder: str) -> float:
    """Return the seconds of the process of `miner embed`; print its summary, processor time and memory."""
    with tempfile.TemporaryDirectory() as folder:
        program = "from miner.cli.main import main; main()"
        command = [sys.executable, "-c", program, "embed", str(text), "--encoder", encoder, "--output", f"{folder}/out"]
        started = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        seconds = time.perf_counter() - started
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    print("".join(f"  {line}\n" for line in done.stdout.splitlines()), end="")
    print(f"  {use.ru_utime + use.ru_stime:.1f} s processor time, peak resident memory {use.ru_maxrss / 2**20:.2f} GB")
    return seconds


def time_model2vec(lines: list[str], encoder: str) -> float:
    """Return the seconds of StaticModel.encode with the same pieces and vectors."""
    from model2vec import StaticModel
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    from miner.encoders import load_encoder
    from miner.encoders.static import StaticEncoder

    builtin = load_encoder(encoder)
    if not isinstance(builtin, StaticEncoder):
        raise SystemExit(f"{encoder}: not a static encoder, so model2vec cannot load it")
    pieces = [(builtin.pieces.id_to_piece(number), builtin.pieces.get_score(number)) for number in range(builtin.num_tokens)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=builtin.pieces.unk_id(), byte_fallback=False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    model = StaticModel(builtin.vectors, tokenizer, normalize=True)
    started = time.perf_counter()
    model.encode(lines)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="a text file with one sentence per line")
    parser.add_argument("--lines", type=int, default=1_000_000, help="number of lines to generate, or to read of the text")
    parser.add_argument("--encoder", default="builtin")
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[: arguments.cores]
    os.sched_setaffinity(0, cores)
    if arguments.text is None:
        lines = splice_lines(arguments.lines)
    else:
        with arguments.text.open(encoding="utf-8", newline="\n") as handle:
            lines = list(dict.fromkeys(line.strip() for line in itertools.islice(handle, arguments.lines) if line.strip()))
    characters = sum(map(len, lines)) / len(lines)
    print(f"{len(lines):,} unique lines of {characters:.1f} characters on {len(cores)} cores, encoder {arguments.encoder}")
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "lines.txt"
        text.write_text("\n".join(lines) + "\n", encoding="utf-8")
        miner_seconds = time_miner(text, arguments.encoder)
    print(f"miner embed: {miner_seconds:.1f} s, {len(lines) / (miner_seconds - 1):,.0f} sentences per second after the first second")
    model2vec_seconds = time_model2vec(lines, arguments.encoder)
    print(f"model2vec StaticModel.encode: {model2vec_seconds:.1f} s, {len(lines) / model2vec_seconds:,.0f} sentences per second")


if __name__ == "__main__":
    main()
