"""Flip one bit at random places of every kind of file, run the command that reads it, and count the outcomes; and those of attacks.py.

    python benchmarks/faults.py --flips 30
    python benchmarks/faults.py --flips 5 --only manifests candidates

Each command runs in a process of its own, on a copy of an intact directory. The outcome is `error` (status 1 and one line), `same` (status
0 and the result of intact files), `other` (status 0 and another result), `traceback`, or `crash` (a signal, or no end within a minute of
computing).
Exit status 1 if there is any of the last three.
"""

import argparse
import importlib
import os
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import attacks
import yaml
from outcomes import CODES, OUTCOMES, SECONDS, Arguments, hash_files, in_process, run

from miner.io import lock
from miner.training.steps import checkpoints

EXAMPLES = Path(__file__).parent.parent / "examples"
STEPS = 12  # of the training run whose checkpoints are damaged

MINE: Arguments = ["mine", "en", "de", "--threshold", 1, "--no-report"]
AGAIN: Arguments = ["mine", "--from-candidates", "mined", "--threshold", 1.1, "--no-report", "--output", "out"]
INDEXED: Arguments = ["mine", "index", "de", "--engine", "faiss", "--threshold", 1, "--no-report", "--output", "out"]
EMBED: Arguments = ["embed", "en.txt", "--lang", "en", "--encoder", "encoder", "--output", "out"]
OPTIONS: Arguments = ["--lang", "de", "--pooling", "mean", "--output"]
WITH_CHECKSUMS: Arguments = ["embed", "de.txt", "--encoder", "saved", *OPTIONS, "out"]
MADE_ELSEWHERE: Arguments = ["embed", "de.txt", "en.txt", "--encoder", "transformer", *OPTIONS, "de-transformer"]
EXPORT: Arguments = ["export", "mined", "--format", "jsonl", "--output", "exported"]
CONVERT: Arguments = ["data", "convert", "opus-moses"]
TRAIN: Arguments = ["train", "train.yaml", "--output", "trained", "--resume", "--no-report"]

# Kind of file -> pattern of the files that are damaged, the command that reads them, and what it writes.
ROWS: dict[str, tuple[str, Arguments, str]] = {
    "embeddings (mine)": ("en/embeddings/part-*", [*MINE, "--output", "out"], "out/bitext.tsv.gz"),
    "embeddings (index)": ("en/embeddings/part-*", ["index", "en", "--output", "out"], "out/part-*"),
    "embeddings beside an index": ("en/embeddings/part-*", INDEXED, "out/bitext.tsv.gz"),
    "index": ("index/part-*", INDEXED, "out/bitext.tsv.gz"),
    "vectors of an index": ("index/vectors/part-*", INDEXED, "out/bitext.tsv.gz"),
    "sentences (mine)": ("en/sentences/part-*", [*MINE, "--output", "out"], "out/bitext.tsv.gz"),
    "candidates (--from-candidates)": ("mined/candidates/part-*", AGAIN, "out/bitext.tsv.gz"),
    "bitext (report)": ("mined/bitext.parquet", ["report", "mined"], "mined/report.html"),
    "bitext (export)": ("mined/bitext.parquet", ["export", "mined", "--format", "tsv", "--output", "out"], "out/*.tsv*"),
    "manifest of a bitext (report)": ("mined/manifest.json", ["report", "mined"], "mined/report.html"),
    "manifests of a corpus (mine)": ("en/*/manifest.json", [*MINE, "--output", "out"], "out/bitext.tsv.gz"),
    "manifest of candidates": ("mined/candidates/manifest.json", AGAIN, "out/bitext.tsv.gz"),
    "manifests of an index": ("index/**/manifest.json", INDEXED, "out/bitext.tsv.gz"),
    "engine.json (mine again)": ("mined/neighbours/engine.json", [*MINE, "--output", "mined"], "mined/bitext.tsv.gz"),
    "increments.json (embed again)": ("en/sentences/increments.json", [*EMBED[:-1], "en"], "en/*/part-*"),
    "markers (embed again)": ("en/*/_shards/*.json", [*EMBED[:-1], "en"], "en/*/part-*"),
    "static encoder: vectors": ("encoder/vectors.safetensors", EMBED, "out/embeddings/part-*"),
    "static encoder: SentencePiece model": ("encoder/sentencepiece.model", EMBED, "out/embeddings/part-*"),
    "static encoder: miner.json": ("encoder/miner.json", EMBED, "out/embeddings/part-*"),
    "transformer with checksums: all files": ("saved/*", WITH_CHECKSUMS, "out/embeddings/part-*"),
    "transformer made elsewhere (embed again): weights": ("transformer/*.safetensors", MADE_ELSEWHERE, "de-transformer/embeddings/part-*"),
    "transformer made elsewhere (embed again): JSON": ("transformer/*.json", MADE_ELSEWHERE, "de-transformer/embeddings/part-*"),
    "lock of a dead run (embed again)": ("en/_lock-*", [*EMBED[:-1], "en"], "en/*/part-*"),
    "neighbours and candidates (mine again)": ("mined/*/**/part-*", [*MINE, "--output", "mined"], "mined/bitext.tsv.gz"),
    "manifests of neighbours and candidates (mine again)": (
        "mined/*/**/manifest.json",
        [*MINE, "--output", "mined"],
        "mined/bitext.tsv.gz",
    ),
    "JSON of a run (run again)": ("ran/**/*.json", ["run", "run.yaml", "--no-report"], "ran/pairs/*/bitext.tsv.gz"),
    "run.json (report)": ("ran/run.json", ["report", "ran"], "ran/report.html"),
    "export.json (export again)": ("exported/export.json", EXPORT, "exported/*.jsonl"),
    "result.json and train.json (train --resume)": (
        "finished/*.json",
        [*TRAIN, "--output", "finished"],
        "finished/encoder/vectors.safetensors",
    ),
    "checkpoint": ("trained/checkpoints/step-*/*", TRAIN, "trained/encoder/vectors.safetensors"),
    "work files of training": ("trained/work/*/*", TRAIN, "trained/encoder/vectors.safetensors"),
    **{
        f"archive {extension} (data convert)": (f"release{extension}", [*CONVERT, f"release{extension}", "--output", "out.tsv"], "out.tsv")
        for extension in attacks.ARCHIVES
    },
}


# Imported before processes fork, since imports take longer than most commands.
MODULES = ("miner.encoders.static", "miner.training.run", "miner.report.build", "miner.export.export", "pipelines.mining.mine", "faiss")


def train_half(config: dict[str, object]) -> str:
    """Train, and stop with the checkpoints of the last steps and the work files."""
    from miner.training import run as training
    from miner.training.config import TrainConfig
    from miner.training.steps.trainer import learning_rate

    trainer, _ = training.prepare(TrainConfig(**config), Path("trained"))
    batches = trainer.load_batches()
    for _ in range(STEPS - 2):
        trainer.take_step(learning_rate(trainer.progress.step, trainer.num_steps, trainer.settings), batches)
        trainer.save_checkpoint()
    return "done"


def prepare(rows: int) -> str:
    """Write the intact files into the current directory."""
    from miner.encoders import find_folder

    for lang in ("en", "de"):
        lines = (EXAMPLES / f"{lang}.txt").read_text(encoding="utf-8").splitlines()[:rows]
        Path(f"{lang}.txt").write_text("\n".join(lines), encoding="utf-8")
    shutil.copytree(find_folder("builtin"), "encoder")
    gold = [line.split("\t") for line in (EXAMPLES / "gold.en-de.tsv").read_text(encoding="utf-8").splitlines()]
    Path("pairs.tsv").write_text("source\ttarget\n" + "".join(f"one {row[0]}\teins {row[-1]}\n" for row in gold[:200]), encoding="utf-8")
    config = {
        "encoder": {"kind": "static", "dim": 8, "spelling_buckets": 64, "vocabulary": {"size": 40}},
        "data": [{"strategy": "parallel", "files": ["pairs.tsv"], "columns": {"source": "source", "target": "target"}}],
        "objective": [{"loss": "info_nce"}],
        "training": {"steps": STEPS, "batch_size": 8, "checkpoint_every": 1},
    }
    Path("train.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    for lang in ("en", "de"):
        assert run(["embed", f"{lang}.txt", "--lang", lang, "--encoder", "encoder", "--output", lang]) == "done"
    save_transformer(Path("transformer"))
    with checkpoints.atomic_folder(Path("saved")) as folder:
        shutil.copytree("transformer", folder, dirs_exist_ok=True)
    settings = {"output": "ran", "corpora": {"en": "en.txt", "de": "de.txt"}, "encoder": "encoder", "threshold": 1, "engine": "exact"}
    Path("run.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    for command in (
        ["embed", "de.txt", "--encoder", "transformer", *OPTIONS, "de-transformer"],
        ["index", "en", "--output", "index"],
        [*MINE, "--output", "mined"],
        ["run", "run.yaml", "--no-report"],
        EXPORT,
        [*TRAIN, "--output", "finished"],
    ):
        assert run(command) == "done", command
    attacks.prepare(rows)
    in_process(lambda: leave_lock("en"))
    return train_half(config)


def save_transformer(folder: Path) -> None:
    """Save a BERT of random weights whose tokens are words, as other programs do: without checksums."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = {word: None for lang in ("en", "de") for word in re.findall(r"\w+|[^\w\s]", Path(f"{lang}.txt").read_text(encoding="utf-8"))}
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate([*special, *words])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=len(special) + len(words), max_position_embeddings=128, initializer_range=0.5, **sizes)
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)


def leave_lock(folder: str) -> str:
    """Die with the lock of a directory."""
    with lock.hold(folder):
        os._exit(CODES["error"])


def copy_intact(intact: Path) -> Path:
    """Make a copy of the intact files the current directory."""
    work = intact.with_name("work")  # always the same path, which the fingerprints of training inputs contain
    os.chdir(intact)
    shutil.rmtree(work)
    shutil.copytree(intact, work)
    os.chdir(work)
    return work


def outcome_of_flip(intact: Path, row: tuple[str, Arguments, str], expected: str, rng: random.Random | None) -> str:
    """Flip a bit in a copy of the intact files, none without `rng`, and run the command of a row."""
    pattern, command, output = row
    work = copy_intact(intact)
    if rng is not None:
        path = rng.choice(sorted(path for path in work.glob(pattern) if path.is_file()))
        data = bytearray(path.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(data))
    result = in_process(lambda: run(command))
    if result == "done":
        digest = hash_files(output)
        result = digest if rng is None else ("same" if digest == expected else "other")
    return result


def outcome_of_attack(intact: Path, attack: attacks.Attack, seed: str, number: int) -> str:
    copy_intact(intact)
    return in_process(lambda: attack(random.Random(f"{seed} {number}"), number))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=30, help="per kind of file")
    parser.add_argument("--attempts", type=int, help="at most, per attack; by default those of benchmarks/faults.md")
    parser.add_argument("--rows", type=int, default=60, help="sentences of each corpus")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the names of kinds of files")
    arguments = parser.parse_args()
    num_faults = 0
    for module in MODULES:
        importlib.import_module(module)
    with tempfile.TemporaryDirectory(prefix="miner-intact-") as folder:
        work, intact = Path(folder) / "work", Path(folder) / "intact"
        work.mkdir()
        os.chdir(work)
        if in_process(lambda: prepare(arguments.rows), 20 * SECONDS) != "done":
            sys.exit("the intact files could not be written")
        shutil.copytree(work, intact)
        print(f"| file or attack | attempts | {' | '.join(OUTCOMES)} |\n|---|{'---|' * (1 + len(OUTCOMES))}")
        for name, row in ROWS.items():
            if any(part in name for part in arguments.only):
                rng = random.Random(f"{arguments.seed} {name}")
                expected = outcome_of_flip(intact, row, "", None)
                if expected in OUTCOMES:
                    sys.exit(f"{name}: the command fails on intact files")
                counts = Counter(outcome_of_flip(intact, row, expected, rng) for _ in range(arguments.flips))
                print(f"| {name} | {arguments.flips} | {' | '.join(str(counts[outcome]) for outcome in OUTCOMES)} |", flush=True)
                num_faults += sum(counts[outcome] for outcome in OUTCOMES[2:])
        for name, (times, attack) in attacks.ATTACKS.items():
            if any(part in name for part in arguments.only):
                times = times if arguments.attempts is None else min(times, arguments.attempts)
                counts = Counter(outcome_of_attack(intact, attack, f"{arguments.seed} {name}", number) for number in range(times))
                print(f"| {name} | {times} | {' | '.join(str(counts[outcome]) for outcome in OUTCOMES)} |", flush=True)
                num_faults += sum(counts[outcome] for outcome in OUTCOMES[2:])
        os.chdir("/")
    return min(1, num_faults)


if __name__ == "__main__":
    sys.exit(main())
