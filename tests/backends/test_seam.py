"""The seam: every backend through its protocols alone; the whole table of op cases on a device that runs late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import delayed
import numpy as np
import pytest
from case_values import operands
from cases import SHAPED
from elementwise_cases import CASTS, PLAIN
from running import by_reference, difference, equal_bits, parameter
from test_ops import LENGTH, draw_inputs

import morpho as mo
from morpho.backends.base import Backend, Buffer, Event, Executable
from morpho.backends.registry import backend_of
from morpho.base.dtypes import DType
from morpho.base.errors import ArgumentError
from morpho.ir.graph import Graph
from morpho.ir.node import Node, toposort
from morpho.ir.serialise import dump_graph, load_graph
from morpho.runtime.memory.device_memory import upload
from morpho.runtime.plans import on_device

DEVICES = ("cpu", "reference", "delayed:0")


def through(name: str, outputs: Sequence[Node], arrays: Sequence[Any], sizes: dict[str, int]) -> list[np.ndarray]:
    """The values of nodes by the methods of a backend and nothing else."""
    backend = backend_of(name)
    code = backend.compile(backend.lower(Graph(tuple(outputs))))
    assert isinstance(code, bytes)
    executable = backend.load(code)
    assert isinstance(backend, Backend) and isinstance(executable, Executable)
    inputs: list[Buffer] = []
    for array in arrays:
        buffer = backend.allocate(max(array.nbytes, 1))
        assert isinstance(buffer, Buffer) and buffer.nbytes >= array.nbytes
        if array.nbytes:
            backend.copy_in(buffer, np.ascontiguousarray(array).tobytes())
        inputs.append(buffer)
    expected = by_reference(outputs, arrays, sizes)
    results = [backend.allocate(max(array.nbytes, 1)) for array in expected]
    event = executable.enqueue(inputs, results, sizes)
    assert isinstance(event, Event)
    event.wait()
    found = []
    for buffer, array in zip(results, expected, strict=True):
        room = bytearray(buffer.nbytes)
        backend.copy_out(buffer, room).wait()
        found.append(np.frombuffer(bytes(room[:array.nbytes]), array.dtype).reshape(array.shape))
    backend.synchronize()
    return found


@pytest.mark.parametrize("name", DEVICES)
def test_a_graph_through_the_protocols(device: str, rng: np.random.Generator, name: str) -> None:
    x, w = parameter(0, (5, 7), mo.float32), parameter(1, (7, 3), mo.float32)
    product = mo.Tensor.of_node(x) @ mo.Tensor.of_node(w)
    outputs = [mo.relu(product).node, mo.sum(mo.Tensor.of_node(x), axis=1).node]
    arrays = [rng.standard_normal(s).astype("f") for s in ((5, 7), (7, 3))]
    for found, want in zip(through(name, outputs, arrays, {}), by_reference(outputs, arrays), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", DEVICES)
def test_damaged_code_is_refused(device: str, name: str) -> None:
    backend = backend_of(name)
    code = backend.compile(backend.lower(Graph((mo.exp(mo.Tensor.of_node(parameter(0, (3,), mo.float32))).node,))))
    for damaged in (b"", b"nothing", code[:-9], b"[[[\"exp\",[0],{}]],[0]]"):
        with pytest.raises(ArgumentError):
            backend.load(damaged)


def small(case: Any, kinds: Sequence[DType], rng: np.random.Generator) -> list[Any]:
    return [np.ascontiguousarray(array[:23]) for array in operands(rng, kinds, 23)]


@pytest.mark.parametrize("case", [*PLAIN, *CASTS], ids=lambda case: f"{case.op}{case.attributes or ''}")
def test_elementwise_cases_on_a_late_device(device: str, rng: np.random.Generator, case: Any) -> None:
    for dtype in case.dtypes:
        if case in CASTS and dtype.is_complex and not case.attributes["dtype"].is_complex:
            continue
        kinds = case.inputs(dtype)
        arrays = small(case, kinds, rng)
        node = case.build(*[parameter(i, arrays[0].shape, kind) for i, kind in enumerate(kinds)])
        check(device, node, arrays, kinds, {})


@pytest.mark.parametrize("case", SHAPED, ids=str)
def test_shaped_cases_on_a_late_device(device: str, rng: np.random.Generator, case: Any) -> None:
    for dtype in case.dtypes[:3]:
        length = case.lengths[min(1, len(case.lengths) - 1)]
        arrays = draw_inputs(case, dtype, length, rng)
        size = LENGTH if case.dynamic else length
        specs = case.specs(dtype, size)
        node = case.make(*[parameter(i, shape, kind) for i, (shape, kind) in enumerate(specs)])
        if any("body" in one.attributes for one in toposort([node])):
            return  # groups are made by the passes of a backend: no graph comes with them
        check(device, node, arrays, [kind for _, kind in specs], {"n": length} if case.dynamic else {})


def check(device: str, node: Node, arrays: Sequence[Any], kinds: Sequence[DType], sizes: dict[str, int]) -> None:
    buffers = [upload(array, kind, device) for array, kind in zip(arrays, kinds, strict=True)]
    (got,) = on_device.run(Graph((node,)), device, buffers, sizes)
    (want,) = by_reference([node], arrays, sizes)
    assert got.device == device
    assert equal_bits(got.numpy(), want, node.dtype), difference(got.numpy(), want, node.dtype)


def test_graphs_are_the_same_as_bytes() -> None:
    n = mo.Dim("n", 1, 9)
    x = mo.Tensor.of_node(parameter(0, (n, 4), mo.float32))
    graph = Graph((mo.softmax(x * -0.0 + 1.5, axis=-1).node, mo.cumulative_sum(x, axis=0).node))
    again = load_graph(dump_graph(graph))
    assert again.digest() == graph.digest() and dump_graph(again) == dump_graph(graph)


def test_streams_are_in_order_each_and_late(device: str) -> None:
    backend = delayed.DelayedBackend(7)
    buffer = backend.allocate(8)
    events = [backend.copy_in(buffer, bytes([number] * 8), stream=3) for number in range(20)]
    room = bytearray(8)
    last = backend.copy_out(buffer, room, stream=3)
    assert not last.done() and room == bytes(8)  # queued, not done
    last.wait()
    assert room == bytes([19] * 8) and all(event.done() for event in events)
