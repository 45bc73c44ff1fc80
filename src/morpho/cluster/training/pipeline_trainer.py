"""Pipeline parallel training: each rank has some of the layers, micro-batches go through them, and gradients come back.

A stage keeps the input of every micro-batch that is under way and makes its forward pass again for the gradient, as
checkpointing does: memory of one activation for each, whatever the depth of the stage. Gradients of micro-batches are
added in their order, so the result does not depend on how the stages interleave: other cuts give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.dtypes import ALL as DTYPES
from morpho.base.errors import ArgumentError, fail
from morpho.cluster import world
from morpho.cluster.parallel.replicas import from_buffer, to_buffer
from morpho.cluster.training.schedule import most_kept, one_forward_one_backward
from morpho.plan import Plan
from morpho.runtime.groups.group import Group

_FORWARD, _BACKWARD = 7400, 7401  # tags


class PipelineTrainer:
    """1F1B training of a model that is a sequence of layers.

    layers: all of them, in order; rank r keeps those from `starts[r]` on (equally many by default), or those of stage r
    of a plan for as many layers. optimiser_of: makes the optimiser of this rank's parameters. loss_of(output, target):
    the mean loss of some rows. batches: micro-batches of a step.

    >>> layers = [mo.nn.Linear(4, 4), mo.nn.ReLU(), mo.nn.Linear(4, 1)]
    >>> trainer = mo.cluster.PipelineTrainer(layers, lambda p: mo.optim.SGD(p, lr=0.1),
    ...                                      lambda y, t: mo.mean(mo.square(y - t)), batches=2)
    >>> x, t = np.ones((4, 4), np.float32), np.zeros((4, 1), np.float32)
    >>> trainer.step(x, t) > trainer.step(x, t)
    True
    """

    def __init__(self, layers: Sequence[mo.nn.Module], optimiser_of: Callable[[Any], Any],
                 loss_of: Callable[[mo.Tensor, mo.Tensor], mo.Tensor], *, batches: int = 4,
                 starts: Sequence[int] | Plan | None = None, group: Group | None = None) -> None:
        self.group = world.init() if group is None else group
        stages, stage, count = self.group.size, self.group.rank, len(layers)
        if isinstance(starts, Plan):
            starts = _starts_of(starts, count)
        cuts = [count * r // stages for r in range(stages)] if starts is None else list(starts)
        if len(cuts) != stages or cuts[0] != 0 or sorted({*cuts}) != cuts or cuts[-1] >= count:
            raise fail(ArgumentError, "PipelineTrainer", f"starts {cuts} do not cut {count} layers into "
                       f"{stages} stages", "give the first layer of each stage, ascending from 0")
        self.layers = mo.nn.Sequential(*layers[cuts[stage]:[*cuts, count][stage + 1]])
        self.turns = one_forward_one_backward(stage, stages, batches)
        self.batches, self.first, self.last = batches, stage == 0, stage == stages - 1
        self.most_kept = most_kept(self.turns)
        trained = list(self.layers.parameters())
        self.optimiser: Any = optimiser_of(trained) if trained else None
        self._compile(loss_of)

    def _compile(self, loss_of: Callable[[mo.Tensor, mo.Tensor], mo.Tensor]) -> None:
        layers, share = self.layers, 1 / self.batches
        parameters = list(layers.parameters())

        def gradients(x: mo.Tensor, result: mo.Tensor) -> tuple[Any, ...]:
            """The gradient of the input, and those of the parameters, which are taken out again."""
            result.backward()
            found = (x.grad, *[mo.zeros_like(p.value) if p.grad is None else p.grad for p in parameters])
            for parameter in parameters:
                parameter.grad = None
            return found

        def backward(x: mo.Tensor, cotangent: mo.Tensor) -> tuple[Any, ...]:
            x = x.detach().requires_grad_() if x.dtype.is_float else x
            return gradients(x, mo.sum(layers(x) * cotangent))

        def backward_of_loss(x: mo.Tensor, target: mo.Tensor) -> tuple[Any, ...]:
            x = x.detach().requires_grad_() if x.dtype.is_float else x
            loss = loss_of(layers(x), target) * share
            return (loss.detach(), *gradients(x, loss))

        def update(*totals: mo.Tensor) -> None:
            for parameter, total in zip(parameters, totals, strict=True):
                parameter.grad = total
            self.optimiser.step()
            self.optimiser.zero_grad()

        self._forward, self._backward = mo.compile(lambda x: layers(x)), mo.compile(backward)
        self._of_loss, self._update = mo.compile(backward_of_loss), mo.compile(update)

    def step(self, x: np.ndarray, target: np.ndarray) -> float:
        """One step on a batch that every rank has: the first stage reads x, the last one the targets. The mean loss, on
        every rank."""
        if len(x) % self.batches or len(x) != len(target):
            raise fail(ArgumentError, "PipelineTrainer", f"{len(x)} rows with {len(target)} targets do not part into "
                       f"{self.batches} micro-batches")
        inputs, targets = np.split(x, self.batches), np.split(target, self.batches)
        kept: dict[int, mo.Tensor] = {}
        totals: list[mo.Tensor] | None = None
        loss, sends = 0.0, []
        for forward, batch in self.turns:
            if forward:
                kept[batch] = mo.asarray(inputs[batch]) if self.first else self._receive(self.group.rank - 1, _FORWARD)
                if not self.last:
                    sends.append(self._send(self._forward(kept[batch]), self.group.rank + 1, _FORWARD))
                continue
            held = kept.pop(batch)
            if self.last:
                part, into, *found = self._of_loss(held, mo.asarray(targets[batch]))
                loss += part.item()
            else:
                into, *found = self._backward(held, self._receive(self.group.rank + 1, _BACKWARD))
            if not self.first:
                sends.append(self._send(into, self.group.rank - 1, _BACKWARD))
            totals = found if totals is None else [a + b for a, b in zip(totals, found, strict=True)]
        for works in sends:
            for work in works:
                work.wait()
        if self.optimiser is not None:
            self._update(*(totals or []))
        shared = np.asarray([loss])
        self.group.broadcast(shared, self.group.size - 1)
        return float(shared[0])

    # -- messages: four numbers that say what comes, its shape, its elements -------------------------------------------
    def _send(self, tensor: mo.Tensor, to: int, tag: int) -> list[Any]:
        shape = np.asarray([tensor.dtype.code, tensor.ndim, *tensor.shape, *[0] * (8 - tensor.ndim)], np.int64)
        return [self.group.send(shape, to, tag, wait=False), self.group.send(to_buffer(tensor), to, tag, wait=False)]

    def _receive(self, source: int, tag: int) -> mo.Tensor:
        head = np.empty(10, np.int64)
        self.group.recv(head, source, tag)
        dtype = next(each for each in DTYPES if each.code == int(head[0]))
        buffer = np.empty([int(n) for n in head[2:2 + int(head[1])]], dtype.numpy)
        self.group.recv(buffer, source, tag)
        return from_buffer(buffer, dtype)


def _starts_of(plan: Plan, count: int) -> list[int]:
    """The first layer of each stage."""
    if plan.card.depth != count:
        raise fail(ArgumentError, "PipelineTrainer", f"the plan is for a model of {plan.card.depth} layers, and "
                   f"{count} are given")
    if any(len(stage.members) > 1 or len(stage.replicas) > 1 for stage in plan.stages):
        raise fail(ArgumentError, "PipelineTrainer", "the plan has stages of several nodes, and a rank is a stage",
                   "plan with tensor=1 and data=1")
    return [stage.start for stage in plan.stages]
