"""Encoders: text in, unit vectors out. `load_encoder` loads one by name."""

import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from miner.config.choices import AUTO, BFLOAT16, INT8
from miner.config.commands import EncoderSettings
from miner.devices import CPU, parse_device
from miner.encoders import remote
from miner.encoders.base import Encoder
from miner.encoders.model_folder import SUPPORTED, laser_files, split_dtype
from miner.errors import ConfigError, ModelError, first_line, require
from miner.io import storage

__all__ = [
    "ENCODERS",
    "STATIC",
    "Encoder",
    "EncoderIdentity",
    "absolute_name",
    "choose_side",
    "convert_damage",
    "find_folder",
    "find_kind",
    "find_offered",
    "identify",
    "is_offered",
    "load_encoder",
    "offer",
    "read_fingerprint",
    "with_recorded_dtype",
]

BUILTIN = "builtin"
FIRST_FILES = ("miner.json", "modules.json", "config.json")  # an encoder has one of them, or a checkpoint of LASER

S = TypeVar("S", bound=EncoderSettings)


def _load_static(folder: str, settings: EncoderSettings) -> Encoder:
    from miner.encoders import static_embedding
    from miner.encoders.static import SETTINGS, StaticEncoder

    if settings.pooling not in (None, "mean"):
        raise ConfigError(f"--pooling {settings.pooling}: {folder} is a static encoder, whose pooling is always mean; remove the option")
    if settings.prompt:
        raise ConfigError(f"--prompt {settings.prompt}: {folder} is a static encoder, which has no prompt; remove the option")
    if settings.dtype == INT8:
        raise ConfigError(f"--dtype {INT8}: {folder} is a static encoder, which has no layers to round; remove the option")
    if settings.max_tokens is not None or settings.batch_tokens is not None:
        option = "--max-tokens" if settings.max_tokens is not None else "--batch-tokens"
        raise ConfigError(f"{option}: {folder} is a static encoder, which reads whole texts, one by one; remove the option")
    if (Path(folder) / SETTINGS).exists():
        return StaticEncoder(folder)
    module = static_embedding.find_module(Path(folder))
    assert module is not None, "`find_kind` comes first"
    return static_embedding.StaticEmbeddingEncoder(Path(folder), module)


def _load_transformer(folder: str, settings: EncoderSettings) -> Encoder:
    from miner.encoders import transformer

    return transformer.load(folder, settings)


def _load_laser(folder: str, settings: EncoderSettings) -> Encoder:
    from miner.encoders.laser import LaserEncoder

    return LaserEncoder(Path(folder), settings)


def _load_pair(folder: str, settings: EncoderSettings) -> Encoder:
    from miner.encoders.pair import PairEncoder

    encoder = PairEncoder(Path(folder), settings)
    return encoder if settings.side is None else encoder.side(settings.side)


# Kinds of encoder, by the `kind` in miner.json. Folders without it are static if model2vec or sentence-transformers wrote them so;
# other folders are LASER's or transformers.
LASER, PAIR, STATIC, TRANSFORMER = "laser", "pair", "static", "transformer"
OBJECT = "object"  # an encoder of the caller's own, without a folder
ENCODERS: dict[str, Callable[[str, EncoderSettings], Encoder]] = {
    STATIC: _load_static,
    TRANSFORMER: _load_transformer,
    PAIR: _load_pair,
    LASER: _load_laser,
}


OFFERED = "~"  # first character of the names that `offer` gives
_offered: dict[str, Encoder] = {}  # name -> an encoder that `offer` names
_numbers = itertools.count(1)


@contextlib.contextmanager
def offer(encoder: str | Encoder) -> Iterator[str]:
    """Name an encoder that is loaded: in the block, the functions below find it by this name, in this process. A name names itself."""
    if isinstance(encoder, str):
        yield encoder
        return
    name = f"{OFFERED}{type(encoder).__name__}-{next(_numbers)}"
    _offered[name] = encoder
    try:
        yield name
    finally:
        del _offered[name]


def is_offered(name: str) -> bool:
    """Return whether a name is one that `offer` gave."""
    return name in _offered


def find_offered(settings: EncoderSettings) -> Encoder | None:
    """Return the encoder, or the side of it, that `offer` gave the name of these settings; None for any other name."""
    encoder = _offered.get(settings.encoder)
    if encoder is None or settings.side is None:
        return encoder
    _check_side(settings, find_kind(settings.encoder), settings.encoder)
    return encoder.side(settings.side)  # type: ignore[attr-defined, no-any-return]  # an encoder with two sides


def load_encoder(name: str, settings: EncoderSettings | None = None) -> Encoder:
    """Load `builtin`, a folder (of miner, Hugging Face or sentence-transformers), the URI of one, or a hub id.

    Raise ModelError where it is missing or damaged, ConfigError where the settings do not fit it.
    """
    settings = settings or EncoderSettings()
    folder = find_folder(name)
    kind = _kind_of(folder)
    _check_side(settings, kind, name)
    _require_packages(kind)
    with convert_damage(name):
        return ENCODERS[kind](str(folder), settings)


def _require_packages(kind: str) -> None:
    """Raise ConfigError where the packages of transformers are not installed, and encoders of this kind need them."""
    if kind != STATIC:
        require("torch")
    if kind not in (STATIC, LASER):
        require("transformers")


def _check_side(settings: EncoderSettings, kind: str, name: str) -> None:
    if settings.side is not None and kind != PAIR:
        raise ConfigError(f"--side {settings.side}: {name} is one encoder for all texts; remove the option")


@contextlib.contextmanager
def convert_damage(name: str) -> Iterator[None]:
    """Convert what odd files of an encoder raise while it is loaded to a ModelError."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise ModelError(f"{name}: damaged or not supported ({reason}); download or train the encoder again, or choose another") from error


def choose_side(settings: EncoderSettings, lang: str, default: str | None = None) -> EncoderSettings:
    """Return the settings with the side for texts of a language, where the encoder has two and the settings name none.

    That is the side that was trained for the language, else `default`. Raise ConfigError where there is neither.
    """
    settings = settings.part(EncoderSettings)
    if settings.side is not None or find_kind(settings.encoder) != PAIR:
        return settings
    from miner.encoders import pair

    folder = find_folder(settings.encoder)
    return settings.model_copy(update={"side": pair.read(folder).choose_side(lang, default)})


def find_kind(name: str) -> str:
    """Return the kind of an encoder; raise ModelError where its folder is missing or records none of ENCODERS."""
    if name in _offered and _offered_folder(name) is None:
        return OBJECT
    return _kind_of(find_folder(name))


def _has_first_file(folder: Path) -> bool:
    return any((folder / file).exists() for file in FIRST_FILES)


def _kind_of(folder: Path) -> str:
    if not (folder / "miner.json").exists():
        from miner.encoders import static_embedding

        if not _has_first_file(folder) and laser_files(folder):
            return LASER
        return TRANSFORMER if static_embedding.find_module(folder) is None else STATIC
    content = storage.read_json(str(folder / "miner.json"))
    kind = str(content.get("kind")) if isinstance(content, dict) else None
    if kind not in ENCODERS:
        raise ModelError(f"{folder / 'miner.json'}: unknown kind of encoder {kind!r}; one of {', '.join(ENCODERS)}")
    return kind


@dataclass(frozen=True)
class EncoderIdentity:
    """What must be known of an encoder before it is loaded."""

    fingerprint: str
    dim: int
    kind: str  # one of ENCODERS
    num_layers: int | None = None  # of a transformer
    width: int | None = None  # of its hidden states


def identify(settings: EncoderSettings) -> EncoderIdentity:
    """Return the identity of the encoder that `load_encoder` loads, without its weights and its device; raise what that raises.

    This machine may lack the device. The data type `auto` is bfloat16 on a GPU that is stated.
    """
    if (offered := find_offered(settings)) is not None:
        return EncoderIdentity(offered.fingerprint, offered.dim, find_kind(settings.encoder))
    folder = find_folder(settings.encoder)
    kind = _kind_of(folder)
    _check_side(settings, kind, settings.encoder)
    if settings.dtype == AUTO and parse_device(settings.device) not in (None, CPU):
        settings = settings.model_copy(update={"dtype": BFLOAT16})
    if kind != TRANSFORMER:
        encoder = load_encoder(str(folder), settings.model_copy(update={"side": None}))
        return EncoderIdentity(encoder.fingerprint, encoder.dim, kind)
    _require_packages(kind)
    from miner.encoders import transformer

    with convert_damage(settings.encoder):
        fingerprint, dim, states = transformer.identify(str(folder), settings)
        return EncoderIdentity(fingerprint, dim, kind, *states)


def with_recorded_dtype(settings: S, fingerprints: Iterable[str | None]) -> S:
    """Return settings whose data type, if it is `auto`, is that of the first of these fingerprints of a transformer.

    So vectors of one output, and those that are compared, have one type, whatever the machine.
    """
    if settings.dtype != AUTO:
        return settings
    recorded = [value for value in fingerprints if value is not None and value.startswith((f"{TRANSFORMER}-", f"{PAIR}-"))]
    return settings.model_copy(update={"dtype": split_dtype(recorded[0])[1]}) if recorded else settings


def read_fingerprint(name: str) -> str:
    """Return a hash of the files of an encoder that decide on its vectors, without loading it. Raise ModelError for a damaged folder."""
    if find_kind(name) == TRANSFORMER:
        from miner.encoders import model_folder

        with convert_damage(name):
            return model_folder.fingerprint(model_folder.read_recipe(find_folder(name)), None)
    return load_encoder(name).fingerprint


def find_folder(name: str) -> Path:
    """Return the folder of an encoder, copied or downloaded if its name is a URI or a hub id; raise ModelError where there is none."""
    from miner.encoders import hub

    return _local_folder(name) or hub.fetch(name)


def absolute_name(name: str) -> str:
    """Return a name of an encoder that does not depend on the working directory and the process."""
    if name in _offered:
        return str(_offered_folder(name) or type(_offered[name]).__name__)
    return str(Path(name).resolve()) if name != BUILTIN and Path(name).is_dir() else name


def _offered_folder(name: str) -> Path | None:
    """Return the folder that an offered encoder was loaded from, None if it has none."""
    encoder = _offered[name]
    folder = getattr(getattr(encoder, "pair", encoder), "folder", None)
    return None if folder is None else Path(folder)


def _local_folder(name: str) -> Path | None:
    """Return the folder of an encoder, copied if its name is a URI, None if it may be a hub id; raise ModelError otherwise."""
    if name in _offered:
        folder = _offered_folder(name)
        if folder is None:
            raise ModelError(f"{name}: an encoder without a folder; load it with miner.load_encoder")
        return folder
    if re.fullmatch(rf"{OFFERED}\w+-\d+", name):
        raise ModelError(f"{name[1:]}: an encoder in memory, which other processes cannot use; name its folder, or give at most 16 shards")
    if remote.is_uri(name):
        return remote.fetch(name)
    folder = Path(str(files("miner.encoders") / "assets" / BUILTIN)) if name == BUILTIN else Path(name)
    if not name.strip():
        raise ModelError(f"no encoder is named; give `{BUILTIN}`, a folder, a URI or a hub id")
    if folder.is_dir():
        if not _has_first_file(folder) and not laser_files(folder):  # before anything walks through the folder
            raise ModelError(f"{name}: none of {', '.join(FIRST_FILES)}, so not an encoder; check the path; {SUPPORTED}")
        return folder
    if folder.exists() or name == BUILTIN or name.startswith((".", "/", "~")):
        raise ModelError(
            f"{name}: no such encoder folder; give `{BUILTIN}`, a folder, a URI or a hub id such as sentence-transformers/LaBSE"
        )
    return None
