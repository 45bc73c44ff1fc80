"""`shard_optimizer` (ZeRO-1): each rank keeps what the rule remembers of a part of the parameters, updates those, and
gets the others' new values from their ranks. What is saved is whole: any number of ranks, or one alone, reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, GroupError, fail
from morpho.cluster import world
from morpho.cluster.collectives import broadcast
from morpho.cluster.parallel.replicas import from_buffer, to_buffer
from morpho.runtime.groups.group import Group
from morpho.tensor.jit.native.entries import entries
from morpho.tensor.state.state import assign


def shard_optimizer(optimizer: mo.optim.Optimizer, group: Group | None = None, copies: int = 0) -> ShardedOptimizer:
    """The optimiser with its state shared out among the ranks (ZeRO-1); make it before the first step. `copies` further
    ranks keep each part too, so that it is not lost with its rank.

    >>> model = mo.nn.Linear(2, 1)
    >>> rule = mo.cluster.shard_optimizer(mo.optim.AdamW(model.parameters(), lr=0.1))
    >>> model(mo.ones((4, 2))).sum().backward()
    >>> rule.step()
    """
    return ShardedOptimizer(optimizer, world.init() if group is None else group, copies)


def shares(sizes: Sequence[int], ranks: int) -> list[int]:
    """The rank of each item, so that all have about as much: large items first, each to who has least.

    >>> shares([5, 3, 3, 1], 2)
    [0, 1, 1, 0]
    """
    load, found = [0] * ranks, [0] * len(sizes)
    for item in sorted(range(len(sizes)), key=lambda item: (-sizes[item], item)):
        rank = load.index(min(load))
        found[item] = rank
        load[rank] += sizes[item]
    return found


class ShardedOptimizer:
    """An optimiser that keeps state for its rank's parameters only. It has an optimiser's methods; `inner` is the one
    that does the updates.

    >>> model = mo.nn.Linear(2, 1)
    >>> rule = mo.cluster.ShardedOptimizer(mo.optim.SGD(model.parameters(), lr=0.1), mo.cluster.init())
    >>> type(rule.inner).__name__
    'SGD'
    """

    tells_changes = True

    def __init__(self, inner: mo.optim.Optimizer, group: Group, copies: int = 0) -> None:
        if not isinstance(inner, mo.optim.Optimizer):
            raise fail(ArgumentError, "shard_optimizer", f"{type(inner).__name__} is not an optimiser of mo.optim")
        if not 0 <= copies < max(group.size, 1):
            raise fail(ArgumentError, "shard_optimizer", f"copies={copies} is not possible on {group.size} ranks")
        self.inner, self.group, self.copies = inner, group, copies
        self._listed = list(inner.parameters())
        self._members = [list(each.params) for each in inner.param_groups]
        self._owners = shares([int(p.size) for p in self._listed], group.size)
        self._keep_own()

    # -- who has what --------------------------------------------------------------------------------------------------
    def holders(self, number: int) -> list[int]:
        """The ranks that keep the state of a parameter, its owner first."""
        return [(self._owners[number] + step) % self.group.size for step in range(self.copies + 1)]

    def _is_mine(self, number: int) -> bool:
        return self.group.rank in self.holders(number)

    def _keep_own(self) -> None:
        """Drop what other ranks keep."""
        mine = {id(p) for number, p in enumerate(self._listed) if self._is_mine(number)}
        for group, members in zip(self.inner.param_groups, self._members, strict=True):
            group.params = [p for p in members if id(p) in mine]
        self.inner._slots = {key: slots for key, slots in self.inner._slots.items() if key in mine}
        self.inner._counts = {key: count for key, count in self.inner._counts.items() if key in mine}
        entries.forget()

    @property
    def param_groups(self) -> list[Any]:
        """Groups of parameters with their settings."""
        found: list[Any] = self.inner.param_groups
        return found

    def parameters(self) -> Iterator[Any]:
        """Every parameter, of all ranks."""
        return iter(self._listed)

    def static_key(self) -> Any:
        return (id(self), self.group.size, self.inner.static_key())

    # -- steps ---------------------------------------------------------------------------------------------------------
    def zero_grad(self) -> None:
        """Drop all gradients."""
        for parameter in self._listed:
            parameter.grad = None

    def step(self, closure: Callable[[], Any] | None = None, *, scale: Any = None, apply: Any = None) -> Any:
        """Update this rank's parameters, and take the others' from their ranks."""
        loss = None if closure is None else closure()
        moving = [number for number, p in enumerate(self._listed) if p.grad is not None]
        if not moving:
            raise fail(ArgumentError, "shard_optimizer", "no parameter has a gradient", "call loss.backward() first")
        if any(self._is_mine(number) for number in moving):
            self.inner.step(scale=scale, apply=apply)
        if self.group.size > 1:
            self._share(moving)
        return loss

    def _share(self, moving: Sequence[int]) -> None:
        changes: list[tuple[mo.State, mo.Tensor]] = []
        with mo.no_grad():
            for owner in range(self.group.size):
                for dtype in dict.fromkeys(self._listed[n].dtype for n in moving if self._owners[n] == owner):
                    own = [self._listed[n] for n in moving if self._owners[n] == owner
                           and self._listed[n].dtype is dtype]
                    flat = broadcast(mo.concat([p.state.value.reshape((-1,)) for p in own]), owner, self.group)
                    ends = np.cumsum([int(p.size) for p in own]).tolist()
                    changes += [(p.state, flat[end - int(p.size):end].reshape(p.shape)) for p, end in zip(own, ends)]
        assign(changes)

    # -- saving --------------------------------------------------------------------------------------------------------
    def _moved(self, number: int, root: int) -> dict[str, mo.Tensor]:
        """State of a parameter, from the rank that keeps it."""
        parameter = self._listed[number]
        group = next(g for g, members in zip(self.inner.param_groups, self._members)
                     if any(parameter is p for p in members))
        states = self.inner._slots.get(id(parameter))
        found = {}
        for key, empty in self.inner.slots(parameter, group).items():
            buffer = to_buffer(empty if states is None else states[key].value)
            self.group.broadcast(buffer, root)
            found[key] = from_buffer(buffer, empty.dtype)
        return found

    def _count(self, number: int, root: int) -> int:
        state = self.inner._counts.get(id(self._listed[number]))
        count = np.asarray([0 if state is None else state.value.item()], np.int64)
        self.group.broadcast(count, root)
        return int(count[0])

    def state_dict(self) -> dict[str, Any]:
        """As an optimiser's own: whole, gathered from all ranks, which must all ask."""
        slots, counts = {}, []
        for number in range(len(self._listed)):
            for key, tensor in self._moved(number, self._owners[number]).items():
                slots[f"{number}.{key}"] = tensor
            counts.append(self._count(number, self._owners[number]))
        return {"count": counts[0] if len(set(counts)) == 1 else counts,
                "param_groups": [each.settings for each in self.inner.param_groups], "slots": slots}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a state that any optimiser of this rule gave, sharded or not, on any number of ranks."""
        self._whole()
        self.inner.load_state_dict(saved)
        self._keep_own()

    def _whole(self) -> None:
        """Room for the state of all parameters, for a moment."""
        for group, members in zip(self.inner.param_groups, self._members, strict=True):
            group.params = list(members)
            for parameter in members:
                if id(parameter) not in self.inner._slots:
                    self.inner._slots[id(parameter)] = {
                        key: mo.State(value) for key, value in self.inner.slots(parameter, group).items()}
                    self.inner._counts[id(parameter)] = mo.State(mo.asarray(0, dtype=mo.int64))

    # -- after a rank died ---------------------------------------------------------------------------------------------
    def regroup(self, group: Group, survivors: Sequence[int]) -> None:
        """Go on with a smaller group, whose ranks were `survivors` in the old one: what a dead rank kept comes from the
        rank beside it, where there are `copies`."""
        holders = []
        for number in range(len(self._listed)):
            alive = [survivors.index(rank) for rank in self.holders(number) if rank in survivors]
            if not alive:
                raise fail(GroupError, "shard_optimizer", "the state that a dead rank kept is gone with it",
                           "go on from the last checkpoint; copies=1 keeps each part on two ranks")
            holders.append(alive[0])
        self.group = group
        kept = [(self._moved(number, root), self._count(number, root)) for number, root in enumerate(holders)]
        self._owners = shares([int(p.size) for p in self._listed], group.size)
        self.copies = min(self.copies, group.size - 1)
        slots = {f"{number}.{key}": tensor for number, (found, _) in enumerate(kept) for key, tensor in found.items()}
        counts = [count for _, count in kept]
        self.load_state_dict({"count": counts, "slots": slots,
                              "param_groups": [each.settings for each in self.inner.param_groups]})

    def __repr__(self) -> str:
        return f"ShardedOptimizer({self.inner!r}, rank {self.group.rank} of {self.group.size})"
