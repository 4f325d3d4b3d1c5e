"""Linear layers for transformers on a CPU whose products oneDNN computes.

torch multiplies float32 with MKL, which leaves half of the speed of an AMD processor with AVX-512 unused. With AVX2, MKL is as fast.
"""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor, nn


class OneDnnLinear(nn.Linear):
    """A linear layer in float32 or bfloat16."""

    def __init__(self, linear: nn.Linear) -> None:
        """Share the weights (outputs, inputs) of a layer."""
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, activations: Tensor) -> Tensor:
        """Return the outputs (..., outputs) of activations (..., inputs), without a gradient."""
        outputs: Tensor = torch.ops.mkldnn._linear_pointwise(activations, self.weight, self.bias, "none", [], "")
        return outputs


def replace_linear_layers(module: nn.Module, replacement: Callable[[nn.Linear], nn.Module]) -> None:
    """Replace the linear layers of a model. Layers of a subclass are kept: their module may read their weights itself."""
    for name, child in module.named_children():
        if type(child) is nn.Linear:
            setattr(module, name, replacement(child))
        else:
            replace_linear_layers(child, replacement)


@lru_cache
def is_faster() -> bool:
    """Return whether oneDNN is in this torch and faster on this processor."""
    if not torch.cpu._is_avx512_supported():
        return False
    try:
        with torch.inference_mode():
            OneDnnLinear(nn.Linear(8, 8))(torch.ones(1, 8))
    except (AttributeError, RuntimeError):
        return False
    return True
