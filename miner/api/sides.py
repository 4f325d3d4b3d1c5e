"""The two sides of mining and scoring in memory: sentences or vectors."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from miner import languages
from miner.api.embedding import Embeddings, clean_texts, encode_sentences, encoder_name, resolve_encoder
from miner.api.settings import SearchSettings
from miner.arrays import Bools, Ids, Ints, Vectors
from miner.config.commands import TextSettings
from miner.encoders import Encoder
from miner.errors import DataError
from miner.filters import language
from miner.filters.sentences import apply_sentence_filters
from miner.search.neighbours import VectorBlock

Side: TypeAlias = Iterable[str] | Embeddings | tuple[npt.ArrayLike, npt.ArrayLike]

MAX_NORM_ERROR = 0.01  # of a vector that counts as unit length: float16 rounds by less
MAX_ID = np.iinfo(np.int64).max
UNNAMED = "the encoder of these vectors"


@dataclass(frozen=True, eq=False)
class OpenSide:
    """The n unique sentences of a side, ascending by id."""

    block: VectorBlock
    texts: Sequence[str] | None  # n texts; None: only ids and vectors are available
    first_rows: Ints  # (n,) row of each sentence in the input, the first if it repeats
    sentence_of: Ints  # (m,) sentence of each row of the input, -1 if it is dropped
    lang: str  # canonical
    fingerprint: str
    dropped_rows: Mapping[str, Ints]  # reason of a sentence filter -> rows of the input that it drops
    encoder: Encoder | None = None  # if it embedded the side here

    @property
    def ids(self) -> Ids:
        return self.block.ids


@dataclass(frozen=True)
class SideOpener:
    """Opens sides with one encoder and one group of settings."""

    encoder: str | Encoder
    settings: SearchSettings

    def open(self, side: Side, role: str) -> OpenSide:
        """Open the `source` or the `target`. Raises ConfigError or DataError if it is neither sentences nor vectors, or has none."""
        lang = languages.canonical(getattr(self.settings, f"{role}_lang"))
        if isinstance(side, Embeddings):
            lang = side.lang if lang == languages.UNDETERMINED else lang
            opened = self._open_embeddings(side, lang)
        elif isinstance(side, tuple) and len(side) == 2 and not any(isinstance(part, str) for part in side):
            opened = _open_vectors(np.asarray(side[0]), np.asarray(side[1]), lang, role)
        else:
            opened = self._open_texts(side, lang, role)  # type: ignore[arg-type]  # checked there
        if not len(opened.ids):
            raise DataError(f"{role}: no sentence; give texts that are not empty")
        return opened

    def _open_texts(self, texts: Iterable[str], lang: str, role: str) -> OpenSide:
        sentences = clean_texts(texts, TextSettings(max_chars=self.settings.max_chars))
        kept, dropped = self._filter(sentences.texts, lang, sentences.sentence_of)
        encoder = resolve_encoder(self.encoder, self.settings, lang, role)
        vectors = encode_sentences(sentences, kept, encoder, encoder_name(self.encoder))
        opened = OpenSide(
            VectorBlock(sentences.ids, vectors),
            sentences.texts,
            sentences.first_rows,
            sentences.sentence_of,
            lang,
            encoder.fingerprint,
            dropped,
            encoder,
        )
        return _take(opened, kept)

    def _open_embeddings(self, embeddings: Embeddings, lang: str) -> OpenSide:
        rows = np.flatnonzero([bool(text) for text in embeddings.texts])
        ids, first, inverse = np.unique(embeddings.ids[rows], return_index=True, return_inverse=True)
        texts = [embeddings.texts[row] for row in rows[first]]
        sentence_of = np.full(len(embeddings), -1, dtype=np.int64)
        sentence_of[rows] = inverse
        kept, dropped = self._filter(texts, lang, sentence_of)
        block = VectorBlock(ids, embeddings.vectors[rows[first]])
        return _take(OpenSide(block, texts, rows[first], sentence_of, lang, embeddings.fingerprint, dropped), kept)

    def _filter(self, texts: Sequence[str], lang: str, sentence_of: Ints) -> tuple[Bools, dict[str, Ints]]:
        """Return which sentences (n,) pass the filters, and the rows (of m, `sentence_of` each) that are dropped by reason."""
        bounds, lang_id_model = self.settings.sentence_filters.bounds(), self.settings.lang_id_model
        if not bounds:
            return np.ones(len(texts), dtype=bool), {}
        language.warn_if_unrated(bounds, [lang], lang_id_model)
        decisions = apply_sentence_filters(texts, lang, bounds, lang_id_model)
        dropped_by = np.append(decisions.dropped_by, -1)[sentence_of]
        return decisions.kept, {reason: np.flatnonzero(dropped_by == index) for index, reason in enumerate(decisions.reasons)}


def _take(side: OpenSide, kept: Bools) -> OpenSide:
    """Return the side without the sentences that are not kept (n,)."""
    if kept.all():
        return side
    assert side.texts is not None, "only texts are filtered"
    new_rows = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
    texts = [side.texts[int(row)] for row in np.flatnonzero(kept)]
    block = VectorBlock(side.ids[kept], side.block.vectors[kept])
    return replace(side, block=block, texts=texts, first_rows=side.first_rows[kept], sentence_of=new_rows[side.sentence_of])


def _open_vectors(ids: npt.NDArray[Any], vectors: npt.NDArray[Any], lang: str, role: str) -> OpenSide:
    if vectors.ndim != 2 or ids.shape != vectors.shape[:1]:
        raise DataError(f"{role}: ids of shape {ids.shape} and vectors of shape {vectors.shape}; give (n,) ids and (n, dim) vectors")
    if not np.issubdtype(ids.dtype, np.integer) or not np.issubdtype(vectors.dtype, np.floating):
        raise DataError(f"{role}: ids are {ids.dtype} and vectors {vectors.dtype}; give integers and floats")
    if len(ids) and ids.max() > MAX_ID:
        raise DataError(f"{role}: id {ids.max()} needs more than 63 bits; give int64 ids")
    order = np.argsort(ids, kind="stable")
    sorted_ids = ids[order].astype(np.int64)
    if (sorted_ids[1:] == sorted_ids[:-1]).any():
        raise DataError(f"{role}: id {sorted_ids[1:][sorted_ids[1:] == sorted_ids[:-1]][0]} occurs twice; give each sentence one id")
    sentence_of = np.empty(len(ids), dtype=np.int64)
    sentence_of[order] = np.arange(len(ids))
    block = VectorBlock(sorted_ids, _stored(vectors[order], role))
    return OpenSide(block, None, order.astype(np.int64), sentence_of, lang, UNNAMED, {})


def _stored(vectors: npt.NDArray[Any], role: str) -> Vectors:
    norms = np.linalg.norm(vectors.astype(np.float32), axis=1)
    is_unit = np.abs(norms - 1) <= MAX_NORM_ERROR
    if not (is_unit | (norms == 0)).all():
        row = int(np.argmin(is_unit | (norms == 0)))
        raise DataError(f"{role}: a vector has length {norms[row]:.4g}, not 1; divide each by its length")
    return np.ascontiguousarray(vectors, dtype=np.float16)


def check_encoders(source: OpenSide, target: OpenSide) -> None:
    """Raise DataError if two sides were embedded by different encoders."""
    if source.fingerprint != target.fingerprint and UNNAMED not in (source.fingerprint, target.fingerprint):
        raise DataError(f"source was embedded by {source.fingerprint}, target by {target.fingerprint}; embed both with one encoder")
    if source.block.vectors.shape[1] != target.block.vectors.shape[1]:
        dims = source.block.vectors.shape[1], target.block.vectors.shape[1]
        raise DataError(f"source has {dims[0]} dimensions and target {dims[1]}; embed both with one encoder")
