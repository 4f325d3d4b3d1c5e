"""configs/loop-msimcse.yaml runs two rounds on a tiny transformer, with all its settings but models, files and sizes."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import tiny
import yaml
from command import miner

from miner.io import storage, table_files
from miner.training import run as training
from miner.training.config import TrainConfig

RECIPE = Path(__file__).parents[2] / "configs" / "loop-msimcse.yaml"
ENGLISH, GERMAN = "eng_Latn", "deu_Latn"
CORPUS_ROWS, ALONE_ROWS, PLANTED_ROWS, DEV_ROWS, NLI_ROWS = 200, 40, 300, 50, 60

pytestmark = pytest.mark.usefixtures("one_thread")  # tiny models train faster without thread synchronisation


def train_multilingual_model(folder: Path) -> Path:
    """Train a tiny transformer on translations, as a model from which English NLI transfers to another language."""
    tiny.save_transformer(folder / "model", dropout=0.0)
    tiny.write_pairs(folder / "pairs.tsv", rows=600)
    values = tiny.config(folder, steps=150, batch_size=64)
    values["encoder"]["pooling"] = "cls"
    training.train(TrainConfig(**values), str(folder / "pretrained"))
    return folder / "pretrained" / "encoder"


def write_lines(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def write_data(folder: Path) -> dict[str, str]:
    """Write corpora in which some sentences have no translation, planted pairs, dev and NLI. All sentences differ."""
    rows = iter(tiny.numbers(1200, seed=4, digits=6))

    def draw(count: int) -> list[Any]:
        return [next(rows) for _ in range(count)]

    both, files = draw(CORPUS_ROWS), {}
    for lang in (ENGLISH, GERMAN):
        lines = [tiny.sentence(lang, digits) for digits in both + draw(ALONE_ROWS)]
        random.Random(lang).shuffle(lines)
        files[lang] = write_lines(folder / f"{lang}.txt", lines)
    pairs = [f"{tiny.sentence(ENGLISH, digits)}\t{tiny.sentence(GERMAN, digits)}" for digits in draw(PLANTED_ROWS + DEV_ROWS)]
    (folder / "planted").mkdir()
    write_lines(folder / "planted" / f"{ENGLISH}-{GERMAN}.tsv", pairs[:PLANTED_ROWS])
    files["dev"] = write_lines(folder / "dev.tsv", ["en\tde", *pairs[PLANTED_ROWS:]])
    premises = [tiny.sentence(ENGLISH, digits) for digits in draw(NLI_ROWS)]
    others = [tiny.sentence(ENGLISH, digits) for digits in draw(NLI_ROWS)]
    entailed = [" ".join(reversed(premise.split())) for premise in premises]
    labels = [(entailed, "entailment"), (others, "contradiction")]
    nli = ["\t".join([premise, texts[row], label]) for texts, label in labels for row, premise in enumerate(premises)]
    files["nli"] = write_lines(folder / "nli.tsv", ["premise\thypothesis\tlabel", *nli])
    sts = [f"{first}\t{second}\t{row % 5}" for row, (first, second) in enumerate(zip(premises, entailed, strict=True))]
    files["sts"] = write_lines(folder / "sts.tsv", ["sentence1\tsentence2\tscore", *sts])
    return files


def shrink_recipe(folder: Path) -> dict[str, Any]:
    """Return the recipe with a tiny model, tiny files, few steps and one language pair, and all other settings unchanged."""
    values = yaml.safe_load(RECIPE.read_text())
    files = write_data(folder)
    values["corpora"] = {lang: [files[lang]] for lang in (ENGLISH, GERMAN)}
    values["mining"]["planted"] = str(folder / "planted" / Path(values["mining"]["planted"]).name)
    task = {"source": files["dev"], "target": files["dev"], "source_column": "en", "target_column": "de"}
    values["evaluation"] = {"dev": {"deu": task}, "test": {"deu": task}}
    start, rounds = values["start"]["train"], values["training"]
    start["encoder"]["model"] = str(train_multilingual_model(folder))
    start["evaluation"]["files"] = [files["sts"]]
    for config in (start, rounds):
        next(source for source in config["data"] if source["name"] == "nli")["files"] = [files["nli"]]
        config["training"] |= {"batch_size": 32, "dtype": "float32"}
        config["evaluation"]["every"] = 2
    values["stop"] |= {"rounds": 2, "patience": 2, "jaccard": 1.0, "least_pairs": 20}
    return values


@pytest.mark.slow
def test_two_rounds_mine_by_a_calibrated_threshold_and_mix_mined_pairs_with_nli(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").write_text(yaml.safe_dump(shrink_recipe(tmp_path)))
    result = miner("loop", tmp_path / "loop.yaml", "--output", tmp_path / "out")
    assert result.exit_code == 0, (result.output, result.exception)
    assert "default threshold" not in result.stderr
    figures = storage.read_json(str(tmp_path / "out" / "loop.json"))
    assert len(figures["rounds"]) == 2
    for folder, outcome in zip(("round-00", "round-01"), figures["rounds"], strict=True):
        selection = outcome["selection"]["pairs"][f"{ENGLISH}-{GERMAN}"]
        manifest = storage.read_json(str(tmp_path / "out" / folder / "mined" / f"{ENGLISH}-{GERMAN}" / "manifest.json"))
        assert selection["threshold"] == manifest["config"]["threshold"] == manifest["details"]["choice"]["threshold"]
        assert manifest["details"]["choice"]["precision"]["value"] >= 0.95
        num_pairs = table_files.read_table(str(tmp_path / "out" / folder / "pairs" / f"{ENGLISH}-{GERMAN}" / "bitext.parquet")).num_rows
        lines = [json.loads(line) for line in (tmp_path / "out" / folder / "log.jsonl").read_text().splitlines()]
        last = [line for line in lines if "loss" in line][-1]
        drawn = {name: last[f"examples/{name}"] for name in ("mined", "nli")}
        assert num_pairs > 50
        assert drawn == {"mined": num_pairs, "nli": NLI_ROWS}  # an epoch has each once
