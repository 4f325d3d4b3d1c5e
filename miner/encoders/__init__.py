"""Encoders: text in, unit vectors out. `load_encoder` finds the right one for a name."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from miner import storage
from miner.config.commands import EncoderSettings
from miner.encoders.base import Encoder
from miner.errors import ConfigError, ModelError

__all__ = ["ENCODERS", "Encoder", "find_folder", "load_encoder"]

BUILTIN = "builtin"


def _static(folder: str, settings: EncoderSettings) -> Encoder:
    from miner.encoders.static import StaticEncoder

    if settings.pooling not in (None, "mean"):
        raise ConfigError(f"--pooling {settings.pooling}: {folder} is a static encoder, whose pooling is always mean; leave the option out")
    return StaticEncoder(folder)


def _transformer(name: str, settings: EncoderSettings) -> Encoder:
    from miner.encoders import transformer

    return transformer.load(name, settings)


# The kinds of encoder, by the `kind` of their miner.json; folders without one, and hub ids, are transformers.
ENCODERS: dict[str, Callable[[str, EncoderSettings], Encoder]] = {"static": _static, "transformer": _transformer}


def load_encoder(name: str, settings: EncoderSettings | None = None) -> Encoder:
    """The encoder called `name`: `builtin`, a folder (ours, Hugging Face's or sentence-transformers'), or a hub id.

    Raises ModelError where there is none or it is damaged, ConfigError where the settings do not fit it.
    """
    settings = settings or EncoderSettings()
    folder = _folder(name)
    if folder is None:
        return _transformer(name, settings)
    if not (folder / "miner.json").exists():
        return _transformer(str(folder), settings)
    told = storage.read_json(str(folder / "miner.json"))
    kind = str(told.get("kind")) if isinstance(told, dict) else None
    if kind not in ENCODERS:
        raise ModelError(f"{folder / 'miner.json'}: unknown kind of encoder {kind!r}; one of {', '.join(ENCODERS)}")
    return ENCODERS[kind](str(folder), settings)


def find_folder(name: str) -> Path:
    """The folder of the encoder called `name`, fetched where it is one of the hub. ModelError where there is none."""
    from miner.encoders import hub

    return _folder(name) or hub.fetch(name)


def _folder(name: str) -> Path | None:
    """The folder of an encoder; None where its name may be a hub id, ModelError where it cannot."""
    folder = Path(str(files("miner.encoders") / "assets" / BUILTIN)) if name == BUILTIN else Path(name)
    if folder.is_dir():
        return folder
    if folder.exists() or name == BUILTIN or name.startswith((".", "/", "~")):
        raise ModelError(f"{name}: no encoder folder there; give `{BUILTIN}`, a folder or a hub id such as sentence-transformers/LaBSE")
    return None
