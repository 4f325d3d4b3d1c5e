"""Models by hub id: fetched once into the hub's cache, then read like any folder."""

import logging
import re
from pathlib import Path

from miner.errors import ModelError

# Everything a transformer folder is read from; weights that need unpickling only where there are no others.
SETTINGS = ["*.json", "*.txt", "*.model", "*.tiktoken"]
SAFE_WEIGHTS = ["*.safetensors"]
OTHER_WEIGHTS = ["pytorch_model*.bin", "*/pytorch_model*.bin"]
FOREIGN = ["onnx/*", "openvino/*", "coreml/*", "gguf/*"]

HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")

logger = logging.getLogger(__name__)


def fetch(name: str) -> Path:
    """The folder of the model with this hub id, from the hub or, where that cannot be reached, from its cache.

    Raises ModelError where it is in neither, with what stood in the way.
    """
    if not HUB_ID.fullmatch(name):
        raise ModelError(f"{name}: neither a folder nor a hub id (such as sentence-transformers/LaBSE); check the name")
    logger.info("looking for %s on the model hub", name)
    folder = _download(name, SETTINGS + SAFE_WEIGHTS)
    if not any(folder.rglob("*.safetensors")):
        folder = _download(name, SETTINGS + SAFE_WEIGHTS + OTHER_WEIGHTS)
    return folder


def _download(name: str, patterns: list[str]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=patterns, ignore_patterns=FOREIGN))
    except Exception as error:  # each version of the hub's client, and of the HTTP client below it, raises kinds of its own
        raise ModelError(f"{name}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return "this model asks you to accept its terms; do so on its page, then run `hf auth login`"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "no folder of this name, and no such model on the hub; check the name, or run `hf auth login` if it is private"
    if isinstance(error, errors.LocalEntryNotFoundError):
        return "no folder of this name, and the model hub cannot be reached; give a folder, or fetch the model while online"
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return f"not fetched from the model hub ({first}); run again, or give a folder"
