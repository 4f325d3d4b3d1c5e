"""Write a static encoder so that sentence-transformers (StaticEmbedding) and model2vec load its folder, with the same vectors.

The files stand beside those of `static.save`: `tokenizer.json` (the SentencePiece Unigram model), `model.safetensors` (float32, because
these libraries compute in the type of the file), `modules.json` and `config.json`. Both take means and normalise them, which gives the
normalised sums of this package, because the vector of the unknown piece is zero.

The tokenizers library normalises some combinations of letters and marks otherwise than SentencePiece, and sums scores in another
precision, so a few texts are split differently; docs/training.md has the figures.
"""

from pathlib import Path
from typing import Any

import numpy as np

from miner.encoders.static import PIECES, StaticEncoder
from miner.encoders.word_cache import UNSPACED, joins_unspaced
from miner.errors import ModelError
from miner.io import checksums, storage

TOKENIZER, WEIGHTS, MODULES, CONFIG = "tokenizer.json", "model.safetensors", "modules.json", "config.json"
EMBEDDINGS = "embeddings"  # name of the tensor, as in model2vec; sentence-transformers reads it too
UNIGRAM, NORMAL, UNKNOWN = 1, 1, 2  # values of the SentencePiece proto: a type of model, and types of pieces
PACKAGE = "sentence_transformers.models"


def write(folder: str | Path) -> bool:
    """Add the files of other libraries to a folder of `static.save`. Return False if its pieces are of a kind that they cannot have.

    That is another SentencePiece model than Unigram, or one with control symbols, bytes or symbols of its user.
    """
    from safetensors.numpy import save as to_bytes

    encoder = StaticEncoder(folder)
    tokenizer = build_tokenizer((encoder.folder / PIECES).read_bytes())
    if tokenizer is None:
        return False
    with storage.atomic(str(encoder.folder / TOKENIZER)) as handle:
        handle.write(tokenizer.to_str().encode())
    with storage.atomic(str(encoder.folder / WEIGHTS)) as handle:
        handle.write(to_bytes({EMBEDDINGS: np.ascontiguousarray(encoder.vectors)}, {"format": "pt"}))
    modules = [{"idx": 0, "name": "0", "path": "", "type": f"{PACKAGE}.StaticEmbedding"}]
    modules.append({"idx": 1, "name": "1", "path": "1_Normalize", "type": f"{PACKAGE}.Normalize"})
    storage.write_json(str(encoder.folder / MODULES), modules)
    config = {"model_type": "model2vec", "architectures": ["StaticModel"], "hidden_dim": encoder.dim, "normalize": True, "max_length": None}
    storage.write_json(str(encoder.folder / CONFIG), config)
    checksums.write(encoder.folder)
    return True


def build_tokenizer(pieces: bytes) -> Any:
    """Return a `tokenizers.Tokenizer` that splits texts as a SentencePiece model does, None for a model that it cannot represent."""
    from sentencepiece import SentencePieceProcessor
    from tokenizers import Tokenizer, models, pre_tokenizers

    model = _parse(pieces)
    spec, unknown = model.normalizer_spec, model.trainer_spec.unk_id
    is_supported = model.trainer_spec.model_type == UNIGRAM and not model.trainer_spec.byte_fallback and spec.escape_whitespaces
    if not is_supported or any(piece.type != (UNKNOWN if row == unknown else NORMAL) for row, piece in enumerate(model.pieces)):
        return None
    tokenizer = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in model.pieces], unk_id=unknown))
    tokenizer.normalizer = _build_normalizer(spec, joins_unspaced(SentencePieceProcessor(model_proto=pieces)))
    crosses_spaces = any("\u2581" in piece.piece[1:] for piece in model.pieces)
    scheme = "always" if spec.add_dummy_prefix else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=not crosses_spaces)
    return tokenizer


def _build_normalizer(spec: Any, joins_unspaced: bool) -> Any:
    from tokenizers import Regex, normalizers

    parts: list[Any] = [normalizers.Replace(Regex(f" (?=[{UNSPACED}])"), "")] if joins_unspaced else []
    if spec.precompiled_charsmap:
        parts.append(normalizers.Precompiled(spec.precompiled_charsmap))
    if spec.remove_extra_whitespaces:
        parts += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    return normalizers.Sequence(parts)


def _parse(pieces: bytes) -> Any:
    from google.protobuf.message import DecodeError
    from transformers.utils import sentencepiece_model_pb2_new as proto

    try:
        return proto.ModelProto.FromString(pieces)
    except DecodeError as error:
        raise ModelError("not a SentencePiece model; train the encoder again") from error
