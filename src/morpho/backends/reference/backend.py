"""Backends that compute a graph one node at a time in host memory: `reference`, and those of `mo.extend.backend`.

The smallest complete implementation of `backends/base.py`: a program is the graph, its code the graph as bytes, memory
is NumPy's, and a run is over when `enqueue` returns.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from morpho.backends.base import FINISHED, Buffer, Bytes, Event
from morpho.backends.reference import reference
from morpho.base.dims import evaluate, settled
from morpho.base.dtypes import DType
from morpho.base.errors import ShapeError, fail
from morpho.base.target import ALIGNMENT_BYTES, Target, current_target
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.ir.serialise import dump_graph, load_graph

Run = Callable[[Node, list[Any], Mapping[str, int]], Any]


def _as_it_is(value: Any) -> Any:
    return value


def _read_only(value: Any) -> Any:
    """A view of a NumPy array that cannot be written; other values as they are."""
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, slots=True)
class HostBuffer:
    """Memory of this process."""

    device: str
    nbytes: int
    address: int
    owner: Any


def host_buffer(device: str, nbytes: int) -> HostBuffer:
    """New memory, aligned."""
    owner = np.empty(nbytes + ALIGNMENT_BYTES, np.uint8)
    address = -(-owner.ctypes.data // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return HostBuffer(device, nbytes, address, owner)


def host_array(address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Memory of this process as an array; strides in elements. The caller keeps it alive."""
    if 0 in shape:
        return np.empty(shape, dtype.numpy)
    steps = [stride * dtype.itemsize for stride in strides]
    low = sum(min(0, (size - 1) * step) for size, step in zip(shape, steps, strict=True))
    high = sum(max(0, (size - 1) * step) for size, step in zip(shape, steps, strict=True))
    room = (ctypes.c_uint8 * (high - low + dtype.itemsize)).from_address(address + low)
    return np.ndarray(shape, dtype.numpy, memoryview(room), -low, steps)


class InterpreterExecutable:
    """A graph, run node by node."""

    def __init__(self, graph: Graph, backend: InterpreterBackend) -> None:
        self.graph, self.backend = graph, backend

    def enqueue(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], sizes: Mapping[str, int],
                stream: int = 0) -> Event:
        """Compute all outputs now."""

        def leaf(node: Node) -> np.ndarray:
            shape, strides = parameter_layout(node, sizes)
            array = host_array(inputs[node["index"]].address, shape, strides, node.dtype)
            # A user's backend may write its values, or keep them longer than this memory lasts.
            return reference.decode(array.copy() if self.backend.copies else array, node.dtype)

        arrays = self.backend.values(self.graph.outputs, leaf, sizes)
        for node, array, buffer in zip(self.graph.outputs, arrays, outputs, strict=True):
            shape = tuple(array.shape)
            if array.size:
                np.copyto(host_array(buffer.address, shape, contiguous(shape), node.dtype),
                          reference.encode(array, node.dtype))
        return FINISHED


def parameter_layout(node: Node, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape and the strides, in elements, of a parameter at these sizes."""
    shape = tuple(evaluate(size, sizes) for size in node.shape)
    strides = node.attributes.get("strides")
    return shape, contiguous(shape) if strides is None else tuple(evaluate(stride, sizes) for stride in strides)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of an array whose rows lie one after the other."""
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= size
    return tuple(reversed(found))


class InterpreterBackend:
    """How one such backend computes. bfloat16 comes as float32 arrays, and goes so; results are rounded to their dtype.

    `copy_in` takes a NumPy array to what `run` computes with and `copy_out` brings one back; between them values are
    whatever the backend likes.
    """

    host_memory = True

    def __init__(self, device: str, run: Run = reference.run_node, take: Callable[[np.ndarray], Any] = _as_it_is,
                 give: Callable[[Any], np.ndarray] = _as_it_is) -> None:
        self.device, self.run, self.take, self.give = device, run, take, give
        self.copies = run is not reference.run_node or take is not _as_it_is  # parameters are copied for a user's code

    @property
    def target(self) -> Target:
        """It makes no code: the settings' target, for what asks."""
        return current_target()

    # -- memory --------------------------------------------------------------------------------------------------------
    def allocate(self, nbytes: int) -> Buffer:
        """New memory of this process."""
        return host_buffer(self.device, nbytes)

    def release(self, buffer: Buffer) -> None:
        """NumPy's own business."""

    def copy_in(self, target: Buffer, source: Bytes, stream: int = 0) -> Event:
        data = memoryview(source).cast("B")
        ctypes.memmove(target.address, bytes(data), len(data))
        return FINISHED

    def copy_out(self, source: Buffer, target: memoryview | bytearray, stream: int = 0) -> Event:
        memoryview(target).cast("B")[:source.nbytes] = ctypes.string_at(source.address, source.nbytes)
        return FINISHED

    def copy_between(self, source: Buffer, target: Buffer, stream: int = 0) -> Event:
        ctypes.memmove(target.address, source.address, source.nbytes)
        return FINISHED

    # -- code ----------------------------------------------------------------------------------------------------------
    def lower(self, graph: Graph) -> Graph:
        """The graph is the program."""
        return graph

    def compile(self, program: Graph) -> bytes:
        """The graph as bytes."""
        return dump_graph(program)

    def load(self, code: bytes) -> InterpreterExecutable:
        """The graph of those bytes."""
        return InterpreterExecutable(load_graph(code), self)

    def synchronize(self) -> None:
        """Everything is over when its call returns."""

    # -- values --------------------------------------------------------------------------------------------------------
    def values(self, outputs: Sequence[Node], leaf: Callable[[Node], np.ndarray],
               sizes: Mapping[str, int] = reference.STATIC) -> list[np.ndarray]:
        """Values of nodes as arrays to compute with; `leaf` gives those of parameters."""
        run = self._run_read_only if self.copies else self.run
        found = reference.run_graph(outputs, lambda node: self.take(leaf(node)), sizes, run)
        return [self._checked(node, self.give(value), sizes) for node, value in zip(outputs, found, strict=True)]

    def _run_read_only(self, node: Node, values: list[Any], sizes: Mapping[str, int]) -> Any:
        """Compute a node by a user's function, which must not write values that other nodes read too."""
        return self.run(node, [_read_only(value) for value in values], sizes)

    def _checked(self, node: Node, array: Any, sizes: Mapping[str, int]) -> np.ndarray:
        """A result rounded to its dtype, or an error that names the backend whose result has another shape."""
        expected = tuple(settled(node.shape, sizes) if sizes else node.shape)
        if np.shape(array) != expected:
            raise fail(ShapeError, node.op.name, f"the backend {self.device!r} computed a result of shape "
                                                 f"{np.shape(array)}, not {expected}",
                       "look at its run and copy_out", line=node.origin)
        return reference.rounded(array, node.dtype)
