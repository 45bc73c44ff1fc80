"""New outputs for calls that the native entry serves: everything but the address is worked out beforehand."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from morpho.backends.cpu.driver.abi import OutputRow
from morpho.backends.cpu.driver.layout import WRITABLE, record_words
from morpho.backends.registry import backend_of
from morpho.base.dims import Dim, evaluate
from morpho.runtime.memory.device_memory import DeviceMemory
from morpho.runtime.memory.pool import pool
from morpho.runtime.plans.device_entry import mark_of
from morpho.tensor.core import Tensor
from morpho.tensor.jit.specialise import Specialisation

TEMPLATES_KEPT = 4096
FRAMES = 2  # of this file, between whoever calls a compiled function and the pool
SMALL_BYTES = 64 << 10  # outputs up to this size are made by the entry itself, larger ones from the pool's blocks
_ADDRESS = struct.Struct("<Q")


def output_maker(chosen: Specialisation) -> Callable[..., tuple[Tensor, ...]]:
    """A function that makes a call's new outputs: shapes are known, or follow from the arguments' sizes."""
    outputs = chosen.entry_plan.program.outputs[:chosen.outputs]
    if any(isinstance(size, Dim) for place in outputs for size in place.shape):
        return _by_arguments(chosen)
    if chosen.served is not None:
        return _on_device(chosen.plan.device, outputs)
    templates = [_template(place.shape, place.strides, place.dtype) for place in outputs]  # type: ignore[arg-type]
    return lambda *tensors: _from_templates(templates)


def output_templates(chosen: Specialisation) -> list[Any] | None:
    """The table by which the native entry makes new outputs itself, and what it names; None where Python makes them."""
    outputs = chosen.entry_plan.program.outputs[:chosen.outputs]
    if chosen.served is not None or any(isinstance(size, Dim) for place in outputs for size in place.shape):
        return None
    templates = [_template(place.shape, place.strides, place.dtype) for place in outputs]  # type: ignore[arg-type]
    if any(nbytes > SMALL_BYTES for nbytes, *_ in templates):
        return None
    rows = np.zeros((len(templates), int(OutputRow.SIZE)), np.int64)
    records = [np.frombuffer(_ADDRESS.pack(0) + suffix, np.uint8) for *_, suffix in templates]
    for row, record, (nbytes, shape, strides, dtype, _) in zip(rows, records, templates, strict=True):
        row[:] = nbytes, record.ctypes.data, len(record), id(shape), id(strides), id(dtype)
    return [rows, records, templates]


def _by_arguments(chosen: Specialisation) -> Callable[..., tuple[Tensor, ...]]:
    """As `output_maker`, for outputs with dynamic sizes; what was worked out for a size is kept."""
    outputs = chosen.entry_plan.program.outputs[:chosen.outputs]
    reads = [(binding.argument, binding.axis) for binding in chosen.bindings]
    known: dict[Any, list[Any]] = {}

    def allocate_outputs(*tensors: Tensor) -> tuple[Tensor, ...]:
        sizes = tuple([tensors[argument].shape[axis] for argument, axis in reads])
        templates = known.get(sizes)
        if templates is None:
            values = {binding.line.symbol: binding.line.number(size)  # type: ignore[arg-type]
                      for binding, size in zip(chosen.bindings, sizes, strict=True)}
            templates = [_template(tuple(evaluate(s, values) for s in place.shape),
                                   tuple(evaluate(s, values) for s in place.strides), place.dtype) for place in outputs]
            if len(known) >= TEMPLATES_KEPT:
                known.clear()
            known[sizes] = templates
        return _from_templates(templates)

    return allocate_outputs


def _on_device(device: str, outputs: Sequence[Any]) -> Callable[..., tuple[Tensor, ...]]:
    """As `output_maker`, in memory of another device."""
    backend, mark = backend_of(device), mark_of(device)
    templates = [_template(place.shape, place.strides, place.dtype, mark) for place in outputs]

    def make(*tensors: Tensor) -> tuple[Tensor, ...]:
        made = []
        for nbytes, shape, strides, dtype, suffix in templates:
            memory = DeviceMemory(backend, nbytes)
            address = memory.raw.address
            tensor = object.__new__(Tensor)
            tensor._node, tensor._storage, tensor._track = None, memory, None
            tensor._layout = (address, shape, strides, dtype, True)
            tensor._record = _ADDRESS.pack(address) + suffix
            made.append(tensor)
        return tuple(made)

    return make


def _template(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, mark: int = 0) -> tuple[Any, ...]:
    """Everything about a new output but its address."""
    words = record_words(dtype, shape, strides, mark)
    suffix = struct.pack(f"<Q{len(words)}q", WRITABLE, *words)
    return max(math.prod(shape) * dtype.itemsize, 1), shape, strides, dtype, suffix


def _from_templates(templates: list[Any]) -> tuple[Tensor, ...]:
    acquire, made = pool().acquire, []
    for nbytes, shape, strides, dtype, suffix in templates:
        block = acquire(nbytes, False, "cpu", FRAMES)
        tensor = object.__new__(Tensor)
        tensor._node, tensor._storage, tensor._track = None, block, None
        tensor._layout = (block.address, shape, strides, dtype, True)
        tensor._record = _ADDRESS.pack(block.address) + suffix
        made.append(tensor)
    return tuple(made)
