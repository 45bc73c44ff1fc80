"""Data parallel training: every rank has the model and a part of the batch, and gradients are averaged.

The averages are part of the program that `backward` writes: each bucket's reduction starts when its gradients are there
and goes on while others are computed; nothing is updated before all buckets have come. So a step that fails because a
rank died has changed nothing, and can be made again.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.dtypes import BY_NAME
from morpho.base.errors import ArgumentError, fail
from morpho.cluster import collectives, world
from morpho.cluster.parallel.buckets import planned
from morpho.cluster.parallel.replicas import broadcast_states, states_of
from morpho.nn.module import Module
from morpho.ops.collective import last_token, note_last, start_bucket, wait_bucket
from morpho.runtime.groups.group import Group
from morpho.runtime.groups.registry import forget_buckets, number_of
from morpho.tensor.autodiff.autograd import after_backward
from morpho.tensor.jit.native.entries import entries
from morpho.tensor.state.trace import current_trace

WIRES = ("", "bfloat16", "float16")
_JOINED_AS = ("float32", "float64", "bfloat16", "float16", "complex64", "complex128")
_numbers = itertools.count(1)  # of buckets


class DistributedDataParallel(Module):
    """A model of which every rank has a replica: `backward` averages the gradients over the ranks.

    module: the model; rank 0's values become everybody's. bucket_bytes: gradients that travel together. compress:
    "bfloat16" or "float16" sends gradients so, which halves the bytes and rounds each; none by default.

    >>> model = mo.cluster.DistributedDataParallel(mo.nn.Linear(2, 1))
    >>> model(mo.ones((4, 2))).sum().backward()
    >>> model.module.bias.grad.item()
    4.0
    """

    def __init__(self, module: mo.nn.Module, bucket_bytes: int = 25_000_000, group: Group | None = None,
                 compress: str = "") -> None:
        if compress not in WIRES:
            raise fail(ArgumentError, "DistributedDataParallel", f"gradients cannot be sent as {compress!r}",
                       "use bfloat16 or float16")
        self.module, self.compress, self._synchronising = module, compress, True
        self._joining: bool | None = None  # inside `join()`: whether averages are over the ranks that have batches
        self._group = world.init() if group is None else group
        self._bucket_bytes = bucket_bytes
        self._ids: dict[tuple[int, ...], int] = {}
        weakref.finalize(self, forget_buckets, self._group, self._ids.values())
        planned([], bucket_bytes)
        broadcast_states(self._group, states_of(module))
        _listen(self)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block whose gradients stay this rank's: they are added up, and averaged by the first `backward` after it.

        >>> model = mo.cluster.DistributedDataParallel(mo.nn.Linear(2, 1))
        >>> with model.no_sync():
        ...     model(mo.ones((4, 2))).sum().backward()
        """
        before, self._synchronising = self._synchronising, False
        self._forget()
        try:
            yield
        finally:
            self._synchronising = before
            self._forget()

    @contextmanager
    def join(self, divide_by_initial_world_size: bool = True) -> Iterator[None]:
        """A block whose ranks may have unequally many batches. A rank that leaves it early takes part in the averages
        of the others with zeros, until all have left; then it has the parameters and buffers of the rank that had the
        most batches. Its optimiser makes no steps meanwhile.

        Args:
            divide_by_initial_world_size: whether averages are over all ranks, or over those that still have batches.

        >>> model = mo.cluster.DistributedDataParallel(mo.nn.Linear(2, 1))
        >>> with model.join():
        ...     model(mo.ones((4, 2))).sum().backward()
        >>> model.module.bias.grad.item()
        4.0
        """
        if self._joining is not None:
            raise fail(ArgumentError, "join", "a block of `join()` is inside another one", "write one around the loop")
        self._joining = not divide_by_initial_world_size
        self._forget()
        try:
            yield
            if self._group.size > 1:
                self._shadow()
        finally:
            self._joining = None
            self._forget()

    def _shadow(self) -> None:
        """Take part in the averages of ranks that have batches left, with zeros."""
        group, rounds = self._group, 0
        while True:
            heads = np.empty((group.size, 2), np.int64)
            group.all_gather(np.zeros((1, 2), np.int64), heads)
            if not heads.any():
                break
            rounds += 1
            plans = np.empty((group.size, int(heads[:, 1].max()), 2), np.int64)
            group.all_gather(np.zeros(plans.shape[1:], np.int64), plans)
            for count, wire in plans.max(0).tolist():
                dtype = BY_NAME[_JOINED_AS[wire]]
                group.all_reduce(np.zeros(count, dtype.numpy), "sum" if self._joining else "mean", dtype=dtype)
        waited = np.empty(group.size, np.int64)
        group.all_gather(np.asarray([rounds], np.int64), waited)
        broadcast_states(group, states_of(self.module), int(waited.argmin()))

    def _average_joined(self, parameters: list[Any]) -> None:
        """Answer `_shadow`: send the number of buckets, their contents, then each bucket."""
        buckets = planned(parameters, self._bucket_bytes)
        wires = [self.compress or bucket[0].dtype.name for bucket in buckets]
        plan = [[sum(int(each.size) for each in bucket), _JOINED_AS.index(wire)]
                for bucket, wire in zip(buckets, wires, strict=True)]
        heads = collectives.all_gather(np.asarray([[1, len(plan)]], np.int64), group=self._group)
        collectives.all_gather(np.asarray(plan, np.int64), group=self._group)
        active = mo.sum(heads[:, 0])
        for bucket, wire in zip(buckets, wires, strict=True):
            parts = [mo.astype(mo.reshape(each.grad, (-1,)), wire) for each in bucket]
            whole = collectives.all_reduce(mo.concat(parts), "sum" if self._joining else "mean", self._group)
            start = 0
            for each in bucket:
                part = mo.astype(mo.reshape(whole[start:start + int(each.size)], each.shape), each.grad.dtype)
                each.grad = part / mo.astype(active, part.dtype) if self._joining else part
                start += int(each.size)

    @staticmethod
    def _forget() -> None:
        if current_trace() is None:
            entries.forget()  # compiled functions look again whether their program is still the right one

    def static_key(self) -> Any:
        return (*super().static_key(), self._synchronising, self._joining)

    # -- the program of the averages -----------------------------------------------------------------------------------
    def _after_backward(self, leaves: list[mo.Tensor]) -> None:
        mine = {id(parameter) for parameter in self.module.parameters()}
        if not any(id(leaf) in mine for leaf in leaves):
            return
        trace = current_trace()
        if trace is not None:
            trace.assume(self)
        if self._synchronising and self._group.size > 1:
            self._average([parameter for parameter in self.module.parameters() if parameter.grad is not None])

    def _average(self, parameters: list[Any]) -> None:
        if self._joining is not None:
            self._average_joined(parameters)
            return
        number = number_of(self._group)
        started = []
        tokens = last_token(number)
        place = {id(parameter): position for position, parameter in enumerate(self.module.parameters())}
        for bucket in planned(parameters, self._bucket_bytes):
            parts = [parameter.grad.program() for parameter in bucket]
            wire = self.compress or bucket[0].dtype.name
            name = self._ids.setdefault(tuple(id(parameter) for parameter in bucket), next(_numbers))
            tokens.append(start_bucket(parts, number, name, "mean", wire, *tokens[-1:],
                                       which=tuple(place[id(parameter)] for parameter in bucket)))
            started.append((bucket, parts, name, tokens[-1]))
        last = tokens[-1]  # all have started before the first is waited for
        for bucket, parts, name, token in started:
            found, last = wait_bucket(parts, number, name, token, last)
            for parameter, part in zip(bucket, found, strict=True):
                parameter.grad = mo.Tensor.of_node(part)
        note_last(number, last.inputs[0])


def _listen(model: DistributedDataParallel) -> None:
    """Have `backward` tell the model, for as long as somebody holds it."""
    held = weakref.ref(model)

    def listener(leaves: list[mo.Tensor]) -> None:
        found = held()
        if found is not None:
            found._after_backward(leaves)

    after_backward.append(listener)
    weakref.finalize(model, after_backward.remove, listener)
