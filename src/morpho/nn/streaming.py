"""Models larger than a GPU: layers stay in pinned memory of the host, and each comes to the device for its turn.

While one layer computes, the next one is copied in a stream of its own. Two layers are on the device at a time, and the
values between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import morpho as mo
from morpho.backends.registry import HOST, canonical, memory_of
from morpho.base.errors import ArgumentError, fail
from morpho.nn.module import Module
from morpho.runtime.memory.device_memory import upload
from morpho.tensor.jit.native.entries import entries
from morpho.tensor.state.variable import Variable

Values = list[tuple[Variable, Any]]


class Streamed:
    """Layers that run one after another on a device that need not hold them all; made by `stream`.

    `uploads` counts the layers that were brought there.
    """

    def __init__(self, layers: Iterable[Module], device: str) -> None:
        self.device, self.layers = canonical(device, "stream"), list(layers)
        for layer in self.layers:
            if not isinstance(layer, Module):
                raise fail(ArgumentError, "stream", f"{type(layer).__name__} is no module", "give a list of modules")
        self.uploads = 0
        self.held = [] if memory_of(self.device) == HOST else [
            [(variable, mo.pin(variable.value.elements().numpy(), self.device), variable.dtype)
             for _, variable in layer._variables(Variable)] for layer in self.layers]

    def __call__(self, x: Any) -> Any:
        """The layers in order; the result lies on the device."""
        x = x.to(self.device)
        if not self.held:  # they are there already
            for layer in self.layers:
                x = layer(x)
            return x
        ahead = self._upload(0)
        for number, layer in enumerate(self.layers):
            here, ahead = ahead, self._upload(number + 1)
            with mo.no_grad(), _placed(here):  # nothing holds a layer when its turn is over
                x = mo.Tensor.of_buffer(layer(x).elements())  # its value alone: what it was computed from may go
        return x

    def _upload(self, number: int) -> Values:
        """A layer's values on their way to the device."""
        if number >= len(self.layers):
            return []
        self.uploads += 1
        return [(variable, mo.Tensor.of_buffer(upload(array, dtype, self.device, ahead=True)))
                for variable, array, dtype in self.held[number]]


@contextmanager
def _placed(values: Values) -> Iterator[None]:
    """Parameters of a layer with these values for a while."""
    kept = [(variable, variable.state) for variable, _ in values]
    try:
        for variable, tensor in values:
            variable.state = mo.State(tensor)
        entries.forget()
        yield
    finally:
        for variable, state in kept:
            variable.state = state
        values.clear()


def stream(layers: Iterable[Module], device: str = "cuda") -> Streamed:
    """A function that applies layers one after another on a device which need not have room for all of them: their
    parameters stay in pinned memory of the host, and the next layer's are copied while one computes. For inference; the
    values are those of when this is called.

    >>> layers = [mo.nn.Linear(3, 3) for _ in range(4)]
    >>> run = mo.nn.stream(layers, device="cpu")
    >>> x = mo.ones((2, 3))
    >>> bool(mo.all(run(x) == layers[3](layers[2](layers[1](layers[0](x))))))
    True
    """
    return Streamed(layers, device)
