"""Pooling: the token vectors of a transformer -> one vector a sentence.

Every pooler takes `states`, the hidden states of (batch, tokens, width) from the embedding layer (0) to the last, and `mask`
(batch, tokens), 1 at tokens and 0 at padding, and gives (batch, width) float32. Padding may stand on either side and never counts.
Poolers that look at the last layer only are content with `states` of that layer alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from miner.errors import ConfigError

if TYPE_CHECKING:  # torch takes seconds to import, and names are checked before it is needed
    from torch import Tensor

Pooler = Callable[[Sequence["Tensor"], "Tensor"], "Tensor"]

LAYER = re.compile(r"layer:(\d+)")


def _last(states: Sequence[Tensor]) -> Tensor:
    return states[-1].float()  # sums over many tokens lose too much in half precision


def _token(state: Tensor, position: Tensor) -> Tensor:
    """(batch, tokens, width), (batch,) -> the vector at each row's position."""
    index = position[:, None, None].expand(-1, 1, state.shape[-1])
    return state.gather(1, index).squeeze(1)


def _sum(state: Tensor, weights: Tensor) -> Tensor:
    return (state * weights[:, :, None]).sum(dim=1)


def mean_of(state: Tensor, mask: Tensor) -> Tensor:
    """(batch, tokens, width) -> the mean over the tokens."""
    weights = mask.float()
    return _sum(state.float(), weights) / weights.sum(dim=1, keepdim=True).clamp(min=1)


def cls(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    """The first token, before any pooler layer of the model's own."""
    return _token(_last(states), mask.int().argmax(dim=1))


def mean(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    return mean_of(states[-1], mask)


def maximum(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    return _last(states).masked_fill(mask[:, :, None] == 0, float("-inf")).amax(dim=1)


def first_last_avg(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    """The mean of the first and the last transformer layer, over the tokens: `avg_first_last` of SimCSE (Gao et al. 2021)."""
    return mean_of((states[1].float() + _last(states)) / 2, mask)


def avg_top2(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    """The mean of the last two layers, over the tokens (SimCSE)."""
    return mean_of((states[-2].float() + _last(states)) / 2, mask)


def mean_sqrt_len_tokens(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    """The sum over the tokens, divided by the root of their number."""
    weights = mask.float()
    return _sum(_last(states), weights) / weights.sum(dim=1, keepdim=True).clamp(min=1).sqrt()


def weightedmean(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    """The mean with weights 1, 2, 3, ... along the tokens (Muennighoff 2022, SGPT)."""
    weights = (mask.cumsum(dim=1) * mask).float()
    return _sum(_last(states), weights) / weights.sum(dim=1, keepdim=True).clamp(min=1)


def lasttoken(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    return _token(_last(states), mask.shape[1] - 1 - mask.flip(1).int().argmax(dim=1))


# The last three are what sentence-transformers folders may ask for besides; its names are kept.
POOLERS: dict[str, Pooler] = {
    "cls": cls,
    "mean": mean,
    "max": maximum,
    "first_last_avg": first_last_avg,
    "avg_top2": avg_top2,
    "mean_sqrt_len_tokens": mean_sqrt_len_tokens,
    "weightedmean": weightedmean,
    "lasttoken": lasttoken,
}

CHOICES = ", ".join([*POOLERS, "layer:N"])


def pooler(name: str) -> Pooler:
    """The pooler called `name`; `layer:N` is the mean over the tokens of hidden layer N (0 is the embedding layer)."""
    match = LAYER.fullmatch(name)
    if match:
        layer = int(match[1])
        return lambda states, mask: mean_of(states[layer], mask)
    if name not in POOLERS:
        raise ConfigError(f"unknown pooling {name!r}; one of {CHOICES}")
    return POOLERS[name]


def highest_layer(names: Sequence[str]) -> int | None:
    """The highest hidden layer these poolers ask for by number; None where they are content with the last."""
    layers = [int(match[1]) for name in names if (match := LAYER.fullmatch(name))]
    layers += [1 for name in names if name in ("first_last_avg", "avg_top2")]
    return max(layers, default=None)
