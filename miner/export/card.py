"""The dataset card of an export: front matter for the Hugging Face hub, and how the pairs were mined."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from miner.export.settings import ExportConfig
from miner.export.source import MinedPairsFile
from miner.io import storage

SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"), (10_000_000, "1M<n<10M"))
# What would control a terminal, or reverse the rest of the line.
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def dataset_card(pairs: MinedPairsFile, config: ExportConfig, rows: Mapping[str, int], examples: Sequence[tuple[str, str]]) -> str:
    """Return README.md: YAML front matter, sizes of the splits, provenance and settings, and example pairs."""
    source, target = pairs.langs
    is_mined = pairs.manifest is not None or not pairs.is_scored
    origin, title = ("mined from monolingual text", "Mined") if is_mined else ("of an existing bitext, scored", "Scored")
    lines = [
        "---",
        yaml.safe_dump(_front_matter(pairs, config, rows), sort_keys=False, allow_unicode=True).rstrip(),
        "---",
        "",
        f"# {title} translation pairs: {source}-{target}",
        "",
        f"Sentence pairs {origin} by bitext-miner. They were not checked by hand. Each pair has a margin, its score.",
        "",
        "| Split | Pairs |",
        "|---|---|",
        *(f"| {split} | {count:,} |" for split, count in rows.items()),
        "",
        "## How the pairs were selected",
        "",
        *_provenance(pairs, config),
        "",
        "## Licence",
        "",
        "The licence is that of the texts the sentences come from. State it in `license` above before you publish the dataset.",
    ]
    if examples:
        lines += ["", "## Examples", "", f"| {source} | {target} |", "|---|---|"]
        lines += [f"| {_cell(first)} | {_cell(second)} |" for first, second in examples]
    return "\n".join(lines) + "\n"


def _front_matter(pairs: MinedPairsFile, config: ExportConfig, rows: Mapping[str, int]) -> dict[str, Any]:
    total = sum(rows.values())
    size = next((name for limit, name in SIZES if total < limit), "n>10M")
    matter: dict[str, Any] = {
        "language": sorted({tag.split("-")[0] for tag in pairs.langs}),
        "multilinguality": ["translation"],
        "task_categories": ["translation"],
        "size_categories": [size],
        "license": "unknown",
    }
    if config.format == "huggingface":
        files = [{"split": split if split != "dev" else "validation", "path": f"data/{split}.parquet"} for split in rows]
        # `datasets` caches by the name of the directory and this front matter: without a checksum, an earlier export could be loaded.
        checksum = storage.key([storage.checksum(storage.join(config.output, file["path"])) for file in files])
        matter["configs"] = [{"config_name": "default", "description": f"Checksum {checksum}", "data_files": files}]
    return matter


def _provenance(pairs: MinedPairsFile, config: ExportConfig) -> list[str]:
    bounds = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in config.bounds().items())
    lines = [f"- Selection in this export: {bounds or 'all pairs'}"]
    if pairs.manifest is None:
        return [*lines, "- The settings of the run are not known: the bitext had no manifest."]
    settings, details = pairs.manifest.config, pairs.manifest.details
    lines.append(f"- Encoder: `{details.get('fingerprint', 'unknown')}`")
    lines.append(f"- Margin: {settings.get('margin')}, k = {settings.get('k')}, retrieval: {settings.get('retrieval')}")
    if settings.get("rescore") is not None:
        lines.append(f"- Rescoring: {settings['rescore']}, of {settings.get('rescore_candidates')} candidates of each sentence")
    is_implied = "min_probability" in details.get("choice", {})  # the threshold follows from the probability
    limits = {"margin >": None if is_implied else settings.get("threshold"), "probability >=": settings.get("min_probability")}
    run_bounds = ", ".join(f"{name} {value}" for name, value in limits.items() if value is not None)
    lines.append(f"- Selection in the mining run: {run_bounds or 'no bound'}; filters: {settings.get('filters') or 'none'}")
    sentences = details.get("sentences", {})
    if sentences:
        lines.append(
            f"- Sentences searched: {sentences.get('source', 0):,} {pairs.langs[0]}, {sentences.get('target', 0):,} {pairs.langs[1]}"
        )
    if details.get("estimated_precision") is not None:
        precision = f"{details['estimated_precision']:.3f}"
        lines.append(f"- Expected precision by the probabilities of the pairs, before the selection of this export: {precision}")
    scores = [f"{name} {details[name]:.3f}" for name in ("precision", "recall", "f1") if isinstance(details.get(name), float)]
    evidence = f"By {details['marked']:,} pairs that people marked" if "marked" in details else "Against gold pairs"
    return [*lines, f"- {evidence}, before the selection of this export: {', '.join(scores)}"] if scores else lines


def _cell(text: str) -> str:
    """Return a text that is one cell of a Markdown table."""
    shown = CONTROLS.sub("", " ".join(text.split()))[:120]
    for character in "\\|<>`*_[]":
        shown = shown.replace(character, f"\\{character}")
    return shown
