"""The settings of the data sources of `miner train`, by strategy."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

import pydantic
from pydantic_core import PydanticCustomError

from miner.config.base import Strings
from miner.config.datasets import TableFiles
from miner.training.settings import TrainSettings

Field = pydantic.Field


class CodeSwitchSettings(TrainSettings):
    """Code switching: replace words of the positives by translations from lexicons."""

    lexicons: Strings = Field(min_length=1, description="Files of `word translation` lines, one language pair per file.")
    ratio: float = Field(0.5, ge=0, le=1, description="Probability of replacing a word that is in a lexicon.")


class SourceSettings(TrainSettings):
    """Settings of every data source. `columns` maps the roles of the strategy to columns of the files."""

    REQUIRED_ROLES: ClassVar[tuple[str, ...]] = ()  # required keys of `columns`
    OPTIONAL_ROLES: ClassVar[tuple[str, ...]] = ("lang",)  # optional keys of `columns`
    SUPPORTS_SMOOTHING: ClassVar[bool] = True  # whether the strategy supports language_smoothing

    name: str = Field("", description="Name for `objective.data`; by default, the strategy.")
    files: TableFiles = Field(min_length=1, description="Files in any format of docs/text.md, globs and URIs; or public datasets.")
    columns: Mapping[str, str] = Field(
        default_factory=dict, description="Role -> column name, or column number from 1 in a table without header."
    )
    limit: int | None = Field(
        None, ge=0, description="Number of examples, drawn at random from training.seed; 0: leave the source out; by default, all."
    )
    weight: float = Field(
        1.0, gt=0, description="Factor of its share, which is its number of examples; with training.mix batches, of its batches."
    )
    batch_size: int | None = Field(None, ge=1, description="Examples per batch of this source alone; by default, training.batch_size.")
    language_smoothing: float = Field(
        1.0, ge=0, le=1, description="Languages are sampled in proportion to count ** language_smoothing; 0: uniformly."
    )
    code_switch: CodeSwitchSettings | None = Field(None, description="Augmentation of the positives.")

    @pydantic.model_validator(mode="after")
    def _check_columns(self) -> Self:
        roles = (*self.REQUIRED_ROLES, *self.OPTIONAL_ROLES)
        missing = [role for role in self.REQUIRED_ROLES if role not in self.columns]
        unknown = [role for role in self.columns if role not in roles]
        if missing or unknown:
            problem = f"no column for {missing[0]!r}" if missing else f"unknown role {unknown[0]!r}"
            raise PydanticCustomError("columns", f"{problem}; columns maps {', '.join(roles)} to columns of the files")
        if self.language_smoothing < 1 and not self.SUPPORTS_SMOOTHING:
            raise PydanticCustomError("smoothing", "language_smoothing is not supported by this strategy; remove it")
        if self.language_smoothing < 1 and "lang" not in self.columns:
            raise PydanticCustomError("columns", "language_smoothing needs a column for 'lang'")
        return self

    @property
    def title(self) -> str:
        """The name of the source in messages and in `objective.data`."""
        return self.name or str(getattr(self, "strategy", ""))


class UnsupervisedSettings(SourceSettings):
    """SimCSE: the positive of a text is the text itself under another dropout mask. Without `columns`, every line is a text."""

    OPTIONAL_ROLES = ("text", "lang")
    strategy: Literal["unsupervised"]

    @pydantic.model_validator(mode="after")
    def _check_text(self) -> Self:
        if self.columns and "text" not in self.columns:
            raise PydanticCustomError("columns", "no column for 'text'; add it, or remove columns if every line is a text")
        return self


class ParallelSettings(SourceSettings):
    """Translation pairs. `view` selects the positive: the translation, the text with a span translated, or the unchanged text.

    The unchanged text (`same`) is meant for code switching.
    """

    REQUIRED_ROLES = ("source", "target")
    strategy: Literal["parallel"]
    view: Literal["full_translation", "partial_translation", "same"] = "full_translation"
    swap: bool = Field(False, description="Draw the anchor side at random for every example.")


class MinedSettings(SourceSettings):
    """Mined pairs; `files` are output directories of `miner mine`."""

    OPTIONAL_ROLES = ()
    SUPPORTS_SMOOTHING = False
    strategy: Literal["mined"]
    least_margin: float | None = Field(None, description="Drop pairs below this margin.")
    weigh_by_margin: bool = Field(False, description="Weight pairs by margin, normalised to a mean of 1.")
    swap: bool = Field(False, description="Draw the anchor side at random for every example.")
    view: Literal["full_translation", "partial_translation", "same"] = Field(
        "full_translation", description="Views of a pair, as for `parallel`."
    )

    @pydantic.model_validator(mode="after")
    def _check_files(self) -> Self:
        if not all(isinstance(name, str) for name in self.files):
            raise PydanticCustomError("files", "mined pairs are output directories of `miner mine`; read a dataset with strategy parallel")
        return self


class TripletSettings(SourceSettings):
    """Triplets of anchor, positive and hard negative, one per row."""

    REQUIRED_ROLES = ("anchor", "positive", "negative")
    strategy: Literal["triplets"]


class NliSettings(SourceSettings):
    """NLI: the premise is the anchor, an entailed hypothesis the positive, a contradicting one the hard negative."""

    REQUIRED_ROLES = ("premise", "hypothesis", "label")
    strategy: Literal["nli"]
    hard_negatives: bool = Field(True, description="Use contradictions as hard negatives.")


class CrossLingualNliSettings(SourceSettings):
    """NLI in several languages with parallel rows; the language of each text of a triplet is drawn independently."""

    REQUIRED_ROLES = ("lang", "premise", "hypothesis", "label")
    OPTIONAL_ROLES = ()
    SUPPORTS_SMOOTHING = False
    strategy: Literal["cross_lingual_nli"]
    languages: Strings = Field((), description="Languages to draw from, as spelled in the column; by default, all.")
    anchors: Literal["random", "every_language"] = Field(
        "random", description="An entailed row's anchors in an epoch: one, or one in every language."
    )
    hard_negatives: bool = Field(True, description="Use contradictions as hard negatives.")
    positives: int = Field(1, ge=1, description="Positives per anchor, each in another language.")


class GroupSettings(SourceSettings):
    """Base of both group strategies: the texts of a group are translations or paraphrases of each other."""

    REQUIRED_ROLES = ("group", "lang", "text")
    OPTIONAL_ROLES = ()


class MultiPositiveSettings(GroupSettings):
    """MPCL: one text of a group is the anchor, its language drawn uniformly; other texts of the group are positives."""

    SUPPORTS_SMOOTHING = False
    strategy: Literal["multi_positive"]
    positives: int | None = Field(None, ge=1, description="Maximum number of positives per anchor, drawn at random; by default, all.")
    pairs: bool = Field(False, description="Divide each group into pairs at random, by the seed: each is an example with one positive.")

    @pydantic.model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if self.pairs and self.positives not in (None, 1):
            raise PydanticCustomError("pairs", "pairs have one positive; remove positives, or pairs")
        return self


class GroupedPairsSettings(GroupSettings):
    """Pairs drawn from groups, in blocks: the anchors of a block share one language, and negatives come from the same block."""

    strategy: Literal["grouped_pairs"]
    pivot: str = Field("eng_Latn", description="Preferred language of the positives.")
    pivot_share: float = Field(0.75, ge=0, le=1, description="Share of pairs with a pivot positive, where the group has one.")
    block_size: int = Field(1024, ge=2, description="Pairs per block.")


class ParaphrasesSettings(SourceSettings):
    """Pairs labelled 1 (paraphrases) or 0, detached into sentences with their translations; rows of all languages must be parallel."""

    REQUIRED_ROLES = ("first", "second", "label", "lang")
    OPTIONAL_ROLES = ()
    SUPPORTS_SMOOTHING = False
    strategy: Literal["paraphrases"]
    languages: Strings = Field((), description="Languages to draw from, as spelled in the column; by default, all.")


class ViewMixSettings(TrainSettings):
    """Number of positives of each sample, by augmentation."""

    full_translation: int = Field(0, ge=0, description="Both texts in another language.")
    partial_translation: int = Field(0, ge=0, description="One of the two texts in another language.")
    code_switch: int = Field(0, ge=0, description="Words replaced by translations, with the lexicons of `code_switch`.")

    @property
    def total(self) -> int:
        return self.full_translation + self.partial_translation + self.code_switch


class LabelledPairsSettings(SourceSettings):
    """Labelled text pairs. With a `lang` column and translations among `views`, the rows of all languages must be parallel."""

    REQUIRED_ROLES = ("first", "second", "label")
    strategy: Literal["labelled_pairs"]
    labels: Strings = Field(min_length=2, description="All labels, in the order of the classes.")
    joint: bool = Field(True, description="Encode both texts as one sequence; false: separately.")
    languages: Strings = Field((), description="Training languages; by default, all.")
    views: ViewMixSettings | None = Field(
        None, description="Positives of each pair; by default, one, the pair itself, code-switched if `code_switch` is given."
    )

    @pydantic.model_validator(mode="after")
    def _check_views(self) -> Self:
        has_translations = self.views is not None and self.views.full_translation + self.views.partial_translation > 0
        if "lang" not in self.columns and (self.languages or has_translations):
            raise PydanticCustomError("columns", "languages and views of translations need a column for 'lang'")
        if self.views is None:
            return self
        if not self.joint:
            raise PydanticCustomError("views", "views need texts that are encoded as one sequence; set joint to true, or remove views")
        if not self.views.total:
            raise PydanticCustomError("views", "views has no view; give a number of full_translation, partial_translation or code_switch")
        if (self.views.code_switch > 0) != (self.code_switch is not None):
            raise PydanticCustomError("views", "views.code_switch and code_switch need each other; give both, or neither")
        return self

    @property
    def num_views(self) -> int:
        """Number of positives per pair."""
        return 1 if self.views is None else self.views.total


DataSettings = Annotated[
    UnsupervisedSettings
    | ParallelSettings
    | MinedSettings
    | TripletSettings
    | NliSettings
    | CrossLingualNliSettings
    | MultiPositiveSettings
    | GroupedPairsSettings
    | LabelledPairsSettings
    | ParaphrasesSettings,
    Field(discriminator="strategy"),
]
