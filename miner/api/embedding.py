"""`miner.load_encoder` and `miner.embed`."""

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeAlias, TypedDict, Unpack

import numpy as np
import pyarrow as pa

from miner import encoders, languages
from miner.api.results import TableResult
from miner.arrays import Bools, Ids, Vectors
from miner.config.commands import EncoderSettings, TextSettings
from miner.encoders import Encoder, mining_profile
from miner.encoders.base import check_texts
from miner.encoders.checked import encode_checked, to_float16
from miner.encoders.mining_profile import MiningProfile
from miner.encoders.pair import PairEncoder
from miner.errors import ConfigError
from miner.text.in_memory import UniqueSentences, unique_sentences
from miner.text.normalise import sentence_id

EncoderLike: TypeAlias = str | os.PathLike[str] | Encoder


class EncoderOptions(TypedDict, total=False):
    """How an encoder runs; the names, values and defaults are those of the options of `miner embed`."""

    pooling: str | None
    device: str
    dtype: str
    batch_tokens: int | None
    max_tokens: int | None
    side: str | None


@dataclass(frozen=True, eq=False)
class Embeddings(TableResult):
    """The vectors of n texts, in their order. A text that is empty or too long has the text "" and a vector of zeros."""

    ids: Ids  # (n,) equal texts have equal ids
    texts: Sequence[str]  # n cleaned texts
    vectors: Vectors  # (n, dim) float16 of length 1, as they are stored on disk
    lang: str
    fingerprint: str  # of the encoder

    def __len__(self) -> int:
        return len(self.ids)

    def to_arrow(self) -> pa.Table:
        """Return a table with the columns id, text and embedding."""
        dim = self.vectors.shape[1]
        values = pa.array(self.vectors.ravel().astype(np.float32))
        columns = {"id": pa.array(self.ids), "text": pa.array(self.texts, pa.string())}
        return pa.table({**columns, "embedding": pa.FixedSizeListArray.from_arrays(values, dim)})


def load_encoder(name: str = encoders.BUILTIN, **options: Unpack[EncoderOptions]) -> Encoder:
    """Load an encoder: `builtin`, a folder of miner, transformers or sentence-transformers, or an id of the Hugging Face hub.

    Its `encode` maps n texts to an array (n, dim) of unit rows. Raises ModelError if it is missing or damaged.

    Example:
        >>> encoder = miner.load_encoder("builtin")
        >>> encoder.encode(["Good morning.", "Guten Morgen."]).shape
        (2, 256)
    """
    settings = EncoderSettings.check(encoder=name, **options)
    return encoders.load_encoder(settings.encoder, settings)


def embed(
    texts: Iterable[str],
    encoder: EncoderLike = encoders.BUILTIN,
    lang: str = languages.UNDETERMINED,
    max_chars: int = TextSettings.model_fields["max_chars"].default,
    **options: Unpack[EncoderOptions],
) -> Embeddings:
    """Clean and embed texts, as `miner embed` does; equal texts are encoded once.

    Args:
        texts: A list of strings, or another iterable with an order: a generator, an array or column of strings.
        encoder: Name of an encoder, or an encoder of `miner.load_encoder`.
        lang: Language code of the texts, such as `de`.
        max_chars: Longer texts are dropped: their vector is zero.
        **options: How the encoder runs: `pooling`, `device`, `dtype`, `batch_tokens`, `max_tokens` and `side`, as in `miner embed`.

    Raises a MinerError for texts that are not strings, an unknown language, invalid options, or an encoder that cannot be loaded.

    Example:
        >>> embeddings = miner.embed(["Good morning.", "Guten Morgen."])
        >>> embeddings.vectors.shape
        (2, 256)
    """
    encoder = check_encoder(encoder)
    sentences = clean_texts(texts, TextSettings.check(max_chars=max_chars))
    settings = EncoderSettings.check(**named(encoder), **options)
    resolved = resolve_encoder(encoder, settings, lang)
    find_profile(resolved, resolved.fingerprint, settings, [languages.canonical(lang)])
    vectors = encode_sentences(sentences, np.ones(len(sentences.ids), dtype=bool), resolved, encoder_name(encoder))
    vectors, ids = np.concatenate([vectors, np.zeros((1, resolved.dim), np.float16)]), np.append(sentences.ids, sentence_id(""))
    rows, cleaned = sentences.sentence_of, [*sentences.texts, ""]  # row -1 is that of dropped texts
    return Embeddings(ids[rows], [cleaned[row] for row in rows], vectors[rows], languages.canonical(lang), resolved.fingerprint)


def clean_texts(texts: Iterable[str], settings: TextSettings) -> UniqueSentences:
    """Return the unique sentences of texts. Raises what `list_texts` and `check_texts` raise."""
    listed = list_texts(texts)
    check_texts(listed)
    return unique_sentences(listed, settings)


def list_texts(texts: Iterable[str]) -> Sequence[str]:
    """Return texts as a sequence. Raises ConfigError for what has no order, or is not iterable."""
    if isinstance(texts, pa.Array | pa.ChunkedArray):
        return list(texts.to_pylist())
    if isinstance(texts, Set | Mapping | bytes) or not isinstance(texts, Iterable):
        raise ConfigError(f"{type(texts).__name__} instead of texts; give a list of strings")
    return texts if isinstance(texts, str | list) else list(texts)


def check_encoder(encoder: EncoderLike) -> str | Encoder:
    """Return the name of an encoder, or the encoder. Raises ConfigError for anything else."""
    if isinstance(encoder, os.PathLike):
        return os.fspath(encoder)
    if isinstance(encoder, str | PairEncoder) or callable(getattr(encoder, "encode", None)):
        return encoder
    raise ConfigError(f"encoder: expected a name, or an encoder of miner.load_encoder, not {type(encoder).__name__}")


def named(encoder: str | Encoder) -> dict[str, str]:
    """Return the setting `encoder`, if it is a name."""
    return {"encoder": encoder} if isinstance(encoder, str) else {}


def encoder_name(encoder: str | Encoder) -> str:
    """Return the name of an encoder for messages."""
    return encoder if isinstance(encoder, str) else type(encoder).__name__


def resolve_encoder(encoder: str | Encoder, settings: EncoderSettings, lang: str, role: str | None = None) -> Encoder:
    """Return the encoder for texts of a language: loaded if it is a name; of two sides, that of the language, else of the role."""
    if isinstance(encoder, str):
        return encoders.load_encoder(encoder, encoders.choose_side(settings, lang, role))
    if isinstance(encoder, PairEncoder):
        return encoder.side(settings.side or encoder.pair.choose_side(lang, role))
    return encoder


def encode_sentences(sentences: UniqueSentences, kept: Bools, encoder: Encoder, name: str) -> Vectors:
    """Return the vectors (n, dim) of n sentences as they are stored; zeros for those that are not kept (n,)."""
    vectors = np.zeros((len(sentences.ids), encoder.dim), dtype=np.float16)
    for rows in sentences.encoding_groups(kept):
        texts = [sentences.texts[row] for row in rows]
        vectors[rows] = to_float16(encode_checked(encoder, texts, name), texts, name)
    return vectors


def find_profile(encoder: str | Encoder, fingerprint: str, settings: EncoderSettings, codes: Iterable[str]) -> MiningProfile:
    """Return the profile of an encoder, an empty one if its vectors have another fingerprint; warn of languages that it does not know."""
    profile = mining_profile.find(settings, fingerprint) if isinstance(encoder, str) else mining_profile.of_encoder(encoder, fingerprint)
    mining_profile.warn_of_languages(profile, codes)
    return profile
