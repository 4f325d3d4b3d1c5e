"""The parts of a transformer encoder, loaded safely and checked: device, precision, model, tokenizer, limit, layers."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from miner.encoders.model_folder import CONFIG, TANH, DenseLayer, ModelRecipe, weight_files
from miner.errors import ConfigError, ModelError

if TYPE_CHECKING:
    import torch

NO_LIMIT = 1_000_000  # tokenizers without a limit state a huge one
ACTIVATIONS = ("Tanh", "Identity", "ReLU", "GELU", "SiLU", "Sigmoid")  # of Dense layers, all in torch.nn


def choose_device(name: str) -> torch.device:
    """`auto`, `cpu`, `cuda` or `cuda:N` -> the device; ConfigError where this machine has none such."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ConfigError(f"unknown device {name!r}; one of auto, cpu, cuda, cuda:N")
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        raise ConfigError(f"device {name}: torch sees {count} CUDA devices here; choose another, or leave it at auto")
    return device


def choose_precision(name: str, device: torch.device) -> str:
    """`auto` is bfloat16 where the device computes in it (Ampere and later), otherwise float32."""
    import torch

    if name != "auto":
        return name
    return "bfloat16" if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0) else "float32"


def move(model: Any, device: torch.device, precision: str) -> None:
    """Take the model to its device, in its precision; ModelError where it has no room there."""
    import torch

    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[precision]
    try:
        model.to(device, dtype)
    except torch.cuda.OutOfMemoryError as error:
        raise ModelError(f"{device}: no room for the model in {precision}; try --dtype bfloat16, or another --device") from error


@contextlib.contextmanager
def model_errors(folder: Path) -> Iterator[None]:
    """Keep transformers quiet while it loads, and turn what it raises into one clear line."""
    from safetensors import SafetensorError
    from transformers.utils import logging as chatter

    verbosity, bars = chatter.get_verbosity(), chatter.is_progress_bar_enabled()
    chatter.set_verbosity_error()
    chatter.disable_progress_bar()
    try:
        yield
    except (OSError, ValueError, RuntimeError, KeyError, AttributeError, ImportError, SafetensorError, pickle.UnpicklingError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{folder}: not loaded by transformers ({first}); fetch the model again, or choose another encoder") from error
    finally:
        chatter.set_verbosity(verbosity)
        if bars:
            chatter.enable_progress_bar()


def load_model(folder: Path) -> Any:
    """The transformer, or of an encoder and decoder the encoder, ready for inference."""
    import transformers

    weight_files(folder)
    with model_errors(folder):
        model, report = transformers.AutoModel.from_pretrained(str(folder), trust_remote_code=False, output_loading_info=True)
    unused = ("pooler.", "decoder.")
    if model.config.is_encoder_decoder or hasattr(model, "decoder"):
        model = model.get_encoder()
    missing = sorted(key for key in report["missing_keys"] if not key.startswith(unused))
    if missing:  # transformers would fill them with random numbers
        raise ModelError(f"{folder}: its weights lack {missing[0]} and {len(missing) - 1} more; fetch the model again")
    return model.eval()


def load_tokenizer(recipe: ModelRecipe) -> Any:
    import transformers

    with model_errors(recipe.folder):
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(recipe.folder), trust_remote_code=False)
        if recipe.lower_case:
            _lower_first(tokenizer)
    return tokenizer


def _lower_first(tokenizer: Any) -> None:
    """Have the tokenizer lower everything but special tokens before it does anything else."""
    from tokenizers import normalizers

    backend = tokenizer.backend_tokenizer
    then = [] if backend.normalizer is None else [backend.normalizer]
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *then])


def token_limit(recipe: ModelRecipe, wanted: int | None, tokenizer: Any, model: Any) -> int | None:
    """At how many tokens, special ones included, a sentence is cut; None where nothing limits it."""
    positions = _positions(model)
    if wanted is not None and positions is not None and wanted > positions:
        raise ConfigError(f"{recipe.folder}: has room for {positions} tokens, max_tokens asks for {wanted}; lower it")
    own = recipe.max_tokens or tokenizer.model_max_length
    limits = [limit for limit in (wanted or own, positions) if limit is not None and limit < NO_LIMIT]
    return min(limits, default=None)


def _positions(model: Any) -> int | None:
    """How many tokens the model has positions for; RoBERTa and its kin lose those up to the padding's."""
    import torch

    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    limit = getattr(model.config, "max_position_embeddings", None)
    return limit if limit is not None and limit > 0 else None


def load_layer(layer: DenseLayer, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    """(batch, width) -> (batch, width'): rows to length 1, or a Linear with its activation, in float32."""
    import torch

    if layer.kind == "Normalize":
        return torch.nn.functional.normalize
    name = str(layer.config.get("activation_function", TANH))
    kind = name.rpartition(".")[2]
    if not name.startswith("torch.nn.") or kind not in ACTIVATIONS:
        raise ModelError(f"{layer.folder / CONFIG}: activation {name} is not supported; one of {', '.join(ACTIVATIONS)}")
    with model_errors(layer.folder):
        weights = _dense_weights(weight_files(layer.folder)[0])
        config = layer.config
        linear = torch.nn.Linear(config["in_features"], config["out_features"], bias=config.get("bias", True))
        linear.load_state_dict({name.removeprefix("linear."): value for name, value in weights.items()})
    return torch.nn.Sequential(linear, getattr(torch.nn, kind)()).to(device).eval()


def _dense_weights(path: Path) -> dict[str, torch.Tensor]:
    import torch
    from safetensors.torch import load_file

    if path.suffix == ".safetensors":
        return dict(load_file(path))
    return dict(torch.load(path, map_location="cpu", weights_only=True))
