"""Mixtures of sources: how often examples are seen, the loss of a mixed batch in plain loops, resuming, limits and errors."""

import json
import math
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import yaml
from command import miner
from safetensors.torch import load_file

from miner.training import run
from miner.training.config import TrainConfig
from miner.training.data.batches import Batch
from miner.training.data.sampling import Sampler, apportion
from miner.training.steps.trainer import Trainer

ROOT = Path(__file__).parents[3]
NUM_PAIRS, NUM_NLI = 20, 90

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write 20 pairs and 90 NLI examples. They share texts: a premise and an unrelated contradiction are also in the first pair."""
    tiny.save_transformer(tmp_path / "model", dropout=0.0)
    sentences = [[tiny.sentence(lang, digits) for lang in tiny.NUMBERS] for digits in tiny.numbers(NUM_PAIRS + 2 * NUM_NLI, seed=1)]
    pairs = [[english, german] for english, german, _ in sentences[:NUM_PAIRS]]
    tiny.write_tsv(tmp_path / "pairs.tsv", ["en", "de"], pairs)
    rows = []
    for number in range(NUM_NLI):
        entailed, contradicted = sentences[NUM_PAIRS + number], sentences[NUM_PAIRS + NUM_NLI + number]
        premise = pairs[0][0] if number == 0 else entailed[0]
        rows.append([premise, entailed[2], "entailment"])
        rows.append([premise, pairs[0][1] if number == 1 else contradicted[2], "contradiction"])
    tiny.write_tsv(tmp_path / "nli.tsv", ["premise", "hypothesis", "label"], rows)
    return tmp_path


def config(folder: Path, **training: Any) -> dict[str, Any]:
    values = tiny.config(folder)
    columns = {name: name for name in ("premise", "hypothesis", "label")}
    values["data"].append({"strategy": "nli", "files": [str(folder / "nli.tsv")], "columns": columns})
    values["objective"] = [{"loss": "info_nce", "hard_negative_weight": 0.7, "temperature": 0.2}]
    values["training"] = {"epochs": 1, "batch_size": 32, "lr": 2e-3, "log_every": 1, **training}
    return values


def prepare(values: dict[str, Any], folder: Path) -> Trainer:
    return run.prepare(TrainConfig(**values), folder / "prepared")[0]


def read_view(batch: Batch, name: str) -> list[str]:
    return batch.views[name].take(np.arange(len(batch.views[name])))


def test_apportionment_equals_one_draw_at_a_time() -> None:
    random = np.random.default_rng(0)
    for _ in range(60):
        weights = random.integers(0, 30, size=int(random.integers(1, 6))).astype(float)
        weights[0] += 1
        counts, total = [0] * len(weights), int(weights.sum())
        for drawn in range(1, 2 * total + 1):
            counts[max(range(len(weights)), key=lambda part: (weights[part] / (2 * counts[part] + 1), -part))] += 1
            assert apportion(drawn, weights).tolist() == counts
            if drawn % total == 0:
                assert counts == (weights * (drawn // total)).tolist()


def test_an_epoch_holds_every_example_once(folder: Path) -> None:
    (stream,) = prepare(config(folder, batch_size=11, epochs=2), folder).streams
    for _ in range(2):
        batches = [stream.draw(np.random.default_rng(number)) for number in range(10)]
        assert [len(batch) for batch in batches] == [11] * 10
        assert [len(batch.views["negative"]) for batch in batches] == [9] * 10  # so 2 of the 20 pairs and 9 of the 90 examples
        counts = Counter(pair for batch in batches for pair in zip(read_view(batch, "anchor"), read_view(batch, "positive"), strict=True))
        assert len(counts) == NUM_PAIRS + NUM_NLI
        assert set(counts.values()) == {1}


def test_the_log_counts_how_often_sources_were_seen(folder: Path) -> None:
    result = run.train(TrainConfig(**config(folder)), str(folder / "out"))
    assert (result.steps, result.examples) == (4, NUM_PAIRS + NUM_NLI)  # batches of 32, 32, 32 and 14
    lines = [json.loads(line) for line in (folder / "out" / "log.jsonl").read_text().splitlines()]
    assert [line["examples/parallel"] + line["examples/nli"] for line in lines] == [32, 64, 96, 110]
    assert [line["examples/parallel"] for line in lines] == [6, 12, 17, 20]  # 20 / 110 of each, rounded
    assert [line["epochs/nli"] for line in lines] == pytest.approx([26 / 90, 52 / 90, 79 / 90, 1])
    written = json.loads((folder / "out" / "result.json").read_text())["sources"]
    assert written == {"parallel": {"examples": 20, "epochs": 1.0}, "nli": {"examples": 90, "epochs": 1.0}}


def test_a_weight_multiplies_the_share_of_a_source(folder: Path) -> None:
    values = config(folder, steps=10, epochs=None, batch_size=13)
    values["data"][0]["weight"] = 2
    result = run.train(TrainConfig(**values), str(folder / "out"))
    assert {title: counts.examples for title, counts in result.sources.items()} == {"parallel": 40, "nli": 90}


def find_meanings(batch: Batch) -> list[set[str]]:
    """Return for each anchor the texts of its group: of all rows that share a text, directly or through other rows."""
    meanings = [{anchor, positive} for anchor, positive in zip(read_view(batch, "anchor"), read_view(batch, "positive"), strict=True)]
    for _ in meanings:
        meanings = [set().union(*(other for other in meanings if other & meaning)) for meaning in meanings]
    return meanings


def reference_loss(batch: Batch, vectors: dict[str, list[torch.Tensor]], temperature: float, hard_weight: float) -> torch.Tensor:
    """Return the InfoNCE loss in plain loops; vectors are float64 unit vectors by view."""
    assert batch.negative_owners is not None
    meanings, negatives = find_meanings(batch), read_view(batch, "negative")
    total = torch.zeros((), dtype=torch.float64)
    for i, anchor in enumerate(vectors["anchor"]):
        positive = torch.exp(anchor @ vectors["positive"][i] / temperature)
        denominator = positive
        for j, other in enumerate(vectors["positive"]):
            if meanings[j] != meanings[i]:
                denominator = denominator + torch.exp(anchor @ other / temperature)
        for j, (owner, hard_negative) in enumerate(zip(batch.negative_owners.tolist(), vectors["negative"], strict=True)):
            if owner == i:
                denominator = denominator + torch.exp(anchor @ hard_negative / temperature + hard_weight)
            elif meanings[owner] != meanings[i] and negatives[j] not in meanings[i]:
                denominator = denominator + torch.exp(anchor @ hard_negative / temperature)
        total = total - torch.log(positive / denominator)
    return total / len(meanings)


def test_loss_and_gradients_of_a_mixed_batch_equal_plain_loops(folder: Path) -> None:
    trainer = prepare(config(folder, batch_size=110), folder)
    (stream,) = trainer.streams
    batch = stream.draw(np.random.default_rng(0))
    assert (len(batch), len(batch.views["negative"])) == (110, 90)
    assert sorted(Counter(map(frozenset, find_meanings(batch))).values()) == [1] * 108 + [2]
    losses = trainer.accumulate_gradients(trainer.loader.load(batch, stream, [0, 0, 0, 0])).read_losses()
    gradients = [weight.grad.to_dense().clone() for weight in trainer.weights if weight.grad is not None]
    trainer.optimizer.zero_grad(set_to_none=True)
    tower = trainer.towers[0]
    vectors = {}
    for name in batch.views:
        tokens = tower.tokenize(read_view(batch, name))
        rows = torch.nn.functional.normalize(tower(tower.collate(tokens, np.arange(len(tokens)))).double(), dim=1)
        vectors[name] = list(rows)
    expected = reference_loss(batch, vectors, 0.2, 0.7)
    expected.backward()
    assert losses["info_nce"] == pytest.approx(expected.item(), rel=1e-5)
    references = [weight.grad.to_dense() for weight in trainer.weights if weight.grad is not None]
    assert len(references) == len(gradients) > 20
    for gradient, reference in zip(gradients, references, strict=True):
        torch.testing.assert_close(gradient, reference, rtol=1e-3, atol=1e-6)


class KilledError(Exception):
    """Stands for a killed process."""


def test_a_resumed_mixture_equals_an_uninterrupted_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = config(folder, checkpoint_every=3, batch_size=9, accumulation=2, epochs=1.5)
    whole = run.train(TrainConfig(**values), str(folder / "whole"))
    take_step = Trainer.take_step

    def fail(self: Trainer, *arguments: Any) -> None:
        if self.progress.step == 5:
            raise KilledError
        take_step(self, *arguments)

    monkeypatch.setattr(Trainer, "take_step", fail)
    with pytest.raises(KilledError):
        run.train(TrainConfig(**values), str(folder / "killed"))
    monkeypatch.undo()
    resumed = run.train(TrainConfig(**values), str(folder / "killed"), resume=True)
    assert (resumed.examples, resumed.sources) == (whole.examples, whole.sources)
    assert whole.examples == 165
    weights = [load_file(folder / name / "encoder" / "model.safetensors") for name in ("whole", "killed")]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_resume_with_batches_of_one_source_where_the_run_mixed_them_is_an_error(folder: Path) -> None:
    (folder / "config.yaml").write_text(yaml.safe_dump(config(folder)))
    arguments = ["train", folder / "config.yaml", "--output", folder / "out"]
    assert miner(*arguments).exit_code == 0
    result = miner(*arguments, "--resume", "--set", "training.mix=batches")
    assert 'training.mix "examples" instead of "batches"' in result.stderr


def test_batches_of_one_source(folder: Path) -> None:
    (stream,) = prepare(config(folder, mix="batches"), folder).streams
    batches = [stream.draw(np.random.default_rng(number)) for number in range(20)]
    assert {batch.source for batch in batches} == {"parallel", "nli"}
    assert all(len(batch) == 32 for batch in batches)


def test_a_limit_draws_the_same_examples_and_more(folder: Path) -> None:
    seen: list[set[str]] = []
    for limit in (0, 5, 12):
        values = config(folder, batch_size=10)
        values["data"][0]["limit"] = limit
        result = run.train(TrainConfig(**values), str(folder / f"out-{limit}"))
        assert {title: counts.examples for title, counts in result.sources.items()} == {"parallel": limit, "nli": 90}
        (stream,) = prepare(values, folder).streams
        texts = {text for number in range(11) for text in read_view(stream.draw(np.random.default_rng(number)), "anchor")}
        pairs = {line.split("\t")[0] for line in (folder / "pairs.tsv").read_text().splitlines()[2:]}
        seen.append(texts & pairs)
    assert not seen[0]
    assert seen[1] < seen[2]


def test_an_epoch_of_a_source_in_several_languages_holds_every_example_once() -> None:
    sampler = Sampler(np.array([0, 0, 1, 1, 1, 1, 2, -1]), 1.0, 0)
    rows = [sampler.draw(7, np.random.default_rng(number)) for number in range(3)]
    assert all(sorted(part.tolist()) == list(range(7)) for part in rows)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.0.batch_size=8"], "sources parallel, nli share batches, so only training.batch_size applies"),
        (["data.0.limit=0", "data.1.limit=0"], "limit is 0 for all sources of a loss (parallel, nli)"),
        (["data.0.limit=-1"], "data.0.limit: expected at least 0"),
        (["training.mix=rows"], "training.mix: expected 'examples' or 'batches', not 'rows'"),
    ],
)
def test_errors_of_mixtures_are_one_line(folder: Path, changes: list[str], message: str) -> None:
    (folder / "config.yaml").write_text(yaml.safe_dump(config(folder)))
    result = miner("train", folder / "config.yaml", "--output", folder / "out", *(word for change in changes for word in ("--set", change)))
    assert result.exit_code == 1, result.output
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert not (folder / "out").exists()


def test_sources_that_cannot_be_mixed_are_reported(folder: Path) -> None:
    rows = [["1", "eng_Latn", "one"], ["1", "deu_Latn", "eins"], ["2", "eng_Latn", "two"], ["2", "deu_Latn", "zwei"]]
    tiny.write_tsv(folder / "groups.tsv", ["group", "lang", "text"], rows)
    values = config(folder, epochs=None, steps=1, batch_size=2)
    columns = {name: name for name in ("group", "lang", "text")}
    values["data"][1] = {"strategy": "grouped_pairs", "files": [str(folder / "groups.tsv")], "columns": columns}
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    result = miner("train", folder / "config.yaml", "--output", folder / "out")
    assert result.exit_code == 0, result.output
    assert "sources parallel, grouped_pairs: every batch holds one source, since grouped_pairs are contrasted in blocks" in result.stderr


GRADIENTS = """
import json, sys, torch
from pathlib import Path
import numpy as np
from miner.training import run
from miner.training.steps import distributed
from miner.training.config import TrainConfig
folder = Path(sys.argv[1])
trainer = run.prepare(TrainConfig(**json.loads((folder / "config.json").read_text())), folder / "prepared")[0]
(stream,) = trainer.streams
trainer.accumulate_gradients(trainer.loader.load(stream.draw(np.random.default_rng(0)), stream, [0, 0, 0, 0]))
distributed.average_gradients(trainer.weights, trainer.accelerator)
if trainer.is_main_process:
    torch.save([weight.grad.to_dense() for weight in trainer.weights if weight.grad is not None], folder / "gradients.pt")
"""


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [31, 3])  # a batch of 3 has fewer hard negatives than anchors in each process
def test_two_processes_have_the_gradients_of_one(folder: Path, batch_size: int) -> None:
    values = config(folder, batch_size=batch_size)
    (folder / "config.json").write_text(json.dumps(values))
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    environment = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", GRADIENTS, str(folder)]
    processes = [
        subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment, "RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE)
        for rank in "01"
    ]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    trainer = prepare(values, folder)
    (stream,) = trainer.streams
    loaded = trainer.loader.load(stream.draw(np.random.default_rng(0)), stream, [0, 0, 0, 0])
    assert math.isfinite(trainer.accumulate_gradients(loaded).read_losses()["loss"])
    averaged = torch.load(folder / "gradients.pt")
    for expected, gradient in zip([weight.grad.to_dense() for weight in trainer.weights if weight.grad is not None], averaged, strict=True):
        torch.testing.assert_close(expected, gradient, rtol=1e-4, atol=1e-6)
