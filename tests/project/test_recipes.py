"""Each training config of configs/ trains a tiny encoder on generated files with the columns that it names."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny
import yaml
from command import output_of

from miner.config.base import load_yaml
from miner.config.commands import EncoderSettings
from miner.config.datasets import DatasetFiles
from miner.encoders import load_encoder
from miner.evaluation.suite import SuiteConfig
from miner.research.datasets.registry import get_layout

CONFIGS = Path(__file__).parents[2] / "configs"
RECIPES = sorted(path.relative_to(CONFIGS).as_posix() for path in CONFIGS.rglob("*.yaml") if "\nobjective:" in path.read_text())
LANGS = {"en": "eng_Latn", "fr": "deu_Latn", "sw": "rus_Cyrl"}
ROWS = 60

# Changes for the other losses and augmentations of a paper.
VARIANTS = {
    "scl/retrieval.yaml": [
        ["objective.0={loss: info_nce, temperature: 1}"],
        ["objective.0={loss: alignment, distance: symmetric_kl, weight: 10}"],
    ],
    "scl/pawsx-transfer.yaml": [["data.0.views={code_switch: 1}"]],
    "scl/xnli-translate-train.yaml": [
        ["objective.1={loss: multi_positive, siblings: false, temperature: 1}"],
        ["objective.1={loss: alignment, distance: kl, weight: 10}", "data.0.views={partial_translation: 2}", "data.0.code_switch=null"],
    ],
    "mpcl/multiple.yaml": [["objective.0.form=in", "objective.0.rescale=false"]],
    "msimcse/unsupervised.yaml": [["objective.1={loss: mlm, weight: 0.1}", "training.gradient_cache=4"]],
    "dual-momentum/parallel.yaml": [["objective.0.momentum=0"]],
}


pytestmark = pytest.mark.usefixtures("one_thread")  # tiny models train faster without thread synchronisation


def generate_column(role: str, lang: str, labels: list[str]) -> list[str]:
    """Generate a column in one language. Second texts, such as hypotheses, have other numbers than first texts."""
    is_first = role in ("text", "source", "premise", "first", "anchor")
    rows = tiny.numbers(ROWS, seed=1 if is_first or role == "target" else 3 if role == "negative" else 2)
    if role in ("premise", "first"):  # three rows per premise, one per label
        rows = [rows[row - row % 3] for row in range(ROWS)]
    if role == "label":
        return [labels[row % len(labels)] for row in range(ROWS)]
    if role in ("group", "score"):
        return [str(row) for row in range(ROWS)]
    if role == "lang":
        return [lang] * ROWS
    return [tiny.sentence("deu_Latn" if role == "target" else LANGS[lang], digits) for digits in rows]


def write_source(path: Path, columns: dict[str, str], labels: list[str]) -> Path:
    """Write a file with the columns of a source, with rows in all languages if it has a language column."""
    roles = columns or {"text": "text"}
    langs = list(LANGS) if "lang" in roles else ["en"]
    table = {column: [cell for lang in langs for cell in generate_column(role, lang, labels)] for role, column in roles.items()}
    if path.suffix == ".parquet":
        pq.write_table(pa.table(table), path)
    elif columns:
        tiny.write_tsv(path, list(table), list(zip(*table.values(), strict=True)))
    else:
        path.write_text("\n".join(table["text"]) + "\n")
    return path


@pytest.mark.parametrize("name", ["pawsx-transfer", "pawsx-translate-train", "retrieval", "xnli-transfer", "xnli-translate-train"])
def test_the_weight_that_gives_a_sum_is_the_number_of_samples_of_a_batch(name: str) -> None:
    """See tests/miner/training/test_loss_terms.py; a pair of paraphrases is two samples."""
    text = (CONFIGS / "scl" / f"{name}.yaml").read_text()
    values = yaml.safe_load(text)
    samples_per_example = 2 if values["data"][0]["strategy"] == "paraphrases" else 1
    stated = re.findall(r"`weight: (\d+)`\s+gives", text)
    assert stated == [str(values["training"]["batch_size"] * samples_per_example)]


def write_bucc_sample(folder: Path) -> Path:
    """Write German and English sentences with ids, and gold, as BUCC 2018 names its sample."""
    folder.mkdir()
    columns = {"de": generate_column("target", "en", []), "en": generate_column("source", "en", [])}
    ids = {lang: [f"{lang}-{row:09}" for row in range(1, ROWS + 1)] for lang in columns}
    for lang, texts in columns.items():
        (folder / f"de-en.sample.{lang}").write_text("".join(f"{key}\t{text}\n" for key, text in zip(ids[lang], texts, strict=True)))
    (folder / "de-en.sample.gold").write_text("".join(f"{source}\t{target}\n" for source, target in zip(*ids.values(), strict=True)))
    return folder


def min_layers(encoder: dict[str, Any]) -> int:
    """Return the number of layers that its pooling needs."""
    kind, _, layer = encoder.get("inference_pooling", encoder["pooling"]).partition(":")
    return int(layer) if kind == "layer" else 2


def dataset_name(source: dict[str, Any]) -> str | None:
    """Return the name of a file of lines or columns that takes the place of public datasets, None if the source reads files."""
    first = source["files"][0] if isinstance(source["files"], list) else source["files"]
    extension = ".tsv" if source.get("columns") else ".txt"
    return f"{first['dataset']}{extension}" if isinstance(first, dict) else None


def named_datasets(values: Any) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield each public dataset that a config names, and the columns that are read from it."""
    if isinstance(values, dict):
        for key in ("files", "data", "source", "train", "test", "decontaminate"):
            for named in values.get(key, []) if isinstance(values.get(key), list) else [values.get(key)]:
                if isinstance(named, dict) and "dataset" in named:
                    columns = [values[name] for name in values if name.endswith("_column")]
                    yield named, [*columns, *values.get("track_columns", []), *values.get("columns", {}).values()]
        values = list(values.values())
    for value in values if isinstance(values, list) else []:
        yield from named_datasets(value)


def shrink_dev_set(dev_set: dict[str, Any], name: str, folder: Path, labels: list[str]) -> None:
    """Name tiny files in place of the held-out data; groups are languages."""
    if dev_set.get("metric") == "bucc":
        dev_set["files"] |= {"path": str(write_bucc_sample(folder / "bucc"))}
        return
    columns = {"lang" if role == "group" else role: column for role, column in dev_set["columns"].items()}
    for key in {"files", "train"} & set(dev_set):
        dev_set[key] = [str(write_source(folder / f"{name}-{key}.tsv", columns, labels))]


def shrink_recipe(recipe: str, folder: Path) -> dict[str, Any]:
    """Return the recipe with a tiny model, tiny files and few steps, and all other settings unchanged."""
    values = yaml.safe_load((CONFIGS / recipe).read_text())
    (folder / "lexicon.txt").write_text(
        "".join(f"{word} {translation}\n" for word, translation in zip(*list(tiny.NUMBERS.values())[:2], strict=True))
    )
    for number, source in enumerate(values["data"]):
        labels = source.get("labels") or (["0", "1"] if source["strategy"] == "paraphrases" else ["entailment", "neutral", "contradiction"])
        if source["strategy"] == "mined":
            (folder / "mined").mkdir()
            columns = {f"{side}_text": generate_column(side, "en", []) for side in ("source", "target")}
            pq.write_table(pa.table({**columns, "margin": [1.1] * ROWS}), folder / "mined" / "bitext.parquet")
            source["files"] = [str(folder / "mined")]
        else:
            name = f"{number}-{dataset_name(source) or Path(source['files'][0]).name}"
            source["files"] = [str(write_source(folder / name, source.get("columns", {}), labels))]
        source |= {"positives": min(source["positives"], len(LANGS))} if "positives" in source else {}
        if source.get("code_switch"):
            source["code_switch"]["lexicons"] = [str(folder / "lexicon.txt")]
        source |= {"batch_size": 12} if "batch_size" in source else {}
        source |= {"block_size": 12} if "block_size" in source else {}
    for objective in values["objective"]:
        objective |= {"queue": 40} if "queue" in objective else {}
    if "evaluation" in values:
        evaluation = values["evaluation"]
        for name, dev_set in {"dev": evaluation, **evaluation.get("best_by", {})}.items():
            shrink_dev_set(dev_set, name, folder, values["data"][0].get("labels", ["yes", "no"]))
        evaluation["every"] = 2
    if values["encoder"]["kind"] == "static":
        values["encoder"] = {"kind": "static", "dim": 16, "spelling_buckets": 64, "vocabulary": {"size": 50}}
    else:
        values["encoder"]["model"] = str(tiny.save_transformer(folder / "model", layers=min_layers(values["encoder"])))
        if "positive_model" in values["encoder"]:
            values["encoder"]["positive_model"] = str(tiny.save_transformer(folder / "positive", layers=2, seed=1))
        values["encoder"]["max_tokens"] = min(values["encoder"]["max_tokens"], 24)
    if "cleaning" in values:
        values["cleaning"]["decontaminate"] = [str(tiny.write_tsv(folder / "evaluation.tsv", ["sentence1"], [["one two three"]]))]
    values["training"] = {**values["training"], "batch_size": 24, "steps": 3, "epochs": None}
    return values


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.yaml")), ids=str)
def test_configs_name_columns_and_languages_of_their_datasets(path: Path) -> None:
    for named, columns in named_datasets(yaml.safe_load(path.read_text())):
        layout = get_layout(named["dataset"])
        DatasetFiles.check(**named)
        assert set(columns) <= {*layout.kind.columns, *(named.get("languages", []) if layout.kind.name == "aligned" else [])}, named


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("eval*.yaml")), ids=str)
def test_suites_are_valid(path: Path) -> None:
    titles = [task.title for task in load_yaml(SuiteConfig, str(path)).tasks]
    assert len(set(titles)) == len(titles)


CASES = [(recipe, changes) for recipe in RECIPES for changes in [[], *VARIANTS.get(recipe, [])]]


@pytest.mark.parametrize(
    ("recipe", "changes"), CASES, ids=[f"{recipe}-{len(changes)}-{number}" for number, (recipe, changes) in enumerate(CASES)]
)
def test_recipe_trains(recipe: str, changes: list[str], tmp_path: Path) -> None:
    values = shrink_recipe(recipe, tmp_path)
    if any(change.startswith("objective.1=") for change in changes) and len(values["objective"]) == 1:
        values["objective"].append({})
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values))
    options = [word for change in changes for word in ("--set", change)]
    output_of("train", tmp_path / "recipe.yaml", "--output", tmp_path / "out", *options)
    settings = EncoderSettings(side="source" if "positive_model" in values["encoder"] else None)
    vectors = load_encoder(str(tmp_path / "out" / "encoder"), settings).encode(["one two three", "eins zwei drei"])
    assert abs((vectors**2).sum(axis=1) - 1).max() < 1e-5
    lines = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert any("loss" in line for line in lines)
    assert ("evaluation" in values) == any("score" in line for line in lines)
