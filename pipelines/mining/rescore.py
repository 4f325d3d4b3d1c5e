"""Rescore candidates by late interaction (`miner.mining.late_interaction`), by ranges of targets.

The sources' texts go to the ranges of the targets of their candidates, each once. A worker holds the tokens of one range of targets and
of the sources of its candidates.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from miner import encoders, stages
from miner.choices import AUTO, LATE, NONE
from miner.config.commands import EncoderSettings, RescoreSettings
from miner.corpus import Corpus, SentenceLookup, Span
from miner.encoders.base import TokenEncoder
from miner.encoders.token_vectors import TokenVectors
from miner.encoders.transformer_parts import choose_device
from miner.errors import ConfigError, ModelError
from miner.mining import candidates as scoring
from miner.mining.candidates import LateScores
from miner.tables import Ids, together
from miner.text.sharding import range_of
from pipelines.beam import shuffle
from pipelines.beam.shuffle import ShuffleSteps, StepOutput
from pipelines.corpus import embed

if TYPE_CHECKING:
    from miner.mining.late_interaction import LateOptions

LATE_COLUMNS = ("late_similarities", "target_late_means")  # of edges that are rescored

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rescoring:
    """How candidates are rescored."""

    candidates: int  # neighbours on each side that are candidates

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> "Rescoring | None":
        """Read the settings of a stage of candidates; None if these were not rescored."""
        return cls(config["rescore_candidates"]) if config.get("rescore") == LATE else None

    def figures(self) -> dict[str, Any]:
        """Return the settings for manifests."""
        return {"rescore": LATE, "rescore_candidates": self.candidates}

    def num_neighbours(self, k: int) -> int:
        """Return the neighbours to search, of which the first k give the means."""
        return max(k, self.candidates)


def choose(settings: RescoreSettings, k: int, encoder: EncoderSettings, corpus: Corpus, folders: tuple[str, str]) -> Rescoring | None:
    """Return how the candidates of a corpus are rescored, None if they are not.

    `folders` are those of the neighbours of one direction and of the candidates: what is there already decides for `auto`.
    Raises ConfigError where the encoder has no token vectors, or the folders are of the other choice.
    """
    rescoring = Rescoring(settings.rescore_candidates)
    previous = _previous_choice(rescoring.num_neighbours(k), k, *folders)
    if settings.rescore == NONE or (settings.rescore == AUTO and not _rescores_by_default(encoder, corpus)):
        choice = NONE
    else:
        choice = LATE
        check_encoder(encoder, corpus)
    if previous not in (None, choice):
        if settings.rescore != AUTO:
            raise ConfigError(f"{folders[1]}: computed with --rescore {previous}, now {choice}; choose another --output")
        choice = str(previous)
        if choice == NONE:
            logger.warning("%s: the candidates there are not rescored; to rescore them, mine into another --output", folders[1])
    return rescoring if choice == LATE else None


def is_planned(settings: RescoreSettings, encoder: str) -> bool:
    """Return whether new candidates will be rescored, if the encoder embeds the corpora. It is not loaded."""
    return settings.rescore == LATE or (settings.rescore == AUTO and _is_static(encoder))


def _is_static(encoder: str) -> bool:
    """Return whether an encoder is static. One that is missing is not: corpora that are embedded need none."""
    try:
        return encoders.find_kind(encoder) == encoders.STATIC
    except ModelError:
        return False


def num_neighbours(settings: RescoreSettings, k: int, encoder: str) -> int:
    """Return the neighbours that will be searched."""
    return max(k, settings.rescore_candidates) if is_planned(settings, encoder) else k


def _previous_choice(num_neighbours: int, k: int, neighbours: str, candidates: str) -> str | None:
    """Return the choice of an earlier run, None if there is none."""
    config = stages.recorded_config(candidates)
    if config is not None:
        return LATE if Rescoring.read(config) else NONE
    searched = (stages.recorded_config(neighbours) or {}).get("k", 0)
    return None if num_neighbours == k else {num_neighbours: LATE, k: NONE}.get(searched)


def _rescores_by_default(settings: EncoderSettings, corpus: Corpus) -> bool:
    """Return whether the encoder of a corpus is known and rescores at a low cost; a transformer is not loaded."""
    if not _is_static(settings.encoder):
        return False
    encoder = embed.load_once(settings)
    is_same = encoder.fingerprint == corpus.fingerprint
    if not is_same and corpus.fingerprint.startswith(f"{encoders.STATIC}-"):
        problem = f"{corpus.folder}: embedded by {corpus.fingerprint}, and --encoder {settings.encoder} is another one"
        logger.warning("%s, so candidates are not rescored; give its --encoder, or --rescore none", problem)
    return is_same and isinstance(encoder, TokenEncoder) and encoder.rescores_by_default


def check_encoder(settings: EncoderSettings, corpus: Corpus) -> None:
    """Raise ConfigError unless the encoder has token vectors and embedded the corpus."""
    encoder = embed.load_once(_with_side(settings, corpus))
    if not isinstance(encoder, TokenEncoder):
        raise ConfigError(f"--rescore {LATE}: the encoder {settings.encoder} has no token vectors; give --rescore {NONE}")
    if encoder.fingerprint != corpus.fingerprint:
        raise ConfigError(
            f"--rescore {LATE}: {corpus.folder} was embedded by {corpus.fingerprint}, and --encoder {settings.encoder} is"
            f" {encoder.fingerprint}; give the --encoder of that folder"
        )


def _with_side(settings: EncoderSettings, corpus: Corpus) -> EncoderSettings:
    """Return the settings of the encoder that embedded a corpus."""
    return settings.model_copy(update={"side": corpus.side})


@dataclass(frozen=True)
class RescoredSide:
    """The sentences of one side and how their tokens are encoded. Picklable."""

    corpus: Corpus
    spans: Mapping[str, Span]
    encoder: EncoderSettings

    @classmethod
    def of(cls, corpus: Corpus, encoder: EncoderSettings) -> "RescoredSide":
        return cls(corpus, corpus.spans(), _with_side(encoder, corpus))

    def find(self, ids: Ids) -> SentenceLookup:
        return self.corpus.find(ids, self.spans)

    def options(self) -> "LateOptions":
        from miner.mining.late_interaction import LateOptions

        return LateOptions(str(choose_device(self.encoder.device)))  # the worker may have a device that the driver lacks

    def tokens_of(self, ids: Ids) -> TokenVectors:
        """Return the tokens of sentences (n,)."""
        return self.token_vectors(self.find(ids).of(ids)["text"].to_pylist())

    def token_vectors(self, texts: list[str]) -> TokenVectors:
        encoder = embed.load_once(self.encoder, self.corpus.fingerprint)
        assert isinstance(encoder, TokenEncoder), "`choose` comes first"
        return encoder.token_vectors(texts)


def rescore(edges: StepOutput, sides: tuple[RescoredSide, RescoredSide], k: int, source_ranges: int, steps: ShuffleSteps) -> StepOutput:
    """Add LATE_COLUMNS to the merged edges of a source and a target side, which are one file per range of targets."""
    texts = steps.apply("texts", shuffle.names(source_ranges), _write_source_texts, edges, sides[0])
    return steps.apply("rescored", edges.shards, _rescore_target_range, edges, texts, sides, k)


def _write_source_texts(index: int, uri: str, edges: StepOutput, source: RescoredSide) -> tuple[int, Mapping[str, int]]:
    """Send the texts of one range of sources to the ranges of the targets of their candidates, each text once to a range."""
    num_ranges = len(edges.shards)
    table = edges.gather(index)
    ids, ranges = table["source_ids"].to_numpy(), range_of(table["target_ids"].to_numpy(), num_ranges)
    order = np.lexsort((ids, ranges))
    ids, ranges = ids[order], ranges[order]
    is_new = np.ones(len(ids), dtype=bool)
    is_new[1:] = (ids[1:] != ids[:-1]) | (ranges[1:] != ranges[:-1])
    texts = source.find(ids[is_new]).of(ids[is_new])["text"]
    shuffle.scatter(uri, pa.table({"id": pa.array(ids[is_new]), "text": texts}), ranges[is_new], num_ranges)
    return int(is_new.sum()), {}


def _rescore_target_range(
    index: int, uri: str, edges: StepOutput, texts: StepOutput, sides: tuple[RescoredSide, RescoredSide], k: int
) -> tuple[int, Mapping[str, int]]:
    """Rescore the edges of one range of targets, and send them to the ranges of sources."""
    from miner.mining.late_interaction import late_similarities  # torch: not for commands that only select

    source, target = sides
    num_ranges = len(texts.shards)
    table = together([shuffle.read(edges.uris[index], source_range) for source_range in range(num_ranges)])
    source_ids, target_ids, backward = (table[name].to_numpy() for name in ("source_ids", "target_ids", "backward"))
    source_rows, source_tokens = _encode_sources(texts.gather(index), source, source_ids)
    unique_targets, target_rows = np.unique(target_ids, return_inverse=True)
    similarities = late_similarities(target.tokens_of(unique_targets), source_tokens, target_rows, source_rows, target.options())
    columns = similarities, scoring.late_means(target_ids, similarities, backward, k)
    for name, column in zip(LATE_COLUMNS, columns, strict=True):
        table = table.append_column(name, pa.array(column))
    shuffle.scatter_by_id(uri, table, "source_ids", num_ranges)
    return len(table), {}


def tokens_in(sides: Sequence[RescoredSide], ids: Ids) -> TokenVectors:
    """Return the tokens of sentences (n,), ascending and each once, of which each is in one of the sides at least."""
    missing, texts = ids, dict[int, str]()
    for side in sides:
        lookup = side.corpus.find_present(missing, side.spans)
        texts |= zip(lookup.ids.tolist(), lookup.of(lookup.ids)["text"].to_pylist(), strict=True)
        missing = np.setdiff1d(missing, lookup.ids)
    return sides[0].token_vectors([texts[sentence] for sentence in ids.tolist()])


def _encode_sources(texts: pa.Table, source: RescoredSide, ids: Ids) -> tuple[npt.NDArray[np.int64], TokenVectors]:
    """Return the row of each source (n,) among the texts, and the tokens of these."""
    text_ids = texts["id"].to_numpy()
    order = np.argsort(text_ids)
    rows = order[np.searchsorted(text_ids[order], ids)]
    return rows, source.token_vectors(texts["text"].to_pylist())


def late_scores(columns: dict[str, Any], k: int) -> LateScores | None:
    """Take LATE_COLUMNS out of the columns of the edges of a range of sources, and add the means of the sources; None without them."""
    if not all(name in columns for name in LATE_COLUMNS):
        return None
    similarities, target_means = (columns.pop(name) for name in LATE_COLUMNS)
    return LateScores(similarities, scoring.late_means(columns["source_ids"], similarities, columns["forward"], k), target_means)
