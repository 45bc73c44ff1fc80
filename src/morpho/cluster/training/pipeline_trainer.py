"""Pipeline parallel training: each rank has some of the layers, micro-batches go through them, and gradients come back.

A stage keeps the input of every micro-batch that is under way and makes its forward pass again for the gradient, as
checkpointing does: memory of one activation for each, whatever the depth of the stage. The second pass repeats the
first: random draws follow from the seed, the step, the micro-batch and the layer, and states that a layer changes
(running statistics) are read as they were before the first pass and keep what that pass made of them. Gradients of
micro-batches are added in their order, so the result does not depend on how the stages interleave: other cuts give the
same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.dtypes import ALL as DTYPES
from morpho.base.errors import ArgumentError, fail
from morpho.cluster import world
from morpho.cluster.collectives import Across
from morpho.cluster.parallel.replicas import from_buffer, states_of, to_buffer
from morpho.cluster.training.schedule import most_kept, one_forward_one_backward
from morpho.optim.clip import norm_of_squares, scale_gradients, squares_of
from morpho.plan import Plan
from morpho.runtime.groups.group import Group

_FORWARD, _BACKWARD = 7400, 7401  # tags


class PipelineTrainer:
    """1F1B training of a model that is a sequence of layers.

    layers: all of them, in order; rank r keeps those from `starts[r]` on (equally many by default), or those of stage r
    of a plan for as many layers. optimiser_of: makes the optimiser of this rank's parameters. loss_of(output, target):
    the mean loss of some rows. batches: micro-batches of a step. clip: the most norm of the gradients of all stages
    together, 0: any. seed: of what the layers draw (dropout), which follows from the seed, the step, the micro-batch
    and the layer alone.

    >>> layers = [mo.nn.Linear(4, 4), mo.nn.ReLU(), mo.nn.Linear(4, 1)]
    >>> trainer = mo.cluster.PipelineTrainer(layers, lambda p: mo.optim.SGD(p, lr=0.1),
    ...                                      lambda y, t: mo.mean(mo.square(y - t)), batches=2, clip=1.0)
    >>> x, t = np.ones((4, 4), np.float32), np.zeros((4, 1), np.float32)
    >>> trainer.step(x, t) > trainer.step(x, t)
    True
    """

    def __init__(self, layers: Sequence[mo.nn.Module], optimiser_of: Callable[[Any], Any],
                 loss_of: Callable[[mo.Tensor, mo.Tensor], mo.Tensor], *, batches: int = 4,
                 starts: Sequence[int] | Plan | None = None, clip: float = 0.0, seed: int = 0,
                 group: Group | None = None) -> None:
        self.group = world.init() if group is None else group
        stages, stage, count = self.group.size, self.group.rank, len(layers)
        if isinstance(starts, Plan):
            starts = _starts_of(starts, count)
        cuts = [count * r // stages for r in range(stages)] if starts is None else list(starts)
        if len(cuts) != stages or cuts[0] != 0 or sorted({*cuts}) != cuts or cuts[-1] >= count:
            raise fail(ArgumentError, "PipelineTrainer", f"starts {cuts} do not cut {count} layers into "
                       f"{stages} stages", "give the first layer of each stage, ascending from 0")
        if not clip >= 0:
            raise fail(ArgumentError, "PipelineTrainer", f"clip={clip} is not a norm", "0 does not clip")
        self.layers = mo.nn.Sequential(*layers[cuts[stage]:[*cuts, count][stage + 1]])
        self.turns = one_forward_one_backward(stage, stages, batches)
        self.batches, self.first, self.last, self.clip = batches, stage == 0, stage == stages - 1, float(clip)
        self.steps, self._key = 0, mo.random.key(seed)
        self._counts: np.ndarray | None = None  # gradients of each stage, and whether one of them is float64
        self._first_layer = cuts[stage]
        self.most_kept = most_kept(self.turns)
        trained = list(self.layers.parameters())
        self.optimiser: Any = optimiser_of(trained) if trained else None
        self._compile(loss_of)

    def _compile(self, loss_of: Callable[[mo.Tensor, mo.Tensor], mo.Tensor]) -> None:
        parameters = [parameter for parameter in self.layers.parameters() if parameter.requires_grad]
        self._used: list[Any] = []  # parameters that have a gradient
        self._changed: list[mo.State] = []  # states that the forward pass changes
        states, first_layer = states_of(self.layers), self._first_layer

        def run(x: mo.Tensor, key: mo.Tensor) -> mo.Tensor:
            outside = mo.nn.random.get_state()
            for number, layer in enumerate(self.layers):
                mo.nn.random.set_state(mo.random.fold_in(key, first_layer + number))
                x = layer(x)
            mo.nn.random.set_state(outside)
            return x

        def forward(x: mo.Tensor, key: mo.Tensor) -> tuple[Any, ...]:
            """The output, and the values that changed states had before."""
            before = [state.value for state in states]
            y = run(x, key)
            changes = [(state, value) for state, value in zip(states, before, strict=True) if state.value is not value]
            self._changed = [state for state, _ in changes]
            return (y, *[value for _, value in changes])

        def gradients(x: mo.Tensor, result: mo.Tensor) -> tuple[Any, ...]:
            """The gradient of the input, and those of the parameters, which are taken out again."""
            result.backward()
            self._used = [parameter for parameter in parameters if parameter.grad is not None]
            computed = (x.grad, *[parameter.grad for parameter in self._used])
            for parameter in parameters:
                parameter.grad = None
            return computed

        def backward(x: mo.Tensor, cotangent: mo.Tensor, key: mo.Tensor, *before: mo.Tensor) -> tuple[Any, ...]:
            after = [state.value for state in self._changed]
            for state, value in zip(self._changed, before, strict=True):
                state.value = value
            x = x.detach().requires_grad_() if x.dtype.is_float else x
            computed = gradients(x, mo.sum(run(x, key) * cotangent))
            for state, value in zip(self._changed, after, strict=True):
                state.value = value
            return computed

        def backward_of_loss(x: mo.Tensor, target: mo.Tensor, share: mo.Tensor, key: mo.Tensor) -> tuple[Any, ...]:
            x = x.detach().requires_grad_() if x.dtype.is_float else x
            loss = loss_of(run(x, key), target) * share
            return (loss.detach(), *gradients(x, loss))

        def squares(*totals: mo.Tensor) -> mo.Tensor:
            """The sum of squares of each gradient."""
            assert self._counts is not None
            return mo.stack(squares_of(totals, mo.float64 if self._counts[:, 1].any() else mo.float32))

        def update(totals: Sequence[mo.Tensor], norm: mo.Tensor | None) -> None:
            assert self._counts is not None
            refusal = "a stage has no gradients and does not come to it; use PipelineTrainer(clip=)"
            across = Across(self.group, "" if self._counts[:, 0].all() else refusal)
            for parameter, total in zip(self._used, totals, strict=True):
                parameter.grad, parameter.across = total, across
            if norm is not None:
                scale_gradients(self._used, norm, self.clip)
            self.optimiser.step()
            self.optimiser.zero_grad()
            for parameter in self._used:
                parameter.across = None

        self._forward, self._backward = mo.compile(forward), mo.compile(backward)
        self._of_loss, self._update = mo.compile(backward_of_loss), mo.compile(update)
        self._squares = mo.compile(squares)
        self._norm = mo.compile(lambda each: norm_of_squares([each[n] for n in range(int(each.shape[0]))]))

    def step(self, x: np.ndarray, target: np.ndarray) -> float:
        """One step on a batch that every rank has: the first stage reads x, the last one the targets. The mean loss, on
        every rank. Rows that do not part into equal micro-batches make unequal ones, each weighted by its rows; fewer
        rows than micro-batches make fewer."""
        rows = len(x)
        if rows != len(target) or not rows:
            raise fail(ArgumentError, "PipelineTrainer", f"{rows} rows have {len(target)} targets")
        count = min(self.batches, rows)
        ends = [rows * (batch + 1) // count for batch in range(count)]
        inputs, targets = np.split(x, ends[:-1]), np.split(target, ends[:-1])
        keys = [mo.random.fold_in(self._key, self.steps * self.batches + batch) for batch in range(count)]
        waiting: dict[int, tuple[mo.Tensor, Sequence[mo.Tensor]]] = {}  # inputs, and states before their forward pass
        totals: Sequence[mo.Tensor] | None = None
        loss, sends = 0.0, []
        turns = self.turns if count == self.batches else one_forward_one_backward(self.group.rank, self.group.size,
                                                                                  count)
        for is_forward, batch in turns:
            if is_forward:
                rows_in = mo.asarray(inputs[batch]) if self.first else self._receive(self.group.rank - 1, _FORWARD)
                before: Sequence[mo.Tensor] = ()
                if not self.last:
                    output, *before = self._forward(rows_in, keys[batch])
                    sends.append(self._send(output, self.group.rank + 1, _FORWARD))
                waiting[batch] = rows_in, before
                continue
            rows_in, before = waiting.pop(batch)
            if self.last:
                share = mo.asarray(np.float32(len(targets[batch]) / rows))
                part, into, *parts = self._of_loss(rows_in, mo.asarray(targets[batch]), share, keys[batch])
                loss += part.item()
            else:
                cotangent = self._receive(self.group.rank + 1, _BACKWARD)
                into, *parts = self._backward(rows_in, cotangent, keys[batch], *before)
            if not self.first:
                sends.append(self._send(into, self.group.rank - 1, _BACKWARD))
            totals = parts if totals is None else [a + b for a, b in zip(totals, parts, strict=True)]
        for works in sends:
            for work in works:
                work.wait()
        self._update_by(totals or [])
        self.steps += 1
        shared = np.asarray([loss])
        self.group.broadcast(shared, self.group.size - 1)
        return float(shared[0])

    def _update_by(self, totals: Sequence[mo.Tensor]) -> None:
        """Update by the gradients of this stage, clipped by the norm of all stages': that of their sums of squares in
        the order of layers, so that it has the same bits for every cut and on every rank."""
        if self._counts is None:
            self._counts = np.empty((self.group.size, 2), np.int64)
            self.group.all_gather(np.asarray([len(totals), any(each.dtype is mo.float64 for each in totals)], np.int64),
                                  self._counts)
        norm = None
        if self.clip and self._counts[:, 0].any():
            own = np.zeros(int(self._counts[:, 0].max()))
            if totals:
                own[:len(totals)] = self._squares(*totals).numpy()
            stages = np.empty((self.group.size, len(own)))
            self.group.all_gather(own, stages)
            ordered = np.concatenate([row[:int(count)] for row, count in zip(stages, self._counts[:, 0], strict=True)])
            norm = self._norm(mo.asarray(ordered.astype(np.float64 if self._counts[:, 1].any() else np.float32)))
        if totals:
            self._update(list(totals), norm)

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
