"""A trained transformer as a folder that `miner`, sentence-transformers and transformers load alike."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers.utils.logging import disable_progress_bar

from miner import storage
from miner.encoders.model_folder import CONFIG, MODULES, TANH, ModelRecipe

PACKAGE = "sentence_transformers.models"
LAYER_WEIGHTS = "layer_weights"

# Pooling that mixes layers -> the first layer of the mixture, counted from the embeddings (0) or, if negative, from the last.
MIXTURES = {"first_last_avg": 1, "avg_top2": -2}


def save(recipe: ModelRecipe, model: Any, tokenizer: Any, pooling: str, head: nn.Linear | None) -> None:
    """Write weights, tokenizer, pooling and, where there is one, the head (followed by a Tanh) to the folder of the recipe."""
    folder, width = recipe.folder, int(model.config.hidden_size)
    model.config.output_hidden_states = pooling in MIXTURES
    disable_progress_bar()  # of transformers, for the files it writes
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": recipe.max_tokens, "do_lower_case": recipe.lower_case})
    names = ["Transformer"]
    if pooling in MIXTURES:
        names.append("WeightedLayerPooling")
        _save_mixture(folder / _place(names), MIXTURES[pooling], int(model.config.num_hidden_layers), width)
        pooling = "mean"
    names.append("Pooling")
    _write(folder / _place(names) / CONFIG, {"word_embedding_dimension": width, **_flags(pooling)})
    if head is not None:
        names.append("Dense")
        _save_dense(folder / _place(names), head)
    names.append("Normalize")
    (folder / _place(names)).mkdir(exist_ok=True)
    _write_modules(folder, names)
    if recipe.prompt:
        settings = {"prompts": {"default": recipe.prompt}, "default_prompt_name": "default"}
        _write(folder / "config_sentence_transformers.json", settings)


def _place(names: list[str]) -> str:
    """The folder of the last of these modules."""
    return "" if len(names) == 1 else f"{len(names) - 1}_{names[-1]}"


def _write_modules(folder: Path, names: list[str]) -> None:
    places = [_place(names[: number + 1]) for number in range(len(names))]
    modules = [
        {"idx": number, "name": str(number), "path": place, "type": f"{PACKAGE}.{name}"}
        for number, (name, place) in enumerate(zip(names, places, strict=True))
    ]
    _write(folder / MODULES, modules)


def _flags(pooling: str) -> dict[str, bool]:
    kinds = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
    return {f"pooling_mode_{flag}": name == pooling for name, flag in kinds.items()}


def _save_mixture(folder: Path, first: int, layers: int, width: int) -> None:
    """The mean of two layers, one of them the last."""
    start = first if first > 0 else layers + 1 + first
    weights = torch.zeros(layers + 1 - start)
    weights[0] = weights[-1] = 1
    folder.mkdir(parents=True, exist_ok=True)
    save_file({LAYER_WEIGHTS: weights}, folder / "model.safetensors")
    _write(folder / CONFIG, {"word_embedding_dimension": width, "layer_start": start, "num_hidden_layers": layers})


def _save_dense(folder: Path, head: nn.Linear) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {"linear.weight": head.weight.detach().cpu().contiguous(), "linear.bias": head.bias.detach().cpu()}, folder / "model.safetensors"
    )
    sizes = {"in_features": head.in_features, "out_features": head.out_features, "bias": True}
    _write(folder / CONFIG, {**sizes, "activation_function": TANH})


def _write(path: Path, value: Any) -> None:
    storage.write_json(str(path), value)
