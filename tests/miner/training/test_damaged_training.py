"""What a resumed training run reads: its start encoder, its work files and its checkpoints."""

import shutil
from pathlib import Path

import pytest
import tiny
import yaml
from command import error_of, output_of

from miner.io import checksums
from miner.training import run
from miner.training.config import TrainConfig
from miner.training.steps.trainer import learning_rate


@pytest.fixture
def stopped(folder: Path) -> Path:
    """Leave a run in OUT that was stopped after its first step."""
    values = tiny.config(folder, steps=2, batch_size=4)
    tiny.write_pairs(folder / "pairs.tsv", rows=20)
    (folder / "train.yaml").write_text(yaml.safe_dump(values))
    trainer, _ = run.prepare(TrainConfig(**values), folder / "out")
    trainer.take_step(learning_rate(0, trainer.num_steps, trainer.settings), trainer.load_batches())
    trainer.save_checkpoint()
    return folder


def resume(stopped: Path) -> tuple[object, ...]:
    return "train", stopped / "train.yaml", "--output", stopped / "out", "--resume"


def test_the_start_encoder_must_not_change(stopped: Path) -> None:
    """Its tokenizer is read again; its folder, which was made elsewhere, has no checksums."""
    assert not (stopped / "model" / checksums.FILE).exists()
    shutil.copytree(stopped / "model", stopped / "kept")
    tokenizer = stopped / "model" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"two"', '"tow"'))
    assert f"files of encoder {stopped / 'model'} changed since the run started" in error_of(*resume(stopped))
    shutil.rmtree(stopped / "model")
    (stopped / "kept").rename(stopped / "model")
    (stopped / "model" / "README.md").write_text("not read by the run")
    assert "2 steps" in output_of(*resume(stopped))


@pytest.mark.parametrize("name", ["texts.arrow", "marks.arrow", "checksums.json"])
def test_work_files_that_are_gone(name: str, stopped: Path) -> None:
    (path,) = (stopped / "out" / "work").rglob(name)
    content = path.read_bytes()
    path.unlink()
    if name == checksums.FILE:  # the files could have changed, so they are written again
        assert "2 steps" in output_of(*resume(stopped))
        return
    assert f"{name}: missing" in error_of(*resume(stopped))
    path.write_bytes(content[:-8] if content else b"x")
    assert f"{name}: missing, or changed" in error_of(*resume(stopped))
