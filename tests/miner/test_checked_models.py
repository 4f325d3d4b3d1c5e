"""Damaged encoders, checkpoints and work files of training are errors; a damaged checkpoint is replaced by the one before."""

import json
import logging
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
import torch
import yaml
from command import error_of
from torch import nn

from miner.config.commands import EncoderSettings
from miner.encoders import load_encoder, read_fingerprint
from miner.errors import MinerError, StorageError
from miner.io import checksums
from miner.training import run
from miner.training.config import TrainConfig
from miner.training.steps import checkpoints
from miner.training.steps.training_log import CheckpointState, TrainingProgress

FLIPS = 20


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(bytes(data))


def flip_each(folder: Path, load: Callable[[], object]) -> set[str]:
    """Flip bits of every file in turn; return the names of those of which `load` did not refuse one."""
    accepted = set()
    shuffled = random.Random(0)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        for _ in range(FLIPS):
            flip(path, shuffled.randrange(len(data)), shuffled.randrange(8))
            try:
                load()
                accepted.add(path.name)
            except MinerError:
                pass
            path.write_bytes(data)
    return accepted


def test_flipped_bits_of_a_static_encoder(toy_encoder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(toy_encoder, tmp_path / "encoder")
    expected = load_encoder(str(folder)).encode(["one two"])
    assert flip_each(folder, lambda: load_encoder(str(folder))) <= {checksums.FILE}, "spaces of its own file"
    assert (load_encoder(str(folder)).encode(["one two"]) == expected).all()


@pytest.mark.slow
def test_flipped_bits_of_a_transformer(tmp_path: Path) -> None:
    tiny.save_transformer(tmp_path / "model")
    checksums.write(tmp_path / "model")
    settings = EncoderSettings(pooling="mean")
    assert flip_each(tmp_path / "model", lambda: load_encoder(str(tmp_path / "model"), settings)) <= {checksums.FILE}


def test_an_encoder_that_was_changed_on_purpose_loads_again_without_its_checksums(toy_encoder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(toy_encoder, tmp_path / "encoder")
    flip(folder / "vectors.safetensors", 400)
    with pytest.raises(StorageError, match=r"vectors.safetensors: .* or delete .*checksums.json if it was changed on purpose"):
        load_encoder(str(folder))
    (folder / checksums.FILE).unlink()
    load_encoder(str(folder))


@pytest.mark.parametrize("name", ["miner.json", "sentencepiece.model", "vectors.safetensors"])
def test_damage_without_checksums_never_ends_in_a_traceback(name: str, toy_encoder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(toy_encoder, tmp_path / "encoder")
    (folder / checksums.FILE).unlink()
    data = (folder / name).read_bytes()
    shuffled = random.Random(1)
    for _ in range(60):
        flip(folder / name, shuffled.randrange(len(data)), shuffled.randrange(8))
        try:
            load_encoder(str(folder)).encode(["one two", "un unknown"])
        except MinerError as error:
            assert "\n" not in str(error)  # noqa: PT017 - other outcomes are right too
        (folder / name).write_bytes(data)


@pytest.fixture
def transformer(tmp_path: Path) -> Path:
    tiny.save_transformer(tmp_path / "model")
    (tmp_path / "text.txt").write_text("one two\n")
    return tmp_path / "model"


def change_config(folder: Path, **values: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_hidden_layers": 10_000_000}, "num_hidden_layers 10000000 does not fit the weights"),
        ({"num_hidden_layers": -1}, "num_hidden_layers -1 does not fit the weights"),
        ({"num_labels": 10**9}, "num_labels 1000000000 does not fit the weights"),
        ({"vocab_size": 10**12}, "vocab_size 1000000000000 does not fit the weights"),
        ({"model_type": "x", "auto_map": {"AutoModel": "evil.Model"}}, "needs code of its own (evil.Model)"),
        ({"hidden_size": "wide"}, "cannot load it"),
        ({"num_attention_heads": 0}, "cannot load it"),
    ],
)
def test_hostile_configs_are_refused(values: dict[str, object], message: str, transformer: Path, tmp_path: Path) -> None:
    (transformer / "evil.py").write_text("raise SystemExit('executed')")
    change_config(transformer, **values)
    error = error_of(
        *("embed", tmp_path / "text.txt", "--lang", "en", "--encoder", transformer, "--pooling", "mean"), "--output", tmp_path / "out"
    )
    assert message in error


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/hostname", "missing.safetensors"])
def test_weights_outside_the_folder_are_refused(name: str, transformer: Path, tmp_path: Path) -> None:
    (transformer / "model.safetensors").rename(tmp_path / "model.safetensors")
    (transformer / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(MinerError, match="is not a file beside it"):
        load_encoder(str(transformer), EncoderSettings(pooling="mean"))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "modules.json", "1_Pooling/config.json"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_files_of_a_model_that_do_not_end_are_refused(name: str, kind: str, transformer: Path) -> None:
    (transformer / name).parent.mkdir(exist_ok=True)
    (transformer / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(transformer / name)
    else:
        (transformer / name).symlink_to("/dev/zero")
    with pytest.raises(MinerError, match=f"{name}: not a regular file"):
        load_encoder(str(transformer), EncoderSettings(pooling="mean"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 8,
        (1 << 40).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (50).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":'.ljust(46) + b"[0]}",
        (64).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,99999999999]}}',
        (64).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[9,-1]}}'.ljust(64),
    ],
)
def test_damaged_weights_have_no_fingerprint(data: bytes, transformer: Path) -> None:
    """A run that resumes reads the fingerprint of its start encoder before it loads it."""
    assert read_fingerprint(str(transformer)).startswith("transformer-")
    (transformer / "model.safetensors").write_bytes(data)
    with pytest.raises(MinerError) as caught:
        read_fingerprint(str(transformer))
    assert str(transformer) in str(caught.value)


STATE: CheckpointState = {
    "progress": TrainingProgress(step=1, examples=8, loss=0.5, texts=16, unlogged_losses={"info_nce": [0.5, 0.25]}),
    "examples_of_sources": [[8]],
    "examples_of_streams": [8],
    "scaler": None,
}


def save_steps(folder: Path, count: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Take steps of a small model with a checkpoint after each; the weights of step n are all n."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(1, count + 1):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        nn.init.constant_(model.weight, step)
        checkpoints.save(folder, model, optimizer, {**STATE, "progress": replace(STATE["progress"], step=step)})
    return model, optimizer


@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors", "state.json", "checksums.json"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer = save_steps(tmp_path, 3)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["step-000000002", "step-000000003"]
    flip(tmp_path / "step-000000003" / name, 20)
    with caplog.at_level(logging.WARNING):
        state = checkpoints.load_latest(tmp_path, model, optimizer)
    assert state is not None
    assert (state["progress"].step, model.weight.unique().tolist()) == (2, [2.0])
    assert "step-000000003" in caplog.text
    assert "resuming from step-000000002" in caplog.text
    flip(tmp_path / "step-000000002" / name, 20)
    with pytest.raises(StorageError, match="train again"):
        checkpoints.load_latest(tmp_path, model, optimizer)


def test_a_checkpoint_with_another_state_is_an_error(tmp_path: Path) -> None:
    model, optimizer = save_steps(tmp_path, 1)
    checkpoint = tmp_path / "step-000000001"
    assert checkpoints.load_latest(tmp_path, model, optimizer) == STATE
    (checkpoint / checksums.FILE).unlink()  # which would find the change first
    stored = json.loads((checkpoint / "state.json").read_text())
    progress = {**stored["progress"], "step": "many"}
    for state in ([], {}, {**stored, "progress": progress}, *({**stored, key: "x"} for key in STATE)):
        (checkpoint / "state.json").write_text(json.dumps(state))
        with pytest.raises(StorageError, match=rf"state\.json: not valid .*; delete {tmp_path} and train again"):
            checkpoints.load_latest(tmp_path, model, optimizer)
    for key in STATE:
        (checkpoint / "state.json").write_text(json.dumps({name: value for name, value in stored.items() if name != key}))
        with pytest.raises(StorageError, match=rf"state\.json: not valid \({key}: Field required\); delete {tmp_path} and train again"):
            checkpoints.load_latest(tmp_path, model, optimizer)


@pytest.mark.slow
def test_damaged_work_files_of_training_are_errors(folder: Path) -> None:
    config = TrainConfig(**tiny.config(folder))
    run.prepare(config, folder / "out")
    (texts,) = (folder / "out" / "work").rglob("texts.arrow")
    assert flip_each(texts.parent, lambda: run.prepare(config, folder / "out")) <= {checksums.FILE}


# Ten lists of ten lists of ... of ten ones.
LAUGHS = "".join(f"b{level}: &b{level} [{', '.join([f'*b{level - 1}' if level else '1'] * 10)}]\n" for level in range(9))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training: {steps: 1}\ntraining: {steps: 2}", "'training' is given twice"),
        (LAUGHS, "aliases"),
        ("a: &a [*a]", "aliases"),
        ("? [a, b]\n: c", "a list or mapping as a key"),
        ("a: !!bool x", "does not fit its tag"),
        ("a: !!timestamp x", "does not fit its tag"),
        ("data: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("training: {steps: 1" + "0" * 30 + "}", "more than 64 bits"),
        ("training: {steps: 1" + "0" * 5000 + "}", "digits"),
    ],
)
def test_hostile_settings_are_errors(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text(text)
    assert message in error_of("train", tmp_path / "train.yaml", "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("setting", ["batch_size", "accumulation"])
def test_training_numbers_that_no_machine_can_hold_are_errors(setting: str, folder: Path) -> None:
    config = tiny.config(folder, **{setting: 2**62})
    (folder / "train.yaml").write_text(yaml.safe_dump(config))
    assert f"training.{setting}: expected at most" in error_of("train", folder / "train.yaml", "--output", folder / "out")
