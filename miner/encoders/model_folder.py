"""Read the settings of a transformer's folder (files, pooling, layers after it) and compute its fingerprint.

Two kinds of folder are supported. A plain Hugging Face folder holds a transformer and does not specify a pooling. A
sentence-transformers folder lists its modules in `modules.json`: one transformer, one pooling, then Dense and Normalize layers.
Any other module would change the vectors, so it is an error.
"""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import xxhash

from miner.config.choices import BFLOAT16, FLOAT32, INT8
from miner.config.commands import EncoderSettings
from miner.encoders.pooling import POOLINGS, mixture_layers
from miner.errors import ConfigError, ModelError, first_line
from miner.io import checksums, storage

MODULES = "modules.json"
CONFIG = "config.json"
PROMPTS = "config_sentence_transformers.json"
E5 = re.compile(r"(?:^|[/_-])e5-(?:small|base|large)(?!.*instruct)")  # names of models whose folders state no prompt, but which need one
M2M100_ENCODER = "M2M100Encoder"  # architecture of SONAR's text encoder, which averages its last layer

TOKEN_HEAD = "colbert_linear.pt"  # of BGE-M3: a linear layer that maps its last hidden states to the token vectors of late interaction
SUPPORTED = (
    "supported are static and transformer encoders of sentence-transformers, transformers, model2vec and LASER: see docs/encoders.md"
)

TANH = "torch.nn.modules.activation.Tanh"  # default activation of a Dense layer

# Settings of a sentence-transformers Transformer that this module reads, or that do not change vectors.
SUPPORTED_SETTINGS = {"max_seq_length", "do_lower_case", "modality_config", "model_args", "model_kwargs", "unpad_inputs"}
LAST_HIDDEN = {"method": "forward", "method_output_name": "last_hidden_state"}
EXPECTED_VALUES = {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings"}

INT8_ROUNDING = "int8 of 90 levels"  # of `miner.encoders.int8_linear`, as fingerprints have it
SUFFIXES = (BFLOAT16, "float16")  # of fingerprints
# Keys that record the origin of a folder and do not change vectors.
PROVENANCE_KEYS = {
    "_name_or_path", "architectures", "dtype", "is_local", "local_files_only", "model_max_length", "name_or_path",
    "special_tokens_map_file", "tokenizer_file", "torch_dtype", "transformers_version", "use_cache",
}  # fmt: skip
TOKENIZER_FILES = ("vocab*", "merges.txt", "*.model", "tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "*.tiktoken")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DenseLayer:
    """A module after the pooling: `Dense`, with its weights in `folder`, or `Normalize`."""

    kind: str
    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelRecipe:
    """How a folder maps a sentence to a vector."""

    folder: Path  # of the transformer's config, tokenizer and weights
    pooling: tuple[str, ...] = ()  # concatenated; empty where the folder specifies none
    layers: tuple[DenseLayer, ...] = ()  # applied to the pooled vector in order
    max_tokens: int | None = None  # None: the tokenizer's limit
    lower_case: bool = False  # lower-case the text before tokenization
    prompt: str = ""  # prepended to every text
    prompts: Mapping[str, str] = field(default_factory=dict)  # by name, to choose from
    pools_prompt: bool = True  # whether the tokens of the prompt are pooled

    def with_settings(self, settings: EncoderSettings) -> "ModelRecipe":
        """Return the recipe with the pooling and the prompt of settings; raise ConfigError for an unknown prompt, or one not supported."""
        prompt = self.prompt
        if settings.prompt is not None:
            prompt = self.prompts.get(settings.prompt, settings.prompt)
            if prompt.isidentifier() and settings.prompt not in self.prompts:
                names = ", ".join(self.prompts) or "none"
                raise ConfigError(
                    f"--prompt {prompt}: not a prompt of {self.folder} ({names}); give one of them, or the text itself: '{prompt}: '"
                )
        elif not prompt and E5.search(str(self.folder)):
            logger.warning("%s: E5 was trained with a prompt before each text; give --prompt 'query: '", self.folder)
        if prompt and not self.pools_prompt:
            raise ModelError(f"{self.folder}: pooling without the prompt {prompt!r} is not supported; choose another encoder")
        return replace(self, pooling=self.pooling if settings.pooling is None else (settings.pooling,), prompt=prompt)


def read_recipe(folder: Path) -> ModelRecipe:
    """Read a Hugging Face or sentence-transformers folder; raise ModelError where it is neither, or is not supported."""
    checksums.check(folder, "download or train the encoder again")
    if (folder / "adapter_config.json").exists():
        raise ModelError(f"{folder}: an adapter without its base model; merge them with peft's merge_and_unload and save the result")
    if (folder / MODULES).exists():
        return _read_modules(folder)
    if not (folder / CONFIG).exists():
        raise ModelError(f"{folder}: neither {MODULES} nor {CONFIG}, so not an encoder; {SUPPORTED}")
    return ModelRecipe(folder, pooling=("mean",) if has_architecture(folder, M2M100_ENCODER) else ())


def check_code(folder: Path) -> None:
    """Raise ModelError for a transformer with code of its own, which is never run: the class of transformers may give other vectors."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    config = read_json(folder / CONFIG)
    code = config.get("auto_map") if isinstance(config, dict) else None
    if not isinstance(code, dict) or "AutoModel" not in code:
        return
    is_same = str(code["AutoModel"]).rpartition(".")[2] == MODEL_MAPPING_NAMES.get(str(config.get("model_type")))
    is_decoder = "AutoModelForCausalLM" in code and "is_causal" not in config  # in which the code may let tokens see those after them
    if not is_same or is_decoder:
        raise ModelError(
            f"{folder}: needs code of its own ({code['AutoModel']}), which miner does not run; choose an encoder that transformers loads"
            " without it, such as a conversion of this one: see docs/encoders.md"
        )


def laser_files(folder: Path) -> list[Path]:
    """Return the checkpoints of LASER2 and LASER3 in a folder."""
    return sorted([*folder.glob("laser2.pt"), *folder.glob("laser3-*.pt")])


def has_architecture(folder: Path, name: str) -> bool:
    """Return whether the config of a transformer names a class as that of its weights."""
    config = read_json(folder / CONFIG)
    return isinstance(config, dict) and name in (config.get("architectures") or ())


def _read_modules(folder: Path) -> ModelRecipe:
    modules = [(str(module["type"]).rpartition(".")[2], module_path(folder, module["path"])) for module in list_modules(folder)]
    mixture = _find_mixture(modules.pop(1)[1]) if [kind for kind, _ in modules[1:3]] == ["WeightedLayerPooling", "Pooling"] else None
    kinds = [kind for kind, _ in modules]
    num_pooling = 1 if kinds[1:2] == ["Pooling"] else 0
    unsupported = [kind for kind in kinds[1 + num_pooling :] if kind not in ("Dense", "Normalize")]
    if kinds[0] != "Transformer" or unsupported:
        raise ModelError(
            f"{folder / MODULES}: module {(unsupported or kinds)[0]} in {', '.join(kinds)} is not supported;"
            f" modules may be Transformer, Pooling, then Dense and Normalize; {SUPPORTED}"
        )
    pooling = read_json(modules[1][1] / CONFIG) if num_pooling else {}
    prompts, default_prompt = _read_prompts(folder)
    modes = _pooling_modes(pooling, modules[1][1]) if num_pooling else ()
    if mixture is not None and modes != ("mean",):
        raise ModelError(f"{folder}: pooling {', '.join(modes)} of a mixture of layers is not supported; choose another encoder")
    transformer = modules[0][1]
    settings = _transformer_settings(transformer)
    return ModelRecipe(
        transformer,
        pooling=modes if mixture is None else (mixture,),
        layers=tuple(_read_layer(kind, path) for kind, path in modules[1 + num_pooling :]),
        max_tokens=settings.get("max_seq_length"),
        lower_case=bool(settings.get("do_lower_case")),
        prompt=prompts.get(default_prompt or "", ""),
        prompts=prompts,
        pools_prompt=pooling.get("include_prompt") is not False,
    )


def list_modules(folder: Path) -> list[Mapping[str, Any]]:
    """Read the modules of a sentence-transformers folder; raise ModelError where they are invalid."""
    path = folder / MODULES
    modules = read_json(path)
    if not isinstance(modules, list) or not modules or not all({"type", "path"} <= set(module) for module in modules):
        raise ModelError(f"{path}: not a list of modules with type and path; download the model again")
    return modules


def module_path(folder: Path, name: str) -> Path:
    """Return the folder of a module; raise ModelError where it is outside the folder of the encoder."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ModelError(f"{folder / MODULES}: module path {name!r} points outside the folder; do not trust this model")
    return path


def _transformer_settings(folder: Path) -> Mapping[str, Any]:
    """Read the settings of the Transformer module; raise ModelError for one that changes the vectors and is not supported."""
    paths = sorted(folder.glob("sentence_*_config.json"))
    if not paths:
        return {}
    settings: Mapping[str, Any] = read_json(paths[0])
    unsupported = [key for key, value in settings.items() if value and key not in SUPPORTED_SETTINGS and value != EXPECTED_VALUES.get(key)]
    modalities = settings.get("modality_config") or {"text": LAST_HIDDEN}
    if "message" in modalities or modalities.get("text") != LAST_HIDDEN:
        unsupported.append("modality_config")
    if unsupported:
        raise ModelError(f"{paths[0]}: setting {unsupported[0]!r} is not supported; choose another encoder")
    return settings


def _pooling_modes(config: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    mode = config.get("pooling_mode")
    if mode is None:
        mode = [name for name, pooling in POOLINGS.items() if pooling.flag and config.get(pooling.flag)] or "mean"
    modes = (mode,) if isinstance(mode, str) else tuple(mode)
    for name in modes:
        if name not in POOLINGS:
            raise ModelError(f"{folder / CONFIG}: pooling {name!r} is not supported; choose one with --pooling, or another encoder")
    return modes


def _find_mixture(folder: Path) -> str:
    """Return the pooling that averages the layers of a WeightedLayerPooling; raise ModelError where there is none."""
    config, weights = read_json(folder / CONFIG), _layer_weights(folder)
    num_layers, start = config.get("num_hidden_layers"), config.get("layer_start")
    layers = {start + index for index, weight in enumerate(weights) if weight}
    if len({weight for weight in weights if weight}) == 1:
        for name in POOLINGS:
            if mixture_layers(name, num_layers) == layers:
                return name
    raise ModelError(f"{folder}: this mixture of layers is not supported; choose a pooling with --pooling, or another encoder")


def _layer_weights(folder: Path) -> list[float]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = folder / "model.safetensors"
    try:
        weights: list[float] = load_file(path)["layer_weights"].tolist()
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: no weights of layers ({first_line(error)}); download the model again") from error
    return weights


def _read_layer(kind: str, folder: Path) -> DenseLayer:
    config = read_json(folder / CONFIG) if (folder / CONFIG).exists() else {}
    for name in ("module_input_name", "module_output_name"):
        if config.get(name) not in (None, "sentence_embedding"):
            raise ModelError(f"{folder / CONFIG}: {kind} layers on {config[name]} are not supported; choose another encoder")
    if config.get("use_residual"):
        raise ModelError(f"{folder / CONFIG}: residual Dense layers are not supported; choose another encoder")
    return DenseLayer(kind, folder, config)


def _read_prompts(folder: Path) -> tuple[dict[str, str], str | None]:
    """Return the prompts of a sentence-transformers folder by name, and the name of the default one."""
    path = folder / PROMPTS
    config = read_json(path) if path.exists() else {}
    return {name: str(prompt or "") for name, prompt in (config.get("prompts") or {}).items()}, config.get("default_prompt_name")


def read_json(path: Path) -> Any:
    """Read a JSON file of a model; raise ModelError where it is missing or invalid, StorageError for a device or pipe."""
    storage.check_regular(str(path))
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}; the folder is incomplete, download the model again") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not JSON ({error}); download the model again") from error


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files, safetensors rather than pickles; raise ModelError where there are none."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            return [folder / name]
        if index.exists():
            return [_weight_path(index, str(part)) for part in sorted(set(read_json(index)["weight_map"].values()))]
    raise ModelError(f"{folder}: no weights (model.safetensors or pytorch_model.bin; ONNX and GGUF are not read); download the model again")


def _weight_path(index: Path, name: str) -> Path:
    """Return the path of a weight file; raise ModelError where an index names one that is not beside it."""
    if Path(name).name != name or not (index.parent / name).is_file():
        raise ModelError(f"{index}: {name!r} is not a file beside it; download the model again, or do not trust it")
    return index.parent / name


def fingerprint(recipe: ModelRecipe, max_tokens: int | None, dtype: str = "float32") -> str:
    """Hash the mapping from text to vector of `recipe`, with texts truncated to `max_tokens`.

    The hash depends on tensors, tokenizer, pooling, layers, lower-casing and prompt, and on whether weights are rounded to int8; not on
    the names or number of safetensors files, the device or the batch size. A floating-point type other than float32 follows the hash.
    """
    content: dict[str, Any] = {
        "config": _hash_file(recipe.folder / CONFIG),
        "tokenizer": {path.name: _hash_file(path) for pattern in TOKENIZER_FILES for path in recipe.folder.glob(pattern)},
        "weights": _hash_weights(recipe.folder),
        "pooling": recipe.pooling,
        "layers": [
            [layer.kind, dict(layer.config), _hash_weights(layer.folder) if layer.kind == "Dense" else ""] for layer in recipe.layers
        ],
        "max_tokens": max_tokens,
        "lower_case": recipe.lower_case,
        "prompt": recipe.prompt,
        **({"token_head": _hash_file(head)} if (head := recipe.folder / TOKEN_HEAD).is_file() else {}),
        **({"dtype": INT8_ROUNDING} if dtype == INT8 else {}),
    }
    return with_dtype(f"transformer-{xxhash.xxh3_64_hexdigest(json.dumps(content, sort_keys=True).encode())}", dtype)


def with_dtype(hashed: str, dtype: str) -> str:
    """Return the fingerprint of a transformer in a data type."""
    return f"{hashed}-{dtype}" if dtype in SUFFIXES else hashed


def split_dtype(fingerprint: str) -> tuple[str, str]:
    """Return the fingerprint in float32, and the floating-point type of the vectors."""
    hashed, _, dtype = fingerprint.rpartition("-")
    return (hashed, dtype) if dtype in SUFFIXES else (fingerprint, FLOAT32)


def _hash_file(path: Path) -> str:
    """Hash a settings or tokenizer file without the keys that do not affect the vectors."""
    if path.suffix != ".json":
        return storage.checksum(str(path))
    value = read_json(path)
    if isinstance(value, dict):
        ignored = {*PROVENANCE_KEYS, "truncation", "padding"} if path.name == "tokenizer.json" else PROVENANCE_KEYS
        value = {key: entry for key, entry in value.items() if key not in ignored}
    return storage.key(value)


def _hash_weights(folder: Path) -> str:
    digests: dict[str, str] = {}
    for path in weight_files(folder):
        if path.suffix == ".safetensors":
            digests.update(_hash_tensors(path))
        else:
            digests[path.name] = storage.checksum(str(path))
    return storage.key(digests)


def _hash_tensors(path: Path) -> dict[str, str]:
    """Return the hash (of type, shape and bytes) of every tensor in a safetensors file by name: a JSON header, then the bytes."""
    num_bytes, hashes = path.stat().st_size, {}
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > num_bytes:
                raise ModelError(f"{path}: not safetensors; download the model again")
            header = json.loads(file.read(size))
            for name, entry in header.items():
                if name == "__metadata__":
                    continue
                begin, end = entry["data_offsets"]
                if not 0 <= begin <= end <= num_bytes:
                    raise ModelError(f"{path}: {name} is outside the file; download the model again")
                file.seek(8 + size + begin)
                digest = xxhash.xxh3_128(f"{entry['dtype']}{entry['shape']}".encode())
                digest.update(file.read(end - begin))
                hashes[name] = digest.hexdigest()
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: not safetensors ({first_line(error)}); download the model again") from error
    return hashes
