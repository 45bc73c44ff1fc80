"""The keys that modules draw from: one sequence per process, started by `mo.nn.seed`.

Inside a compiled function the sequence is a state of it, so every call draws anew.
"""

from __future__ import annotations

import morpho as mo
from morpho.backends.registry import default_device, memory_of

_keys: list[mo.State] = []


def _state() -> mo.State:
    if not _keys:
        _keys.append(mo.State(mo.random.key(0)))
    return _keys[0]


def seed(seed: int) -> None:
    """Start the sequence of keys anew: the same seed gives the same weights and the same dropout.

    >>> mo.nn.seed(1); a = mo.nn.Linear(2, 2).weight.numpy()
    >>> mo.nn.seed(1); b = mo.nn.Linear(2, 2).weight.numpy()
    >>> bool((a == b).all())
    True
    """
    set_state(mo.random.key(seed))


def next_key(device: str = "") -> mo.Tensor:
    """A key nobody else has, on a device; the default one if none is named. The sequence follows to where it is drawn
    from: it is the same one on all devices."""
    state = _state()
    state.follow(device or memory_of(default_device()))
    pair: mo.Tensor = mo.random.split(state.value)
    state.value = pair[0]
    return pair[1]


def get_state() -> mo.Tensor:
    """Where the sequence is, for a checkpoint."""
    return _state().value


def set_state(key: mo.Tensor) -> None:
    """Go on from there."""
    state = _state()
    state.value = key.to(state.place[0])
