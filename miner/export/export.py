"""`miner export`: a mined bitext -> Moses, TMX, JSONL, TSV, Parquet or a Hugging Face dataset.

Pairs are streamed in batches. Memory is bounded, except for splits, which need about 100 bytes per pair for the ids.
"""

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import TypedDict

from miner.arrays import Ints
from miner.errors import ConfigError, DataError
from miner.export.card import dataset_card
from miner.export.formats import WRITERS, SplitTarget
from miner.export.settings import ExportConfig
from miner.export.source import MinedPairsFile, open_pairs
from miner.export.splits import SPLITS, assign_splits
from miner.io import lock, records, stages, storage

RECORD, CARD = "export.json", "README.md"
EXAMPLES = 5

logger = logging.getLogger(__name__)


class ExportRecord(TypedDict):
    """The part of `export.json` that the next export reads."""

    files: list[str]


@dataclass(frozen=True)
class ExportResult:
    """What was written: pairs by split, and the files."""

    output: str
    languages: tuple[str, str]
    pairs: dict[str, int]
    files: tuple[str, ...]

    def figures(self) -> dict[str, Any]:
        return asdict(self)

    def summary(self) -> str:
        counts = ", ".join(f"{count:,} {split}" for split, count in self.pairs.items())
        return f"{'-'.join(self.languages)}: {counts} pairs\nfiles: {', '.join(storage.join(self.output, name) for name in self.files)}"


def run(config: ExportConfig) -> ExportResult:
    """Export a bitext. DataError if nothing is left to export, or if the output holds files that are not those of an export."""
    pairs = open_pairs(config)
    stages.check_writer(config.output, "export")
    with lock.hold(config.output):
        previous_files = _check_output(config)
        result, examples = _write(config, pairs, previous_files)
        card = dataset_card(pairs, config, result.pairs, examples)
        with storage.atomic(storage.join(config.output, CARD)) as handle:
            handle.write(card.encode())
        for name in set(previous_files) - {*result.files, CARD}:  # before the record, which then owns all that is left
            storage.remove(storage.join(config.output, name))
        storage.remove_temporary(config.output)
        records.write(storage.join(config.output, RECORD), {"settings": config.model_dump(), **result.figures()})
    return result


def _check_output(config: ExportConfig) -> list[str]:
    """Return the files of the export that is in the output already. DataError if the directory holds anything else."""
    names = [name for name in storage.names_in(config.output) if not name.startswith((lock.PREFIX, "."))]
    if RECORD in names:
        uri = storage.join(config.output, RECORD)
        files = records.read(uri, ExportRecord, f"delete {config.output} and run again")["files"]
        foreign = [name for name in files if not all(map(stages.is_plain_name, name.split("/")))]
        if foreign:
            raise DataError(f"{uri}: {foreign[0]!r} is not a file in {config.output}; do not trust this directory")
        return files
    if names:
        raise DataError(f"{config.output}: not empty, and not an export of miner; choose another --output")
    return []


def _write(config: ExportConfig, pairs: MinedPairsFile, previous_files: Sequence[str]) -> tuple[ExportResult, list[tuple[str, str]]]:
    """Write the pairs of every split; return the result, and examples for the card."""
    storage.make_folder(config.output)
    splits = _splits(config, pairs)
    names = [name for name in SPLITS if name == "train" or getattr(config, name)]
    counts = dict.fromkeys(names, 0)
    examples: list[tuple[str, str]] = []
    with contextlib.ExitStack() as stack:
        targets = {name: SplitTarget(config.output, name, pairs.langs, pairs.schema, config.escape_formulas, stack) for name in names}
        writers = {name: WRITERS[config.format](target) for name, target in targets.items()}
        for batch in pairs.batches(config):
            start = sum(counts.values())
            for name, writer in writers.items():
                is_part = None if splits is None else pa.array(splits[start : start + len(batch)] == SPLITS.index(name))
                part = batch if is_part is None else batch.filter(is_part)
                if len(part):
                    writer.write(part)
                    counts[name] += len(part)
            if len(examples) < EXAMPLES:
                head = batch.slice(0, EXAMPLES - len(examples))
                examples += zip(head["source_text"].to_pylist(), head["target_text"].to_pylist(), strict=True)
        if not sum(counts.values()):
            bounds = ", ".join(f"--{name.replace('_', '-')} {value}" for name, value in config.bounds().items())
            raise DataError(f"{pairs.uri}: no pair passes {bounds}; relax it" if bounds else f"{pairs.uri}: has no pairs; mine again")
        files = tuple(file for writer in writers.values() for file in writer.files)
        # Before the files appear, at the end of this block: an export that is killed then can be run again.
        records.write(storage.join(config.output, RECORD), {"files": sorted({*previous_files, *files})})
    return ExportResult(config.output, pairs.langs, counts, files), examples


def _splits(config: ExportConfig, pairs: MinedPairsFile) -> npt.NDArray[np.int8] | None:
    """Return the split of every pair that is exported; None if there is only one."""
    if not config.dev and not config.test:
        return None
    columns: dict[str, list[Ints]] = {"source_id": [], "target_id": []}
    for batch in pairs.batches(config):
        for name, parts in columns.items():
            parts.append(batch[name].to_numpy())
    source_ids, target_ids = (np.concatenate(parts) if parts else np.zeros(0, np.int64) for parts in columns.values())
    splits = assign_splits(source_ids, target_ids, (config.dev, config.test), config.seed)
    for name, count in zip(SPLITS, np.bincount(splits, minlength=len(SPLITS)).tolist(), strict=True):
        size = 0 if name == "train" else getattr(config, name)
        if size and not count:
            raise ConfigError(f"--{name} {size:,}: no group of pairs that share a sentence is that small; ask for more pairs")
        if count < size:
            logger.warning(
                "%s: %s of %s pairs; the other groups of pairs that share a sentence are larger", name, f"{count:,}", f"{size:,}"
            )
    return splits
