"""The trainer: gradients, distributed training, resuming, outputs and errors."""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import transformers
import yaml
from command import error_of, miner, output_of
from safetensors.torch import load_file
from tiny import compute_gradients, config, prepare

from miner.encoders import load_encoder
from miner.errors import ConfigError, DataError, ModelError, StorageError
from miner.training import run
from miner.training.config import TrainConfig
from miner.training.models.heads import load_head
from miner.training.models.transformer import Transformer
from miner.training.steps import errors as errors_module
from miner.training.steps.trainer import Trainer

ROOT = Path(__file__).parents[3]


pytestmark = pytest.mark.usefixtures("one_thread")  # tiny models are faster in one thread


def train(values: dict[str, Any], output: Path, resume: bool = False) -> run.TrainingResult:
    return run.train(TrainConfig(**values), str(output), resume)


def load_weights(output: Path) -> dict[str, torch.Tensor]:
    return dict(load_file(output / "encoder" / "model.safetensors"))


def retrieval_accuracy(encoder: str) -> float:
    """Return how often the German translation of unseen numbers is nearest to the English."""
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
    assert retrieval_accuracy(str(folder / "out" / "encoder")) > 0.6
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


def test_gradient_cache_does_not_change_gradients(folder: Path) -> None:
    tiny.save_transformer(folder / "model", dropout=0.0)
    whole, cached = compute_gradients(prepare(folder, "a")), compute_gradients(prepare(folder, "b", cache=5))
    assert len(whole) > 20
    for expected, gradient in zip(whole, cached, strict=True):
        torch.testing.assert_close(expected, gradient, rtol=1e-4, atol=1e-6)


def test_gradient_cache_draws_the_same_dropout_in_both_passes(folder: Path) -> None:
    whole, cached = compute_gradients(prepare(folder, "a")), compute_gradients(prepare(folder, "b", cache=64))
    assert all(torch.equal(expected, gradient) for expected, gradient in zip(whole, cached, strict=True))


GRADIENTS = """
import sys, torch
from pathlib import Path
sys.path.insert(0, "tests/support")
from tiny import compute_gradients, prepare
from miner.training.steps import distributed
for objective in sys.argv[2:]:
    trainer = prepare(Path(sys.argv[1]), objective, cache=7, objective=objective)
    compute_gradients(trainer)
    distributed.average_gradients(trainer.weights, trainer.accelerator)
    if trainer.is_main_process:
        torch.save([weight.grad.to_dense() for weight in trainer.weights if weight.grad is not None], Path(sys.argv[1]) / f"{objective}.pt")
"""


@pytest.mark.slow
def test_two_processes_have_the_gradients_of_one_process(folder: Path) -> None:
    objectives = ["info_nce", "multi_positive", "label_contrast", "alignment", "momentum"]
    tiny.save_transformer(folder / "model", dropout=0.0)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    environment = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", GRADIENTS, str(folder), *objectives]
    processes = [
        subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **environment, "RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE, text=True
        )
        for rank in "01"
    ]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    for objective in objectives:
        expected = compute_gradients(prepare(folder, "one-process", objective=objective))
        averaged = torch.load(folder / f"{objective}.pt")
        for one_process, two_processes in zip(expected, averaged, strict=True):
            torch.testing.assert_close(one_process, two_processes, rtol=1e-4, atol=1e-6)


def test_steps_do_not_queue_cuda_calls(folder: Path) -> None:
    """Before CUDA is used, torch.manual_seed keeps a stack trace of every call: gigabytes in a long run."""
    trainer = prepare(folder, "out")
    before = len(torch.cuda._queued_calls)
    compute_gradients(trainer)
    assert len(torch.cuda._queued_calls) == before


class KilledError(Exception):
    """Stands for a killed process, or any error of the main thread."""


def fail_at_step(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise KilledError in place of the step after this number of steps, until `monkeypatch.undo()`."""
    take_step = Trainer.take_step

    def take_step_or_fail(self: Trainer, *arguments: Any) -> None:
        if self.progress.step == step:
            raise KilledError
        take_step(self, *arguments)

    monkeypatch.setattr(Trainer, "take_step", take_step_or_fail)


@pytest.mark.slow
@pytest.mark.parametrize("killed_step", [3, 9])
def test_resumed_run_equals_an_uninterrupted_run(folder: Path, killed_step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = config(folder, checkpoint_every=5, log_every=4, accumulation=2)
    values["objective"] = [{"loss": "momentum", "queue": 50}, {"loss": "mlm"}]
    train(values, folder / "whole")
    fail_at_step(killed_step, monkeypatch)
    with pytest.raises(KilledError):
        train(values, folder / "resumed")
    monkeypatch.undo()
    assert (folder / "resumed" / "checkpoints").exists() == (killed_step >= 5)
    result = train(values, folder / "resumed", resume=True)
    assert result.examples == 12 * 2 * 32
    whole, resumed = load_weights(folder / "whole"), load_weights(folder / "resumed")
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    logs = [[json.loads(line) for line in (folder / name / "log.jsonl").read_text().splitlines()] for name in ("whole", "resumed")]
    timeless = [[{**entry, "examples_per_second": None} for entry in log] for log in logs]
    assert timeless[0] == timeless[1]


def train_overlapped(values: dict[str, Any], output: Path) -> Trainer:
    """Train, or resume, as on a GPU: batches are loaded in a background thread, and losses are read where they are logged."""
    trainer, validation = run.prepare(TrainConfig(**values), output)
    trainer.resume()
    trainer.run(validation, overlap=True)
    return trainer


def read_log(output: Path) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    return [{name: value for name, value in entry.items() if name != "examples_per_second"} for entry in entries]


def read_checkpoints(output: Path) -> dict[str, bytes]:
    return {str(path.relative_to(output)): path.read_bytes() for path in sorted(output.glob("checkpoints/*/*"))}


def count_threads() -> int:
    return sum(thread.name.startswith("ThreadPoolExecutor") for thread in threading.enumerate())


@pytest.fixture
def overlapped_config(folder: Path) -> dict[str, Any]:
    """Two batches of two losses with state per step, each of two sources; a checkpoint every 5 of 13 steps and a score every 4."""
    tiny.write_pairs(folder / "dev.tsv", rows=60, seed=5)
    tiny.write_pairs(folder / "more.tsv", rows=100, seed=6)
    values = config(folder, steps=13, checkpoint_every=5, log_every=3, accumulation=2)
    values["data"].append({**values["data"][0], "name": "more", "files": [str(folder / "more.tsv")], "swap": True})
    values["objective"] = [{"loss": "momentum", "queue": 50}, {"loss": "mlm"}]
    values["evaluation"] = {"files": [str(folder / "dev.tsv")], "columns": {"source": "en", "target": "de"}, "every": 4}
    return values


def test_batches_loaded_in_the_background_change_nothing(folder: Path, overlapped_config: dict[str, Any]) -> None:
    trainer, validation = run.prepare(TrainConfig(**overlapped_config), folder / "one thread")
    trainer.run(validation, overlap=False)
    threads = count_threads()
    overlapped = train_overlapped(overlapped_config, folder / "overlapped")
    assert count_threads() == threads
    assert overlapped.progress == trainer.progress
    assert overlapped.count_examples() == trainer.count_examples()
    assert sum(counts.examples for counts in trainer.count_examples().values()) == 13 * 2 * 32
    assert read_log(folder / "overlapped") == read_log(folder / "one thread")
    checkpoints = read_checkpoints(folder / "overlapped")
    assert len(checkpoints) == 2 * 4
    assert checkpoints == read_checkpoints(folder / "one thread")


@pytest.mark.parametrize("failed_step", [3, 9])
def test_an_overlapped_run_that_fails_can_be_resumed(
    folder: Path, overlapped_config: dict[str, Any], failed_step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint does not count the batch that is loaded ahead, and the thread that loads it ends with the run."""
    whole, threads = train_overlapped(overlapped_config, folder / "whole"), count_threads()
    fail_at_step(failed_step, monkeypatch)
    with pytest.raises(KilledError) as raised:
        train_overlapped(overlapped_config, folder / "resumed")
    assert raised.tb  # keeps the frames of the run
    assert count_threads() == threads
    monkeypatch.undo()
    resumed = train_overlapped(overlapped_config, folder / "resumed")
    assert resumed.progress == whole.progress
    assert read_log(folder / "resumed") == read_log(folder / "whole")
    assert read_checkpoints(folder / "resumed") == read_checkpoints(folder / "whole")


def test_early_stop_discards_the_batch_that_was_loaded_ahead(folder: Path, overlapped_config: dict[str, Any]) -> None:
    overlapped_config["training"] |= {"lr": 1e-30, "steps": 40}  # the score never improves
    overlapped_config["evaluation"]["patience"] = 1
    threads = count_threads()
    trainer = train_overlapped(overlapped_config, folder / "out")
    assert trainer.progress.step == 8
    assert sum(counts.examples for counts in trainer.count_examples().values()) == trainer.progress.examples == 8 * 2 * 32
    assert count_threads() == threads


def test_errors_of_the_background_thread_are_raised(
    folder: Path, overlapped_config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the step that needs the batch: the steps before are taken, logged and saved."""
    tokenize_views, calls = Transformer.tokenize_views, iter(range(100))

    def fail_in_step_6(self: Transformer, *arguments: Any) -> Any:
        if next(calls) == 2 * 5:
            raise RuntimeError("not enough: you tried to allocate memory")
        return tokenize_views(self, *arguments)

    monkeypatch.setattr(Transformer, "tokenize_views", fail_in_step_6)
    threads = count_threads()
    with pytest.raises(ModelError, match=r"step 6: out of memory on a batch of 32 examples"):
        train_overlapped(overlapped_config, folder / "out")
    assert count_threads() == threads
    assert [entry["step"] for entry in read_log(folder / "out")] == [3, 4]
    assert {path.parent.name for path in (folder / "out").glob("checkpoints/*/*")} == {"step-000000005"}


def test_losses_that_are_read_late_report_the_first_step_with_nan(folder: Path) -> None:
    trainer, _ = run.prepare(TrainConfig(**config(folder, lr=1e38, log_every=10)), folder / "out")
    with pytest.raises(DataError, match="step 2: the loss is nan; NaN or infinite vectors of '") as raised:
        trainer.run(None, overlap=True)
    assert trainer.progress.step == 10
    assert any(f"'{word} " in str(raised.value) for words in tiny.NUMBERS.values() for word in words)


def test_best_encoder_is_kept_and_training_stops_early(folder: Path) -> None:
    tiny.write_pairs(folder / "dev.tsv", rows=60, seed=5)
    values = config(folder, steps=40, lr=0.02, schedule="constant")
    evaluation = {"files": [str(folder / "dev.tsv")], "columns": {"source": "en", "target": "de"}, "every": 4, "patience": 2}
    result = train({**values, "evaluation": evaluation}, folder / "out")
    scores = [json.loads(line) for line in (folder / "out" / "log.jsonl").read_text().splitlines() if "score" in line]
    best = max(range(len(scores)), key=lambda index: scores[index]["score"])
    assert result.score == scores[best]["score"]
    assert result.steps == 40 or len(scores) == best + 3
    columns = [line.split("\t") for line in (folder / "dev.tsv").read_text().splitlines()[1:]]
    encoder = load_encoder(str(folder / "out" / "encoder"))
    source, target = (encoder.encode([row[side] for row in columns]) for side in (0, 1))
    similarity, rows = source @ target.T, np.arange(len(columns))
    accuracy = ((similarity.argmax(axis=1) == rows).mean() + (similarity.argmax(axis=0) == rows).mean()) / 2
    assert accuracy == pytest.approx(result.score)


def test_tensorboard_scalars_equal_the_log(folder: Path) -> None:
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
        (["data.0.language_smoothing=0.5"], "language_smoothing needs a column for 'lang'"),
        (["data.0.code_switch={lexicons: [nowhere.txt]}"], "nowhere.txt: no such file"),
        (["encoder.pooling=middle"], "unknown encoder.pooling 'middle'"),
        (["encoder.pooling=layer:9"], "has layers 1 to 3"),
        (["encoder.inference_pooling=layer:9"], "encoder.inference_pooling layer:9"),
        (["encoder.inference_pooling=mean", "encoder.head=mlp", "encoder.keep_head=true"], "the head is trained on pooling"),
        (
            [
                "encoder.inference_pooling=mean",
                "data.0.strategy=labelled_pairs",
                "data.0.columns={first: en, second: de, label: de}",
                "data.0.labels=[a, b]",
                "objective.0.loss=classification",
            ],
            "the classifier of classification reads encoder.pooling",
        ),
        (
            [
                "data.0={strategy: labelled_pairs, files: [a.tsv], columns: {lang: lang, first: a, second: b, label: c}, labels: [a, b]}",
                "data.0.views={full_translation: 2}",
            ],
            "use the loss multi_positive with siblings: false, or one view",
        ),
        (
            [
                "data.0={strategy: labelled_pairs, files: [a.tsv], columns: {first: a, second: b, label: c}, labels: [a, b], joint: false}",
                "objective.0.loss=label_contrast",
            ],
            "use the strategy paraphrases or the loss nli_head",
        ),
        (["encoder.model=./nowhere"], "nowhere"),
        (["encoder.max_tokens=999"], "room for 38 tokens"),
        (["objective.0.loss=cosine"], "objective.0"),
        (["objective.0.loss=nli_head"], "the source has no labels"),
        (["objective.0.data=[other]"], "no source 'other'"),
        (["training.device=cuda:7"], "cuda"),
        (["evaluation={files: [nowhere.tsv], columns: {source: en, target: de}}"], "nowhere.tsv: no such file"),
        (["evaluation={files: [nowhere.tsv], columns: {first: en}}"], "retrieval needs exactly the columns source, target"),
        (["nonsense"], "--set nonsense: expected SETTING=VALUE"),
        (["training.seed=-1"], "training.seed: expected at least 0"),
        (["training.betas=[1.5,0.9]"], "training.betas.0: expected less than 1"),
        (["training={epochs: .inf}"], "training.epochs: expected a finite number"),
        (["training.dtype=float16", "training.device=cpu"], "training.dtype float16 needs a GPU"),
        (["data.0.swap=true", "encoder.towers=pair"], "swap mixes the sides"),
        (
            ["data.0.strategy=mined", "data.0.columns={}", "data.0.weigh_by_margin=true", "objective.0={loss: momentum}"],
            "remove weigh_by_margin",
        ),
        (
            ["data.0.strategy=nli", "data.0.columns={premise: en, hypothesis: de, label: de}", "objective.0={loss: momentum}"],
            "use info_nce, or nli_head",
        ),
        (["data.0.strategy=unsupervised", "data.0.columns={lang: en}"], "no column for 'text'"),
    ],
)
def test_errors_of_config_and_data_are_one_line(folder: Path, changes: list[str], message: str) -> None:
    (folder / "config.yaml").write_text(yaml.safe_dump(config(folder)))
    result = miner("train", folder / "config.yaml", "--output", folder / "out", *(word for change in changes for word in ("--set", change)))
    assert result.exit_code == 1, result.output
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert not (folder / "out" / "encoder").exists()
    assert not (folder / "out").exists() or changes == ["training.lr=1e38"]


def test_nan_loss_reports_step_and_examples(folder: Path) -> None:
    (folder / "config.yaml").write_text(yaml.safe_dump(config(folder, lr=1e38)))
    result = miner("train", folder / "config.yaml", "--output", folder / "out")
    assert "step 2: the loss is nan" in result.stderr
    assert any(f"'{word} " in result.stderr for words in tiny.NUMBERS.values() for word in words)


def test_out_of_memory_reports_the_settings_to_change(folder: Path) -> None:
    trainer = prepare(folder, "out")
    batch = trainer.streams[0].draw(np.random.default_rng(0))
    with pytest.raises(ModelError, match=r"step 3: .* 31 examples, 62 texts of up to 32 tokens; set training.gradient_cache"):  # noqa: SIM117
        with errors_module.explain_out_of_memory(batch, 3, trainer.towers[0]):
            torch.empty(1 << 50)


def test_infinite_weights_are_not_saved(folder: Path) -> None:
    trainer = prepare(folder, "out")
    with torch.no_grad():
        trainer.weights[0][0, 0] = torch.inf
    for save in (trainer.save_checkpoint, trainer.export_encoders):
        with pytest.raises(DataError, match="weights became NaN or infinite"):
            save()
    assert not list((folder / "out").glob("encoder*"))


def test_batch_larger_than_the_source_is_a_warning(folder: Path) -> None:
    tiny.write_pairs(folder / "pairs.tsv", rows=20)
    (folder / "config.yaml").write_text(yaml.safe_dump(config(folder, steps=1)))
    result = miner("train", folder / "config.yaml", "--output", folder / "out")
    assert result.exit_code == 0, result.output
    assert "source 'parallel': fewer examples (20) than the batch size (32)" in result.stderr


def test_resume_with_changed_data_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = config(folder, checkpoint_every=5)
    run_and_kill(values, folder / "out", monkeypatch)
    tiny.write_pairs(folder / "pairs.tsv", rows=300)
    with pytest.raises(DataError, match="files of source 'parallel' changed since the run started"):
        train(values, folder / "out", resume=True)


def test_hard_negatives_are_used_with_and_without_another_loss(folder: Path) -> None:
    rows = [[tiny.sentence(lang, row) for lang in tiny.NUMBERS] for row in tiny.numbers(40, seed=1)]
    tiny.write_tsv(folder / "triplets.tsv", ["anchor", "positive", "negative"], rows)
    values = config(folder, steps=1, log_every=1)
    columns = {role: role for role in ("anchor", "positive", "negative")}
    values["data"] = [{"strategy": "triplets", "files": [str(folder / "triplets.tsv")], "columns": columns}]
    losses = []
    for name, second_loss in (("alone", []), ("with", [{"loss": "info_nce", "weight": 1e-9}])):
        values["objective"] = [{"loss": "label_contrast"}, *second_loss]
        train(values, folder / name)
        losses.append(json.loads((folder / name / "log.jsonl").read_text().splitlines()[0])["label_contrast"])
    assert losses[0] == losses[1]


def test_batch_smaller_than_the_number_of_processes_is_an_error(folder: Path) -> None:
    settings = TrainConfig(**config(folder, batch_size=3))
    run.check_batch_sizes(settings, 3)
    with pytest.raises(ConfigError, match="a batch of 3 for 4 processes; raise batch_size"):
        run.check_batch_sizes(settings, 4)


def test_full_disk_is_a_storage_error(folder: Path) -> None:
    """safetensors raises an error of its own, not an OSError."""
    trainer = prepare(folder, "out")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        for save in (trainer.save_checkpoint, trainer.export_encoders):
            with pytest.raises(StorageError, match="free some space or choose another --output"):
                save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_nan_gold_score_is_an_error(folder: Path) -> None:
    tiny.write_tsv(folder / "sts.tsv", ["a", "b", "score"], [["one", "eins", "3"], ["two", "zwei", "nan"]])
    values = config(folder)
    values["evaluation"] = {"metric": "sts", "files": [str(folder / "sts.tsv")], "columns": {"first": "a", "second": "b", "score": "score"}}
    with pytest.raises(DataError, match=r"sts\.tsv: the scores are not all numbers"):
        train(values, folder / "out")


def run_and_kill(values: dict[str, Any], output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train and fail before the encoder is exported."""

    def fail(*_: Any) -> None:
        raise KilledError

    monkeypatch.setattr(Trainer, "export_encoders", fail)
    with pytest.raises(KilledError):
        train(values, output)
    monkeypatch.undo()


@pytest.mark.parametrize("name", ["dev.tsv", "words.txt"])
def test_resume_with_changed_lexicon_or_dev_file_is_an_error(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing or changed file stops the resumed run; once the file is restored, the run completes."""
    tiny.write_pairs(folder / "dev.tsv", rows=20, seed=5)
    (folder / "words.txt").write_text("one eins\n")
    values = config(folder, checkpoint_every=5)
    values["data"][0]["code_switch"] = {"lexicons": [str(folder / "words.txt")]}
    evaluation = {"files": [str(folder / "dev.tsv")], "columns": {"source": "en", "target": "de"}, "every": 100}
    values["evaluation"] = evaluation
    run_and_kill(values, folder / "out", monkeypatch)
    (folder / name).rename(folder / "away")
    with pytest.raises(DataError, match=f"{name}: no such file"):
        train(values, folder / "out", resume=True)
    (folder / name).write_text((folder / "away").read_text() + ("two zwei\n" if name == "words.txt" else "one\teins\n"))
    with pytest.raises(DataError, match=f"files of {'source .parallel.' if name == 'words.txt' else 'evaluation'} changed since"):
        train(values, folder / "out", resume=True)
    (folder / "away").rename(folder / name)
    assert train(values, folder / "out", resume=True).steps == 12


def test_failure_before_resuming_keeps_the_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = config(folder, checkpoint_every=5)
    run_and_kill(values, folder / "out", monkeypatch)
    (folder / "model").rename(folder / "away")
    with pytest.raises(ModelError):
        train(values, folder / "out", resume=True)
    (folder / "away").rename(folder / "model")
    assert train(values, folder / "out", resume=True).steps == 12


def test_repeated_losses_are_numbered_by_position(folder: Path) -> None:
    """The loss without a number is the first of the config, and its classes are scored, whichever source comes first."""
    rows = [["one", "two", "yes"], ["three", "four", "no"]] * 8
    tiny.write_tsv(folder / "labels.tsv", rows[0], rows[1:])
    labelled = {"files": [str(folder / "labels.tsv")], "columns": {"first": 1, "second": 2, "label": 3}}
    values = config(folder, steps=1, log_every=1)
    for name, labels in (("x", ["yes", "no"]), ("y", ["no", "yes"])):
        values["data"].append({"strategy": "labelled_pairs", "name": name, "labels": labels, **labelled})
    losses = [("info_nce", "parallel"), ("info_nce", "x"), ("classification", "y"), ("classification", "x")]
    values["objective"] = [{"loss": loss, "data": [source]} for loss, source in losses]
    values["evaluation"] = {"metric": "accuracy", "every": 1, **labelled}
    train(values, folder / "out")
    line = json.loads((folder / "out" / "log.jsonl").read_text().splitlines()[0])
    assert line["loss"] == pytest.approx(sum(line[name] for name in ("info_nce", "info_nce_1", "classification", "classification_3")))
    encoder = folder / "out" / "encoder"
    labels_by_name = {name: load_head(encoder / f"{name}.safetensors")[1] for name in ("classification", "classification_3")}
    assert labels_by_name == {"classification": ("no", "yes"), "classification_3": ("yes", "no")}


def test_a_finished_run_has_its_own_encoder(folder: Path) -> None:
    """A copy of a run has its encoder in the copy. Without the encoder, the run is not finished."""
    (folder / "config.yaml").write_text(yaml.safe_dump(config(folder, steps=2)))
    output_of("train", folder / "config.yaml", "--output", folder / "out")
    shutil.copytree(folder / "out", folder / "copy")
    resume = ("train", folder / "config.yaml", "--output", folder / "copy", "--resume")
    assert str(folder / "copy" / "encoder") in output_of(*resume).splitlines()
    with (folder / "copy" / "encoder" / "config.json").open("a") as file:
        file.write(" ")
    assert "config.json: missing, or changed since it was written; delete" in error_of(*resume)
    shutil.rmtree(folder / "copy" / "encoder")
    assert f"{folder}/copy/encoder: missing, though the run is finished; delete" in error_of(*resume)


def test_an_encoder_decoder_is_refused(folder: Path) -> None:
    """A folder of its encoder alone would have weights of other names than its config says."""
    model = folder / "t5"
    shutil.copytree(folder / "model", model)
    for path in (model / "config.json", *model.glob("*.safetensors")):
        path.unlink()
    shape = {"vocab_size": 200, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    transformers.T5Model(transformers.T5Config(**shape)).save_pretrained(model)
    (folder / "config.yaml").write_text(yaml.safe_dump(config(folder, steps=2)))
    message = error_of("train", folder / "config.yaml", "--output", folder / "out", "--set", f"encoder.model={model}")
    assert f"{model}: the encoder of an encoder-decoder cannot be trained alone; choose another" in message
    assert not (folder / "out" / "encoder").exists()


def test_finished_run_is_not_overwritten(folder: Path) -> None:
    (folder / "config.yaml").write_text(yaml.safe_dump(config(folder, steps=2)))
    arguments = ["train", folder / "config.yaml", "--output", folder / "out"]
    assert miner(*arguments).exit_code == 0
    assert "already holds a run; continue it with --resume" in miner(*arguments).stderr
    assert miner(*arguments, "--resume").stdout == miner(*arguments, "--resume").stdout
    assert "was started with training.lr 0.002 instead of 1.0" in miner(*arguments, "--resume", "--set", "training.lr=1").stderr
