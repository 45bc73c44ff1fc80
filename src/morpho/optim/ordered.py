"""One training step whose bits do not depend on who computes which rows.

A batch is cut into a fixed number of shards. Each has its gradient by itself, in the same compiled function, with
random draws that follow from the seed, the step and the shard alone; a fixed tree adds them
(`runtime/groups/tree.py`). One process does all of it (`alone`); `cluster.Trainer` shares the shards out. Both have the
same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.optim.clip import clip_grad_norm
from morpho.runtime.groups.tree import SHARDS, held, sum_alone
from morpho.tensor.state.variable import Parameter, Variable

EXTRAS = 3  # numbers after the gradients: the loss, a wish to stop, a wish for more ranks


def shards_of(accumulate: int) -> int:
    """Shards of a batch of `accumulate` parts, of which none may have more rows than a part.

    >>> [shards_of(count) for count in (1, 8, 9)]
    [8, 8, 16]
    """
    return SHARDS * -(-accumulate // SHARDS)


class OrderedStep:
    """Steps of a model and an optimiser. loss_of: `loss_of(*arrays)`, the mean loss of some rows. Running statistics
    move once a step, by the mean of what the shards would move them.

    >>> model = mo.nn.Linear(2, 1)
    >>> step = OrderedStep(model, mo.optim.SGD(model.parameters(), lr=0.1), lambda x: mo.mean(mo.square(model(x))))
    >>> rows = np.ones((16, 2), np.float32)
    >>> step.alone(0, rows) > step.alone(1, rows)
    True
    """

    def __init__(self, model: Any, optimiser: Any, loss_of: Callable[..., mo.Tensor], *, shards: int = SHARDS,
                 clip: float = 0.0, seed: int = 0) -> None:
        self.model, self.optimiser, self.loss_of = model, optimiser, loss_of
        self.shards, self.clip, self.key = shards, clip, mo.random.key(seed)
        self._used: list[Any] = []  # parameters that have a gradient
        self._moved: list[mo.State] = []  # states that the forward pass changes: running statistics, counts
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        states = [variable.state for _, variable in model._variables(Variable) if not isinstance(variable, Parameter)]
        wide = mo.float64 if any(parameter.dtype is mo.float64 for parameter in parameters) else mo.float32

        def gradients(share: mo.Tensor, wishes: mo.Tensor, *rows: mo.Tensor) -> mo.Tensor:
            before = [state.value for state in states]
            loss = self.loss_of(*rows) * share
            loss.backward()
            moves = [(state, value) for state, value in zip(states, before, strict=True) if state.value is not value and
                     (value.dtype.is_float or value.dtype in (mo.int32, mo.int64))]
            self._moved = [state for state, _ in moves]
            with mo.no_grad():
                steps = [((state.value - value).astype(wide) * share.astype(wide)).reshape((-1,))
                         for state, value in moves]
            for state, value in moves:
                state.value = value
            self._used = [parameter for parameter in parameters if parameter.grad is not None]
            parts = [parameter.grad.astype(wide).reshape((-1,)) for parameter in self._used]
            for parameter in parameters:
                parameter.grad = None
            return mo.concat([*parts, *steps, loss.astype(wide).reshape((1,)), wishes.astype(wide)])

        def apply(flat: mo.Tensor) -> None:
            place = 0
            for parameter in self._used:
                part = flat[place:place + parameter.size]
                parameter.grad = part.reshape(parameter.shape).astype(parameter.dtype)
                place += parameter.size
            for state in self._moved:
                value = state.value
                move = flat[place:place + value.size].reshape(value.shape)
                place += value.size
                move = move if value.dtype.is_float else mo.round(move)
                state.value = value + move.astype(value.dtype)
            self.update()

        self.gradients, self._apply = mo.compile(gradients), mo.compile(apply)
        self.add = mo.compile(lambda a, b: a + b)

    def update(self) -> None:
        """Clip, step, and drop the gradients."""
        if self.clip:
            clip_grad_norm([p for p in self.model.parameters() if p.grad is not None], self.clip)
        self.optimiser.step()
        self.optimiser.zero_grad()

    def count(self, rows: int) -> int:
        """Shards of a batch."""
        return min(self.shards, rows)

    def gradient(self, step: int, shard: int, batch: Sequence[np.ndarray], wishes: Any = (0.0, 0.0)) -> mo.Tensor:
        """The gradients of a shard, its loss and its wishes, in one array, counting for its share of the rows."""
        rows = len(batch[0])
        first, end = held(rows, self.count(rows), shard)
        mo.nn.random.set_state(mo.random.fold_in(self.key, step * self.shards + shard))
        flat: mo.Tensor = self.gradients(mo.asarray(np.float32((end - first) / rows)),
                                          mo.asarray(np.asarray(wishes, np.float32)),
                                          *[mo.asarray(part[first:end]) for part in batch])
        return flat

    def apply(self, total: Any) -> np.ndarray:
        """Update by the sum of all shards; the mean loss and the sums of wishes."""
        self._apply(mo.asarray(total[:-EXTRAS]))
        return np.asarray(total[-EXTRAS:])

    def alone(self, step: int, *batch: np.ndarray) -> float:
        """One step by this process; the mean loss of all rows, before it."""
        total = sum_alone(self.count(len(batch[0])), lambda shard: self.gradient(step, shard, batch), self.add)
        loss = float(self.apply(total)[0])
        self.leave(step)
        return loss

    def leave(self, step: int) -> None:
        """Have the sequence of keys where a step leaves it, whatever shards were made here."""
        mo.nn.random.set_state(mo.random.fold_in(self.key, (step + 1) * self.shards))
