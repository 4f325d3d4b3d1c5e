"""Every recipe of configs/ trains a tiny encoder on tiny files that have the columns it asks for."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny
import yaml
from command import miner

from miner.encoders import load_encoder

CONFIGS = Path(__file__).parents[2] / "configs"
RECIPES = sorted(path.relative_to(CONFIGS).as_posix() for path in CONFIGS.rglob("*.yaml") if "\nobjective:" in path.read_text())
LANGS = {"en": "eng_Latn", "fr": "deu_Latn", "sw": "rus_Cyrl"}
ROWS = 60

# What the paper's other losses and augmentations are put by.
VARIANTS = {
    "scl/retrieval.yaml": [
        ["objective.0={loss: info_nce, temperature: 1}", "data.0.view=partial_translation", "data.0.code_switch=null"],
        ["objective.0={loss: alignment, distance: symmetric_kl, weight: 10}", "data.0.view=full_translation", "data.0.code_switch=null"],
    ],
    "scl/xnli-translate-train.yaml": [
        ["objective.1={loss: info_nce, temperature: 1}", "data.0.view=full_translation", "data.0.code_switch=null"],
        ["objective.1={loss: alignment, distance: kl, weight: 10}", "data.0.view=partial_translation", "data.0.code_switch=null"],
    ],
    "mpcl/multiple.yaml": [["objective.0.form=in", "objective.0.rescale=true"]],
    "msimcse/unsupervised.yaml": [["objective.1={loss: mlm, weight: 0.1}", "training.gradient_cache=4"]],
    "dual-momentum/parallel.yaml": [["encoder.towers=pair", "objective.0.momentum=0"]],
}


pytestmark = pytest.mark.usefixtures("one_thread")  # what is tiny is done sooner without threads that wait for one another


def cells(role: str, lang: str, labels: list[str]) -> list[str]:
    """A column of one language; hypotheses and the like are of other numbers, so that only labels relate them."""
    first = role in ("text", "source", "premise", "first")
    rows = tiny.numbers(ROWS, seed=1 if first or role == "target" else 2)
    if role in ("premise", "first"):  # three rows of each premise, one for each label
        rows = [rows[place - place % 3] for place in range(ROWS)]
    if role == "label":
        return [labels[place % len(labels)] for place in range(ROWS)]
    if role in ("group", "score"):
        return [str(place) for place in range(ROWS)]
    side = "deu_Latn" if role == "target" else LANGS[lang]
    return [lang] * ROWS if role == "lang" else [tiny.sentence(side, row) for row in rows]


def write(path: Path, columns: dict[str, str], labels: list[str]) -> Path:
    """A file in which each role has the column the recipe says, once for each language if there is a role for it."""
    roles = columns or {"text": "text"}
    langs = list(LANGS) if "lang" in roles else ["en"]
    table = {column: [cell for lang in langs for cell in cells(role, lang, labels)] for role, column in roles.items()}
    if path.suffix == ".parquet":
        pq.write_table(pa.table(table), path)
    elif columns:
        tiny.write_tsv(path, list(table), list(zip(*table.values(), strict=True)))
    else:
        path.write_text("\n".join(table["text"]) + "\n")
    return path


def layers_in(encoder: dict[str, Any]) -> int:
    """As few as its pooling can do with."""
    kind, _, layer = encoder["pooling"].partition(":")
    return int(layer) if kind == "layer" else 2


def shrunk(recipe: str, folder: Path) -> dict[str, Any]:
    """The recipe with a tiny model, tiny files and few steps; what it is about stays as it is."""
    values = yaml.safe_load((CONFIGS / recipe).read_text())
    (folder / "lexicon.txt").write_text("".join(f"{a} {b}\n" for a, b in zip(*list(tiny.NUMBERS.values())[:2], strict=True)))
    for place, source in enumerate(values["data"]):
        labels = source.get("labels") or ["entailment", "neutral", "contradiction"]
        if source["strategy"] == "mined":
            (folder / "mined").mkdir()
            tables = {"source_text": cells("source", "en", []), "target_text": cells("target", "en", []), "margin": [1.1] * ROWS}
            pq.write_table(pa.table(tables), folder / "mined" / "bitext.parquet")
            source["files"] = [str(folder / "mined")]
        else:
            name = f"{place}-{Path(source['files'][0]).name}"
            source["files"] = [str(write(folder / name, source.get("columns", {}), labels))]
        if source.get("code_switch"):
            source["code_switch"]["lexicons"] = [str(folder / "lexicon.txt")]
        source |= {"batch_size": 12} if "batch_size" in source else {}
        source |= {"block_size": 12} if "block_size" in source else {}
    for objective in values["objective"]:
        objective |= {"queue": 40} if "queue" in objective else {}
    if "evaluation" in values:
        labels = values["data"][0].get("labels", [])
        dev = write(folder / "dev.tsv", values["evaluation"]["columns"], labels)
        values["evaluation"] |= {"files": [str(dev)], "every": 2}
    if values["encoder"]["kind"] == "static":
        values["encoder"] |= {"dim": 16, "spelling_buckets": 64, "vocabulary": {"size": 50}}
    else:
        values["encoder"]["model"] = str(tiny.save_transformer(folder / "model", layers=layers_in(values["encoder"])))
        values["encoder"]["max_tokens"] = min(values["encoder"]["max_tokens"], 24)
    values["training"] = {**values["training"], "batch_size": 24, "steps": 3, "epochs": None}
    return values


CASES = [(recipe, changes) for recipe in RECIPES for changes in [[], *VARIANTS.get(recipe, [])]]


@pytest.mark.parametrize(
    ("recipe", "changes"), CASES, ids=[f"{recipe}-{len(changes)}-{place}" for place, (recipe, changes) in enumerate(CASES)]
)
def test_a_recipe_trains(recipe: str, changes: list[str], tmp_path: Path) -> None:
    values = shrunk(recipe, tmp_path)
    if any(change.startswith("objective.1=") for change in changes) and len(values["objective"]) == 1:
        values["objective"].append({})
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values))
    options = [word for change in changes for word in ("--set", change)]
    result = miner("train", tmp_path / "recipe.yaml", "--output", tmp_path / "out", *options)
    assert result.exit_code == 0, (result.output, result.exception)
    vectors = load_encoder(str(tmp_path / "out" / "encoder")).encode(["one two three", "eins zwei drei"])
    assert abs((vectors**2).sum(axis=1) - 1).max() < 1e-5
    lines = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert any("loss" in line for line in lines)
    assert ("evaluation" in values) == any("score" in line for line in lines)
