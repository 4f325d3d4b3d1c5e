"""Models by hub id: downloaded once to the hub's cache, then read like any folder."""

import logging
import re
from pathlib import Path

from miner.encoders.model_folder import TOKEN_HEAD
from miner.errors import ModelError, first_line

# The files of a transformer folder; pickled weights are downloaded only where there are no others.
SETTINGS_FILES = ["*.json", "*.txt", "*.model", "*.tiktoken"]
SAFE_WEIGHTS = ["*.safetensors", TOKEN_HEAD]
PICKLED_WEIGHTS = ["pytorch_model*.bin", "*/pytorch_model*.bin"]
OTHER_RUNTIMES = ["onnx/*", "openvino/*", "coreml/*", "gguf/*"]

HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")

logger = logging.getLogger(__name__)


def fetch(name: str) -> Path:
    """Download the model with this hub id, or use the cache if the hub cannot be reached; return its folder.

    Raise ModelError with the reason where neither works.
    """
    if not HUB_ID.fullmatch(name):
        raise ModelError(f"{name}: neither a folder nor a hub id such as sentence-transformers/LaBSE; check the name")
    logger.info("fetching %s from the model hub", name)
    folder = _download(name, SETTINGS_FILES + SAFE_WEIGHTS)
    if not any(folder.rglob("*.safetensors")):
        folder = _download(name, SETTINGS_FILES + SAFE_WEIGHTS + PICKLED_WEIGHTS)
    return folder


def _download(name: str, patterns: list[str]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=patterns, ignore_patterns=OTHER_RUNTIMES))
    except Exception as error:  # the exception types differ between versions of huggingface_hub and its HTTP client
        raise ModelError(f"{name}: {_explain(error)}") from error


def _explain(error: Exception) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return "this model requires accepting its terms; accept them on its page, then run `hf auth login`"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "no folder of this name, and no such model on the hub; check the name, or run `hf auth login` if it is private"
    if isinstance(error, errors.LocalEntryNotFoundError):
        return "no folder of this name, and the model hub cannot be reached; give a folder, or download the model while online"
    return f"download from the model hub failed ({first_line(error)}); run again, or give a folder"
