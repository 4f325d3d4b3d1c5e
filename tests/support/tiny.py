"""A language of numbers with known translations, and a transformer small enough to learn it in a test."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from miner.training import run
from miner.training.config import TrainConfig
from miner.training.steps.trainer import Trainer

NUMBERS = {
    "eng_Latn": ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
    "deu_Latn": ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"],
    "rus_Cyrl": ["ноль", "один", "два", "три", "четыре", "пять", "шесть", "семь", "восемь", "девять"],
}
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
WORDS = [*SPECIAL, *(word for words in NUMBERS.values() for word in words)]
WIDTH, LAYERS = 32, 3


def numbers(rows: int, seed: int, digits: int = 4) -> list[np.ndarray]:
    """Return rows of digits, unique as multisets, since mean pooling ignores the order."""
    samples = np.random.default_rng(seed).integers(0, 10, size=(4 * rows, digits))
    return list({tuple(sorted(row)): row for row in samples}.values())[:rows]


def sentence(lang: str, digits: Sequence[int]) -> str:
    return " ".join(NUMBERS[lang][digit] for digit in digits)


def write_tsv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in [header, *rows]))
    return path


def write_pairs(path: Path, rows: int = 400, seed: int = 1) -> Path:
    """Write English and German sentences of the same numbers."""
    pairs = [[sentence(lang, digits) for lang in ("eng_Latn", "deu_Latn")] for digits in numbers(rows, seed)]
    return write_tsv(path, ["en", "de"], pairs)


def save_transformer(
    folder: Path,
    dropout: float = 0.1,
    layers: int = LAYERS,
    width: int = WIDTH,
    words: Sequence[str] = WORDS,
    seed: int = 0,
    positions: int = 40,
) -> Path:
    """Save an XLM-R with random weights whose tokens are the number words."""
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=ends)
    special = {"bos_token": "<s>", "cls_token": "<s>", "sep_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", mask_token="<mask>", **special)
    fast.save_pretrained(folder)
    config = transformers.XLMRobertaConfig(
        vocab_size=len(words), hidden_size=width, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=positions, pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1, initializer_range=0.1,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    torch.manual_seed(seed)
    transformers.XLMRobertaForMaskedLM(config).save_pretrained(folder)
    return folder


def config(folder: Path, **training: Any) -> dict[str, Any]:
    """Return a training config for the tiny transformer on parallel sentences."""
    return {
        "encoder": {"kind": "transformer", "model": str(folder / "model"), "pooling": "mean"},
        "data": [{"strategy": "parallel", "files": [str(folder / "pairs.tsv")], "columns": {"source": "en", "target": "de"}}],
        "objective": [{"loss": "info_nce"}],
        "training": {"steps": 12, "batch_size": 32, "lr": 2e-3, **training},
    }


def prepare(folder: Path, output: str, cache: int | None = None, objective: str = "info_nce") -> Trainer:
    values = config(folder, gradient_cache=cache, batch_size=31)  # odd, so that two processes get different numbers of rows
    values["objective"][0]["loss"] = objective
    return run.prepare(TrainConfig(**values), folder / output)[0]


def compute_gradients(trainer: Trainer) -> list[torch.Tensor]:
    """Return the gradients of the first batch."""
    trainer.root.train()
    stream, seed = trainer.streams[0], [0, 0, 0, 0]
    trainer.accumulate_gradients(trainer.loader.load(stream.draw(np.random.default_rng(seed)), stream, seed))
    return [weight.grad.to_dense().clone() for weight in trainer.weights if weight.grad is not None]
