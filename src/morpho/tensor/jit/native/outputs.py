"""New outputs for calls that the native entry serves: everything but the address is worked out beforehand."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from morpho.backends.driver.abi import OutputRow
from morpho.backends.driver.layout import WRITABLE, record_words
from morpho.backends.registry import backend_of
from morpho.base.dims import Dim, evaluate
from morpho.runtime.memory.device_memory import DeviceMemory, holder
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
    mark, make = 0, _from_templates
    if chosen.served is not None:
        mark, make = mark_of(chosen.plan.device), partial(_on_device, backend_of(chosen.plan.device))
    if any(isinstance(size, Dim) for place in outputs for size in place.shape):
        return _by_arguments(chosen, mark, make)
    templates = [_template(place.shape, place.strides, place.dtype, mark) for place in outputs]  # type: ignore[arg-type]
    return lambda *tensors: make(templates)


def output_templates(chosen: Specialisation) -> list[Any] | None:
    """The table by which the native entry makes new outputs itself, and what it names; None where Python makes them."""
    outputs = chosen.entry_plan.program.outputs[:chosen.outputs]
    if any(isinstance(size, Dim) for place in outputs for size in place.shape):
        return None
    mark = 0 if chosen.served is None else mark_of(chosen.plan.device)
    templates = [_template(place.shape, place.strides, place.dtype, mark) for place in outputs]  # type: ignore[arg-type]
    held: list[Any] = [(0, None)] * len(templates)
    if chosen.served is not None:
        held = [holder(backend_of(chosen.plan.device), nbytes) for nbytes, *_ in templates]
    elif any(nbytes > SMALL_BYTES for nbytes, *_ in templates):
        return None
    if None in held:
        return None
    rows = np.zeros((len(templates), int(OutputRow.SIZE)), np.int64)
    records = [np.frombuffer(_ADDRESS.pack(0) + suffix, np.uint8) for *_, suffix in templates]
    for row, record, (nbytes, shape, strides, dtype, _), (blocks, table) in zip(rows, records, templates, held,
                                                                                strict=True):
        there = 0 if table is None else ctypes.addressof(table[0])
        row[:] = nbytes, record.ctypes.data, len(record), id(shape), id(strides), id(dtype), blocks, there
    return [rows, records, templates, held]


def _by_arguments(chosen: Specialisation, mark: int,
                  make: Callable[[list[Any]], tuple[Tensor, ...]]) -> Callable[..., tuple[Tensor, ...]]:
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
                                   tuple(evaluate(s, values) for s in place.strides), place.dtype, mark)
                         for place in outputs]
            if len(known) >= TEMPLATES_KEPT:
                known.clear()
            known[sizes] = templates
        return make(templates)

    return allocate_outputs


def _on_device(backend: Any, templates: list[Any]) -> tuple[Tensor, ...]:
    """New outputs in memory of another device."""
    made = []
    for nbytes, shape, strides, dtype, suffix in templates:
        memory = DeviceMemory(backend, nbytes)
        address = memory.address
        tensor = object.__new__(Tensor)
        tensor._node, tensor._storage, tensor._track = None, memory, None
        tensor._layout = (address, shape, strides, dtype, True)
        tensor._record = _ADDRESS.pack(address) + suffix
        made.append(tensor)
    return tuple(made)


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
