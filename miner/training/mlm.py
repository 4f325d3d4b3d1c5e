"""Masked language modelling of the anchors, beside a contrastive loss."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from miner.encoders.transformer_parts import model_errors
from miner.errors import ConfigError
from miner.training.batches import ANCHOR, Ints
from miner.training.masking import IGNORED, mask_tokens, mlm_loss
from miner.training.settings import MlmSettings
from miner.training.steps import LossContext, LossTerm, TrainingStep

HEADS = ("lm_head", "cls", "predictions")  # what models call the layers from token vectors to the vocabulary


class MlmTerm(LossTerm):
    """Guesses masked tokens of the anchors by the model's own language modelling head, where it comes with one."""

    views = (ANCHOR,)

    def __init__(self, settings: MlmSettings, place: LossContext) -> None:
        super().__init__(settings, place)
        tower = place.towers[0]
        if tower.tokenizer.mask_token_id is None:
            raise ConfigError(f"{tower.settings.model}: its tokenizer has no mask token, so leave out the loss mlm")
        self.head = _head(tower)

    def forward(self, step: TrainingStep) -> Tensor:
        """The mean over the masked tokens of this process's anchors."""
        of = next(of for names, of in step.passes if ANCHOR in names)
        tower: Any = of.encoder
        own = step.own(ANCHOR)
        generator = torch.Generator().manual_seed(int(torch.randint(1 << 62, ())))
        losses, counts = [], []
        for rows in of.rows:
            rows = rows[rows < own]  # anchors are read first
            if not len(rows):
                continue
            ids, labels, mask = self._masked(tower, of.read, rows, generator)
            with step.accelerator.autocast():
                loss = (
                    checkpoint(self._loss, tower, ids, labels, mask, use_reentrant=False)
                    if of.cached
                    else self._loss(tower, ids, labels, mask)
                )
            count = (labels != IGNORED).sum()
            losses.append(loss.float() * count)
            counts.append(count)
        return torch.stack(losses).sum() / torch.stack(counts).sum().clamp_min(1)

    def _masked(self, tower: Any, read: Any, rows: Ints, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Ids to read, labels to guess, and attention mask, (n, l) each."""
        inputs = tower.pad(read, rows)
        ids = inputs["input_ids"].cpu()
        special = torch.isin(ids, torch.tensor(tower.tokenizer.all_special_ids)) | (inputs["attention_mask"].cpu() == 0)
        masked, labels = mask_tokens(
            ids, special, self.settings.probability, tower.tokenizer.mask_token_id, len(tower.tokenizer), generator
        )
        device = inputs["input_ids"].device
        return masked.to(device), labels.to(device), inputs["attention_mask"]

    def _loss(self, tower: Any, ids: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        tokens = tower.model(input_ids=ids, attention_mask=mask).last_hidden_state
        return mlm_loss(tokens, labels, self.head)


def _head(tower: Any) -> nn.Module:
    """The layers from token vectors to logits, whose last is tied to the model's own embeddings."""
    import transformers

    folder = tower.recipe.folder
    with model_errors(folder):
        model = transformers.AutoModelForMaskedLM.from_pretrained(str(folder), trust_remote_code=False).float()
    found = [getattr(model, name) for name in HEADS if hasattr(model, name)]
    if not found:
        raise ConfigError(f"{tower.settings.model}: no head for masked language modelling is known of it, so leave out the loss mlm")
    head: nn.Module = found[0]
    model.get_output_embeddings().weight = tower.model.get_input_embeddings().weight
    return head
