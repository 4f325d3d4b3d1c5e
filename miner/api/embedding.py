"""`miner.load_encoder` and `miner.embed`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from miner import encoders, languages
from miner.api.options import with_options
from miner.api.results import TableResult
from miner.api.workspace import TEXT, EncoderLike, check_side, list_texts, open_workspace, write_texts
from miner.arrays import Ids, Ints, Vectors
from miner.config.choices import AUTO, RescoreName
from miner.config.commands import EmbedConfig, EncoderSettings, TextSettings
from miner.config.filters import settings_from
from miner.encoders import Encoder
from miner.io import storage
from miner.io.corpus import Corpus, open_corpus
from miner.text.normalise import clean_all, sentence_id, sentence_ids
from miner.units import list_counts
from pipelines.corpus import embed as pipeline

NOT_DROPPED = ("lines", "kept", "duplicate")  # counts of texts that have a vector


@dataclass(frozen=True)
class EmbeddedTokens:
    """The tokens of n texts by which a transformer rescores, as they are stored on disk."""

    values: pa.Array  # n binary values, each the tokens of a text
    layer: int
    dim: int


@dataclass(frozen=True, eq=False)
class Embeddings(TableResult):
    """The vectors of n texts, in their order. A text that is empty, too long or without letters has the text "" and a vector of zeros."""

    ids: Ids  # (n,) equal texts have equal ids
    texts: Sequence[str]  # n cleaned texts
    vectors: Vectors  # (n, dim) float16 of length 1, as they are stored on disk
    lang: str
    fingerprint: str  # of the encoder
    dropped: Mapping[str, int] = field(default_factory=dict)  # texts with a vector of zeros, by reason
    tokens: EmbeddedTokens | None = None  # of a transformer that rescores
    profile: Mapping[str, Any] = field(default_factory=dict)  # what was measured of the encoder, such as weights of probabilities

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        dropped = list_counts(self.dropped)
        return f"Embeddings: {len(self):,} texts ({self.lang}) x {self.vectors.shape[1]} dimensions{dropped and f'; dropped: {dropped}'}"

    def to_arrow(self) -> pa.Table:
        """Return a table with the columns id, text and embedding."""
        dim = self.vectors.shape[1]
        values = pa.array(self.vectors.ravel().astype(np.float32))
        columns = {"id": pa.array(self.ids), "text": pa.array(self.texts, pa.string())}
        return pa.table({**columns, "embedding": pa.FixedSizeListArray.from_arrays(values, dim)})


@with_options(EncoderSettings, without=["encoder"])
def load_encoder(name: str = encoders.BUILTIN, **options: Any) -> Encoder:
    """Load an encoder: `builtin`, a folder of miner, transformers or sentence-transformers, or an id of the Hugging Face hub.

    Its `encode` maps n texts to an array (n, dim) of unit rows. The options are those of `miner embed`: `pooling`, `device`, `dtype`,
    `batch_tokens`, `max_tokens`, `prompt` and `side`. Raises ModelError if the encoder is missing or damaged.

    Example:
        >>> encoder = miner.load_encoder("builtin")
        >>> encoder.encode(["Good morning.", "Guten Morgen."]).shape
        (2, 256)
    """
    settings = settings_from(EncoderSettings, {**options, "encoder": name})
    return encoders.load_encoder(settings.encoder, settings)


@with_options(EncoderSettings)
def embed(
    texts: Iterable[str],
    encoder: EncoderLike = encoders.BUILTIN,
    lang: str = languages.UNDETERMINED,
    max_chars: int = TextSettings.model_fields["max_chars"].default,
    rescore: RescoreName = AUTO,
    **options: Any,
) -> Embeddings:
    """Clean and embed texts, as `miner embed` does; equal texts are encoded once.

    Args:
        texts: A list of strings, or another iterable with an order: a generator, an array or column of strings.
        encoder: Name of an encoder, or an encoder of `miner.load_encoder`.
        lang: Language code of the texts, such as `de`.
        max_chars: Longer texts are dropped: their vector is zero.
        rescore: `none` keeps no tokens of a transformer, which take 3 kB for a text of 30 tokens; `miner.mine` rescores by them.
        **options: How the encoder runs: `pooling`, `device`, `dtype`, `batch_tokens`, `max_tokens`, `prompt` and `side`, as in `miner
            embed`.

    Raises a MinerError for texts that are not strings or all empty, an unknown language, invalid options, or an encoder that cannot be
    loaded.

    Example:
        >>> embeddings = miner.embed(["Good morning.", "Guten Morgen."])
        >>> embeddings.vectors.shape
        (2, 256)
    """
    listed = list_texts(texts)
    check_side(listed, "texts")
    cleaned = np.array(clean_all(listed), dtype=object)
    ids = sentence_ids(cleaned.tolist())
    with open_workspace(None, encoder) as (folder, name):
        options["encoder"] = name
        settings_from(EncoderSettings, options)  # other options name what this function makes
        inputs, output = (write_texts(listed, folder, "texts"),), storage.join(folder, "embedded")
        options |= {"inputs": inputs, "output": output, "text_column": TEXT, "lang": lang, "max_chars": max_chars, "rescore": rescore}
        result = pipeline.run(settings_from(EmbedConfig, options), warns=True)
        corpus = open_corpus(output)
        rows = np.flatnonzero(np.isin(ids, corpus.find_present(np.unique(ids)).ids))
        vectors = np.zeros((len(listed), result.dim), np.float16)
        vectors[rows], profile = corpus.vectors_of(ids[rows]), dict(corpus.profile)
        tokens = None if corpus.tokens is None else _read_tokens(corpus, ids, rows)
    is_dropped = np.ones(len(listed), bool)
    is_dropped[rows] = False
    cleaned[is_dropped], ids[is_dropped] = "", sentence_id("")
    dropped = {reason: count for reason, count in result.counts.items() if count and reason not in NOT_DROPPED}
    return Embeddings(ids, cleaned.tolist(), vectors, result.lang, result.fingerprint, dropped, tokens, profile)


def _read_tokens(corpus: Corpus, ids: Ids, rows: Ints) -> EmbeddedTokens:
    """Read the tokens of texts with ids (n,), of which only some rows were embedded; the others have none."""
    assert corpus.tokens is not None
    positions = np.full(len(ids), -1)
    positions[rows] = np.arange(len(rows))
    values = corpus.tokens_of(ids[rows]).combine_chunks().take(pa.array(positions, mask=positions < 0))
    return EmbeddedTokens(values.fill_null(b""), *corpus.tokens)
