"""Masked language modelling of the anchors beside a contrastive loss (Devlin et al. 2019, section 3.1; Gao et al. 2021)."""

from collections.abc import Callable
from typing import Any, Literal

import pydantic
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from miner.devices import attention_kernels, upload
from miner.encoders.transformer_parts import model_errors
from miner.errors import ConfigError
from miner.training.data.batches import ANCHOR, Ints
from miner.training.steps.step import LossContext, LossTerm, ObjectiveSettings, TrainingStep

MASK_SHARE, RANDOM_SHARE = 0.8, 0.1  # shares of the chosen tokens; the others keep their id
IGNORED = -100  # label of a token that is not predicted
HEAD_ATTRIBUTES = ("lm_head", "cls", "predictions")  # where models of transformers have the layers from token vectors to logits


def mask_tokens(
    ids: Tensor, special: Tensor, probability: float, mask_id: int, vocabulary_size: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Token ids (n, l), and which are special (padding included) -> masked ids and labels, (n, l) each.

    Each token that is not special is chosen with `probability`. Of the chosen, 80 % become `mask_id` and 10 % a random token of
    the vocabulary. The label of a chosen token is its original id, that of all others IGNORED. `ids` is not modified.
    """
    is_chosen = (torch.rand(ids.shape, generator=generator) < probability) & ~special
    fate = torch.rand(ids.shape, generator=generator)
    random_ids = torch.randint(vocabulary_size, ids.shape, generator=generator)
    labels = ids.masked_fill(~is_chosen, IGNORED)
    masked = ids.masked_fill(is_chosen & (fate < MASK_SHARE), mask_id)
    is_random = is_chosen & (fate >= MASK_SHARE) & (fate < MASK_SHARE + RANDOM_SHARE)
    return torch.where(is_random, random_ids, masked), labels


def mlm_loss(tokens: Tensor, labels: Tensor, decoder: Callable[[Tensor], Tensor]) -> Tensor:
    """Token vectors (n, l, d), labels (n, l) and the decoder from (m, d) to logits (m, v) -> the mean cross entropy.

    0 without labels. Only vectors with a label are decoded: logits of all tokens would be the largest tensor of the step.
    """
    has_label = labels != IGNORED
    losses = functional.cross_entropy(decoder(tokens[has_label]), labels[has_label], reduction="sum")
    return losses / has_label.sum().clamp_min(1)


class MlmSettings(ObjectiveSettings):
    """Masked language modelling."""

    loss: Literal["mlm"]
    weight: float = pydantic.Field(0.1, gt=0)
    probability: float = pydantic.Field(0.15, gt=0, lt=1, description="Probability that a token is masked.")


class MlmTerm(LossTerm):
    """Predict masked tokens of the anchors with the model's own language modelling head."""

    views = (ANCHOR,)

    def __init__(self, settings: MlmSettings, context: LossContext) -> None:
        super().__init__(settings, context)
        tower = context.towers[0]
        if tower.tokenizer.mask_token_id is None:
            raise ConfigError(f"{tower.settings.model}: the tokenizer has no mask token, which the loss mlm needs; remove the loss")
        self.head = _load_mlm_head(tower)

    def forward(self, step: TrainingStep) -> Tensor:
        """Return the mean over the masked tokens of this process's anchors."""
        encoding = next(encoding for views, encoding in step.passes if ANCHOR in views)
        tower: Any = encoding.encoder
        num_anchors = step.num_local_rows(ANCHOR)
        generator = torch.Generator().manual_seed(int(torch.randint(1 << 62, ())))
        losses, counts = [], []
        for rows in encoding.inputs.rows:
            rows = rows[rows < num_anchors]  # anchors come first
            if not len(rows):
                continue
            ids, labels, mask = self._mask_rows(tower, encoding.inputs.tokens, rows, generator)
            with step.accelerator.autocast():
                loss = (
                    checkpoint(self._loss, tower, ids, labels, mask, use_reentrant=False)
                    if encoding.is_cached
                    else self._loss(tower, ids, labels, mask)
                )
            count = (labels != IGNORED).sum()
            losses.append(loss.float() * count)
            counts.append(count)
        return torch.stack(losses).sum() / torch.stack(counts).sum().clamp_min(1)

    def _mask_rows(self, tower: Any, tokens: Any, rows: Ints, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return masked ids, labels and attention mask, (n, l) each."""
        inputs = tower.collate(tokens, rows)
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        special = torch.isin(ids, torch.tensor(tower.tokenizer.all_special_ids)) | (mask == 0)
        mask_id, vocabulary_size = tower.tokenizer.mask_token_id, len(tower.tokenizer)
        masked, labels = mask_tokens(ids, special, self.settings.probability, mask_id, vocabulary_size, generator)
        device = next(tower.parameters()).device
        return upload(masked, device), upload(labels, device), upload(mask, device)

    def _loss(self, tower: Any, ids: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        with attention_kernels(ids.device):
            tokens = tower.model(input_ids=ids, attention_mask=mask).last_hidden_state
        return mlm_loss(tokens, labels, self.head)


def _load_mlm_head(tower: Any) -> nn.Module:
    """Load the layers from token vectors to logits and tie the last to the encoder's input embeddings."""
    import transformers

    folder = tower.recipe.folder
    with model_errors(folder):
        model = transformers.AutoModelForMaskedLM.from_pretrained(str(folder), trust_remote_code=False).float()
    heads: list[nn.Module] = [getattr(model, name) for name in HEAD_ATTRIBUTES if hasattr(model, name)]
    if not heads:
        raise ConfigError(
            f"{tower.settings.model}: no masked language modelling head ({', '.join(HEAD_ATTRIBUTES)}) in this architecture;"
            " remove the loss mlm"
        )
    model.get_output_embeddings().weight = tower.model.get_input_embeddings().weight
    return heads[0]
