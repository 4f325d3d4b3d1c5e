"""LASER2 (Heffernan et al. 2022) and the encoders of LASER3, in the directory to which LASER's scripts download them.

`laser2.pt` is a BiLSTM of 93 languages; `laser3-LANG.vN.pt`, a transformer for one language, was trained to give the same vectors. Each may
have a SentencePiece model and a vocabulary of its own (`.spm`, `.cvocab`), and otherwise shares those of LASER2. Pickles are read without
executing code. The vector is the maximum over the tokens, or the first one where a checkpoint says so.
"""

from __future__ import annotations

import argparse
import copy
import math
import re
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentencepiece import SentencePieceProcessor
from torch import Tensor, nn

from miner import languages
from miner.arrays import Floats32
from miner.config.choices import AUTO, FLOAT32
from miner.config.commands import EncoderSettings
from miner.devices import choose_device
from miner.encoders.base import EncodeCounts, check_texts
from miner.encoders.model_folder import laser_files
from miner.encoders.transformer import BATCH_TOKENS, token_batches
from miner.errors import ConfigError, ModelError, first_line, require
from miner.io import storage
from miner.progress import add_work

LASER2 = "laser2"
FILE = re.compile(r"laser3-(\w+?)(?:\.v\d+)?\.pt")
BOS, PAD, EOS, UNKNOWN = range(4)  # in every vocabulary
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"  # last piece of a checkpoint with a normalization after its layers
DAMAGED = "download it again"


class LaserEncoder:
    """LASER2, or LASER3 for texts in a language of which the directory has an encoder: `in_language` chooses."""

    def __init__(self, folder: Path, settings: EncoderSettings) -> None:
        """Read which languages there are. Raise ConfigError for settings that do not fit, and where sacremoses is not installed."""
        for option, value in (("pooling", settings.pooling), ("prompt", settings.prompt), ("max-tokens", settings.max_tokens)):
            if value is not None:
                raise ConfigError(f"--{option} {value}: {folder} is an encoder of LASER, which has its own; remove the option")
        if settings.dtype not in (AUTO, FLOAT32):
            raise ConfigError(f"--dtype {settings.dtype}: {folder} is an encoder of LASER, which runs in {FLOAT32}; remove the option")
        require("sacremoses")
        self.folder = folder
        self.device = torch.device(choose_device(settings.device))
        self.batch_tokens = settings.batch_tokens or BATCH_TOKENS[self.device.type]
        self.tally = EncodeCounts()
        self._lock = threading.Lock()
        self._languages = {languages.canonical(match[1]): path for path in laser_files(folder) if (match := FILE.fullmatch(path.name))}
        self._models: dict[Path, LaserModel] = {}
        default = folder / f"{LASER2}.pt"
        self._path = default if default.exists() else None

    @cached_property
    def fingerprint(self) -> str:
        """Hash all files of the directory, as vectors of all its languages are compared."""
        paths = [path for pattern in ("*.pt", "*.spm", "*.cvocab") for path in sorted(self.folder.glob(f"laser{pattern}"))]
        return f"laser-{storage.key({path.name: storage.checksum(str(path)) for path in paths})}"

    @cached_property
    def dim(self) -> int:
        """Return the dimension of vectors, which all encoders of the directory share."""
        return self._load(self._path or next(iter(self._languages.values()))).dim

    def in_language(self, lang: str) -> LaserEncoder:
        """Return the encoder of a language, LASER2 where it has none of its own; raise ConfigError where there is no LASER2."""
        encoder = copy.copy(self)
        encoder._path = self._languages.get(languages.canonical(lang), self._path)
        if encoder._path is None:
            raise ConfigError(
                f"{self.folder}: no {LASER2}.pt, and no encoder of {lang} ({', '.join(self._languages)}); download one of them"
            )
        return encoder

    def encode(self, texts: Sequence[str]) -> Floats32:
        """n texts -> (n, dim) float32 unit rows in the order of the texts; a zero row for a text of spaces only."""
        check_texts(texts)
        if self._path is None:
            raise ConfigError(f"{self.folder}: needs the language of texts, as it has no {LASER2}.pt; give --lang, or download it")
        with self._lock:
            model = self._load(self._path)
            tokens = [model.tokenize(text) if text.strip() else [] for text in texts]
            self.tally.tokens += sum(map(len, tokens))
            self.tally.truncated_texts += sum(len(ids) > model.max_tokens for ids in tokens)
            tokens = [ids[: model.max_tokens] for ids in tokens]
            vectors = np.zeros((len(texts), model.dim), dtype=np.float32)
            for batch in token_batches([len(ids) for ids in tokens], self.batch_tokens):
                padded = nn.utils.rnn.pad_sequence([torch.tensor(tokens[row]) for row in batch], batch_first=True, padding_value=PAD)
                with torch.inference_mode():
                    pooled = model.network(padded.to(self.device))
                vectors[batch] = nn.functional.normalize(pooled, dim=1).cpu().numpy()
                add_work(len(batch))
        if not np.isfinite(vectors).all():
            raise ModelError(f"{self._path}: NaN or infinite vectors; its weights may be damaged, {DAMAGED}")
        return vectors

    def _load(self, path: Path) -> LaserModel:
        if path not in self._models:
            self._models[path] = LaserModel(path, self.device)
        return self._models[path]


class LaserModel:
    """A checkpoint and its tokenizer."""

    def __init__(self, path: Path, device: torch.device) -> None:
        """Load them; raise ModelError where they are damaged, missing or not of LASER."""
        from sacremoses import MosesPunctNormalizer

        try:
            with torch.serialization.safe_globals([argparse.Namespace]):
                checkpoint = torch.load(path, map_location="cpu", weights_only=True)
            own = path.with_suffix(".spm")
            pieces = own if own.exists() else path.parent / f"{LASER2}.spm"
            self._pieces = SentencePieceProcessor(model_proto=_read(pieces))
            if "params" in checkpoint:
                self._vocabulary: Mapping[str, int] = checkpoint["dictionary"]
                self.network: nn.Module = LaserLstm(checkpoint["params"], checkpoint["model"])
                self._first: list[int] = []
                self.max_tokens, self.dim = 1_000_000, self.network.dim
            else:
                options = vars(checkpoint["cfg"]["model"])
                weights = _encoder_weights(checkpoint["model"])
                self._vocabulary = _read_vocabulary(pieces.with_suffix(".cvocab"), has_mask="layer_norm.weight" in weights)
                self.network = LaserTransformer(options, weights)
                self._first = [BOS] if options.get("prepend_bos") else []
                self.max_tokens, self.dim = int(options.get("max_source_positions") or 1024), self.network.dim
        except ModelError:
            raise
        except Exception as error:  # of pickles, of torch and of SentencePiece
            raise ModelError(
                f"{path}: not a checkpoint of LASER, or damaged ({type(error).__name__}: {first_line(error)}); {DAMAGED}"
            ) from error
        self.network.to(device).eval()
        self._punctuation = MosesPunctNormalizer("en")  # for every language, as in laser_encoders

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a text, whose punctuation is normalised and which is lower-cased."""
        pieces = self._pieces.encode(self._punctuation.normalize(text).lower(), out_type=str)
        ids = [SPECIAL.index(piece) if piece in SPECIAL else self._vocabulary.get(piece, UNKNOWN) for piece in " ".join(pieces).split()]
        return [*self._first, *ids, EOS]


class LaserLstm(nn.Module):
    """The BiLSTM of LASER2."""

    def __init__(self, params: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(params["num_embeddings"], params["embed_dim"], padding_idx=PAD)
        is_bidirectional = bool(params["bidirectional"])
        self.lstm = nn.LSTM(
            params["embed_dim"], params["hidden_size"], params["num_layers"], bidirectional=is_bidirectional, batch_first=True
        )
        self.dim: int = params["hidden_size"] * (2 if is_bidirectional else 1)
        self.load_state_dict(weights)
        self.float()

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (batch, t), longest first -> (batch, dim), the maximum over the states of tokens."""
        mask = tokens != PAD
        packed = nn.utils.rnn.pack_padded_sequence(self.embed_tokens(tokens), mask.sum(dim=1).cpu(), batch_first=True)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True, padding_value=-math.inf)
        return states.amax(dim=1)


class LaserTransformer(nn.Module):
    """The transformer of LASER3, an encoder of fairseq (Ott et al. 2019): the sizes are those of its weights."""

    def __init__(self, options: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        weights = {name: value.float() for name, value in weights.items()}
        num_pieces, width = weights["embed_tokens.weight"].shape
        self.embed_tokens = nn.Embedding(num_pieces, width, padding_idx=PAD)
        self.embed_tokens.load_state_dict({"weight": weights["embed_tokens.weight"]})
        self.dim = self.embed_tokens.embedding_dim
        self.scale = 1.0 if options.get("no_scale_embedding") else math.sqrt(self.dim)
        self.takes_first = options.get("sentemb_criterion") == "cls"
        self.has_positions = not options.get("no_token_positional_embeddings")
        self.positions: Tensor | None
        self.register_buffer("positions", weights.get("embed_positions.weight"))
        self.embedding_norm = _layer_norm(weights, "layernorm_embedding")
        self.last_norm = _layer_norm(weights, "layer_norm")
        num_layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("layers."))
        self.layers = nn.ModuleList(_layer(options, weights, f"layers.{number}.") for number in range(num_layers))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (batch, t) -> (batch, dim), the maximum over the states of tokens, or that of the first one."""
        is_padding = tokens == PAD
        states: Tensor = self.scale * self.embed_tokens(tokens)
        if self.has_positions:  # numbered from PAD + 1 on, whatever the padding
            rows = PAD + 1 + torch.arange(tokens.shape[1], device=tokens.device)
            states = states + (sinusoids(rows, self.dim) if self.positions is None else self.positions[rows])
        states = self.embedding_norm(states)
        for layer in self.layers:
            states = layer(states, src_key_padding_mask=is_padding)
        states = self.last_norm(states)
        return states[:, 0] if self.takes_first else states.masked_fill(is_padding[:, :, None], -math.inf).amax(dim=1)


def sinusoids(rows: Tensor, dim: int) -> Tensor:
    """Rows (t,) -> (t, dim), sines and then cosines of geometric frequencies (Vaswani et al. 2017, section 3.5)."""
    frequencies = torch.exp(torch.arange(dim // 2, device=rows.device) * -(math.log(10000) / (dim // 2 - 1)))
    angles = rows[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def _layer(options: Mapping[str, Any], weights: Mapping[str, Tensor], prefix: str) -> nn.TransformerEncoderLayer:
    own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    layer = nn.TransformerEncoderLayer(
        own["fc1.weight"].shape[1],
        int(options["encoder_attention_heads"]),
        own["fc1.weight"].shape[0],
        dropout=0.0,
        activation=str(options.get("activation_fn") or "relu"),
        batch_first=True,
        norm_first=bool(options.get("encoder_normalize_before")),
    )
    names = {"self_attn.out_proj": "self_attn.out_proj", "self_attn_layer_norm": "norm1", "final_layer_norm": "norm2"}
    state = {}
    for kind in ("weight", "bias"):
        state[f"self_attn.in_proj_{kind}"] = torch.cat([own[f"self_attn.{name}_proj.{kind}"] for name in "qkv"])
        state |= {f"{new}.{kind}": own[f"{name}.{kind}"] for name, new in {**names, "fc1": "linear1", "fc2": "linear2"}.items()}
    layer.load_state_dict(state)
    return layer


def _layer_norm(weights: Mapping[str, Tensor], name: str) -> nn.Module:
    """Return the normalization of this name, the identity where a checkpoint has none."""
    if f"{name}.weight" not in weights:
        return nn.Identity()
    norm = nn.LayerNorm(len(weights[f"{name}.weight"]))
    norm.load_state_dict({kind: weights[f"{name}.{kind}"] for kind in ("weight", "bias")})
    return norm


def _encoder_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the encoder, by their names without `encoder.`, which they have beside those of a decoder."""
    own = {name.removeprefix("encoder."): value for name, value in weights.items() if name.startswith("encoder.")}
    return own or dict(weights)


def _read_vocabulary(path: Path, has_mask: bool) -> dict[str, int]:
    """Return the number of each piece: the special ones come first, then a line for each with its count."""
    lines = _read(path).decode().split("\n")  # `splitlines` would split pieces
    pieces = [*SPECIAL, *(line.rpartition(" ")[0] for line in lines if line), *([MASK] if has_mask else [])]
    return {piece: number for number, piece in enumerate(pieces)}


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise ModelError(f"{path}: missing; LASER needs it beside its checkpoints, download it")
    return path.read_bytes()
