"""What training takes: its speed beside sentence-transformers' trainer, its memory with and without gradient caching; and kills.

    python benchmarks/training.py speed     (wants `pip install datasets` for the other trainer)
    python benchmarks/training.py memory
    python benchmarks/training.py soak      (kills a run at random moments, resumes it, and compares its encoder with an undisturbed one)

The transformer has random weights, XLM-R's architecture and tokens learned from the demo corpora; pairs are lines of the demo
corpora. Line i of one does not translate line i of the other, which neither speed nor memory feels.
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
SIZES = {"tiny": (64, 2), "small": (384, 6)}  # width, layers
MAX_TOKENS, VOCABULARY = 32, 8000


def lines(name: str) -> list[str]:
    return (EXAMPLES / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def prepare(folder: Path, size: str) -> None:
    """A model, and pairs of English and German lines."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(
        lines("en") + lines("de"), trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special, show_progress=False)
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
    pairs = [f"{a}\t{b}\n" for a, b in zip(lines("en"), lines("de"), strict=False)]
    (folder / "pairs.tsv").write_text("en\tde\n" + "".join(pairs), encoding="utf-8")


def ours(folder: Path, batch: int, steps: int, cache: int | None, dtype: str) -> float:
    """Train by `miner`; the seconds that the steps take."""
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


class Clock(transformers.TrainerCallback):  # type: ignore[misc]
    """When the steps of the other trainer began and ended: without the model card it makes before them."""

    began = ended = 0.0

    def on_epoch_begin(self, *_: object, **__: object) -> None:
        self.began = self.began or time.perf_counter()

    def on_step_end(self, *_: object, **__: object) -> None:
        self.ended = time.perf_counter()


def theirs(folder: Path, batch: int, steps: int, dtype: str) -> float:
    """Train by sentence-transformers; the seconds that the steps take."""
    import datasets
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    model = SentenceTransformer(str(folder / "model"))
    model.max_seq_length = MAX_TOKENS
    rows = [line.split("\t") for line in (folder / "pairs.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    table = pa.table({"anchor": [row[0] for row in rows], "positive": [row[1] for row in rows]})
    # With a fingerprint of its own: to find one, dill would have to pickle Arrow's types, which it cannot.
    data = datasets.Dataset(datasets.table.InMemoryTable(table), fingerprint="pairs")
    with tempfile.TemporaryDirectory() as output:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=output, per_device_train_batch_size=batch, max_steps=steps, learning_rate=1e-4, save_strategy="no", report_to="none",
            logging_steps=20, disable_tqdm=True, bf16=dtype == "bfloat16", fp16=dtype == "float16", use_cpu=not torch.cuda.is_available(),
        )  # fmt: skip
        loss, clock = MultipleNegativesRankingLoss(model, scale=20), Clock()
        trainer = SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=loss, callbacks=[clock])
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        return clock.ended - clock.began


def speed(arguments: argparse.Namespace) -> None:
    """Both trainers in turn, so that whatever else the machine does meets both."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, arguments.size)
        taken: dict[str, list[float]] = {"miner": [], "sentence-transformers": []}
        for _ in range(arguments.rounds):
            taken["miner"].append(ours(folder, arguments.batch, arguments.steps, None, arguments.dtype))
            taken["sentence-transformers"].append(theirs(folder, arguments.batch, arguments.steps, arguments.dtype))
    for name_, seconds in taken.items():
        rates = [arguments.batch * arguments.steps / second for second in seconds]
        print(f"{name_}: median {statistics.median(rates):,.0f} pairs/s of {', '.join(f'{rate:,.0f}' for rate in rates)}")


def memory(_: argparse.Namespace) -> None:
    """The most memory that processes of their own take."""
    for batch, cache in ((128, None), (128, 64), (4096, 64), (4096, None)):
        command = [sys.executable, __file__, "one", "--batch", str(batch), "--cache", str(cache or 0)]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")


def one(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name), "tiny")
        ours(Path(name), arguments.batch, 2, arguments.cache or None, "float32")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"batch {arguments.batch}, {f'{arguments.cache} texts at a time' if arguments.cache else 'all at once'}: {most:,.0f} MB")


SOAKED = """
encoder: {{kind: transformer, model: {folder}/model, pooling: mean, max_tokens: 32}}
data: [{{strategy: parallel, files: [{folder}/pairs.tsv], columns: {{source: en, target: de}}, swap: true}}]
objective: [{{loss: momentum, queue: 1000, momentum: 0.9}}, {{loss: mlm}}]
training: {{lr: 1.0e-3, batch_size: 32, steps: 150, accumulation: 2, gradient_cache: 16, checkpoint_every: 5, log_every: 1}}
evaluation: {{files: [{folder}/pairs.tsv], columns: {{source: en, target: de}}, every: 30}}
"""


def soak(arguments: argparse.Namespace) -> None:
    """Kill `miner train` between its start and its end, as often as it takes to end, and again from the beginning."""
    chance, kills, rounds = random.Random(arguments.seed), 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, "tiny")
        (folder / "config.yaml").write_text(SOAKED.format(folder=folder))
        began = time.monotonic()
        train(folder, "whole", None)
        whole = time.monotonic() - began
        while not rounds or time.monotonic() - began < 60 * arguments.minutes:
            shutil.rmtree(folder / "killed", ignore_errors=True)
            while not train(folder, "killed", chance.uniform(0.2, 1.0) * whole):
                kills += 1
            rounds += 1
            if different := filecmp.dircmp(folder / "whole" / "encoder", folder / "killed" / "encoder").diff_files:
                sys.exit(f"round {rounds}, after {kills} kills: {', '.join(different)} differ")
    print(f"undisturbed {whole:.1f} s; {rounds} rounds, {kills} kills: every file of the encoder is the same")


def train(folder: Path, output: str, seconds: float | None) -> bool:
    """Run `miner train --resume`, and kill it after some seconds; whether it ended by itself."""
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


COMMANDS = {"speed": speed, "memory": memory, "one": one, "soak": soak}


def main() -> None:
    parser = argparse.ArgumentParser(description=next(islice((__doc__ or "").splitlines(), 1)))
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--size", choices=SIZES, default="small")
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
