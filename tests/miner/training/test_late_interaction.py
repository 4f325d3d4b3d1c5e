"""Late interaction in training, against plain loops over the pieces of each text."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from command import error_of
from tiny import sentence, write_tsv
from torch import Tensor

from miner.training import run
from miner.training.config import TrainConfig
from miner.training.data.batches import ANCHOR, POSITIVE, Batch
from miner.training.steps.late_interaction import cluster_pairs, late_scores
from miner.training.steps.trainer import Trainer

pytestmark = pytest.mark.usefixtures("one_thread")

TEMPERATURE = 0.1


def late_score(first: Tensor, second: Tensor) -> Tensor:
    """The score of two texts from the vectors (p, dim), (q, dim) of their pieces, one piece at a time."""
    totals = []
    for queries, keys in ((first, second), (second, first)):
        weights = [query.norm() for query in queries]
        best = [max(query @ key / (query.norm() * key.norm()) for key in keys) for query in queries]
        totals.append(sum(weight * cosine for weight, cosine in zip(weights, best, strict=True)) / sum(weights))
    return (totals[0] + totals[1]) / 2


def test_scores_of_padded_texts_equal_a_plain_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = [[[3, 1], [2, 4]], [[5, 2], [1, 1]]]  # by side, cluster and text
    texts = [[[torch.randn(pieces, 6, generator=generator) for pieces in cluster] for cluster in side] for side in lengths]
    first, second = (
        torch.stack([torch.stack([torch.nn.functional.pad(text, (0, 0, 0, 5 - len(text))) for text in cluster]) for cluster in side])
        for side in texts
    )
    scores = late_scores(first, second)
    for cluster in range(2):
        for row in range(2):
            for column in range(2):
                torch.testing.assert_close(scores[cluster, row, column], late_score(texts[0][cluster][row], texts[1][cluster][column]))


def test_a_text_without_pieces_scores_no_more_than_others() -> None:
    empty, text = torch.zeros(1, 1, 3, 4), torch.ones(1, 1, 2, 4)
    assert late_scores(empty, text).item() <= 0
    assert torch.isfinite(late_scores(empty, empty)).all()


def test_clusters_hold_the_nearest_pairs_once() -> None:
    at = np.array([0.0, 5.0, 0.1, 5.1, 9.0, 0.2, 5.2], dtype=np.float32)  # the similarity falls with the distance on a line
    clusters = cluster_pairs(-np.abs(at[:, None] - at[None]), 3)
    assert [sorted(cluster.tolist()) for cluster in clusters] == [[0, 2, 5], [1, 3, 6]]


def test_fewer_pairs_than_candidates_make_no_cluster() -> None:
    assert cluster_pairs(np.eye(2, dtype=np.float32), 3).shape == (0, 3)


def prepare(folder: Path, objective: list[dict[str, Any]]) -> tuple[Trainer, Batch]:
    """Prepare a static encoder of pairs in blocks of 6, and draw a batch of two blocks."""
    rows = [[sentence(lang, digits) for lang in ("eng_Latn", "deu_Latn")] for digits in tiny.numbers(200, seed=1)]
    groups = [[number, lang, text] for number, pair in enumerate(rows) for lang, text in zip(("eng_Latn", "deu_Latn"), pair, strict=True)]
    path = write_tsv(folder / "groups.tsv", ["group", "lang", "text"], groups)
    columns = {"group": "group", "lang": "lang", "text": "text"}
    values = {
        "encoder": {"kind": "static", "dim": 8, "spelling_buckets": 64, "piece_dropout": 0.0, "vocabulary": {"size": 40}},
        "data": [{"strategy": "grouped_pairs", "files": [str(path)], "columns": columns, "block_size": 6, "pivot_share": 1.0}],
        "objective": objective,
        "training": {"steps": 1, "batch_size": 12, "lr": 0.01},
    }
    trainer = run.prepare(TrainConfig(**values), folder / "out")[0]
    return trainer, trainer.streams[0].draw(np.random.default_rng(0))


def accumulate_gradients(trainer: Trainer, batch: Batch) -> float:
    """Return the loss of the batch."""
    return trainer.accumulate_gradients(trainer.loader.load(batch, trainer.streams[0], [0])).read_losses()["loss"]


def texts_of(batch: Batch, view: str) -> list[str]:
    texts: list[str] = batch.views[view].read(np.random.default_rng(0))[0]
    return texts


def test_loss_and_gradient_equal_a_plain_loop(tmp_path: Path) -> None:
    """With as many candidates as a block has pairs, a text is contrasted with all translations of its block."""
    trainer, batch = prepare(tmp_path, [{"loss": "late_interaction", "temperature": TEMPERATURE, "candidates": 6}])
    tower, parameters = trainer.towers[0], list(trainer.towers[0].parameters())
    loss = accumulate_gradients(trainer, batch)
    tower.finish_backward()
    gradients = [parameter.grad.clone() for parameter in parameters]

    table = tower.vectors()
    sides = [[table[tower.processor.encode(text)] for text in texts_of(batch, view)] for view in (ANCHOR, POSITIVE)]
    losses = []
    for block in (range(6), range(6, 12)):
        scores = torch.stack([torch.stack([late_score(sides[0][row], sides[1][column]) for column in block]) for row in block])
        same = torch.from_numpy(batch.groups[block][:, None] == batch.groups[block]) & ~torch.eye(6, dtype=torch.bool)
        logits = (scores / TEMPERATURE).masked_fill(same, -torch.inf)
        losses += [-logits.log_softmax(dim=dim).diagonal() for dim in (0, 1)]
    expected = torch.cat(losses).mean()
    assert loss == pytest.approx(expected.item(), abs=1e-5)
    for gradient, reference in zip(gradients, torch.autograd.grad(expected, parameters), strict=True):
        torch.testing.assert_close(gradient, reference, atol=1e-5, rtol=1e-4)


def test_losses_add_their_gradients(tmp_path: Path) -> None:
    mean, late = {"loss": "info_nce"}, {"loss": "late_interaction", "candidates": 3}
    objectives = [[mean], [late], [mean, late]]
    gradients = []
    for number, objective in enumerate(objectives):
        (tmp_path / str(number)).mkdir()
        trainer, batch = prepare(tmp_path / str(number), objective)
        accumulate_gradients(trainer, batch)
        trainer.towers[0].finish_backward()
        gradients.append(trainer.towers[0].vectors.shared.grad)
    torch.testing.assert_close(gradients[2], gradients[0] + gradients[1], atol=1e-6, rtol=1e-5)


def test_at_most_max_pairs_are_contrasted(tmp_path: Path) -> None:
    """Of two blocks of two clusters each, one cluster of each block is contrasted."""
    losses = []
    for number, max_pairs in enumerate((None, 6)):
        (tmp_path / str(number)).mkdir()
        trainer, batch = prepare(tmp_path / str(number), [{"loss": "late_interaction", "candidates": 3, "max_pairs": max_pairs}])
        accumulate_gradients(trainer, batch)
        trainer.towers[0].finish_backward()
        is_used = trainer.towers[0].vectors.own.grad.abs().sum(dim=1) > 0
        losses.append((batch, {trainer.towers[0].processor.id_to_piece(int(piece)) for piece in torch.nonzero(is_used)}))
    assert losses[1][1] < losses[0][1]


def test_a_batch_smaller_than_a_cluster_has_no_loss(tmp_path: Path) -> None:
    trainer, batch = prepare(tmp_path, [{"loss": "late_interaction", "candidates": 7}])
    assert accumulate_gradients(trainer, batch) == 0


def test_a_transformer_is_refused(tmp_path: Path) -> None:
    pairs = write_tsv(tmp_path / "pairs.tsv", ["en", "de"], [["one", "eins"], ["two", "zwei"]])
    (tmp_path / "config.yaml").write_text(
        f"encoder: {{kind: transformer, model: {tmp_path / 'model'}}}\n"
        f"data: [{{strategy: parallel, files: [{pairs}], columns: {{source: en, target: de}}}}]\n"
        "objective: [{loss: late_interaction}]\ntraining: {steps: 1}\n"
    )
    message = error_of("train", tmp_path / "config.yaml", "--output", tmp_path / "out")
    assert message.endswith("late_interaction needs a static encoder, but encoder.kind is transformer; remove the loss")
