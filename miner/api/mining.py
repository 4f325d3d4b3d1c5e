"""`miner.mine`: the pipeline of `miner mine` on texts, vectors or files."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from miner import encoders
from miner.api.options import with_options
from miner.api.results import TableResult
from miner.api.sides import SIDES, Side, SideFile, SideWriter, is_vectors
from miner.api.workspace import EncoderLike, FilePath, is_list, open_workspace, write_pairs
from miner.config.choices import LATE, ThresholdChoice
from miner.config.commands import NO_FILTERS, FromCandidatesConfig, MineConfig, ScoreConfig
from miner.config.filters import FILTERS, settings_from
from miner.config.messages import as_keyword, respell
from miner.errors import ConfigError
from miner.io import stages, storage, table_files
from miner.io.stages import Manifest
from miner.io.tables import PROBABILITY
from miner.mining import writers
from pipelines.beam.runner import claim_output
from pipelines.mining import mine as pipeline
from pipelines.mining import select_pairs, summary
from pipelines.mining.mine import MineResult
from pipelines.mining.pair_groups import group_sentences

ON_DISK = SideFile("")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False, repr=False)
class Bitext(TableResult):
    """Mined pairs, best first, and the figures of the run.

    Columns: source_id, target_id, margin (float64), similarity (float32); for each side source_row, the row in a list or in vectors (the
    first one of a repeated sentence), or source_file and source_line of a file; source_text and target_text, but for vectors; and
    probability, where the encoder has weights for it.
    """

    table: pa.Table
    dropped_pairs: pa.Table | None  # candidates that the pair filters dropped, with `keep_dropped`
    result: MineResult
    files: Mapping[str, pa.Table]  # the tables above, as the run wrote them
    manifest: Manifest

    @classmethod
    def read(cls, result: MineResult, sides: Sequence[SideFile]) -> Bitext:
        """Read what a run has written."""
        names = [name for name in (writers.PARQUET, select_pairs.DROPPED) if storage.exists(storage.join(result.output, name))]
        files = {name: table_files.read_table(storage.join(result.output, name)) for name in names}
        shown = {name: _with_rows(table, sides) for name, table in files.items()}
        manifest = stages.read_manifest(result.output)
        if result.bitext.quantiles:
            margins = respell(summary.describe_best_margins(result.bitext), as_keyword)
            logger.warning("few pairs (%d); %s", len(files[writers.PARQUET]), margins)
        return cls(shown[writers.PARQUET], shown.get(select_pairs.DROPPED), result, files, manifest)

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the pairs as dictionaries, best first."""
        for batch in self.table.to_batches(max_chunksize=1 << 10):
            yield from batch.to_pylist()

    def __repr__(self) -> str:
        return f"Bitext: {summary.describe_briefly(self.result.bitext)}"

    @property
    def threshold(self) -> float | None:
        """The margin that pairs exceed; None: all pairs."""
        return self.result.bitext.threshold

    @property
    def choice(self) -> ThresholdChoice | None:
        """How the threshold was chosen, if no number was given."""
        return self.result.bitext.choice

    @property
    def unique(self) -> Mapping[str, int]:
        """The number of different sentences of each side."""
        return self.result.unique

    @property
    def dropped(self) -> Mapping[str, int]:
        """The candidates that the pair filters dropped, by reason. `figures["lines"]` counts the dropped texts of each side."""
        return self.result.bitext.dropped

    @property
    def groups(self) -> pa.Table:
        """The sentences that pairs connect, such as paraphrases, by group: columns group, text, and row, or file and line of a file."""
        table = group_sentences(self.files[writers.PARQUET])
        if {"source_row", "target_row"} <= {*self.table.column_names}:
            rows = pc.subtract(table["line"], 1)
            table = pa.table({"group": table["group"], "text": table["text"], "row": rows})
        return table

    @property
    def figures(self) -> dict[str, Any]:
        """All measurements, as `--json` writes them."""
        return self.result.figures()

    def to_arrow(self) -> pa.Table:
        """Return the table of pairs."""
        return self.table

    def save(self, directory: FilePath) -> None:
        """Write what `miner mine` writes, without the search: bitext.parquet, bitext.tsv.gz and manifest.json."""
        folder = os.fspath(directory)
        with claim_output(folder, stages.MINE):
            pairs = self.files[writers.PARQUET]
            writers.write_bitext(folder, writers.row_groups(pairs), PROBABILITY.name in pairs.column_names)
            if select_pairs.DROPPED in self.files:
                select_pairs.write_dropped(writers.row_groups(self.files[select_pairs.DROPPED]), folder)
            stages.write_manifest(folder, self.manifest)


@with_options(MineConfig)
def mine(
    source: Side | None = None,
    target: Side | None = None,
    encoder: EncoderLike = encoders.BUILTIN,
    *,
    output: FilePath | None = None,
    from_candidates: FilePath | None = None,
    **options: Any,
) -> Bitext:
    """Mine pairs of sentences that are translations of each other: run the pipeline of `miner mine`.

    Args:
        source: A list of sentences, or another iterable with an order; the path or pattern of a text, or a list of `pathlib.Path`;
            an embeddings or index directory; the result of `miner.embed`; or a tuple of ids (n,) and unit vectors (n, dim).
        target: The other side, in any of these forms.
        encoder: Name of an encoder, or an encoder of `miner.load_encoder`. Vectors need none.
        output: Directory of the run, which a later run on the same sides resumes or selects from again. By default, a temporary one.
        from_candidates: Instead of the sides: the output of an earlier run, from whose candidates pairs are selected.
        **options: Those of `miner mine` by name, such as `threshold`, `top`, `source_lang`, `engine` and `device`; `filters` is a list of
            values of `--filter`, such as `none`.

    Raises a MinerError for invalid sides or options.

    Example:
        >>> bitext = miner.mine(english, german, source_lang="en", target_lang="de")
        >>> bitext.to_pandas()[["margin", "source_text", "target_text"]]
    """
    with open_workspace(output, encoder) as (folder, name):
        gold, planted = options.get("gold", ()), options.get("planted")
        if planted is not None and is_list(planted):
            options["planted"] = write_pairs(planted, folder, "planted")
        if from_candidates is not None:
            if is_list(gold):
                options["gold"] = write_pairs(gold, folder, "gold")
            options |= {"candidates": from_candidates, "output": folder, "encoder": name}
            selection = settings_from(FromCandidatesConfig, options)
            return Bitext.read(pipeline.run_from_candidates(selection), (ON_DISK, ON_DISK))
        if options.get("paraphrases") and target is None:
            target = source
        if source is None or target is None:
            raise ConfigError("give a source and a target, or from_candidates")
        if is_list(gold):
            del options["gold"]  # until the sides are written
        options |= {"source": "", "target": "", "output": folder, "encoder": name}
        if is_vectors(source) or is_vectors(target):
            options[FILTERS] = without_filters(options.get(FILTERS, ()))
        config = settings_from(MineConfig, options)  # before anything is written
        writer = SideWriter(folder, config)
        sides = (writer.write(source, "source", "source"),) * 2 if config.paraphrases else writer.write_sides((source, target))
        check_vectors(config, sides)
        paths: dict[str, Any] = {role: side.path for role, side in zip(SIDES, sides, strict=True)}
        if is_list(gold):
            paths["gold"] = (writer.write_gold(gold, (source, target), sides),)
        columns = {f"{role}_column": side.column for role, side in zip(SIDES, sides, strict=True) if side.column}
        return Bitext.read(pipeline.run(config.model_copy(update={**paths, **columns})), sides)


def without_filters(chosen: Any) -> Any:
    """Return the values of `filters` for vectors, whose filters are off by default; anything else than texts as it is."""
    return [NO_FILTERS, *([chosen] if isinstance(chosen, str) else chosen)] if isinstance(chosen, Sequence) else chosen


def check_vectors(config: MineConfig | ScoreConfig, sides: Sequence[SideFile]) -> None:
    """Raise ConfigError for settings that read texts where sides have vectors only."""
    groups = config.model_fields_set & {"sentence_filters", "pair_filters"}
    is_filtered = {name for group in groups for name in getattr(config, group).bounds()} - {"hubs"}
    if not all(side.has_texts for side in sides) and (is_filtered or config.min_probability is not None or config.rescore == LATE):
        raise ConfigError(
            "filters, probabilities and rescoring read texts; give sentences or the result of `miner.embed`, or leave them out"
        )


def _with_rows(table: pa.Table, sides: Sequence[SideFile]) -> pa.Table:
    """Return a stored table of pairs with the row numbers of sides in memory, and the ids instead of the texts of vectors."""
    columns = dict(zip(table.column_names, table.columns, strict=True))
    for role, side in zip(SIDES, sides, strict=True):
        if side.is_in_memory:
            del columns[f"{role}_file"]
            columns[f"{role}_row"] = pc.subtract(columns.pop(f"{role}_line"), 1)
        if not side.has_texts:
            columns[f"{role}_id"] = columns.pop(f"{role}_text").cast(pa.int64())
    return pa.table(columns)
