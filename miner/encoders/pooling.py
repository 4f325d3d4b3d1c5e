"""Pooling: the token vectors of a transformer -> one vector per sentence. `POOLINGS` lists the choices.

Every pooler takes `states`, hidden states (batch, tokens, width) from the embedding layer (0) to the last, and `mask`
(batch, tokens), 1 at tokens and 0 at padding on either side, and returns (batch, width) float32. Poolers that use only the last
layer also work with `states` of that layer alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from miner.errors import ConfigError

if TYPE_CHECKING:  # torch takes seconds to import, and names are checked without it
    from torch import Tensor

Pooler = Callable[[Sequence["Tensor"], "Tensor"], "Tensor"]

LAYER = re.compile(r"layer:(\d+)")


def _last(states: Sequence[Tensor]) -> Tensor:
    return states[-1].float()  # sums over many tokens lose too much precision in 16 bits


def _token(state: Tensor, position: Tensor) -> Tensor:
    """(batch, tokens, width), (batch,) -> (batch, width), the vector at each row's position."""
    index = position[:, None, None].expand(-1, 1, state.shape[-1])
    return state.gather(1, index).squeeze(1)


def _weighted_sum(state: Tensor, weights: Tensor) -> Tensor:
    return (state * weights[:, :, None]).sum(dim=1)


def mean_of(state: Tensor, mask: Tensor) -> Tensor:
    """(batch, tokens, width) -> (batch, width), the mean over the tokens."""
    weights = mask.float()
    return _weighted_sum(state.float(), weights) / weights.sum(dim=1, keepdim=True).clamp(min=1)


def cls(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Return the first token, before any pooler layer of the model."""
    return _token(_last(states), mask.int().argmax(dim=1))


def mean(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    return mean_of(states[-1], mask)


def maximum(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    return _last(states).masked_fill(mask[:, :, None] == 0, float("-inf")).amax(dim=1)


def mean_of_layers(layers: Sequence[int]) -> Pooler:
    """Return a pooler that averages two hidden layers, then the tokens."""

    def pool(states: Sequence[Tensor], mask: Tensor) -> Tensor:
        first, second = (states[layer].float() for layer in layers)
        return mean_of((first + second) / 2, mask)

    return pool


def mean_sqrt_len_tokens(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Return the sum over the tokens divided by the square root of their number."""
    weights = mask.float()
    return _weighted_sum(_last(states), weights) / weights.sum(dim=1, keepdim=True).clamp(min=1).sqrt()


def weightedmean(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Return the mean with weights 1, 2, 3, ... along the tokens (Muennighoff 2022, SGPT)."""
    weights = (mask.cumsum(dim=1) * mask).float()
    return _weighted_sum(_last(states), weights) / weights.sum(dim=1, keepdim=True).clamp(min=1)


def lasttoken(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    return _token(_last(states), mask.shape[1] - 1 - mask.flip(1).int().argmax(dim=1))


@dataclass(frozen=True)
class Pooling:
    """A pooling, and its names in other libraries."""

    pool: Pooler
    flag: str | None = None  # in folders of older sentence-transformers; None: a mixture of layers, stored as a module of its own
    simcse: str | None = None  # name in SimCSE
    layers: tuple[int, ...] = ()  # the hidden layers that a mixture averages; negative ones count from the last (-1)
    trainable: bool = False  # whether `miner train` offers it


def _mixture(layers: tuple[int, int], simcse: str | None = None) -> Pooling:
    """Build a mean of two layers, as in SimCSE (Gao et al. 2021)."""
    return Pooling(mean_of_layers(layers), simcse=simcse, layers=layers, trainable=True)


# In the order in which sentence-transformers concatenates several. To add a pooling, add an entry.
POOLINGS: dict[str, Pooling] = {
    "cls": Pooling(cls, "pooling_mode_cls_token", "cls_before_pooler", trainable=True),
    "max": Pooling(maximum, "pooling_mode_max_tokens", trainable=True),
    "mean": Pooling(mean, "pooling_mode_mean_tokens", "avg", trainable=True),
    "mean_sqrt_len_tokens": Pooling(mean_sqrt_len_tokens, "pooling_mode_mean_sqrt_len_tokens"),
    "weightedmean": Pooling(weightedmean, "pooling_mode_weightedmean_tokens"),
    "lasttoken": Pooling(lasttoken, "pooling_mode_lasttoken"),
    "first_last_avg": _mixture((1, -1), simcse="avg_first_last"),
    "avg_top2": _mixture((-2, -1)),
}
SIMCSE_NAMES = {pooling.simcse: name for name, pooling in POOLINGS.items() if pooling.simcse}

CHOICES = ", ".join([*POOLINGS, "layer:N"])


def pooler(name: str) -> Pooler:
    """Return the pooler called `name`; `layer:N` is the mean over the tokens of hidden layer N (0 is the embedding layer)."""
    match = LAYER.fullmatch(name)
    if match:
        layer = int(match[1])
        return lambda states, mask: mean_of(states[layer], mask)
    if name not in POOLINGS:
        raise ConfigError(f"unknown pooling {name!r}; one of {CHOICES}")
    return POOLINGS[name].pool


def highest_layer(names: Sequence[str]) -> int | None:
    """Return the highest hidden layer that must exist besides the last; None where the poolings only use the last."""
    layers = [int(match[1]) for name in names if (match := LAYER.fullmatch(name))]
    layers += [1 for name in names if name in POOLINGS and POOLINGS[name].layers]
    return max(layers, default=None)


def mixture_layers(name: str, num_layers: int) -> set[int]:
    """Return the hidden layers that a pooling averages in a model of `num_layers`; empty for a pooling of the last layer."""
    return {layer % (num_layers + 1) for layer in POOLINGS[name].layers}
