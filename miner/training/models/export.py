"""Write a trained transformer as a folder that `miner`, sentence-transformers and transformers can load."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers.utils.logging import disable_progress_bar

from miner import languages
from miner.encoders import STATIC, find_kind, pair
from miner.encoders.model_folder import CONFIG, MODULES, PROMPTS, TANH, ModelRecipe, read_json, read_recipe
from miner.encoders.pooling import POOLINGS, mixture_layers
from miner.io import storage
from miner.training.settings import TransformerSettings

PACKAGE = "sentence_transformers.models"
LAYER_WEIGHTS = "layer_weights"


def save(recipe: ModelRecipe, model: Any, tokenizer: Any, pooling: str, head: nn.Linear | None) -> None:
    """Write weights, tokenizer, pooling and, if given, the head (with a Tanh) to the folder of the recipe."""
    folder, width = recipe.folder, int(model.config.hidden_size)
    is_mixture = bool(POOLINGS[pooling].layers)
    model.config.output_hidden_states = is_mixture
    disable_progress_bar()  # transformers shows one for each file
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _write_json(folder / "sentence_bert_config.json", {"max_seq_length": recipe.max_tokens, "do_lower_case": recipe.lower_case})
    modules = ["Transformer"]
    if is_mixture:
        modules.append("WeightedLayerPooling")
        _save_mixture(folder / _module_folder(modules), pooling, int(model.config.num_hidden_layers), width)
        pooling = "mean"
    modules.append("Pooling")
    _write_json(folder / _module_folder(modules) / CONFIG, {"word_embedding_dimension": width, **_pooling_flags(pooling)})
    if head is not None:
        modules.append("Dense")
        _save_dense(folder / _module_folder(modules), head)
    modules.append("Normalize")
    (folder / _module_folder(modules)).mkdir(exist_ok=True)
    _write_modules(folder, modules)
    if recipe.prompt:
        store_prompt(folder, recipe.prompt)


def store_pooling(folder: Path, pooling: str) -> bool:
    """Make a folder of transformers one of sentence-transformers with this pooling; return whether it then states this pooling.

    It does not where it has modules with another one, and for a pooling of other layers than the last. A static encoder needs no change.
    """
    if find_kind(str(folder)) == STATIC:
        return True
    if (folder / MODULES).exists():
        return read_recipe(folder).pooling == (pooling,)
    if pooling not in POOLINGS or not POOLINGS[pooling].flag:
        return False
    modules = ["Transformer", "Pooling", "Normalize"]
    flags = {option.flag: name == pooling for name, option in POOLINGS.items() if option.flag}
    settings = {"word_embedding_dimension": read_json(folder / CONFIG).get("hidden_size"), **flags}
    _write_json(folder / _module_folder(modules[:2]) / CONFIG, settings)
    (folder / _module_folder(modules)).mkdir(exist_ok=True)
    _write_modules(folder, modules)
    return True


def store_prompt(folder: Path, prompt: str) -> None:
    """Make a prompt the default one of a folder of sentence-transformers."""
    _write_json(folder / PROMPTS, {"prompts": {"default": prompt}, "default_prompt_name": "default"})


def save_pair(folder: Path, settings: TransformerSettings, dim: int) -> list[Path]:
    """Create the folder of an encoder with two sides; return the folders of the two encoders."""
    codes = {pair.SOURCE: settings.languages, pair.TARGET: settings.positive_languages}
    pair.write(folder, dim, {side: [languages.canonical(code) for code in names or ()] for side, names in codes.items()})
    folders = [folder / side for side in pair.SIDES]
    for side_folder in folders:
        side_folder.mkdir()
    return folders


def _module_folder(modules: list[str]) -> str:
    """Return the folder name of the last of these modules; the first is in the root."""
    return "" if len(modules) == 1 else f"{len(modules) - 1}_{modules[-1]}"


def _write_modules(folder: Path, modules: list[str]) -> None:
    entries = [
        {"idx": index, "name": str(index), "path": _module_folder(modules[: index + 1]), "type": f"{PACKAGE}.{module}"}
        for index, module in enumerate(modules)
    ]
    _write_json(folder / MODULES, entries)


def _pooling_flags(pooling: str) -> dict[str, bool]:
    return {option.flag: name == pooling for name, option in POOLINGS.items() if option.flag and option.trainable}


def _save_mixture(folder: Path, pooling: str, num_layers: int, width: int) -> None:
    """Write the mean of two layers, the last one of them, as a WeightedLayerPooling from the lower layer on."""
    start = min(mixture_layers(pooling, num_layers))
    weights = torch.zeros(num_layers + 1 - start)
    weights[0] = weights[-1] = 1
    folder.mkdir(parents=True, exist_ok=True)
    save_file({LAYER_WEIGHTS: weights}, folder / "model.safetensors")
    _write_json(folder / CONFIG, {"word_embedding_dimension": width, "layer_start": start, "num_hidden_layers": num_layers})


def _save_dense(folder: Path, head: nn.Linear) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {"linear.weight": head.weight.detach().cpu().contiguous(), "linear.bias": head.bias.detach().cpu()}
    save_file(tensors, folder / "model.safetensors")
    sizes = {"in_features": head.in_features, "out_features": head.out_features, "bias": True}
    _write_json(folder / CONFIG, {**sizes, "activation_function": TANH})


def _write_json(path: Path, value: Any) -> None:
    storage.write_json(str(path), value)
