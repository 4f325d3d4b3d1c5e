"""Static encoders of other libraries: folders of model2vec, and of sentence-transformers with a StaticEmbedding module.

A folder has `tokenizer.json` and `model.safetensors`, which holds a row per token (`embedding.weight`) or, as model2vec writes it,
`embeddings` with an optional row number (`mapping`) and weight (`weights`) of each token. The vector of a text is the normalised sum.
Unlike model2vec by default, texts are not cut.
"""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from miner.arrays import Floats32, Ints32
from miner.encoders.model_folder import CONFIG, MODULES, list_modules, module_path, read_json
from miner.encoders.vector_sums import VectorSums
from miner.encoders.word_cache import PieceIds
from miner.errors import ModelError, first_line, is_library_error
from miner.io import checksums

TOKENIZER, WEIGHTS = "tokenizer.json", "model.safetensors"
MODULE = "StaticEmbedding"
DAMAGED = "download or train the encoder again"  # remedy


def find_module(folder: Path) -> Path | None:
    """Return the folder of the tokenizer and the vectors in an encoder's folder, None if it is no static encoder of another library.

    Raises ModelError for a StaticEmbedding with other modules than Normalize after it.
    """
    if (folder / MODULES).exists():
        modules = list_modules(folder)
        kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
        if kinds[:1] != [MODULE]:
            return None
        if kinds[1:] not in ([], ["Normalize"]):
            raise ModelError(f"{folder / MODULES}: module {kinds[1]} after {MODULE} is not supported; choose another encoder")
        return module_path(folder, str(modules[0]["path"]))
    config = read_json(folder / CONFIG) if (folder / CONFIG).exists() else {}
    return folder if isinstance(config, dict) and config.get("model_type") == "model2vec" else None


class StaticEmbeddingEncoder(VectorSums):
    """Encode with a folder of model2vec or sentence-transformers."""

    def __init__(self, folder: Path, module: Path) -> None:
        """`module` is the folder of the tokenizer and the vectors in `folder`."""
        super().__init__(folder)
        checksums.check(folder, DAMAGED)
        self.module = module
        self.dim: int = self.table.shape[1]

    @cached_property
    def fingerprint(self) -> str:
        """Hash the vectors and the tokenizer."""
        digest = xxhash.xxh3_64(f"static-embedding {self.table.shape}".encode())
        digest.update(np.ascontiguousarray(self.table).data.cast("B"))
        digest.update(self.tokenizer.to_str().encode())
        return f"static-{digest.hexdigest()}"

    @property
    def num_tokens(self) -> int:
        return len(self.table)

    def rows(self, tokens: Ints32) -> Floats32:
        return self.table[tokens]

    @cached_property
    def table(self) -> Floats32:
        """(tokens, dim) float32. The row of the unknown token is zero in folders of model2vec, which leaves it out."""
        tensors = self._read_tensors()
        is_model2vec = "embedding.weight" not in tensors
        try:
            rows = tensors["embeddings" if is_model2vec else "embedding.weight"].astype(np.float32)
            rows = rows[tensors["mapping"]] if "mapping" in tensors else rows.copy()
            if "weights" in tensors:
                rows *= tensors["weights"].astype(np.float32)[:, None]
        except (KeyError, IndexError, ValueError) as error:
            raise ModelError(f"{self.module / WEIGHTS}: not the vectors of a static encoder ({error}); {DAMAGED}") from error
        if rows.ndim != 2 or len(rows) < self.tokenizer.get_vocab_size() or not np.isfinite(rows).all():
            raise ModelError(
                f"{self.module / WEIGHTS}: {rows.shape} vectors for {self.tokenizer.get_vocab_size()} tokens, or not finite; {DAMAGED}"
            )
        unknown = self._unknown_token() if is_model2vec else None
        if unknown is not None:
            rows[unknown] = 0
        table: Floats32 = rows
        return table

    def _read_tensors(self) -> dict[str, Any]:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            tensors: dict[str, Any] = load_file(self.module / WEIGHTS)
        except (SafetensorError, OSError, TypeError) as error:
            raise ModelError(f"{self.module / WEIGHTS}: {error}; {DAMAGED}") from error
        return tensors

    def _unknown_token(self) -> int | None:
        """Return the number of the token for unknown text, None if there is none."""
        model = json.loads(self.tokenizer.to_str())["model"]
        name = model.get("unk_token")
        number: int | None = self.tokenizer.token_to_id(name) if name is not None else model.get("unk_id")
        return number

    @cached_property
    def tokenizer(self) -> Any:
        """The `tokenizers.Tokenizer`, without truncation and padding."""
        from tokenizers import Tokenizer

        path = self.module / TOKENIZER
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except BaseException as error:
            if not is_library_error(error):
                raise
            raise ModelError(f"{path}: {first_line(error)}; {DAMAGED}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def split_texts(self, texts: list[str]) -> PieceIds:
        """Split n texts into tokens."""
        try:
            encodings = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except Exception as error:  # such as for a model without a token for unknown text; the library raises no other class
            raise ModelError(f"{self.module / TOKENIZER}: {first_line(error)}; {DAMAGED}") from error
        return PieceIds.from_lists([encoding.ids for encoding in encodings])
