"""The training loop: draw batches, embed them, take optimizer steps; evaluate, keep the best encoder, save checkpoints.

All randomness of a step derives from the seed, the step and the process. So a checkpoint stores no generator state, and a run
that was stopped and resumed ends with the same weights as an uninterrupted one.
"""

import contextlib
import logging
import math
from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from miner.devices import read_ahead, upload
from miner.errors import SettingsError
from miner.training.data.strategy import Strategy
from miner.training.layout import CHECKPOINTS, encoder_name
from miner.training.models import export
from miner.training.models.heads import save_head
from miner.training.settings import TrainingSettings
from miner.training.steps import checkpoints, distributed, errors
from miner.training.steps.batch_loader import BatchLoader, DrawnCounts, LoadedBatch, combine_seeds
from miner.training.steps.batch_results import BatchResult, mean_losses
from miner.training.steps.distributed import Accelerator
from miner.training.steps.grad_cache import EncodingPass, reseed
from miner.training.steps.mixing import Stream
from miner.training.steps.sparse_adamw import SparseAdamW, sparse_tables
from miner.training.steps.step import ClassifierTerm, LossTerm, TrainingStep
from miner.training.steps.training_log import CheckpointState, SourceCounts, TrainingLog, TrainingProgress
from miner.training.steps.validation import Validation

CLASSIFICATION = "classification"  # name of the first such loss of a config; later ones are numbered

logger = logging.getLogger(__name__)


class Trainer:
    """Train `towers`, one shared encoder or one for anchors and one for positives and negatives, with the losses of `streams`."""

    def __init__(
        self,
        towers: Sequence[Any],
        streams: Sequence[Stream],
        num_steps: int,
        settings: TrainingSettings,
        output: Path,
        accelerator: Accelerator,
    ) -> None:
        self.towers, self.streams, self.num_steps, self.settings, self.output = towers, streams, num_steps, settings, output
        self.accelerator = accelerator
        self.terms = [term for stream in streams for _, term in stream.terms.values()]
        with errors.explain_model_too_large(self.accelerator.device):
            self.root = nn.ModuleList([*towers, *self.terms]).to(self.accelerator.device)
        self.weights = [weight for weight in self.root.parameters() if weight.requires_grad]
        tables = _choose_sparse_tables(self.root, towers, self.terms, settings, accelerator)
        self.adamw = _build_adamw(self.weights, tables, settings)
        self.optimizer = self.accelerator.prepare(self.adamw)
        self.loader = BatchLoader(streams, towers, settings, accelerator)
        self.progress = TrainingProgress()
        self.drawn = DrawnCounts.of(streams)  # in the steps that were taken; the loader may be ahead
        self.unread: list[list[BatchResult]] = []  # results of the steps whose losses are not in `progress` yet

    def run(self, validation: Validation | None, overlap: bool | None = None) -> TrainingProgress:
        """Take the remaining steps. OUTPUT/encoder is then the best encoder by `validation` or, without it, the last.

        With `overlap`, by default on a GPU, the device does not wait for the CPU: a background thread loads the next batch during a
        step, and losses are read only where they are logged. The results are the same.
        """
        overlap = self.accelerator.device.type != "cpu" if overlap is None else overlap
        with contextlib.ExitStack() as stack:
            log = None
            if self.is_main_process:
                log = TrainingLog(self.output, self.progress, self.num_steps, self.settings.log_every)
                stack.callback(log.close)
            batches = stack.enter_context(contextlib.closing(self.load_batches(overlap)))
            self._take_steps(validation, log, batches, self.settings.log_every if overlap else 1)
        if validation is None:
            self.export_encoders()
        return self.progress

    def load_batches(self, overlap: bool = False) -> Generator[LoadedBatch, None, None]:
        """Yield the batches of the remaining steps; with `overlap`, each is loaded while the caller works on the one before."""
        batches = self.loader.load_steps(range(self.progress.step, self.num_steps))
        return read_ahead(batches) if overlap else batches

    def _take_steps(self, validation: Validation | None, log: TrainingLog | None, batches: Iterator[LoadedBatch], read_every: int) -> None:
        """Take, log and evaluate the remaining steps, and save checkpoints. Losses are read every `read_every` steps."""
        while self.progress.step < self.num_steps and not _is_patience_exhausted(self.progress, validation):
            rate = learning_rate(self.progress.step, self.num_steps, self.settings)
            self.take_step(rate, batches)
            if self.progress.step % read_every == 0 or self.progress.step == self.num_steps:
                self.read_losses()
            if log:
                log.log_step(self.progress, rate, self.count_examples())
            if validation and (self.progress.step % validation.settings.every == 0 or self.progress.step == self.num_steps):
                self._evaluate(validation, log)
            if self.progress.step % self.settings.checkpoint_every == 0:
                self.save_checkpoint()

    @property
    def is_main_process(self) -> bool:
        return bool(self.accelerator.is_main_process)

    def take_step(self, rate: float, batches: Iterator[LoadedBatch]) -> None:
        """Take one optimizer step on the next batches."""
        self.root.train()
        for parameter_group in self.optimizer.param_groups:
            parameter_group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        results = []
        for loaded in islice(batches, self.settings.accumulation * len(self.streams)):
            with errors.explain_out_of_memory(loaded.batch, self.progress.step + 1, self.towers[0]):
                results.append(self.accumulate_gradients(loaded))
            self.progress.examples += len(loaded.batch)
            self.drawn = loaded.drawn
        with errors.explain_out_of_memory(loaded.batch, self.progress.step + 1, self.towers[0]):  # the first step allocates the moments
            self._update_weights()
        self.progress.step += 1
        self.unread.append(results)

    def read_losses(self) -> None:
        """Add the losses and text counts of the steps since the last call to `progress`. Raises DataError for a NaN or infinite loss."""
        for results in self.unread:
            losses = mean_losses(results, self.settings.accumulation)
            self.progress.loss = losses["loss"]
            for name, loss in losses.items() if self.is_main_process else ():
                self.progress.unlogged_losses.setdefault(name, []).append(loss)
            for result in results:
                self._count_texts(*result.text_counts.tolist())
        self.unread = []

    def _update_weights(self) -> None:
        for tower in self.towers:
            tower.finish_backward()
        distributed.average_gradients(self.weights, self.accelerator)
        rows = self.adamw.join_gradients()
        if self.settings.clip is not None:
            dense = [weight for weight in self.weights if weight.grad is not None and not weight.grad.is_sparse]
            self.accelerator.clip_grad_norm_([*dense, *rows], self.settings.clip)
        self.optimizer.step()
        for term in self.terms:
            term.after_optimizer_step(self.towers)

    def accumulate_gradients(self, loaded: LoadedBatch) -> BatchResult:
        """Add the gradients of one batch to the weights; return its losses by name, of which `loss` is the weighted sum.

        Every process embeds its part of the batch, collects the vectors of the whole batch as leaf tensors and computes the same
        losses. It then backpropagates the gradients of its own leaves through its encoder.
        """
        is_cached, autocast = self.settings.gradient_cache is not None, self.accelerator.autocast
        passes = [
            (part.views, EncodingPass(part.tower, part.inputs, is_cached, part.dropout_seed, autocast)) for part in loaded.tower_inputs
        ]
        step = TrainingStep(loaded.batch, passes, self.accelerator)
        reseed(combine_seeds(loaded.seed))  # so that the losses draw the same numbers in all processes
        losses = {name: (weight, term(step)) for name, (weight, term) in loaded.stream.terms.items()}
        loss = torch.stack([weight * value for weight, value in losses.values()]).sum()
        self.accelerator.backward(loss / self.settings.accumulation)
        step.backward()
        values = torch.stack([loss, *(value for _, value in losses.values())]).detach()
        is_finite = {name: torch.isfinite(rows.detach()).all(dim=1) for name, rows in step.vectors.items()}
        counts = self._sum_text_counts(loaded)
        return BatchResult(loaded.batch, self.progress.step + 1, ["loss", *losses], values, is_finite, counts)

    def _sum_text_counts(self, loaded: LoadedBatch) -> Tensor:
        """Return the number of texts of all processes, and of those that were cut, (2,)."""
        tokens = [part.inputs.tokens for part in loaded.tower_inputs]
        counts = torch.tensor([sum(map(len, tokens)), sum(int(part.is_cut.sum()) for part in tokens)])
        if self.accelerator.num_processes > 1:
            counts = self.accelerator.reduce(upload(counts, self.accelerator.device), reduction="sum")
        return counts

    def _count_texts(self, num_texts: int, num_cut: int) -> None:
        """Count the texts of a batch, and those that were cut; warn of the first."""
        if num_cut and not self.progress.cut_texts and self.is_main_process:
            tower = self.towers[0]
            message = "%d of %d texts of a batch are longer than %s (%d) and cut in training; result.json counts them"
            logger.warning(message, num_cut, num_texts, tower.LENGTH_SETTING, tower.max_length)
        self.progress.texts += num_texts
        self.progress.cut_texts += num_cut

    def _evaluate(self, validation: Validation, log: TrainingLog | None) -> None:
        """Score the encoders on all held-out data, and export them where the score is the best so far."""
        self.read_losses()
        self.root.eval()
        scores = torch.zeros(len(validation.dev_sets), dtype=torch.float64, device=self.accelerator.device)
        if self.is_main_process:
            classifier = dict(self._classifiers()).get(CLASSIFICATION)
            for number, dev_set in enumerate(validation.dev_sets.values()):
                scores[number] = dev_set.score(self.towers, classifier.head if classifier else None, self.accelerator.autocast)
        values = dict(zip(validation.dev_sets, self.accelerator.reduce(scores, reduction="sum").tolist(), strict=True))
        if log:
            log.write(self.progress.step, {f"score/{name}" if name else "score": value for name, value in values.items()})
        self.progress.scores_since_best += 1
        for name, value in values.items():
            if value > self.progress.best_scores.get(name, -math.inf):
                self.progress.best_scores[name] = value
                self.progress.scores_since_best = 0 if name == "" else self.progress.scores_since_best
                self.export_encoders(name)

    def export_encoders(self, best_by: str = "") -> None:
        """Write the encoder in its current state, or both as one folder, with the classifiers beside the first."""
        self._check_weights()
        if self.is_main_process:
            with checkpoints.atomic_folder(self.output / encoder_name(best_by)) as folder:
                folders = [folder] if len(self.towers) == 1 else export.save_pair(folder, self.towers[0].settings, self.towers[0].dim)
                for tower, tower_folder in zip(self.towers, folders, strict=True):
                    tower.save(tower_folder)
                for title, term in self._classifiers():
                    save_head(folders[0] / f"{title}.safetensors", term.head, term.labels)
        self.accelerator.wait_for_everyone()

    def _check_weights(self) -> None:
        """Complete the weights before they are stored. Raises DataError for NaN or infinite ones."""
        self.adamw.catch_up()
        errors.check_weights(self.weights, self.progress.step)

    def _classifiers(self) -> Iterator[tuple[str, ClassifierTerm]]:
        """Yield the losses that train a classifier, with their names."""
        for stream in self.streams:
            for name, (_, term) in stream.terms.items():
                if isinstance(term, ClassifierTerm):
                    yield name, term

    def save_checkpoint(self) -> None:
        self.read_losses()
        self._check_weights()
        state: CheckpointState = {
            "progress": self.progress,
            "examples_of_sources": self.drawn.of_sources,
            "examples_of_streams": self.drawn.of_streams,
            "scaler": self.accelerator.scaler.state_dict() if self.accelerator.scaler is not None else None,
        }
        if self.is_main_process:
            checkpoints.save(self.output / CHECKPOINTS, self.root, self.optimizer, state)
        self.accelerator.wait_for_everyone()

    def resume(self) -> None:
        """Restore the newest checkpoint; without one, start from the beginning."""
        state = checkpoints.load_latest(self.output / CHECKPOINTS, self.root, self.optimizer)
        if state is None:
            return
        if state["scaler"] is not None and self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        samplers, streams = [source.sampler for source in self._sources()], state["examples_of_streams"]
        shapes = [len(sampler.drawn) for sampler in samplers], len(self.streams)
        if shapes != ([len(drawn) for drawn in state["examples_of_sources"]], len(streams)):
            raise SettingsError(f"{self.output / CHECKPOINTS}: of a run with other sources; delete {self.output} and train again")
        for sampler, drawn in zip(samplers, state["examples_of_sources"], strict=True):
            sampler.drawn = drawn
        for stream, num_drawn in zip(self.streams, streams, strict=True):
            stream.num_drawn = num_drawn
        self.progress, self.drawn = state["progress"], DrawnCounts.of(self.streams)

    def count_examples(self) -> dict[str, SourceCounts]:
        """Return how often each source was seen, by title."""
        sources = [item for stream in self.streams for item in stream.sources.items()]
        counts = zip(sources, self.drawn.of_sources, strict=True)
        return {title: SourceCounts.of(sum(drawn), source.num_examples) for (title, source), drawn in counts}

    def _sources(self) -> list[Strategy]:
        return [source for stream in self.streams for source in stream.sources.values()]


def _is_patience_exhausted(progress: TrainingProgress, validation: Validation | None) -> bool:
    patience = validation.settings.patience if validation else None
    return patience is not None and progress.scores_since_best >= patience


def learning_rate(step: int, num_steps: int, settings: TrainingSettings) -> float:
    """Return the learning rate of a step (from 0): linear warmup, then the schedule, never below the floor."""
    warmup_steps = settings.warmup if settings.warmup >= 1 else settings.warmup * num_steps
    warmup_factor = min(1.0, (step + 1) / max(1.0, warmup_steps))
    elapsed = max(0.0, step - warmup_steps) / max(1.0, num_steps - warmup_steps)
    decay = {"linear": 1 - elapsed, "cosine": (1 + math.cos(math.pi * elapsed)) / 2, "constant": 1.0}[settings.schedule]
    return settings.lr * warmup_factor * max(settings.floor, decay)


def _choose_sparse_tables(
    root: nn.Module, towers: Sequence[Any], terms: Sequence[LossTerm], settings: TrainingSettings, accelerator: Accelerator
) -> list[nn.Embedding]:
    """Return the token tables of which a step on a CPU updates the rows that it reads.

    A GPU updates whole tables in no time. Losses that read whole tables, as momentum encoders do, leave them dense.
    """
    is_alone = accelerator.device.type == "cpu" and accelerator.num_processes == 1 and settings.dtype != "float16"
    return sparse_tables(root, towers) if is_alone and not any(term.reads_all_weights for term in terms) else []


def _build_adamw(weights: Sequence[Tensor], tables: Sequence[nn.Embedding], settings: TrainingSettings) -> SparseAdamW:
    """Build the optimizer; weight decay applies to matrices, not to biases and norms."""
    groups = [
        {"params": [weight for weight in weights if weight.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": [weight for weight in weights if weight.dim() <= 1], "weight_decay": 0.0},
    ]
    return SparseAdamW([group for group in groups if group["params"]], tables, lr=settings.lr, betas=settings.betas, fused=True)
