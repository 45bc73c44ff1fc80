"""The slow path: any call of a compiled function, bound, checked and run from Python.

The first call of a signature comes here, and every call that the native entry does not serve; both run the same code.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from morpho.backends.registry import HOST, backend_of, memory_of
from morpho.base import settings
from morpho.base.dims import evaluate, upper
from morpho.base.errors import ArgumentError, DeviceError, SharedError, fail
from morpho.base.shapes import contiguous_strides, is_contiguous
from morpho.base.trees import arranged, described, flatten, with_sizes
from morpho.runtime.memory.buffer import Buffer, allocate, copy_bytes
from morpho.runtime.memory.device_memory import part
from morpho.runtime.plans import on_device
from morpho.runtime.plans.evaluate import run_plan
from morpho.tensor import convert, recording
from morpho.tensor.autodiff.autograd import is_differentiated
from morpho.tensor.autodiff.grad_mode import has_rows, tracing
from morpho.tensor.core import Tensor
from morpho.tensor.jit import constants
from morpho.tensor.jit.compiled_function import CompiledFunction
from morpho.tensor.jit.dynamic import Owner, check_elements, owners
from morpho.tensor.jit.lifetimes import bury
from morpho.tensor.jit.native.entries import entries
from morpho.tensor.jit.specialise import Specialisation
from morpho.tensor.jit.tracing import specialise
from morpho.tensor.state.state import on_move
from morpho.tensor.state.trace import current_trace

on_move.append(entries.forget)  # the next call sees whether its states still lie where its program takes them to be
Target = tuple[Tensor, Buffer]  # a tensor of out=, and its memory


def call(made: CompiledFunction, /, *args: Any, **kwargs: Any) -> Any:
    """Any call, checked and run; the native entry serves the next one like it, where it can."""
    if current_trace() is not None or tracing.body is not None:  # inside another's trace this is just the original
        if "out" in kwargs and "out" not in made.signature.parameters:
            raise fail(ArgumentError, made.__name__, "out= is given to a compiled function inside another one's trace, "
                                                     "where results have no memory",
                       "call it without out=, and give out= to the outer function")
        return made.function(*args, **kwargs)
    if any(type(value) is np.ndarray for value in (*args, *kwargs.values())):
        args, kwargs = borrowed(args, kwargs)
        if made.is_enabled and type(kwargs.get("out")) is not np.ndarray:  # which is for this way
            return made(*args, **kwargs)  # type: ignore[operator]
    out = kwargs.pop("out", None) if "out" not in made.signature.parameters else None
    bound = _bind(made, args, kwargs)
    leaves: list[Any] = []
    structure = tuple((name, flatten(value, leaves)) for name, value in bound.items())
    if tracing.batched and any(isinstance(leaf, Tensor) and has_rows(leaf) for leaf in leaves):
        return made.function(*args, **kwargs)  # its operations are what the batch is made of
    if any(isinstance(leaf, Tensor) and is_differentiated(leaf) for leaf in leaves):
        if out is not None:
            raise fail(ArgumentError, made.__name__, "out= takes values, and an argument requires a gradient",
                       "leave out= away, or call it inside `with mo.no_grad():`")
        return made.function(*args, **kwargs)  # its operations are what the gradient goes through
    tensors = [_argument(leaf) for leaf in leaves]
    owned = owners(structure, made.dynamic, made.__name__)
    with made.lock:
        generation = entries.generation
        chosen, tensors, owned = specialise(made, structure, tensors, owned)
        made.choose(chosen)
        made.slow_calls += 1
        chosen.calls += 1
    with chosen.states:
        result = _run(made, chosen, tensors, owned, out)
    with made.lock:  # after the run, whose memory the entry's arena then takes
        made.serve(chosen, generation)
    bury(made)
    return result


def _bind(made: CompiledFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    # The common call needs no look at the signature.
    if not kwargs and made.positional is not None and len(args) == len(made.positional):
        return dict(zip(made.positional, args, strict=True))
    try:
        bound = made.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise fail(ArgumentError, made.__name__, _unfitting(made, kwargs) or str(error),
                   f"the compiled function takes {made.signature}") from None
    bound.apply_defaults()
    return dict(bound.arguments)


def _unfitting(made: CompiledFunction, kwargs: Mapping[str, Any]) -> str:
    """That a name is none of the function's, which Python tells only when all others are there."""
    parameters = made.signature.parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return ""
    return next((f"there is no argument {name!r}" for name in kwargs if name not in parameters), "")


def borrowed(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with tensors for NumPy arrays: with those the native entry can be called."""

    def tensor(value: Any) -> Any:
        return convert.borrowed(value) if type(value) is np.ndarray else value

    return tuple([tensor(value) for value in args]), {name: value if name == "out" else tensor(value)
                                                      for name, value in kwargs.items()}


def _argument(leaf: Any) -> Tensor:
    return _snapshot(leaf if isinstance(leaf, Tensor) else convert.borrowed(leaf))


# -- running ---------------------------------------------------------------------------------------------------------
def _run(made: CompiledFunction, chosen: Specialisation, tensors: list[Tensor], owned: Sequence[Owner],
         out: Any) -> Any:
    plan, program = chosen.plan, chosen.plan.program
    sizes = {line.symbol: line.number(upper(tensors[argument].shape[axis]))
             for line, argument, axis, *_ in chosen.bindings}
    _check_sizes(made, chosen, tensors, owned, sizes)
    if not chosen.counted:
        check_elements(chosen.needed, sizes)
    elif out is not None:
        raise fail(ArgumentError, made.__name__, "out= is given, and the sizes of results depend on data",
                   "leave it away")
    sizes |= chosen.counted  # memory is for the most there can be
    captured = [_snapshot(tensor) for tensor in chosen.captured]
    values = [*tensors, *[state._tensor for state in chosen.states.states], *captured]
    if not plan.native:
        return _run_on_device(made, chosen, values, out, sizes)
    addresses = [tensor._layout[0] for tensor in values]  # type: ignore[index]
    prepared = constants.prepared(made, chosen, captured, addresses)
    addresses += prepared.addresses
    given = _targets(made, chosen, out, sizes, values)
    buffers: list[Buffer] = []
    for number, place in enumerate(program.outputs):
        shape = tuple(evaluate(size, sizes) for size in place.shape)
        buffers.append(_result(chosen, number, shape, place.dtype, given, values))
    slots = {place.slot: buffer for place, buffer in zip(program.outputs, buffers, strict=True)}
    ordered = [slots[i].address for i, slot in enumerate(program.slots) if slot.kind == "result"]
    try:
        run_plan(plan, addresses, ordered, sizes)
    except BaseException:  # an error that is kept holds this frame: let the caller's memory go
        for held in (given, buffers, slots):
            held.clear()
        raise
    if chosen.counted:
        check_elements(chosen.needed, sizes)
        buffers = [_shaped(buffer, tuple(evaluate(size, sizes) for size in place.shape))
                   for buffer, place in zip(buffers, program.outputs, strict=True)]
    _check_finite(chosen, buffers, values, sizes)
    return _deliver(chosen, buffers, given, sizes)


def _shaped(buffer: Buffer, shape: tuple[int, ...]) -> Buffer:
    """The first part of a result that has memory for more."""
    return Buffer(buffer.storage, buffer.address, shape, contiguous_strides(shape), buffer.dtype,  # type: ignore[arg-type]
                  buffer.writable)


def _check_finite(chosen: Specialisation, buffers: list[Buffer], values: list[Tensor],
                  sizes: Mapping[str, int]) -> None:
    if settings.get().nans:
        from morpho.tensor.tools.debug import check_graph

        check_graph(chosen.plan.graph, [value.elements() for value in values], buffers, sizes, chosen.plan.lines)


def _check_sizes(made: CompiledFunction, chosen: Specialisation, tensors: list[Tensor], owned: Sequence[Owner],
                 sizes: Mapping[str, Any]) -> None:
    """Dimensions that share a symbol must have the same size."""
    for parameter in chosen.plan.graph.parameters if sizes else ():
        if parameter["index"] >= len(tensors):
            continue
        actual = tensors[parameter["index"]].shape
        expected = tuple(evaluate(size, sizes) for size in parameter.shape)
        if actual != expected:
            raise fail(ArgumentError, made.__name__, f"argument {owned[parameter['index']].name} has shape {actual}, "
                                                     f"but the dynamic dimensions {dict(sizes)} make it {expected}")


def _result(chosen: Specialisation, number: int, shape: tuple[int, ...], dtype: Any,
            given: list[Target], values: list[Tensor]) -> Buffer:
    """Memory for a result: the caller's, a state's own, or new."""
    if number < len(given):
        buffer = given[number][1]
        same = [v._layout[0] == buffer.address for v in values]  # type: ignore[index]
        # Only arguments were looked at for `overlap`: what the function captured is never written over.
        overlap = chosen.overlap and not settings.get().nans  # who is to blame needs the old values
        apart = (chosen.staged[number] or any(same[chosen.arguments:])
                 or (any(same[:chosen.arguments]) and not overlap))
        return allocate(shape, dtype) if apart else buffer
    own = _own_memory(chosen, number, values)
    return allocate(shape, dtype) if own is None else own


def _own_memory(chosen: Specialisation, number: int, values: list[Tensor]) -> Buffer | None:
    """The memory of the state whose next value this result is, where nothing else holds it. None under `nans`: who is
    to blame needs the old values."""
    if number not in chosen.aliases or settings.get().nans:
        return None
    state = values[chosen.aliases[number]]
    if not _is_alone(state) or not state._layout[4]:  # type: ignore[index]
        return None
    state.claim()
    return state.elements()


# -- out= ------------------------------------------------------------------------------------------------------------
def _targets(made: CompiledFunction, chosen: Specialisation, out: Any, sizes: Mapping[str, int],
             values: list[Tensor]) -> list[Target]:
    """The tensors of out=, each with its memory as it was when it was checked."""
    if out is None:
        return []
    leaves: list[Any] = []
    structure = flatten(out, leaves)
    if not all(isinstance(leaf, Tensor) for leaf in leaves):
        raise fail(ArgumentError, made.__name__, "out= is an array of another library (NumPy array, PyTorch tensor), "
                                                 "and borrowed memory is never written",
                   "use out=mo.empty(...); its numpy() is a view without a copy, to be let go before the next call")
    wanted = with_sizes(chosen.structure, sizes)
    if structure != wanted:
        raise fail(ArgumentError, made.__name__, f"out= does not have the structure of the result: it is "
                                                 f"{described(structure)}, the result {described(wanted)}",
                   "pass realised tensors in the same arrangement as the function returns")
    targets: list[Target] = []
    for target, place in zip(leaves, chosen.plan.program.outputs, strict=False):
        shape = tuple(evaluate(size, sizes) for size in place.shape)
        targets.append((target, _checked_target(made, target, shape, place.dtype, values, chosen.plan.device)))
    return targets


def _checked_target(made: CompiledFunction, target: Tensor, shape: tuple[int, ...], dtype: Any,
                    values: list[Tensor], device: str) -> Buffer:
    held, wanted = target.elements(), memory_of(device)
    if held.device != wanted:
        raise fail(DeviceError, made.__name__, f"out= lies on {held.device}, the result on {wanted}",
                   f"use mo.empty({shape}, dtype={str(dtype)!r}, device={wanted!r})")
    if held.shape != shape or held.dtype is not dtype:
        raise fail(ArgumentError, made.__name__, f"out= is {held.dtype}{held.shape}, the result is {dtype}{shape}",
                   f"use mo.empty({shape}, dtype={str(dtype)!r})")
    if not is_contiguous(held.shape, held.strides):
        raise fail(ArgumentError, made.__name__, "out= is not contiguous", "use mo.empty(...)")
    if not held.writable:
        raise fail(SharedError, made.__name__, "out= is borrowed memory, which is never written",
                   "use mo.empty(...), or mo.asarray(..., copy=True)")
    mine = sum(value._storage is held.storage for value in values)
    alone = _is_alone(target, 1 + mine)  # besides `held` and this call's own look at the arguments
    if not alone:
        recording.flush()  # what waits there may hold the memory
        alone = _is_alone(target, 1 + mine)
    if not alone and not (constants.release(held.storage) and _is_alone(target, 1 + mine)):
        raise fail(SharedError, made.__name__, "out= shares its memory with another tensor, a pending expression "
                                               "or an export", "drop those first, or use mo.empty(...)")
    target.claim()
    return held


def _deliver(chosen: Specialisation, buffers: list[Buffer], given: list[Target], sizes: Mapping[str, int]) -> Any:
    for number, output in chosen.updates:
        chosen.states.states[number].replace(Tensor.of_buffer(buffers[output]))
    chosen.states.refresh()
    results: list[Tensor] = []
    for number, buffer in enumerate(buffers[:chosen.outputs]):
        if number >= len(given):
            results.append(Tensor.of_buffer(buffer))
            continue
        target, memory = given[number]
        if memory.address != buffer.address:
            _copy(buffer, memory, target.nbytes)
        target.claim()  # once more: another thread may have packed elements that were half written
        results.append(target)
    return arranged(with_sizes(chosen.structure, sizes), results)


def _copy(source: Buffer, target: Buffer, nbytes: int) -> None:
    """The elements of one contiguous buffer into another on the same device."""
    if source.device == HOST:
        copy_bytes(target.address, source.address, nbytes)
    elif nbytes:
        target.storage.event = backend_of(source.device).copy_between(part(source), part(target))


def _run_on_device(made: CompiledFunction, chosen: Specialisation, values: list[Tensor], out: Any,
                   sizes: Mapping[str, int]) -> Any:
    """Through the seam: on another device, or by another backend on the CPU's memory."""
    plan = chosen.plan
    if chosen.served is not None:
        constants.prepared(made, chosen, values[len(values) - len(chosen.captured):], [])
    given = _targets(made, chosen, out, sizes, values)
    own: dict[int, Buffer] = {}
    for number in chosen.aliases:
        place = plan.program.outputs[number]
        buffer = _own_memory(chosen, number, values)
        if buffer is not None and buffer.shape == tuple(evaluate(size, sizes) for size in place.shape):
            own[number] = buffer
    results = on_device.run(plan.graph, plan.device, [value.elements() for value in values], sizes, own)
    _check_finite(chosen, results, values, sizes)
    return _deliver(chosen, results, given, sizes)


# -- tensors of a call -----------------------------------------------------------------------------------------------
def _snapshot(tensor: Tensor) -> Tensor:
    """The tensor as it is now, in an object of this call's own: whatever other threads do to it meanwhile."""
    while True:
        tensor.realise()
        storage, layout = tensor._storage, tensor._layout
        if layout is not None and tensor._storage is storage and tensor._layout is layout:
            made = object.__new__(Tensor)
            made._node, made._record, made._storage, made._layout, made._track = None, None, storage, layout, None
            return made


def _is_alone(tensor: Tensor, mine: int = 0) -> bool:
    """Whether this tensor alone holds its memory, besides `mine` snapshots of this call; a leaf that only it refers to
    is let go."""
    tensor.release_leaf()
    return sys.getrefcount(tensor._storage) <= 2 + mine
