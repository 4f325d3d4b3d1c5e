"""Training: speed against the trainer of sentence-transformers, memory with and without gradient cache, and killed runs.

    python benchmarks/training.py speed     (needs `pip install datasets` for sentence-transformers)
    python benchmarks/training.py speed --model DIR --batch 32     (a pretrained model, such as E5-small with its 250,037 pieces)
    python benchmarks/training.py memory
    python benchmarks/training.py soak      (kills and resumes a run at random moments; its encoder must equal that of an uninterrupted one)

Without --model, the transformer has random weights, XLM-R's architecture and a tokenizer trained on the demo corpora. Pairs are lines
of the demo corpora; they are not translations, which affects neither speed nor memory.
"""

import argparse
import filecmp
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import pyarrow as pa
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

EXAMPLES = Path(__file__).parent.parent / "examples"
SIZES = {"tiny": (64, 2), "small": (384, 6), "base": (768, 12)}  # width, layers
MAX_TOKENS, VOCABULARY = 32, 8000


def read_lines(name: str) -> list[str]:
    return (EXAMPLES / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def prepare(folder: Path, size: str) -> None:
    """Write a model, and pairs of English and German lines."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(
        read_lines("en") + read_lines("de"), trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    names = {"bos_token": "<s>", "cls_token": "<s>", "sep_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="<mask>", **names).save_pretrained(folder / "model")
    width, layers = SIZES[size]
    config = transformers.XLMRobertaConfig(
        vocab_size=VOCABULARY, hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 32, intermediate_size=4 * width,
        max_position_embeddings=130, pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.XLMRobertaModel(config).save_pretrained(folder / "model")
    pairs = [f"{a}\t{b}\n" for a, b in zip(read_lines("en"), read_lines("de"), strict=False)]
    (folder / "pairs.tsv").write_text("en\tde\n" + "".join(pairs), encoding="utf-8")


def time_miner(folder: Path, batch: int, steps: int, cache: int | None, dtype: str) -> float:
    """Train with `miner`; return the seconds of the steps."""
    from miner.training import run
    from miner.training.config import TrainConfig

    config = TrainConfig.check(
        encoder={"kind": "transformer", "model": str(folder / "model"), "pooling": "mean", "max_tokens": MAX_TOKENS},
        data=[{"strategy": "parallel", "files": [str(folder / "pairs.tsv")], "columns": {"source": "en", "target": "de"}}],
        objective=[{"loss": "info_nce"}],
        training={"lr": 1e-4, "batch_size": batch, "steps": steps, "clip": 1.0, "gradient_cache": cache, "dtype": dtype},
    )
    with tempfile.TemporaryDirectory() as output:
        run.train(config, output)
        last = json.loads((Path(output) / "log.jsonl").read_text().splitlines()[-1])
    return float(last["examples"] / last["examples_per_second"])


class StepTimer(transformers.TrainerCallback):  # type: ignore[misc]
    """Record when the steps of sentence-transformers start and end, without the model card it writes first."""

    start = end = 0.0

    def on_epoch_begin(self, *_: object, **__: object) -> None:
        self.start = self.start or time.perf_counter()

    def on_step_end(self, *_: object, **__: object) -> None:
        self.end = time.perf_counter()


def time_sentence_transformers(folder: Path, batch: int, steps: int, dtype: str) -> float:
    """Train with sentence-transformers; return the seconds of the steps."""
    import datasets
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    model = SentenceTransformer(str(folder / "model"))
    model.max_seq_length = MAX_TOKENS
    rows = [line.split("\t") for line in (folder / "pairs.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    table = pa.table({"anchor": [row[0] for row in rows], "positive": [row[1] for row in rows]})
    # Set a fingerprint, since dill cannot pickle Arrow types to compute one.
    data = datasets.Dataset(datasets.table.InMemoryTable(table), fingerprint="pairs")
    with tempfile.TemporaryDirectory() as output:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=output, per_device_train_batch_size=batch, max_steps=steps, learning_rate=1e-4, save_strategy="no", report_to="none",
            logging_steps=20, disable_tqdm=True, bf16=dtype == "bfloat16", fp16=dtype == "float16", use_cpu=not torch.cuda.is_available(),
        )  # fmt: skip
        loss, timer = MultipleNegativesRankingLoss(model, scale=20), StepTimer()
        trainer = SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=loss, callbacks=[timer])
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        return timer.end - timer.start


def speed(arguments: argparse.Namespace) -> None:
    """Time both trainers alternately, each in a process of its own, so that other load affects both."""
    figures: dict[str, list[list[float]]] = {"miner": [], "sentence-transformers": []}
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name), arguments.size)
        if arguments.model:
            shutil.rmtree(Path(name) / "model")
            shutil.copytree(arguments.model, Path(name) / "model")
        for _ in range(arguments.rounds):
            for trainer, values in figures.items():
                command = [sys.executable, __file__, "speed-of", "--model", name, "--trainer", trainer, "--dtype", arguments.dtype]
                command += ["--batch", str(arguments.batch), "--steps", str(arguments.steps)]
                values.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]))
    for trainer, values in figures.items():
        rates, seconds, gigabytes = ([row[column] for row in values] for column in range(3))
        print(
            f"{trainer}: median {statistics.median(rates):,.1f} pairs/s of {', '.join(f'{rate:,.1f}' for rate in rates)};"
            f" {min(seconds):.1f} s of processor time for the run; peak memory {max(gigabytes):.2f} GB"
        )


def print_speed(arguments: argparse.Namespace) -> None:
    """Print pairs per second, processor time and peak memory (GB) of one run of a trainer."""
    size = arguments.batch, arguments.steps
    if arguments.trainer == "miner":
        seconds = time_miner(Path(arguments.model), *size, None, arguments.dtype)
    else:
        seconds = time_sentence_transformers(Path(arguments.model), *size, arguments.dtype)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps([arguments.batch * arguments.steps / seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e6]))


def memory(_: argparse.Namespace) -> None:
    """Print the peak memory of one process per batch size and cache."""
    for batch, cache in ((128, None), (128, 64), (4096, 64), (4096, None)):
        command = [sys.executable, __file__, "memory-of", "--batch", str(batch), "--cache", str(cache or 0)]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")


def print_peak_memory(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name), "tiny")
        time_miner(Path(name), arguments.batch, 2, arguments.cache or None, "float32")
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"batch {arguments.batch}, {f'{arguments.cache} texts at a time' if arguments.cache else 'all at once'}: {peak_mb:,.0f} MB")


SOAK_CONFIG = """
encoder: {{kind: transformer, model: {folder}/model, pooling: mean, max_tokens: 32}}
data: [{{strategy: parallel, files: [{folder}/pairs.tsv], columns: {{source: en, target: de}}, swap: true}}]
objective: [{{loss: momentum, queue: 1000, momentum: 0.9}}, {{loss: mlm}}]
training: {{lr: 1.0e-3, batch_size: 32, steps: 150, accumulation: 2, gradient_cache: 16, checkpoint_every: 5, log_every: 1}}
evaluation: {{files: [{folder}/pairs.tsv], columns: {{source: en, target: de}}, every: 30}}
"""


def soak(arguments: argparse.Namespace) -> None:
    """Kill and resume `miner train` at random moments until it completes, and repeat for the given time."""
    generator, kills, rounds = random.Random(arguments.seed), 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, "tiny")
        (folder / "config.yaml").write_text(SOAK_CONFIG.format(folder=folder))
        start = time.monotonic()
        train(folder, "uninterrupted", None)
        run_seconds = time.monotonic() - start
        while not rounds or time.monotonic() - start < 60 * arguments.minutes:
            shutil.rmtree(folder / "killed", ignore_errors=True)
            while not train(folder, "killed", generator.uniform(0.2, 1.0) * run_seconds):
                kills += 1
            rounds += 1
            if different := filecmp.dircmp(folder / "uninterrupted" / "encoder", folder / "killed" / "encoder").diff_files:
                sys.exit(f"round {rounds}, after {kills} kills: {', '.join(different)} differ")
    print(f"uninterrupted {run_seconds:.1f} s; {rounds} rounds, {kills} kills: every file of the encoder is the same")


def train(folder: Path, output: str, seconds: float | None) -> bool:
    """Run `miner train --resume` and kill it after `seconds`; return whether it completed."""
    command = [sys.executable, "-m", "miner.cli.main", "train", str(folder / "config.yaml"), "--output", str(folder / output), "--resume"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if process.wait(seconds):
            sys.exit(f"{' '.join(command)}: ended with status {process.returncode}")
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


COMMANDS = {"speed": speed, "speed-of": print_speed, "memory": memory, "memory-of": print_peak_memory, "soak": soak}


def main() -> None:
    parser = argparse.ArgumentParser(description=next(islice((__doc__ or "").splitlines(), 1)))
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--model", help="directory of a model of sentence-transformers; by default, a random one of --size")
    parser.add_argument("--trainer", choices=["miner", "sentence-transformers"])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    arguments = parser.parse_args()
    COMMANDS[arguments.command](arguments)


if __name__ == "__main__":
    main()
