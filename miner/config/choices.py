"""The choices of `miner mine` by name: margins, retrievals, engines, data types. A new one is one entry here; all else derives from it.

The functions take numbers or NumPy arrays. This module imports nothing heavy, because the command line reads it at start.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

Operands = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Margin:
    """How a pair is scored, by its similarity and the average of the mean similarities of both sentences to their neighbours.

    Artetxe & Schwenk, "Margin-based Parallel Corpus Mining with Multilingual Sentence Embeddings", ACL 2019, below equation 2.
    """

    score: Operands  # (similarity, mean) -> margin
    is_relative: bool = True  # to the neighbours
    is_quotient: bool = False  # whether it divides by the mean, which then has to be positive


MARGINS = {
    "ratio": Margin(lambda similarity, mean: similarity / mean, is_quotient=True),
    "distance": Margin(lambda similarity, mean: similarity - mean),
    "absolute": Margin(lambda similarity, mean: similarity, is_relative=False),  # noqa: ARG005  # all margins have one signature
}
# The threshold where an encoder recommends none and there are too few pairs to calibrate one: that of CRISS, a transformer (Tran et al.
# 2020, section 4). With other margins it is the margin of a pair of this ratio.
FALLBACK_RATIO = 1.06

SMALL_SIDE = 20_000  # sentences


def default_candidates(sizes: Iterable[int]) -> int:
    """Return how many neighbours of a sentence are rescored: twice as many where both sides are small, and the search is short."""
    return 16 if max(sizes) <= SMALL_SIDE else 8


@dataclass(frozen=True)
class PrecisionEstimate:
    """A fraction of 1 with its 95 % confidence interval, if that is known."""

    value: float
    low: float | None = None
    high: float | None = None


# The evidence by which a threshold that is not a given number is chosen, from the surest to the least sure, as text for `{count}` of it.
EVIDENCE = {
    "gold": "chosen by {count:,} judged pairs",
    "gold sample": "chosen by {count:,} mined gold pairs",
    "marks": "chosen by {count:,} marked pairs",
    "planted": "chosen by {count:,} planted sentences without a translation",
    "probability": "the lowest margin of a pair with a probability of {min_probability:g}",
    "recommended": "recommended for the encoder",
    "calibrated": "calibrated on {count:,} pairs of these corpora",
    "fallback": "a fallback, the ratio of CRISS or its equal, as there are too few pairs to calibrate on",
}


@dataclass(frozen=True)
class ThresholdChoice:
    """A threshold, the evidence by which it was chosen, and how sure it is."""

    threshold: float
    by: str  # one of EVIDENCE
    precision: PrecisionEstimate | None = None  # expected of the pairs above it
    recall: PrecisionEstimate | None = None  # share of the known translations that are found
    num_evidence: int | None = None  # judged pairs, marked pairs or whatever the evidence consists of
    min_precision: float | None = None  # the requested one, if the evidence allows to reach it
    min_probability: float | None = None  # that pairs have besides

    def figures(self) -> dict[str, Any]:
        """Return the choice as manifests and --json show it."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def describe(self) -> str:
        """Return the evidence and how sure the choice is, as text."""
        text = EVIDENCE[self.by].format(count=self.num_evidence, min_probability=self.min_probability)
        estimates = {name: share for name, share in (("precision", self.precision), ("recall", self.recall)) if share is not None}
        shares = ", ".join(
            f"{name} {share.value:.4f} ({share.low:.4f}-{share.high:.4f})" if share.low is not None else f"{name} {share.value:.2f}"
            for name, share in estimates.items()
        )
        has_interval = any(share.low is not None for share in estimates.values())
        return text + (f": expected {shares}" if shares else "") + (", with 95 % confidence" if has_interval else "")

    @classmethod
    def read(cls, figures: Mapping[str, Any]) -> "ThresholdChoice":
        """Invert `figures`."""
        estimates = {name: PrecisionEstimate(**figures[name]) for name in ("precision", "recall") if name in figures}
        return cls(**{**figures, **estimates})


@dataclass(frozen=True)
class Retrieval:
    """Which candidates become pairs, by whether each is the best of its source and the best of its target."""

    summary: str  # for --help
    select: Operands  # (best of its source, best of its target) -> selected
    one_to_one: bool = False  # match the selected candidates greedily
    uses_default_threshold: bool = True  # where none is given, a default; otherwise none
    filter_source_best: bool = True  # the pair filters drop the best candidates of a source until one passes
    filter_target_best: bool = True  # the same for a target
    filter_all: bool = False  # the pair filters score every candidate
    # How the wrong pairs of sources and those of targets are weighted to estimate precision from planted pairs. Where each sentence
    # is in one pair at most, one side is evidence for all pairs. None: a sentence is in several pairs, so there is no estimate.
    planted_weights: tuple[float, float] | None = None


RETRIEVALS = {
    "max": Retrieval(
        "one-to-one, best margin first",
        lambda source_best, target_best: source_best | target_best,
        one_to_one=True,
        planted_weights=(0.5, 0.5),
    ),
    "forward": Retrieval(
        "the best target of each source",
        lambda source_best, target_best: source_best,  # noqa: ARG005
        filter_target_best=False,
        planted_weights=(1.0, 0.0),
    ),
    "backward": Retrieval(
        "the best source of each target",
        lambda source_best, target_best: target_best,  # noqa: ARG005
        filter_source_best=False,
        planted_weights=(0.0, 1.0),
    ),
    "intersection": Retrieval(
        "pairs that are the best of both sentences",
        lambda source_best, target_best: source_best & target_best,
        planted_weights=(0.5, 0.5),
    ),
    "all": Retrieval(
        "every candidate, without a threshold unless one is given",
        lambda source_best, target_best: source_best | True,  # noqa: ARG005
        uses_default_threshold=False,
        filter_source_best=False,  # the targets' pass has scored every candidate
        filter_all=True,
    ),
}

AUTO, EXACT, FAISS = "auto", "exact", "faiss"
ENGINES = (AUTO, EXACT, FAISS)
NONE, LATE = "none", "late"
RESCORINGS = (AUTO, NONE, LATE)
FLOAT32, BFLOAT16 = "float32", "bfloat16"
INT8 = "int8"  # data type of the linear layers of a transformer
DTYPES = (AUTO, FLOAT32, BFLOAT16, "float16", INT8)

if TYPE_CHECKING:  # a type checker cannot evaluate a computed Literal
    MarginName: TypeAlias = str
    RetrievalName: TypeAlias = str
    EngineName: TypeAlias = str
    RescoreName: TypeAlias = str
    DtypeName: TypeAlias = str
else:
    MarginName = Literal[tuple(MARGINS)]
    RetrievalName = Literal[tuple(RETRIEVALS)]
    EngineName = Literal[ENGINES]
    RescoreName = Literal[RESCORINGS]
    DtypeName = Literal[DTYPES]
