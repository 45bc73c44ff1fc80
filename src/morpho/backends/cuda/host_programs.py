"""Steps of the host by the CPU's own code: LAPACK's routines called by their addresses, so that a program on a GPU has
the bits that it has on the CPU. NumPy has none for some of them, and others order their sums in another way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from morpho.backends.base import Executable
from morpho.backends.lowering.lower_linalg import is_lapack
from morpho.backends.reference.backend import HostBuffer
from morpho.base.errors import MorphoError
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, make

HostCompiler = Callable[[Graph], Executable]  # a graph's program on the host's memory


class HostPrograms:
    """The programs of one executable's steps of the host, by step and the shapes of its operands. Without a compiler of
    the host there are none."""

    def __init__(self, host: HostCompiler | None) -> None:
        self.host = host
        self.kept: dict[tuple[int, tuple[tuple[int, ...], ...]], tuple[Graph, Executable]] = {}

    def run(self, node: Node, given: Sequence[np.ndarray]) -> tuple[np.ndarray, ...] | None:
        """The results of LAPACK's routines for these operands; None where the node is none of theirs, or where they
        find a fault: NumPy then says which."""
        if self.host is None or not is_lapack(node) or any(0 in array.shape for array in given):
            return None
        key = node.serial, tuple(array.shape for array in given)
        if key not in self.kept:
            graph = graph_of(node, given)
            self.kept[key] = graph, self.host(graph)
        graph, program = self.kept[key]
        operands = [np.ascontiguousarray(array) for array in given]
        results = [np.empty(tuple(map(int, root.shape)), root.dtype.numpy) for root in graph.outputs]
        try:
            program.enqueue([buffer_of(array) for array in operands], [buffer_of(array) for array in results], {})
        except MorphoError:
            return None
        return tuple(results)


def graph_of(node: Node, given: Sequence[np.ndarray]) -> Graph:
    """One operation on operands of these shapes."""
    inputs = [build("parameter", index=number, shape=array.shape, dtype=child.dtype)
              for number, (array, child) in enumerate(zip(given, node.inputs, strict=True))]
    alone = make(node.op, inputs, node.attributes)
    return Graph((alone,) if len(alone.outputs) == 1 else tuple(
        build("pick", alone, index=number, spec=spec) for number, spec in enumerate(alone.outputs)))


def buffer_of(array: np.ndarray) -> HostBuffer:
    """An array's memory."""
    return HostBuffer("cpu", array.nbytes, array.ctypes.data, array)
