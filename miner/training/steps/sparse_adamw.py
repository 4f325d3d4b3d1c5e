"""AdamW that updates the rows of embedding tables when they are next read.

A step on a CPU reads a few thousand of the 250,000 rows of a multilingual vocabulary. AdamW decays the other rows too, and moves them by
the moments of earlier gradients. Without a gradient, these steps have a closed form: a row that was last updated after step s, and is
next read after step t, has

    weight = weight * decay(s, t) - momentum / (sqrt(variance) + eps') * drift(s, t)

where, with a_i = lr_i sqrt(1 - beta2^i) / (1 - beta1^i) and r = beta1 / sqrt(beta2), decay(s, t) is the product of
1 - lr_i * weight_decay for i = s + 1, ..., t, and drift(s, t) the sum of a_i r^(i - s) decay(i, t). The result is that of AdamW but for
rounding, and for eps, which is as if it decayed with the variance: eps' is that of step s + 1. That matters to gradients of about 1e-8.
"""

import mmap
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

CHUNK_ROWS = 1 << 14  # updated at a time


class LazyTable:
    """An embedding table whose rows are updated when they are next read."""

    def __init__(self, table: nn.Embedding, optimizer: torch.optim.AdamW) -> None:
        self.weight, self.optimizer = table.weight, optimizer
        self.first_step = self.num_steps = 0  # no row was last updated before the first of these steps
        self.updated = torch.zeros(len(self.weight), dtype=torch.int64)  # (n,) step of the last update of each row
        self.has_moments = torch.zeros(len(self.weight), dtype=torch.bool)  # (n,) whether a row ever had a gradient
        # (steps,) of the rows that were last updated at each step from `first_step`
        self.decay, self.drift = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        table.sparse = True
        table.register_forward_pre_hook(lambda _, inputs: self.catch_up(inputs[0].unique()))

    @property
    def options(self) -> dict[str, Any]:
        """The settings of the group of the table."""
        return next(group for group in self.optimizer.param_groups if any(weight is self.weight for weight in group["params"]))

    @property
    def state(self) -> dict[str, Tensor]:
        """The moments, as AdamW stores them. Rows that were never updated take no memory before a run is resumed."""
        state: dict[str, Tensor] = self.optimizer.state[self.weight]
        if not state:
            state |= {"step": torch.zeros(()), "exp_avg": _map_zeros(self.weight), "exp_avg_sq": _map_zeros(self.weight)}
        return state

    def restart(self) -> None:
        """Take the moments of the optimizer, in which all rows are up to date."""
        self.num_steps = int(self.state["step"])
        self.has_moments = (self.state["exp_avg_sq"] != 0).any(dim=1)
        self._forget_steps()

    def _forget_steps(self) -> None:
        self.first_step = self.num_steps
        self.updated.fill_(self.num_steps)
        self.decay, self.drift = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)

    @torch.no_grad()
    def catch_up(self, rows: Tensor) -> None:
        """Take the steps that different rows (m,) have missed."""
        rows = rows[self.updated[rows] < self.num_steps]
        self.weight[rows] *= self._column(self.decay[self.updated[rows] - self.first_step])
        moving = rows[self.has_moments[rows]]
        (beta1, beta2), eps, state = self.options["betas"], self.options["eps"], self.state
        updated = self.updated[moving]
        missed = (self.num_steps - updated).double()
        momentum, variance = state["exp_avg"][moving], state["exp_avg_sq"][moving]
        first_eps = eps * (1 - beta2 ** (updated + 1).double()).sqrt()
        drift = self._column(self.drift[updated - self.first_step])
        self.weight[moving] -= drift * momentum / (variance.sqrt() + self._column(first_eps))
        state["exp_avg"][moving] = momentum * self._column(beta1**missed)
        state["exp_avg_sq"][moving] = variance * self._column(beta2**missed)
        self.updated[rows] = self.num_steps

    def _column(self, values: Tensor) -> Tensor:
        return values.to(self.weight.dtype)[:, None]

    def catch_up_all(self) -> None:
        """Take the steps that rows have missed, before the table is stored."""
        for rows in torch.arange(len(self.weight)).split(CHUNK_ROWS):  # type: ignore[no-untyped-call]
            self.catch_up(rows)
        self._forget_steps()

    @torch.no_grad()
    def step(self) -> None:
        """Update the rows that have a gradient, and record the step for the others."""
        (beta1, beta2), eps, lr, weight_decay = (self.options[name] for name in ("betas", "eps", "lr", "weight_decay"))
        state = self.state
        self.num_steps += 1
        state["step"].fill_(self.num_steps)
        correction1, correction2 = 1 - beta1**self.num_steps, (1 - beta2**self.num_steps) ** 0.5
        missed = self.num_steps - self.first_step - torch.arange(len(self.drift), dtype=torch.float64)
        decay = 1 - lr * weight_decay
        drift = self.drift * decay + lr * correction2 / correction1 * (beta1 / beta2**0.5) ** missed
        self.decay, self.drift = torch.cat([self.decay * decay, torch.ones(1)]), torch.cat([drift, torch.zeros(1)])
        if self.weight.grad is None:
            return
        rows, gradients = self.weight.grad._indices()[0], self.weight.grad._values()
        momentum = state["exp_avg"][rows].lerp_(gradients, 1 - beta1)
        variance = state["exp_avg_sq"][rows].mul_(beta2).addcmul_(gradients, gradients, value=1 - beta2)
        state["exp_avg"][rows], state["exp_avg_sq"][rows] = momentum, variance
        step = momentum / variance.sqrt().div_(correction2).add_(eps) * (lr / correction1)  # infinite if the rate is too high
        self.weight[rows] = self.weight[rows] * decay - step
        self.updated[rows], self.has_moments[rows] = self.num_steps, True
        self.weight.grad = None


class SparseAdamW(torch.optim.AdamW):
    """AdamW, with the rows of some embedding tables updated when they are next read."""

    def __init__(self, groups: Sequence[dict[str, Any]], tables: Sequence[nn.Embedding], **options: Any) -> None:
        super().__init__(groups, **options)
        self.tables = [LazyTable(table, self) for table in tables]

    def step(self, closure: Any = None) -> Any:
        for table in self.tables:
            table.step()
        return super().step(closure)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        for table in self.tables:
            table.restart()

    def catch_up(self) -> None:
        """Update all rows, before the weights or the moments are stored."""
        for table in self.tables:
            table.catch_up_all()

    def join_gradients(self) -> list[Tensor]:
        """Sum the gradients of each row of the tables; return, for each table, a tensor whose gradient is theirs (rows, dim)."""
        tensors = []
        for table in self.tables:
            if table.weight.grad is not None:
                table.weight.grad = table.weight.grad.coalesce()
                values = table.weight.grad._values()
                tensors.append(torch.empty_like(values, requires_grad=True))
                tensors[-1].grad = values
        return tensors


def _map_zeros(weight: Tensor) -> Tensor:
    """Return zeros like a weight, of which a page takes memory when it is first written."""
    memory = mmap.mmap(-1, weight.nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=weight.dtype).view_as(weight)


def sparse_tables(root: nn.Module, towers: Sequence[Any]) -> list[nn.Embedding]:
    """Return the token tables of transformers that nothing else in `root` reads, such as a tied output layer."""
    names = [id(weight) for _, weight in root.named_parameters(remove_duplicate=False)]
    tables = [tower.model.get_input_embeddings() for tower in towers if hasattr(tower, "model")]
    return [
        table for table in tables if isinstance(table, nn.Embedding) and table.weight.requires_grad and names.count(id(table.weight)) == 1
    ]
