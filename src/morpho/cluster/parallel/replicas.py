"""The same values on every rank: tensors as buffers and back, states broadcast from one rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.dtypes import DType
from morpho.runtime.groups.group import Group
from morpho.runtime.groups.reducing import narrow, widen
from morpho.tensor.state.state import assign
from morpho.tensor.state.variable import Variable


def to_buffer(tensor: mo.Tensor) -> np.ndarray:
    """The elements as they are stored, in memory of their own; bfloat16 as its bits.

    >>> to_buffer(mo.ones(2, dtype="bfloat16")).tolist()
    [16256, 16256]
    """
    return np.array(narrow(tensor.numpy(), tensor.dtype), tensor.dtype.numpy, order="C", copy=True)


def from_buffer(buffer: np.ndarray, dtype: DType) -> mo.Tensor:
    """The tensor whose elements a buffer holds.

    >>> from_buffer(to_buffer(mo.full(1, 1.5, dtype="bfloat16")), mo.bfloat16).item()
    1.5
    """
    return mo.asarray(widen(buffer, dtype)).astype(dtype)


def states_of(*things: Any) -> list[mo.State]:
    """Every state of modules and optimisers, in one order on all ranks."""
    found: list[mo.State] = []
    for thing in things:
        if isinstance(thing, mo.nn.Module):
            found += [variable.state for _, variable in thing._variables(Variable)]
        elif hasattr(thing, "inner"):
            found += [group.rate for group in thing.param_groups]  # the rest is each rank's own
        else:
            found += [state for _, state in sorted(thing._named_slots().items())]
            found += list({id(count): count for count in (thing._counts[id(p)] for p in thing.parameters())}.values())
            found += [group.rate for group in thing.param_groups]
    return found


def broadcast_states(group: Group, states: Sequence[mo.State], root: int = 0) -> None:
    """Give every rank the root's values."""
    if group.size == 1:
        return
    new = []
    for state in states:
        tensor = state.value
        buffer = to_buffer(tensor)
        group.broadcast(buffer, root)
        if group.rank != root:
            new.append((state, from_buffer(buffer, tensor.dtype)))
    if new:
        assign(new)


def digest(states: Sequence[mo.State]) -> str:
    """A short text that is equal where all bits of all states are."""
    import hashlib

    found = hashlib.sha256()
    for state in states:
        found.update(to_buffer(state.value).tobytes())
    return found.hexdigest()
