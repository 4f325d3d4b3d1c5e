"""What a transformer's folder says about itself: which files, which pooling, which layers after it; and its fingerprint.

Two kinds of folder are read. A plain Hugging Face folder holds a transformer and says nothing of pooling. A
sentence-transformers folder lists its modules in `modules.json`: one transformer, one pooling, then Dense and Normalize layers.
Anything else in it would change the vectors, so it is an error rather than left out.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from miner import storage
from miner.encoders.pooling import POOLERS
from miner.errors import ModelError

MODULES = "modules.json"
CONFIG = "config.json"

# Flags of older sentence-transformers folders, in the order in which several are concatenated.
POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}

TANH = "torch.nn.modules.activation.Tanh"  # what a Dense layer uses where its config names no activation

# Settings of a sentence-transformers transformer that are read here, or that change speed but not vectors.
HARMLESS = {"max_seq_length", "do_lower_case", "modality_config", "model_args", "model_kwargs", "unpad_inputs"}
LAST_HIDDEN = {"method": "forward", "method_output_name": "last_hidden_state"}
EXPECTED = {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings"}

# Keys that record where a folder came from or what wrote it.
PROVENANCE = {
    "_name_or_path", "architectures", "dtype", "is_local", "local_files_only", "model_max_length", "name_or_path",
    "special_tokens_map_file", "tokenizer_file", "torch_dtype", "transformers_version", "use_cache",
}  # fmt: skip
TOKENIZER_FILES = ("vocab*", "merges.txt", "*.model", "tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "*.tiktoken")


@dataclass(frozen=True)
class DenseLayer:
    """A module after the pooling: `Dense` (with the folder of its weights, and its config) or `Normalize`."""

    kind: str
    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelRecipe:
    """How a folder turns a sentence into a vector."""

    folder: Path  # of the transformer: config, tokenizer and weights
    pooling: tuple[str, ...] = ()  # concatenated; none where the folder does not say
    layers: tuple[DenseLayer, ...] = ()  # applied to the pooled vector, in this order
    max_tokens: int | None = None  # None leaves it to the tokenizer
    lower_case: bool = False  # lower the text before the tokenizer sees it
    prompt: str = ""  # put before every text


def read_recipe(folder: Path) -> ModelRecipe:
    """Read a Hugging Face or sentence-transformers folder; ModelError where it is neither, or asks for what is not supported."""
    if (folder / "adapter_config.json").exists():
        raise ModelError(f"{folder}: an adapter without its model; merge the two with peft's merge_and_unload and save that")
    if (folder / MODULES).exists():
        return _read_modules(folder)
    if not (folder / CONFIG).exists():
        raise ModelError(f"{folder}: neither {MODULES} nor {CONFIG}, so not the folder of an encoder; check the path")
    return ModelRecipe(folder)


def _read_modules(folder: Path) -> ModelRecipe:
    modules = [(str(module["type"]).rpartition(".")[2], _inside(folder, module["path"])) for module in _modules(folder)]
    mixture = _mixture(modules.pop(1)[1]) if [kind for kind, _ in modules[1:3]] == ["WeightedLayerPooling", "Pooling"] else None
    kinds = [kind for kind, _ in modules]
    pooled = 1 if kinds[1:2] == ["Pooling"] else 0
    strange = [kind for kind in kinds[1 + pooled :] if kind not in ("Dense", "Normalize")]
    if kinds[0] != "Transformer" or strange:
        raise ModelError(
            f"{folder / MODULES}: module {(strange or kinds)[0]} in {', '.join(kinds)} is not supported;"
            " choose an encoder of Transformer, Pooling, then Dense and Normalize"
        )
    pooling = read_json(modules[1][1] / CONFIG) if pooled else {}
    prompt = _default_prompt(folder)
    if prompt and pooling.get("include_prompt") is False:
        raise ModelError(f"{folder}: its pooling leaves the prompt {prompt!r} out, which is not supported; choose another encoder")
    modes = _pooling_modes(pooling, modules[1][1]) if pooled else ()
    if mixture is not None and modes != ("mean",):
        raise ModelError(f"{folder}: pooling {', '.join(modes)} of a mixture of layers is not supported; choose another encoder")
    transformer = modules[0][1]
    settings = _transformer_settings(transformer)
    return ModelRecipe(
        transformer,
        pooling=modes if mixture is None else (mixture,),
        layers=tuple(_layer(kind, path) for kind, path in modules[1 + pooled :]),
        max_tokens=settings.get("max_seq_length"),
        lower_case=bool(settings.get("do_lower_case")),
        prompt=prompt,
    )


def _modules(folder: Path) -> list[Mapping[str, Any]]:
    path = folder / MODULES
    modules = read_json(path)
    if not isinstance(modules, list) or not modules or not all({"type", "path"} <= set(module) for module in modules):
        raise ModelError(f"{path}: not a list of modules with type and path; fetch the model again")
    return modules


def _inside(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ModelError(f"{folder / MODULES}: module path {name!r} leaves the folder; do not trust this model")
    return path


def _transformer_settings(folder: Path) -> Mapping[str, Any]:
    """The transformer's own settings; ModelError where one would change the vectors and is not supported."""
    paths = sorted(folder.glob("sentence_*_config.json"))
    if not paths:
        return {}
    settings: Mapping[str, Any] = read_json(paths[0])
    strange = [key for key, value in settings.items() if value and key not in HARMLESS and value != EXPECTED.get(key)]
    modalities = settings.get("modality_config") or {"text": LAST_HIDDEN}
    if "message" in modalities or modalities.get("text") != LAST_HIDDEN:
        strange.append("modality_config")
    if strange:
        raise ModelError(f"{paths[0]}: setting {strange[0]!r} is not supported; choose another encoder")
    return settings


def _pooling_modes(config: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    mode = config.get("pooling_mode")
    if mode is None:
        mode = [name for flag, name in POOLING_FLAGS.items() if config.get(flag)] or "mean"
    modes = (mode,) if isinstance(mode, str) else tuple(mode)
    for name in modes:
        if name not in POOLERS:
            raise ModelError(f"{folder / CONFIG}: pooling {name!r} is not supported; choose one with --pooling, or another encoder")
    return modes


def _mixture(folder: Path) -> str:
    """The pooling that means over tokens what a WeightedLayerPooling mixes; ModelError where there is none."""
    config, weights = read_json(folder / CONFIG), _layer_weights(folder)
    last, start = config.get("num_hidden_layers"), config.get("layer_start")
    mixed = {start + place for place, weight in enumerate(weights) if weight}
    equal = len({weight for weight in weights if weight}) == 1
    if equal and mixed == {1, last}:
        return "first_last_avg"
    if equal and mixed == {last - 1, last}:
        return "avg_top2"
    raise ModelError(f"{folder}: mixes layers in a way that is not supported; choose one with --pooling, or another encoder")


def _layer_weights(folder: Path) -> list[float]:
    from safetensors.numpy import load_file

    path = folder / "model.safetensors"
    if not path.exists():
        raise ModelError(f"{path}: no such file; the model's folder is not whole, fetch it again")
    weights: list[float] = load_file(path)["layer_weights"].tolist()
    return weights


def _layer(kind: str, folder: Path) -> DenseLayer:
    config = read_json(folder / CONFIG) if (folder / CONFIG).exists() else {}
    for name in ("module_input_name", "module_output_name"):
        if config.get(name) not in (None, "sentence_embedding"):
            raise ModelError(f"{folder / CONFIG}: {kind} layers on {config[name]} are not supported; choose another encoder")
    if config.get("use_residual"):
        raise ModelError(f"{folder / CONFIG}: residual Dense layers are not supported; choose another encoder")
    return DenseLayer(kind, folder, config)


def _default_prompt(folder: Path) -> str:
    path = folder / "config_sentence_transformers.json"
    config = read_json(path) if path.exists() else {}
    return str(config.get("prompts", {}).get(config.get("default_prompt_name"), "") or "")


def read_json(path: Path) -> Any:
    """The JSON file of a model; ModelError where it is missing or broken."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}; the model's folder is not whole, fetch it again") from error
    except ValueError as error:
        raise ModelError(f"{path}: not JSON ({error}); fetch the model again") from error


def weight_files(folder: Path) -> list[Path]:
    """The files of weights that are read, safetensors before pickles; ModelError where there are none."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        index = folder / f"{name}.index.json"
        if (folder / name).exists():
            return [folder / name]
        if index.exists():
            return [folder / part for part in sorted(set(read_json(index)["weight_map"].values()))]
    raise ModelError(f"{folder}: no weights (model.safetensors or pytorch_model.bin); fetch the model again")


def fingerprint(recipe: ModelRecipe, max_tokens: int | None) -> str:
    """Names the mapping from text to vector of `recipe`, cut at `max_tokens`.

    It follows the tensors, the tokenizer, the pooling, the layers, lower-casing and prompt: not the names or number of
    safetensors files, the device, the batch size, or the precision of the arithmetic (which `auto` takes from the device).
    """
    parts: dict[str, Any] = {
        "config": _behaviour(recipe.folder / CONFIG),
        "tokenizer": {path.name: _behaviour(path) for pattern in TOKENIZER_FILES for path in recipe.folder.glob(pattern)},
        "weights": _weights(recipe.folder),
        "pooling": recipe.pooling,
        "layers": [[layer.kind, dict(layer.config), _weights(layer.folder) if layer.kind == "Dense" else ""] for layer in recipe.layers],
        "max_tokens": max_tokens,
        "lower_case": recipe.lower_case,
        "prompt": recipe.prompt,
    }
    return f"transformer-{xxhash.xxh3_64_hexdigest(json.dumps(parts, sort_keys=True).encode())}"


def _behaviour(path: Path) -> str:
    """A hash of a settings or tokenizer file, without the keys that do not change what it does."""
    if path.suffix != ".json":
        return storage.checksum(str(path))
    value = read_json(path)
    if isinstance(value, dict):
        dropped = {*PROVENANCE, "truncation", "padding"} if path.name == "tokenizer.json" else PROVENANCE
        value = {key: part for key, part in value.items() if key not in dropped}
    return storage.key(value)


def _weights(folder: Path) -> str:
    digests: dict[str, str] = {}
    for path in weight_files(folder):
        if path.suffix == ".safetensors":
            digests.update(_tensors(path))
        else:
            digests[path.name] = storage.checksum(str(path))
    return storage.key(digests)


def _tensors(path: Path) -> Iterator[tuple[str, str]]:
    """The name, and a hash of type, shape and bytes, of every tensor of a safetensors file (a JSON header, then the bytes)."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            file.seek(8 + size + begin)
            digest = xxhash.xxh3_128(f"{entry['dtype']}{entry['shape']}".encode())
            digest.update(file.read(end - begin))
            yield name, digest.hexdigest()
