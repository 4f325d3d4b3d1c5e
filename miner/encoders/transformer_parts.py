"""Load and check the parts of a transformer encoder: device, precision, model, tokenizer, token limit, layers."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from miner import languages
from miner.config.choices import AUTO, BFLOAT16, FLOAT32, INT8
from miner.encoders.model_folder import (
    CONFIG,
    M2M100_ENCODER,
    SUPPORTED,
    TANH,
    TOKEN_HEAD,
    DenseLayer,
    ModelRecipe,
    check_code,
    has_architecture,
    read_json,
    weight_files,
)
from miner.errors import ConfigError, MinerError, ModelError, first_line, is_library_error

if TYPE_CHECKING:
    import torch

UNLIMITED_TOKENS = 1_000_000  # tokenizers without a limit report a larger number
LAYER_COUNTS = ("num_hidden_layers", "num_layers", "num_decoder_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers")
WIDTHS = ("vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings", "type_vocab_size", "d_model", "d_ff")
MAX_LAYERS = 1000
MAX_LABELS = 100_000  # transformers makes a name for each
MIN_LIMIT = 1 << 20  # of the widths that are refused: larger than those of any model whose weights have that many bytes
LAYER_WEIGHT = re.compile(r"(?:\w+\.)*?(?:layer|layers|block|h)\.(\d+)\.")  # the name of a weight of a layer, with its number
LANGUAGE_TAG = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")  # of NLLB and SONAR
NO_TOKENIZER = "instantiate the backend tokenizer"  # of the error of transformers
# By these texts, `auto` compares bfloat16 with float32 on a CPU.
PROBE_TEXTS = (
    "The committee will publish its report on the budget for 2024 on Friday, said the minister, who declined to name a figure.",
    "No.",
    "Die Brücke über den Fluss bleibt bis zum 3. Mai gesperrt.",
    "Врач посоветовал ей больше гулять и меньше работать по вечерам.",
    "彼は昨日、駅の近くで古い友人に会った。",
    "لم يصل القطار في الموعد المحدد بسبب العاصفة.",
    "किसानों को इस साल अच्छी फसल की उम्मीद है।",
    "A kutya 15 percig ugatott, aztán elaludt a kanapé alatt.",
)
MIN_COSINE = 0.9999  # of the vectors of a text in both types
ACTIVATIONS = ("Tanh", "Identity", "ReLU", "GELU", "SiLU", "Sigmoid")  # supported in Dense layers; all in torch.nn

logger = logging.getLogger(__name__)


def choose_precision(name: str, device: torch.device) -> str:
    """Resolve `auto` to bfloat16 where the device computes in it, otherwise to float32; raise ConfigError for inexact int8."""
    import torch

    if name == INT8:
        _check_int8(device)
    if name != AUTO:
        return name
    if device.type == "cuda":
        has_bfloat16 = torch.cuda.get_device_capability(device) >= (8, 0)  # Ampere and later
    else:
        has_bfloat16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return BFLOAT16 if has_bfloat16 else FLOAT32


def _check_int8(device: torch.device) -> None:
    from miner.encoders import int8_linear

    if device.type != "cpu":
        raise ConfigError(f"--dtype {INT8} is for CPUs, but the device is {device}; give --device cpu, or choose another --dtype")
    if not int8_linear.is_exact():
        raise ConfigError(f"--dtype {INT8}: this torch has no exact int8 products on this processor; choose another --dtype")


def move(model: Any, device: torch.device, precision: str) -> None:
    """Move the model to its device in its precision; raise ModelError where it does not fit."""
    import torch

    dtype = {BFLOAT16: torch.bfloat16, "float16": torch.float16}.get(precision, torch.float32)
    try:
        model.to(device, dtype)
    except torch.cuda.OutOfMemoryError as error:
        raise ModelError(f"{device}: out of memory for the model in {precision}; try --dtype {BFLOAT16}, or another --device") from error
    if device.type != "cpu":
        return
    from miner.encoders import cpu_linear, int8_linear

    if precision == INT8:
        cpu_linear.replace_linear_layers(model, int8_linear.Int8Linear)
    elif precision != "float16" and cpu_linear.is_faster():
        cpu_linear.replace_linear_layers(model, cpu_linear.OneDnnLinear)


@contextlib.contextmanager
def model_errors(folder: Path) -> Iterator[None]:
    """Silence transformers while it loads, and turn its exceptions into a one-line ModelError."""
    from transformers.utils import logging as transformers_logging

    verbosity, had_bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    except MinerError:
        raise
    except BaseException as error:  # a damaged folder fails in any of its libraries
        if not is_library_error(error):
            raise
        raise ModelError(
            f"{folder}: transformers cannot load it ({first_line(error)}); download the model again, or choose another encoder; {SUPPORTED}"
        ) from error
    finally:
        transformers_logging.set_verbosity(verbosity)
        if had_bars:
            transformers_logging.enable_progress_bar()


def load_model(folder: Path) -> Any:
    """Load the transformer, or the encoder of an encoder-decoder, ready for inference."""
    return encoder_of(load_whole_model(folder))


def load_whole_model(folder: Path) -> Any:
    """Load the transformer, an encoder-decoder with its decoder, ready for inference; the weights of a decoder may be missing."""
    _check_sizes(folder)
    with model_errors(folder):
        model, report = model_class(folder).from_pretrained(str(folder), trust_remote_code=False, output_loading_info=True)
    unused_prefixes = ("pooler.", "decoder.")
    num_layers = getattr(encoder_of(model).config, "num_hidden_layers", 0)
    if any(int(match[1]) >= num_layers for key in report["unexpected_keys"] if (match := LAYER_WEIGHT.match(key))):
        logger.warning("%s: the weights have more layers than the %d of the config, and these are not used", folder, num_layers)
    missing = sorted(key for key in report["missing_keys"] if not key.startswith(unused_prefixes))
    if missing:  # transformers would initialize them randomly
        raise ModelError(f"{folder}: weights lack {missing[0]} and {len(missing) - 1} more; download the model again")
    return model.eval()


def model_class(folder: Path) -> Any:
    """Return the class that loads the transformer: `AutoModel` would look for a decoder in the weights of an encoder of M2M-100."""
    import transformers
    from transformers.models.m2m_100 import modeling_m2m_100

    return modeling_m2m_100.M2M100Encoder if has_architecture(folder, M2M100_ENCODER) else transformers.AutoModel


def build_skeleton(folder: Path) -> Any:
    """Build the model of `load_model` without weights, from which its sizes can be read."""
    import torch
    import transformers

    _check_sizes(folder)
    with model_errors(folder), torch.device("meta"):
        config = transformers.AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
        if has_architecture(folder, M2M100_ENCODER):
            return model_class(folder)(config)
        return encoder_of(transformers.AutoModel.from_config(config, trust_remote_code=False))


def encoder_of(model: Any) -> Any:
    """Return the encoder of an encoder-decoder, any other model as it is."""
    if type(model).__name__ == M2M100_ENCODER:
        return model
    return model.get_encoder() if model.config.is_encoder_decoder or hasattr(model, "decoder") else model


def _check_sizes(folder: Path) -> None:
    """Raise ModelError where the config states sizes that the weights cannot have: transformers would allocate them."""
    check_code(folder)
    num_bytes = max(MIN_LIMIT, *(path.stat().st_size for path in weight_files(folder)))
    config = read_json(folder / CONFIG)
    for name, value in config.items() if isinstance(config, dict) else ():
        limit = MAX_LAYERS if name in LAYER_COUNTS else MAX_LABELS if name == "num_labels" else num_bytes if name in WIDTHS else None
        if isinstance(value, int) and limit is not None and not 0 <= value <= limit:
            raise ModelError(f"{folder / CONFIG}: {name} {value} does not fit the weights; download the model again")


def load_tokenizer(recipe: ModelRecipe) -> Any:
    import transformers

    try:
        with model_errors(recipe.folder):
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(recipe.folder), trust_remote_code=False)
            if recipe.lower_case:
                _prepend_lowercase(tokenizer)
    except ModelError as error:
        if NO_TOKENIZER in str(error):
            raise ModelError(f"{recipe.folder}: has no files of a tokenizer; download the model again") from error
        raise
    return tokenizer


def language_tags(tokenizer: Any) -> dict[str, str]:
    """Return the tags with which a tokenizer marks the language of a text, by canonical code, without script where one tag has it."""
    if not hasattr(tokenizer, "src_lang"):
        return {}
    tags = [token for token in tokenizer.all_special_tokens if LANGUAGE_TAG.fullmatch(token)]
    by_code = {languages.canonical(tag): tag for tag in reversed(tags)}  # the first of two tags with one code
    names = [code.partition("_")[0] for code in by_code]
    without_script = {name: tag for name, tag in zip(names, by_code.values(), strict=True) if names.count(name) == 1}
    return without_script | by_code


def _prepend_lowercase(tokenizer: Any) -> None:
    """Make the tokenizer lower-case everything but special tokens first."""
    from tokenizers import normalizers

    backend = tokenizer.backend_tokenizer
    normalizer = [] if backend.normalizer is None else [backend.normalizer]
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *normalizer])


def token_limit(recipe: ModelRecipe, max_tokens: int | None, tokenizer: Any, model: Any) -> int | None:
    """Return the number of tokens, special ones included, to which texts are truncated; None for no limit."""
    num_positions = count_positions(model)
    if max_tokens is not None and num_positions is not None and max_tokens > num_positions:
        raise ConfigError(f"{recipe.folder}: the model has room for {num_positions} tokens, but max_tokens is {max_tokens}; lower it")
    model_limit = recipe.max_tokens or tokenizer.model_max_length
    limits = [limit for limit in (max_tokens or model_limit, num_positions) if limit is not None and limit < UNLIMITED_TOKENS]
    return min(limits, default=None)


def find_truncated(tokens: Any, max_tokens: int | None) -> list[bool]:
    """Return for each text whether the tokenizer cut it to `max_tokens`.

    A tokenizer without Rust backend does not report truncation; of its texts, those of exactly that length count too.
    """
    encodings = tokens.encodings
    return [
        len(ids) == max_tokens and (encodings is None or bool(encodings[row].overflowing)) for row, ids in enumerate(tokens["input_ids"])
    ]


def count_weights(model: Any) -> int:
    """Return the number of weights that are multiplied for each token: all but those of embeddings."""
    import torch

    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    return sum(weight.numel() for weight in model.parameters() if id(weight) not in embeddings)


def count_positions(model: Any) -> int | None:
    """Return the number of positions of the model; models like RoBERTa reserve those up to the padding index."""
    import torch

    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    limit = getattr(model.config, "max_position_embeddings", None)
    return limit if limit is not None and limit > 0 else None


def load_layer(layer: DenseLayer, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    """Load a module (batch, width) -> (batch, width'): normalization, or a Linear with its activation, in float32."""
    import torch

    if layer.kind == "Normalize":
        return torch.nn.functional.normalize
    name = str(layer.config.get("activation_function", TANH))
    kind = name.rpartition(".")[2]
    if not name.startswith("torch.nn.") or kind not in ACTIVATIONS:
        raise ModelError(f"{layer.folder / CONFIG}: activation {name} is not supported; one of {', '.join(ACTIVATIONS)}")
    with model_errors(layer.folder):
        weights = load_tensors(weight_files(layer.folder)[0])
        config = layer.config
        linear = torch.nn.Linear(config["in_features"], config["out_features"], bias=config.get("bias", True))
        linear.load_state_dict({name.removeprefix("linear."): value for name, value in weights.items()})
    return torch.nn.Sequential(linear, getattr(torch.nn, kind)()).to(device).eval()


def load_token_head(folder: Path, device: torch.device) -> torch.nn.Linear | None:
    """Load the layer of a folder that maps the last hidden states to token vectors, in float32; None where there is none."""
    import torch

    path = folder / TOKEN_HEAD
    if not path.exists():
        return None
    with model_errors(folder):
        weights = load_tensors(path)
        width, dim = weights["weight"].T.shape
        head = torch.nn.Linear(width, dim)
        head.load_state_dict(weights)
    return head.to(device).eval()


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read a file of tensors, safetensors or a pickle, without executing code."""
    import torch
    from safetensors.torch import load_file

    if path.suffix == ".safetensors":
        return dict(load_file(path))
    return dict(torch.load(path, map_location="cpu", weights_only=True))
