"""Two transformers with one vector space, such as one for English and one for Chinese: a folder of two transformer folders.

`miner.json` records `{"kind": "pair", "format": 1, "dim": 768, "sides": {"source": {"folder": "source", "languages": ["eng_Latn"]}, ...}}`.
The languages are optional. Both sides have one fingerprint, since their vectors can be compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from miner import languages
from miner.arrays import Floats32
from miner.config.choices import FLOAT32, INT8
from miner.config.commands import EncoderSettings
from miner.devices import choose_device
from miner.encoders import model_folder, transformer
from miner.encoders.transformer import TransformerEncoder
from miner.errors import ConfigError, ModelError
from miner.io import checksums, storage

if TYPE_CHECKING:
    import torch

SETTINGS, KIND, FORMAT = "miner.json", "pair", 1
SIDES = SOURCE, TARGET = ("source", "target")
DAMAGED = "train the encoder again"  # remedy


@dataclass(frozen=True)
class PairFolder:
    """What `miner.json` records."""

    folder: Path
    dim: int
    folders: Mapping[str, Path]  # side -> folder of its transformer
    languages: Mapping[str, tuple[str, ...]]  # side -> canonical codes; empty if they are not recorded

    def side_of(self, lang: str) -> str | None:
        """Return the side that was trained for a language, None if the folder does not record one."""
        code = languages.canonical(lang)
        return next((side for side in SIDES if code in self.languages[side]), None)

    def choose_side(self, lang: str | None, default: str | None = None) -> str:
        """Return the side for texts of a language, else `default`; raise ConfigError where there is neither."""
        side = (self.side_of(lang) if lang is not None else None) or default
        if side is None:
            texts = "these texts" if lang in (None, languages.UNDETERMINED) else str(lang)
            recorded = "; ".join(f"{side}: {' '.join(codes) or 'no languages'}" for side, codes in self.languages.items())
            raise ConfigError(
                f"{self.folder}: no side for {texts} ({recorded}); choose one with --side, or add the language in {self.folder / SETTINGS}"
            )
        return side


def read(folder: Path) -> PairFolder:
    """Read `miner.json`; raise ModelError where it is not complete."""
    path = folder / SETTINGS
    checksums.check(folder, DAMAGED)
    content = storage.read_json(str(path))
    recorded = content.get("format") if isinstance(content, dict) else None
    if recorded != FORMAT:
        raise ModelError(f"{path}: format {recorded!r}, expected {FORMAT}; update miner, or {DAMAGED}")
    entries = content.get("sides")
    entries = [entry for entry in entries.values() if isinstance(entry, dict)] if isinstance(entries, dict) else []
    unknown = sorted({*(content.keys() - {"kind", "format", "dim", "sides"}), *(set().union(*entries) - {"folder", "languages"})})
    if unknown:
        raise ModelError(f"{path}: unknown key {unknown[0]!r}; correct it, or {DAMAGED}")
    try:
        sides = {side: content["sides"][side] for side in SIDES}
        folders = {side: folder / str(entry["folder"]) for side, entry in sides.items()}
        codes = {side: tuple(languages.canonical(str(code)) for code in entry.get("languages", ())) for side, entry in sides.items()}
        dim = int(content["dim"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: no dim, or no folder of both sides ({error}); {DAMAGED}") from error
    for side_folder in folders.values():
        if not side_folder.resolve().is_relative_to(folder.resolve()) or not side_folder.is_dir():
            raise ModelError(f"{path}: {side_folder} is not a folder in {folder}; {DAMAGED}")
    return PairFolder(folder, dim, folders, codes)


def write(folder: Path, dim: int, codes: Mapping[str, Sequence[str]]) -> None:
    """Write `miner.json`, with the canonical language codes of each side, beside the folders `source` and `target`."""
    sides = {side: {"folder": side, **({"languages": list(codes[side])} if codes[side] else {})} for side in SIDES}
    storage.write_json(str(folder / SETTINGS), {"kind": KIND, "format": FORMAT, "dim": dim, "sides": sides})


class PairEncoder:
    """Both sides, each loaded when it is first used. `side` returns one of them as an encoder."""

    def __init__(self, folder: Path, settings: EncoderSettings) -> None:
        """Read what the folder records; raise ModelError where it is damaged."""
        self.pair, self.settings = read(folder), settings
        self.dim = self.pair.dim
        self._sides: dict[str, TransformerEncoder] = {}

    @cached_property
    def fingerprint(self) -> str:
        """Of both sides. It changes with the weights or the tokenizer of either, and not with the recorded languages."""
        recipes = {side: model_folder.read_recipe(folder).with_settings(self.settings) for side, folder in self.pair.folders.items()}
        dtype = INT8 if self.precision == INT8 else FLOAT32  # another floating-point type follows the hash of both
        sides = [model_folder.fingerprint(recipe, self.settings.max_tokens or recipe.max_tokens, dtype) for recipe in recipes.values()]
        return model_folder.with_dtype(f"{KIND}-{storage.key(sides)[:16]}", self.precision)

    @cached_property
    def precision(self) -> str:
        """The data type of both sides: with `auto`, float32 where one of them needs it."""
        precisions = {transformer.settle_precision(str(folder), self.settings) for folder in self.pair.folders.values()}
        return precisions.pop() if len(precisions) == 1 else FLOAT32

    @cached_property
    def device(self) -> "torch.device":
        """The device of both sides."""
        import torch

        return torch.device(choose_device(self.settings.device))

    def side(self, name: str) -> TransformerEncoder:
        """Return the encoder of one side, with the fingerprint of both."""
        if name not in self._sides:
            encoder = transformer.load(str(self.pair.folders[name]), self.settings.model_copy(update={"dtype": self.precision}))
            if encoder.dim != self.dim:
                raise ModelError(f"{self.pair.folders[name]}: {encoder.dim} dimensions, but {SETTINGS} has {self.dim}; {DAMAGED}")
            encoder.fingerprint = self.fingerprint
            self._sides[name] = encoder
        return self._sides[name]

    def encode(self, texts: Sequence[str]) -> Floats32:  # noqa: ARG002
        """Raise ConfigError: the side must be chosen first."""
        raise self.missing_side()

    def missing_side(self) -> ConfigError:
        """Return the error for texts whose side is not known."""
        return ConfigError(f"{self.pair.folder}: an encoder with two sides; choose the one that encodes the texts with --side")
