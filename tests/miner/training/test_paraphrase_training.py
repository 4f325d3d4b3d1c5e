"""Label-aware contrast on paraphrases: where labels change the loss, and PAWS-X as it is downloaded."""

import json
from pathlib import Path

import numpy as np
import pytest
import tiny
from public_data import write_release
from tiny import config

from miner.errors import ConfigError
from miner.training import run
from miner.training.config import TrainConfig

pytestmark = pytest.mark.usefixtures("one_thread")

COLUMNS = {"first": "sentence1", "second": "sentence2", "label": "label", "lang": "lang"}


def write_paraphrases(path: Path, labels: list[int]) -> Path:
    """Write pairs of sentences in two languages; all sentences differ."""
    digits = tiny.numbers(2 * len(labels), seed=1)
    rows = [
        [lang, tiny.sentence(lang, digits[2 * row]), tiny.sentence(lang, digits[2 * row + 1]), label]
        for lang in ("eng_Latn", "deu_Latn")
        for row, label in enumerate(labels)
    ]
    return tiny.write_tsv(path, ["lang", "sentence1", "sentence2", "label"], rows)


@pytest.mark.parametrize("labels", [[0] * 16, [0, 1] * 8], ids=["no paraphrases", "paraphrases"])
def test_labels_alone_distinguish_label_contrast_from_info_nce(folder: Path, labels: list[int]) -> None:
    tiny.save_transformer(folder / "model")
    values = config(folder, steps=1, log_every=1, batch_size=12)
    values["data"] = [{"strategy": "paraphrases", "files": [str(write_paraphrases(folder / "pairs.tsv", labels))], "columns": COLUMNS}]
    values["objective"] = [{"loss": "label_contrast", "temperature": 1}, {"loss": "info_nce", "temperature": 1}]
    run.train(TrainConfig(**values), str(folder / "out"))
    line = json.loads((folder / "out" / "log.jsonl").read_text().splitlines()[0])
    assert (abs(line["label_contrast"] - line["info_nce"]) < 1e-6) == (not any(labels))


def test_paraphrases_that_are_not_grouped_are_negatives(folder: Path) -> None:
    """The plain contrast of SCL's section 5.4: the loss does not depend on the labels."""
    tiny.save_transformer(folder / "model")
    losses = {}
    for grouped, labels in ((True, [0] * 16), (True, [1] * 16), (False, [1] * 16)):
        path = write_paraphrases(folder / f"{grouped}-{labels[0]}.tsv", labels)
        values = config(folder, steps=1, log_every=1, batch_size=12)
        source = {"strategy": "paraphrases", "files": [str(path)], "columns": COLUMNS, "group_paraphrases": grouped}
        values |= {"data": [source], "objective": [{"loss": "info_nce", "temperature": 1}]}
        run.train(TrainConfig(**values), str(folder / path.stem))
        losses[grouped, labels[0]] = json.loads((folder / path.stem / "log.jsonl").read_text().splitlines()[0])["info_nce"]
    assert losses[False, 1] == pytest.approx(losses[True, 0], abs=1e-6)
    assert losses[True, 1] < losses[True, 0] - 0.01


def test_pawsx_is_read_as_downloaded(folder: Path) -> None:
    """A pair that lacks a sentence in one language is dropped in all; labels are those of the release."""
    header = "id\tsentence1\tsentence2\tlabel\n"
    release = {
        "x-final/en/train.tsv": header + "1\tone two\ttwo one\t1\n2\tthree\tfour\t0\n3\tfive\tsix\t1\n",
        "x-final/de/translated_train.tsv": header + "1\teins zwei\tzwei eins\t1\n2\tdrei\tvier\t0\n3\t\tsechs\t1\n",
        "x-final/de/test_2k.tsv": header + "9\tnull\tneun\t1\n",
    }
    write_release(folder, release)
    files = {"dataset": "paws-x", "path": str(folder / "x-final"), "split": "train"}
    values = config(folder, steps=1, batch_size=2)
    values["data"] = [{"strategy": "paraphrases", "files": files, "columns": COLUMNS}]
    values["objective"] = [{"loss": "label_contrast"}]
    trainer = run.prepare(TrainConfig(**values), folder / "out")[0]
    (source,) = trainer.streams[0].sources.values()
    assert source.num_examples == 2


def test_paraphrases_are_mixed_with_other_sources(folder: Path) -> None:
    """A batch holds pairs of both sources in proportion to their numbers; each paraphrase pair has two anchors."""
    values = config(folder, steps=1, batch_size=8)
    tiny.write_pairs(folder / "pairs.tsv", rows=16, seed=7)
    paraphrases = {"strategy": "paraphrases", "files": [str(write_paraphrases(folder / "labelled.tsv", [0, 1] * 8))], "columns": COLUMNS}
    values["data"].append(paraphrases)
    values["objective"] = [{"loss": "label_contrast"}]
    trainer = run.prepare(TrainConfig(**values), folder / "out")[0]
    batch = trainer.streams[0].draw(np.random.default_rng(0))
    assert len(batch) == len(batch.views["positive"]) == 4 + 2 * 4
    trainer.take_step(1e-3, trainer.load_batches())
    trainer.read_losses()
    assert np.isfinite(trainer.progress.loss)


def test_rows_of_paraphrases_are_not_cleaned_one_by_one(folder: Path) -> None:
    values = config(folder)
    values["data"] = [{"strategy": "paraphrases", "files": [str(write_paraphrases(folder / "pairs.tsv", [0, 1]))], "columns": COLUMNS}]
    values["cleaning"] = {"deduplicate": True}
    with pytest.raises(ConfigError, match="so no row can be dropped"):
        run.train(TrainConfig(**values), str(folder / "out"))
