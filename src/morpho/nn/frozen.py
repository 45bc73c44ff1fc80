"""A module's values as constants of compiled functions.

A parameter is a state: compiled functions that use it take its elements anew at every call. For making text the values
stand still, and constants are better: products read them packed, and packing happens once. `refresh` brings them up
to date after a training step, without compiling anything again.
"""

from __future__ import annotations

import morpho as mo
from morpho.nn.module import Module
from morpho.tensor.core import Tensor
from morpho.tensor.state.state import State
from morpho.tensor.state.trace import current_trace
from morpho.tensor.state.variable import Variable


class Frozen:
    """The values of all parameters and buffers of a module at one moment.

    >>> layer = mo.nn.Linear(2, 1, bias=False)
    >>> frozen = mo.nn.Frozen(layer)
    >>> @mo.compile
    ... def apply(x):
    ...     frozen.use()
    ...     return layer(x)
    >>> layer.weight.assign(mo.ones((1, 2))); frozen.refresh()
    True
    >>> apply(mo.ones((1, 2))).item()
    2.0
    """

    def __init__(self, module: Module) -> None:
        self._held = [(state, _view(state)) for state in _states(module)]
        self._versions = [state.version for state, _ in self._held]

    def use(self) -> None:
        """Inside a function being compiled: from here on it sees the constants."""
        trace = current_trace()
        if trace is not None:
            for state, tensor in self._held:
                trace.give(state, tensor)

    def refresh(self) -> bool:
        """Take over the values that have changed; says whether there were any."""
        versions = [state.version for state, _ in self._held]
        if versions == self._versions:
            return False
        for (state, tensor), old, new in zip(self._held, self._versions, versions, strict=True):
            if old != new:
                tensor.replace(_view(state).program())
                tensor.realise()
        self._versions = versions
        return True

    @property
    def values(self) -> list[mo.Tensor]:
        """The values in use, in the order of the module's variables."""
        return [tensor for _, tensor in self._held]

    @property
    def versions(self) -> list[int]:
        return self._versions

    def fits(self, module: Module) -> bool:
        """Whether the module still has the same states: one that was converted to another dtype has others."""
        states = _states(module)
        return len(states) == len(self._held) and all(
            mine is state for (mine, _), state in zip(self._held, states, strict=True))


def _states(module: Module) -> list[State]:
    return [variable.state for _, variable in module._variables(Variable)]


def _view(state: State) -> mo.Tensor:
    with state.lock:
        return Tensor.of_buffer(state._tensor.elements())
