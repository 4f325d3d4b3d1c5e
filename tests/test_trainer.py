"""The trainer: gradients, processes, resuming, what comes out and what goes wrong."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import yaml
from command import miner
from safetensors.torch import load_file
from tiny import config, gradients, prepared

from miner.encoders import load_encoder
from miner.errors import DataError, ModelError
from miner.training import faults, run
from miner.training.settings import TrainConfig
from miner.training.trainer import Trainer

ROOT = Path(__file__).parent.parent


pytestmark = pytest.mark.usefixtures("one_thread")  # what is tiny is done sooner without threads that wait for one another


def train(values: dict[str, Any], output: Path, resume: bool = False) -> run.Training:
    return run.train(TrainConfig(**values), str(output), resume)


def weights(output: Path) -> dict[str, torch.Tensor]:
    return dict(load_file(output / "encoder" / "model.safetensors"))


def retrieval(encoder: str) -> float:
    """How often the German of unseen numbers is nearest to their English."""
    unseen = tiny.numbers(200, seed=7)
    loaded = load_encoder(encoder)
    source, target = (loaded.encode([tiny.sentence(lang, row) for row in unseen]) for lang in ("eng_Latn", "deu_Latn"))
    return float(((source @ target.T).argmax(axis=1) == np.arange(len(unseen))).mean())


def test_a_transformer_learns_to_translate(folder: Path) -> None:
    values = config(folder, steps=80, batch_size=64, lr=5e-3, warmup=0.1, schedule="cosine", clip=1.0)
    values["encoder"]["max_tokens"] = 12
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    options = ("--set", "training.batch_size=48", "--json", folder / "f.json")
    result = miner("train", folder / "config.yaml", "--output", folder / "out", *options, report=True)
    assert result.exit_code == 0, result.output
    assert retrieval(str(folder / "out" / "encoder")) > 0.6
    assert json.loads((folder / "f.json").read_text())["examples"] == 80 * 48
    lines = [json.loads(line) for line in (folder / "out" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [20, 40, 60, 80]
    assert lines[-1]["loss"] < lines[0]["loss"] / 2
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "encoder",
        "log.jsonl",
        "report.html",
        "result.json",
        "tensorboard",
        "train.json",
    ]


def test_gradient_caching_changes_no_gradient(folder: Path) -> None:
    tiny.save_transformer(folder / "model", dropout=0.0)
    whole, cached = gradients(prepared(folder, "a")), gradients(prepared(folder, "b", cache=5))
    assert len(whole) > 20
    for one, other in zip(whole, cached, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_gradient_caching_drops_out_the_same_numbers_twice(folder: Path) -> None:
    whole, cached = gradients(prepared(folder, "a")), gradients(prepared(folder, "b", cache=64))
    assert all(torch.equal(one, other) for one, other in zip(whole, cached, strict=True))


GRADIENTS = """
import sys, torch
from pathlib import Path
sys.path.insert(0, "tests")
from tiny import gradients, prepared
from miner.training import processes
for objective in sys.argv[2:]:
    trainer = prepared(Path(sys.argv[1]), objective, cache=7, objective=objective)
    gradients(trainer)
    processes.average_gradients(trainer.weights, trainer.accelerator)
    if trainer.main:
        torch.save([weight.grad for weight in trainer.weights if weight.grad is not None], Path(sys.argv[1]) / f"{objective}.pt")
"""


@pytest.mark.slow
def test_two_processes_have_the_gradients_of_one(folder: Path) -> None:
    objectives = ["info_nce", "momentum"]
    tiny.save_transformer(folder / "model", dropout=0.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", GRADIENTS, str(folder), *objectives]
    started = [
        subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **common, "RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE, text=True
        )
        for rank in "01"
    ]
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    for objective in objectives:
        alone = gradients(prepared(folder, "alone", objective=objective))
        together = torch.load(folder / f"{objective}.pt")
        for one, other in zip(alone, together, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_steps_leave_no_record_behind(folder: Path) -> None:
    """torch.manual_seed leaves a stack trace with CUDA that is not used yet: gigabytes in a long run."""
    trainer = prepared(folder, "out")
    before = len(torch.cuda._queued_calls)
    gradients(trainer)
    assert len(torch.cuda._queued_calls) == before


class KilledError(Exception):
    pass


@pytest.mark.parametrize("at", [3, 9])
def test_killed_and_resumed_is_as_if_nothing_had_been(folder: Path, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = config(folder, checkpoint_every=5, accumulation=2)
    values["objective"] = [{"loss": "momentum", "queue": 50}, {"loss": "mlm"}]
    train(values, folder / "whole")
    step = Trainer._step

    def killed(self: Trainer, rate: float) -> dict[str, float]:
        if self.progress.step == at:
            raise KilledError
        return step(self, rate)

    monkeypatch.setattr(Trainer, "_step", killed)
    with pytest.raises(KilledError):
        train(values, folder / "resumed")
    monkeypatch.undo()
    assert (folder / "resumed" / "checkpoints").exists() == (at >= 5)
    done = train(values, folder / "resumed", resume=True)
    assert done.examples == 12 * 2 * 32
    whole, resumed = weights(folder / "whole"), weights(folder / "resumed")
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    logs = [[json.loads(line)["step"] for line in (folder / name / "log.jsonl").read_text().splitlines()] for name in ("whole", "resumed")]
    assert logs[0] == logs[1]


def test_the_best_state_is_kept_and_training_stops_early(folder: Path) -> None:
    tiny.write_pairs(folder / "dev.tsv", rows=60, seed=5)
    values = config(folder, steps=40, lr=0.02, schedule="constant")
    dev = {"files": [str(folder / "dev.tsv")], "columns": {"source": "en", "target": "de"}, "every": 4, "patience": 2}
    done = train({**values, "evaluation": dev}, folder / "out")
    scores = [json.loads(line) for line in (folder / "out" / "log.jsonl").read_text().splitlines() if "score" in line]
    best = max(range(len(scores)), key=lambda at: scores[at]["score"])
    assert done.score == scores[best]["score"]
    assert done.steps == 40 or len(scores) == best + 3
    columns = [line.split("\t") for line in (folder / "dev.tsv").read_text().splitlines()[1:]]
    encoder = load_encoder(str(folder / "out" / "encoder"))
    source, target = (encoder.encode([row[side] for row in columns]) for side in (0, 1))
    similarity, own = source @ target.T, np.arange(len(columns))
    both = ((similarity.argmax(axis=1) == own).mean() + (similarity.argmax(axis=0) == own).mean()) / 2
    assert both == pytest.approx(done.score)


def test_scalars_are_written_for_tensorboard(folder: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(config(folder, log_every=4), folder / "out")
    events = EventAccumulator(str(folder / "out" / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("loss")] == [4, 8, 12]
    logged = [json.loads(line)["loss"] for line in (folder / "out" / "log.jsonl").read_text().splitlines()]
    assert [event.value for event in events.Scalars("loss")] == pytest.approx(logged)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["training.lr=1e38"], "lower training.lr"),
        (["training.steps=null"], "give either epochs or steps"),
        (["data.0.files=[nowhere.tsv]"], "nowhere.tsv: no such file"),
        (["data.0.columns.target=fr"], "no column 'fr' in the header (en, de)"),
        (["data.0.columns={source: en}"], "no column for 'target'"),
        (["data.0.language_smoothing=0.5"], "language_smoothing wants a column for 'lang'"),
        (["data.0.code_switch={lexicons: [nowhere.txt]}"], "nowhere.txt: no such file"),
        (["encoder.pooling=middle"], "unknown encoder.pooling 'middle'"),
        (["encoder.pooling=layer:9"], "has layers 1 to 3"),
        (["encoder.model=./nowhere"], "nowhere"),
        (["encoder.max_tokens=999"], "room for 38 tokens"),
        (["objective.0.loss=cosine"], "objective.0"),
        (["objective.0.loss=nli_head"], "it has no labels"),
        (["objective.0.data=[other]"], "no source 'other'"),
        (["training.device=cuda:7"], "cuda"),
        (["evaluation={files: [nowhere.tsv], columns: {source: en, target: de}}"], "nowhere.tsv: no such file"),
        (["evaluation={files: [nowhere.tsv], columns: {first: en}}"], "retrieval wants a column for each of source, target"),
        (["nonsense"], "--set nonsense: not a setting"),
    ],
)
def test_what_cannot_be_trained_is_one_line(folder: Path, changes: list[str], message: str) -> None:
    (folder / "config.yaml").write_text(yaml.safe_dump(config(folder)))
    result = miner("train", folder / "config.yaml", "--output", folder / "out", *(word for change in changes for word in ("--set", change)))
    assert result.exit_code == 1, result.output
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert not (folder / "out" / "encoder").exists()
    assert not (folder / "out").exists() or changes == ["training.lr=1e38"]


def test_a_loss_that_is_no_number_names_step_and_examples(folder: Path) -> None:
    (folder / "config.yaml").write_text(yaml.safe_dump(config(folder, lr=1e38)))
    result = miner("train", folder / "config.yaml", "--output", folder / "out")
    assert "step 2: the loss is nan" in result.stderr
    assert any(f"'{word} " in result.stderr for words in tiny.NUMBERS.values() for word in words)


def test_out_of_memory_says_what_to_change(folder: Path) -> None:
    trainer = prepared(folder, "out")
    batch = trainer.streams[0].draw(np.random.default_rng(0))
    with pytest.raises(ModelError, match=r"step 3: .* 32 examples, 64 texts of up to 32 tokens; set training.gradient_cache"):  # noqa: SIM117
        with faults.memory(batch, 3, trainer.towers[0]):
            torch.empty(1 << 50)


def test_weights_that_are_no_numbers_are_not_saved(folder: Path) -> None:
    trainer = prepared(folder, "out")
    with torch.no_grad():
        trainer.weights[0][0, 0] = torch.inf
    for save in (trainer._save, trainer._export):
        with pytest.raises(DataError, match="it left weights that are no numbers"):
            save()
    assert not list((folder / "out").glob("encoder*"))


def test_a_batch_of_more_than_there_is_says_so(folder: Path) -> None:
    tiny.write_pairs(folder / "pairs.tsv", rows=20)
    (folder / "config.yaml").write_text(yaml.safe_dump(config(folder, steps=1)))
    result = miner("train", folder / "config.yaml", "--output", folder / "out")
    assert result.exit_code == 0, result.output
    assert "source 'parallel': fewer examples (20) than a batch takes (32)" in result.stderr


def test_other_data_is_not_gone_on_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = config(folder, checkpoint_every=5)

    def killed(_: Trainer) -> None:
        raise KilledError

    monkeypatch.setattr(Trainer, "_export", killed)
    with pytest.raises(KilledError):
        train(values, folder / "out")
    monkeypatch.undo()
    tiny.write_pairs(folder / "pairs.tsv", rows=300)
    with pytest.raises(DataError, match="files of source 'parallel' changed since the run began"):
        train(values, folder / "out", resume=True)


def test_a_finished_run_is_not_written_over(folder: Path) -> None:
    (folder / "config.yaml").write_text(yaml.safe_dump(config(folder, steps=2)))
    arguments = ["train", folder / "config.yaml", "--output", folder / "out"]
    assert miner(*arguments).exit_code == 0
    assert "holds a run already; go on with it by --resume" in miner(*arguments).stderr
    assert miner(*arguments, "--resume").stdout == miner(*arguments, "--resume").stdout
    assert "was begun with training.lr 0.002 instead of 1.0" in miner(*arguments, "--resume", "--set", "training.lr=1").stderr
