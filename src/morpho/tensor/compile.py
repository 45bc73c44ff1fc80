"""`mo.compile`: a Python function becomes one native function, called without Python between its kernels.

The first call with new shapes or dtypes traces the function, optimises the graph, compiles it and fills the native
entry's tables. Later calls of the form f(a, b, out=c) are checked and run by the entry itself; every other form takes
a short way through Python to the same code.
"""

from __future__ import annotations

import ctypes
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from morpho.base import settings as base_settings
from morpho.base.dims import Dim, Size, bounds, evaluate
from morpho.base.errors import ArgumentError, SharedError, fail
from morpho.base.shapes import contiguous_strides, is_contiguous
from morpho.base.units import parse_bytes
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build
from morpho.ir.op import changes as registry_changes
from morpho.ir.printing import to_dot
from morpho.kernels.footprint import Uses, footprint
from morpho.passes.memory import aligned
from morpho.passes.remat import Budget
from morpho.runtime import evaluate as evaluation
from morpho.runtime import measure, threads
from morpho.runtime.buffer import Buffer, allocate, copy_bytes
from morpho.runtime.evaluate import make_plan, run_plan
from morpho.runtime.executable import LONG_WORK, Executable, native, set_distances
from morpho.runtime.faults import index_fault
from morpho.runtime.layout import make_vectorcallable, record_words, slot_offset
from morpho.runtime.pool import pool
from morpho.runtime.tables import ContextField, Distances
from morpho.tensor import constants
from morpho.tensor.calls import unpicklable
from morpho.tensor.core import Tensor
from morpho.tensor.dynamic import (
    Owner,
    check_bound,
    check_elements,
    dynamic_sizes,
    needed_elements,
    owners,
    sure_bounds,
    symbols_of,
)
from morpho.tensor.entries import entries
from morpho.tensor.explain import explain_text, predicted_seconds, statistics
from morpho.tensor.native_states import MOST_SPARE_BYTES, States
from morpho.tensor.outputs import output_maker, output_templates
from morpho.tensor.specialise import (
    Specialisation,
    capture,
    layout_of,
)
from morpho.tensor.state import Trace, current_trace
from morpho.tensor.trees import LEAF, arranged, flatten, is_flat, unflatten

log = logging.getLogger("morpho")
Target = tuple[Tensor, Buffer]  # a tensor of out=, and its memory
MANY_RECOMPILES = 8
MOST_KEPT_BYTES = 1 << 30  # a larger workspace is acquired call by call, through Python


class Compiled(ctypes.Structure):
    """A compiled function. Call it like the original, also with `out=` for results in memory you own.

    `explain()` says what was done, `stats` holds the numbers, `dot(path)` draws the graph.
    """

    _fields_ = [("entry", ctypes.c_void_p), ("context", ctypes.c_void_p)]
    __reduce_ex__ = unpicklable("a compiled function", "compile it again where it is needed: its code is kept on disk")

    def __init__(self, function: Callable[..., Any], dynamic: Mapping[str, Any] | None = None,
                 whole: bool = False, budget: Budget | None = None) -> None:
        super().__init__()
        self.function, self.whole, self.budget = function, whole, budget
        self.__name__ = getattr(function, "__name__", "compiled")
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        self.signature = inspect.signature(function)
        plain = all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in self.signature.parameters.values())
        self.positional = tuple(self.signature.parameters) if plain else None
        self.dynamic = dynamic_sizes(dynamic, self.signature)
        self.specialisations: dict[Any, Specialisation] = {}
        self.assumed: dict[Any, dict[int, Any]] = {}  # by signature: objects that its traces depend on
        self.current: Specialisation | None = None
        self.recompiles = self.slow_calls = self.fallbacks = 0
        self.retired: Any = None  # memory a call in another thread may still read
        self.uses = 0  # how often the entry's tables were filled
        self.serves: base_settings.Settings | None = None  # whose code they hold
        self.lock = threading.RLock()
        self.words = (ctypes.c_int64 * int(ContextField.SIZE))()
        self.context = ctypes.addressof(self.words)
        self._prepare_context()
        entries.add(self)

    # -- the native entry ----------------------------------------------------------------------------------------------
    def _prepare_context(self) -> None:
        words, api = self.words, ctypes.pythonapi
        self._slow_bound, self._fault_bound = self._slow, self._fault
        words[ContextField.TENSOR_TYPE], words[ContextField.BYTES_TYPE] = id(Tensor), id(bytes)
        words[ContextField.SLOW], words[ContextField.FAULT] = id(self._slow_bound), id(self._fault_bound)
        words[ContextField.OUT_NAME], words[ContextField.TUPLE_TYPE] = id(_OUT), id(tuple)
        words[ContextField.NONE], words[ContextField.TRUE], words[ContextField.NOTHING] = id(None), id(True), id(None)
        for name, target in (("PyObject_Vectorcall", ContextField.VECTORCALL),
                             ("PyEval_SaveThread", ContextField.SAVE_THREAD),
                             ("PyEval_RestoreThread", ContextField.RESTORE_THREAD),
                             ("Py_IncRef", ContextField.INCREMENT), ("Py_DecRef", ContextField.DECREMENT),
                             ("PyContextVar_Get", ContextField.GET_SETTINGS),
                             ("PyLong_FromLongLong", ContextField.NUMBER),
                             ("PyType_GenericAlloc", ContextField.NEW_OBJECT),
                             ("PyByteArray_FromStringAndSize", ContextField.NEW_MEMORY),
                             ("PyByteArray_AsString", ContextField.MEMORY_AT),
                             ("PyBytes_FromStringAndSize", ContextField.NEW_BYTES),
                             ("PyTuple_New", ContextField.NEW_TUPLE)):
            words[target] = ctypes.cast(getattr(api, name), ctypes.c_void_p).value or 0
        words[ContextField.COPY] = ctypes.cast(ctypes.memmove, ctypes.c_void_p).value or 0
        words[ContextField.SETTINGS_VARIABLE] = id(base_settings.current)

    def _leave(self) -> None:
        """Let the specialisation in use go: only one keeps an arena between calls."""
        entries.stop(self)
        if self.current is not None and not self.words[ContextField.BUSY]:
            self.current.block = None

    def _use(self, chosen: Specialisation, generation: int) -> None:
        """Let the native entry serve this specialisation from now on, unless it was found before a change of what may
        mean other code."""
        words = self.words
        if self.current is not chosen:
            self._leave()
        entries.stop(self)
        self.current = chosen
        if not chosen.direct or not self.entry or chosen.plan.workspace_bytes + chosen.staging_bytes > MOST_KEPT_BYTES:
            return
        fixed = constants.fixed_table(chosen)
        if fixed is None:
            return  # the first call prepares; the next one comes here again
        executable = chosen.plan.executables[0]
        executable.refresh_workers()
        working_bytes = chosen.plan.program.arena_bytes + (executable.scratch_bytes + 63) // 64 * 64
        if chosen.block is None:
            chosen.block = pool().acquire(max(working_bytes + chosen.staging_bytes, 64))
        guards = np.array([n for pair in executable.guards for n in pair], np.int64)
        order = {name: i for i, name in enumerate(executable.symbols)}
        bindings = np.zeros(4 * max(len(order), 1), np.int64)
        for name, argument, axis, least, most in chosen.bindings:
            sure = max(least, chosen.least.get(name, least))
            bindings[4 * order[name]:4 * order[name] + 4] = argument, 3 + axis, sure, most
        table = self._output_table(chosen, chosen.block.address + working_bytes)
        allocate_outputs, templates = output_maker(chosen), output_templates(chosen)
        states, hold = chosen.states.table(chosen.plan), chosen.states.hold
        releases = executable.work > LONG_WORK
        arrange = None if is_flat(chosen.structure) else partial(arranged, chosen.structure)
        given = np.array([0 if thing is LEAF else id(thing) for thing in chosen.given], np.int64)
        chosen.keep = [guards, bindings, table, allocate_outputs, templates, states, hold, given, arrange, *fixed]
        words[ContextField.ARGUMENTS], words[ContextField.ARGUMENT_TABLE] = len(given), given.ctypes.data
        words[ContextField.STATES], words[ContextField.STATE_TABLE] = len(states), states.ctypes.data
        words[ContextField.HOLD] = id(hold) if releases and len(states) else 0
        words[ContextField.TEMPLATES] = templates[0].ctypes.data if templates is not None else 0
        words[ContextField.FIXED], words[ContextField.FIXED_TABLE] = len(fixed[0]) // 3, fixed[0].ctypes.data
        words[ContextField.CAPTURED], words[ContextField.CAPTURED_TABLE] = len(fixed[1]), fixed[1].ctypes.data
        words[ContextField.OUTPUTS], words[ContextField.OUTPUT_TABLE] = len(table) // 3, table.ctypes.data
        words[ContextField.ALLOCATE], words[ContextField.SINGLE] = id(allocate_outputs), int(chosen.structure is LEAF)
        words[ContextField.ARRANGE] = id(arrange) if arrange is not None else 0
        words[ContextField.PROGRAM] = executable.words.ctypes.data
        words[ContextField.INPUTS] = chosen.arguments
        words[ContextField.SLOTS] = len(executable.inputs) + len(executable.results) + 1
        words[ContextField.GUARD_TABLE] = guards.ctypes.data
        words[ContextField.BINDINGS] = bindings.ctypes.data
        words[ContextField.ARENA] = chosen.block.address
        words[ContextField.SCRATCH] = chosen.block.address + chosen.plan.program.arena_bytes
        words[ContextField.RELEASES] = executable.work_at + 1 if releases else 0
        words[ContextField.OVERLAP] = int(chosen.overlap or chosen.staged == [True])
        words[ContextField.STAGED] = int(any(chosen.staged))
        entries.start(self, generation)

    @staticmethod
    def _output_table(chosen: Specialisation, room: int) -> np.ndarray:
        """Per output: its slot, memory to stage it in or 0, bytes of an element."""
        executable, program = chosen.plan.executables[0], chosen.plan.program
        words: list[int] = []
        for place, staged in zip(program.outputs, chosen.staged, strict=False):
            words += [executable.slot_number[place.slot], room if staged else 0, place.dtype.itemsize]
            room += aligned(program.slots[place.slot].nbytes) if staged else 0
        return np.array(words, np.int64)

    def after_fork(self) -> None:
        """In a child: no thread of the parent holds the lock or runs the entry."""
        self.lock = threading.RLock()
        self.words[ContextField.ENABLED] = self.words[ContextField.BUSY] = 0
        self.current = None

    def _fault(self, status: int, program: int) -> None:
        """Called by the native entry when a kernel of a program reports a fault."""
        plan = next(chosen.plan for chosen in list(self.specialisations.values())
                    if chosen.direct and chosen.plan.executables[0].words.ctypes.data == program)
        raise index_fault(plan.graph.outputs, plan.executables[0].faulty(status))

    # -- the way through Python ----------------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._slow(*args, **kwargs)

    def _slow(self, *args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None:  # inside another function's trace this is just the original
            return self.function(*args, **kwargs)
        out = kwargs.pop("out", None) if "out" not in self.signature.parameters else None
        bound = self._bind(args, kwargs)
        leaves: list[Any] = []
        structure = tuple((name, flatten(value, leaves)) for name, value in bound.items())
        tensors = [self._argument(leaf) for leaf in leaves]
        owned = owners(structure, self.dynamic, self.__name__)
        with self.lock:
            generation = entries.generation
            chosen = self._specialise(structure, tensors, owned)
            if chosen is not self.current:
                self._leave()
            self.slow_calls += 1
            chosen.calls += 1
        with chosen.states:
            result = self._run(chosen, tensors, out)
        with self.lock:  # after the run, whose memory the entry's arena then takes
            if chosen is not self.current or not self.words[ContextField.ENABLED]:
                self._use(chosen, generation)
            elif self.serves is not base_settings.current.get():  # the same code for other settings
                entries.start(self, generation)
        return result

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        # The common call needs no look at the signature.
        if not kwargs and self.positional is not None and len(args) == len(self.positional):
            return dict(zip(self.positional, args, strict=True))
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise fail(ArgumentError, self.__name__, f"{error}",
                       f"the compiled function takes {self.signature}") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    @staticmethod
    def _argument(leaf: Any) -> Tensor:
        from morpho.tensor.create import asarray

        return _snapshot(leaf if isinstance(leaf, Tensor) else asarray(leaf))

    def _specialise(self, structure: Any, tensors: list[Tensor], owned: list[Owner]) -> Specialisation:
        specs = [self._spec(tensor, owner) for tensor, owner in zip(tensors, owned, strict=True)]
        chosen = evaluation.settings.get()
        key = (structure, tuple(specs), chosen.level, chosen.isa, chosen.passes_off, chosen.joint,
               threads.wanted_threads(), chosen.backend, chosen.autocast, chosen.nans, chosen.fast,
               measure.crossovers(), registry_changes())
        try:
            key = (key, self._assumptions(key))
            found = self.specialisations.get(key)
        except TypeError:
            raise fail(ArgumentError, self.__name__, "an argument is neither a tensor nor hashable",
                       "pass tensors, numbers, strings, or tuples, lists and dicts of them") from None
        if found is None or not found.fits:
            first = not self.specialisations
            found = self._trace(structure, specs, owned)
            if found.assumed:
                self.assumed.setdefault(key[0], {}).update(found.assumed)
                key = (key[0], self._assumptions(key[0]))
            self.specialisations[key] = found
            if not first:
                self.recompiles += 1
            if self.recompiles == MANY_RECOMPILES and not first:
                log.warning("%s was compiled %d times: a size or a Python number changes from call to call; "
                            "declare the size with dynamic=, or pass the number as a tensor",
                            self.__name__, self.recompiles + 1)
        return found

    def _assumptions(self, key: Any) -> tuple[Any, ...]:
        """What earlier traces of this signature found out about objects that may change: modes, settings of theirs."""
        known = self.assumed.get(key)
        return tuple([thing.static_key() for thing in known.values()]) if known else ()

    def _spec(self, tensor: Tensor, owner: Owner) -> tuple[Any, ...]:
        """dtype, shape with dynamic sizes in place, and strides when they are not the contiguous ones."""
        _, shape, strides, dtype, _ = tensor._layout  # type: ignore[misc]
        sizes: tuple[Size, ...] = shape
        for axis, dim in owner.axes.items():
            if not -len(shape) <= axis < len(shape):
                raise fail(ArgumentError, self.__name__,
                           f"argument {owner.name} has no axis {axis}: its shape is {shape}")
            least, most = bounds(dim)
            if not least <= shape[axis] <= most:
                raise fail(ArgumentError, self.__name__,
                           f"axis {axis} of {owner.name} has size {shape[axis]}, outside {least}..{most} of {dim}")
            position = axis % len(shape)
            sizes = (*sizes[:position], dim, *sizes[position + 1:])
        plain = is_contiguous(shape, strides)
        return (dtype, sizes, None if plain else strides)

    def _trace(self, structure: Any, specs: list[tuple[Any, ...]], owned: list[Owner]) -> Specialisation:
        check_bound(symbols_of([sizes for _, sizes, _ in specs]), self.__name__)
        parameters = []
        for number, (dtype, sizes, strides) in enumerate(specs):
            extra = {} if strides is None else {"strides": strides}
            parameters.append(Tensor.of_node(build("parameter", index=number, shape=sizes, dtype=dtype, **extra)))
        leaves = iter(parameters)
        arguments = {name: unflatten(tree, leaves) for name, tree in structure}
        with entries.paused(), Trace(len(parameters), self.whole) as trace:
            result = self._call_original(arguments)
        outputs: list[Any] = []
        shape = flatten(result, outputs)
        from morpho.tensor.create import asarray

        nodes = [(o if isinstance(o, Tensor) else asarray(o)).node for o in outputs]
        updates = [(number, len(nodes) + i) for i, (number, _) in enumerate(trace.updates)]
        nodes += [tensor.node for _, tensor in trace.updates]
        graph, captured = capture(nodes, trace)
        origins = {node.serial: node.origin for node in graph.nodes} if evaluation.settings.get().nans else {}
        made = self._finish(graph, (structure, shape), len(outputs), captured, trace, updates, specs, owned)
        made.origins = origins
        return made

    def _call_original(self, arguments: dict[str, Any]) -> Any:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for name, parameter in self.signature.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional += list(arguments.get(name, ()))
            elif parameter.kind is parameter.VAR_KEYWORD:
                named |= arguments.get(name, {})
            elif parameter.kind is parameter.KEYWORD_ONLY:
                named[name] = arguments[name]
            else:
                positional.append(arguments[name])
        return self.function(*positional, **named)

    def _by_position(self, structure: Any) -> list[Any] | None:
        """What a native call gives by position for this structure: LEAF for a tensor, else the object itself; None
        where there is no such call. Parameters at the end that have their defaults are left out."""
        parameters = list(self.signature.parameters.values())
        if "out" in self.signature.parameters:
            return None
        trees = [tree for _, tree in structure]
        while trees and trees[-1] is not LEAF and _is_default(parameters[len(trees) - 1], trees[-1]):
            trees.pop()
        for parameter, tree in zip(parameters, trees, strict=False):
            single = tree is LEAF or tree[0] == "static"
            if not single or parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                return None
        return [LEAF if tree is LEAF else unflatten(tree, iter(())) for tree in trees]

    def _finish(self, graph: Graph, structures: tuple[Any, Any], count: int, captured: list[Tensor], trace: Trace,
                updates: list[tuple[int, int]], specs: list[tuple[Any, ...]], owned: list[Owner]) -> Specialisation:
        guards = [record_words(dtype, sizes, contiguous_strides(sizes) if strides is None else strides)  # type: ignore
                  for dtype, sizes, strides in specs]
        called, structure = structures
        plain = structure is LEAF or count > 0 or structure == _NOTHING
        simple = plain and evaluation.settings.get().backend == "cpu"
        if simple:
            guards += [record_words(node.dtype, node.shape, contiguous_strides(node.shape))  # type: ignore[arg-type]
                       for node in graph.outputs[:count]]
        count_inputs = len(specs) + len(trace.states) + len(captured)
        first_captured = len(specs) + len(trace.states)
        own = {first_captured + i for i, tensor in enumerate(captured) if tensor._layout[4]}  # type: ignore[index]
        moved = [(output, len(specs) + number) for number, output in updates]
        plan = make_plan(graph, True, count_inputs, guards if simple else (), whole=self.whole, constants=own,
                         on_disk=True, updates=moved, budget=self.budget)
        program = plan.program
        inputs = {slot.index: i for i, slot in enumerate(program.slots) if slot.kind == "input"}
        uses = Uses(program)
        aliases = uses.in_place(moved)
        overlap = simple and count == 1 and all(uses.may_alias(program.outputs[0].slot, slot)
                                                for index, slot in inputs.items() if index < len(specs))
        states = States(trace.states, updates, aliases)
        given = self._by_position(called)
        direct = (simple and given is not None and len(plan.segments) == 1
                  and isinstance(plan.segments[0], Executable) and all(owner.is_parameter for owner in owned)
                  and all(program.slots[place.slot].kind == "result" for place in program.outputs)
                  and states.spare_bytes <= MOST_SPARE_BYTES)
        staged = [not uses.written_after_faults(place.slot) for place in program.outputs[:count]]
        bindings: list[tuple[str, int, int, int, int]] = []
        for number, (_, sizes, _) in enumerate(specs):
            for axis, size in enumerate(sizes):
                if isinstance(size, Dim) and size.is_symbol:
                    ((name, (least, most)),) = size.symbols.items()
                    if all(name != known[0] for known in bindings):
                        bindings.append((name, number, axis, least, most))
        self.fallbacks += sum(getattr(step, "fallback", False) for step in program.steps)
        layouts = [layout_of(tensor) for tensor in captured]
        needed = needed_elements(graph)
        least = sure_bounds(needed)
        return Specialisation(plan, structure, count, captured, layouts, states, updates, aliases, bindings, overlap,
                              direct and least is not None, staged, needed, least or {},
                              footprint(program, moved, threads.wanted_threads()), len(specs), given or [],
                              assumed=trace.assumed, notes=list(trace.notes))

    # -- running -------------------------------------------------------------------------------------------------------
    def _run(self, chosen: Specialisation, tensors: list[Tensor], out: Any) -> Any:
        plan, program = chosen.plan, chosen.plan.program
        sizes = {name: tensors[argument].shape[axis] for name, argument, axis, _, _ in chosen.bindings}
        self._check_sizes(chosen, tensors, sizes)
        check_elements(chosen.needed, sizes)
        captured = [_snapshot(tensor) for tensor in chosen.captured]
        values = [*tensors, *[state._tensor for state in chosen.states.states], *captured]
        if evaluation.settings.get().backend == "reference":
            return self._run_reference(chosen, values, out, sizes)
        addresses = [tensor._layout[0] for tensor in values]  # type: ignore[index]
        prepared = constants.prepared(self, chosen, captured, addresses)
        addresses += prepared.addresses
        given = self._targets(chosen, out, sizes, values)
        buffers: list[Buffer] = []
        for number, place in enumerate(program.outputs):
            shape = tuple(evaluate(size, sizes) for size in place.shape)
            buffers.append(self._result(chosen, number, shape, place.dtype, given, values))
        slots = {place.slot: buffer for place, buffer in zip(program.outputs, buffers, strict=True)}
        ordered = [slots[i].address for i, slot in enumerate(program.slots) if slot.kind == "result"]
        try:
            run_plan(plan, addresses, ordered, sizes)
        except BaseException:  # an error that is kept holds this frame: let the caller's memory go
            for held in (given, buffers, slots):
                held.clear()  # type: ignore[attr-defined]
            raise
        self._check_finite(chosen, buffers, values, sizes)
        return self._deliver(chosen, buffers, given)

    def _check_finite(self, chosen: Specialisation, buffers: list[Buffer], values: list[Tensor],
                      sizes: Mapping[str, int]) -> None:
        if evaluation.settings.get().nans:
            from morpho.tensor.debug import check_graph

            check_graph(chosen.plan.graph, [value.elements() for value in values], buffers, sizes, chosen.origins)

    def _check_sizes(self, chosen: Specialisation, tensors: list[Tensor], sizes: Mapping[str, Any]) -> None:
        """Dimensions that share a symbol must have the same size."""
        for parameter in chosen.plan.graph.parameters if sizes else ():
            if parameter["index"] >= len(tensors):
                continue
            actual = tensors[parameter["index"]].shape
            expected = tuple(evaluate(size, sizes) for size in parameter.shape)
            if actual != expected:
                raise fail(ArgumentError, self.__name__, f"argument {parameter['index']} has shape {actual}, but the "
                                                         f"dynamic dimensions {dict(sizes)} make it {expected}")

    def _result(self, chosen: Specialisation, number: int, shape: tuple[int, ...], dtype: Any,
                given: list[Target], values: list[Tensor]) -> Buffer:
        """Memory for a result: the caller's, a state's own, or new."""
        if number < len(given):
            buffer = given[number][1]
            same = [v._layout[0] == buffer.address for v in values]  # type: ignore[index]
            # Only arguments were looked at for `overlap`: what the function captured is never written over.
            overlap = chosen.overlap and not evaluation.settings.get().nans  # who is to blame needs the old values
            apart = (chosen.staged[number] or any(same[chosen.arguments:])
                     or (any(same[:chosen.arguments]) and not overlap))
            return allocate(shape, dtype) if apart else buffer
        if number in chosen.aliases and not evaluation.settings.get().nans:  # as above
            state = values[chosen.aliases[number]]
            if _is_alone(state) and state._layout[4]:  # type: ignore[index]
                state.claim()
                return state.elements()
        return allocate(shape, dtype)

    def _targets(self, chosen: Specialisation, out: Any, sizes: Mapping[str, int],
                 values: list[Tensor]) -> list[Target]:
        """The tensors of out=, each with its memory as it was when it was checked."""
        if out is None:
            return []
        leaves: list[Any] = []
        structure = flatten(out, leaves)
        if any(isinstance(leaf, np.ndarray) for leaf in leaves):
            raise fail(ArgumentError, self.__name__, "out= is a NumPy array, and borrowed memory is never written",
                       "use out=mo.empty(...), whose numpy() is a view without a copy")
        if structure != chosen.structure:
            raise fail(ArgumentError, self.__name__, "out= does not have the structure of the result",
                       "pass realised tensors in the same arrangement as the function returns")
        targets: list[Target] = []
        for target, place in zip(leaves, chosen.plan.program.outputs, strict=False):
            shape = tuple(evaluate(size, sizes) for size in place.shape)
            targets.append((target, self._checked_target(target, shape, place.dtype, values)))
        return targets

    def _checked_target(self, target: Tensor, shape: tuple[int, ...], dtype: Any, values: list[Tensor]) -> Buffer:
        held = target.elements()
        if held.shape != shape or held.dtype is not dtype:
            raise fail(ArgumentError, self.__name__, f"out= is {held.dtype}{held.shape}, the result is {dtype}{shape}",
                       f"use mo.empty({shape}, dtype={str(dtype)!r})")
        if not is_contiguous(held.shape, held.strides):
            raise fail(ArgumentError, self.__name__, "out= is not contiguous", "use mo.empty(...)")
        if not held.writable:
            raise fail(SharedError, self.__name__, "out= is borrowed memory, which is never written",
                       "use mo.empty(...), or mo.asarray(..., copy=True)")
        mine = sum(value._storage is held.storage for value in values)
        alone = _is_alone(target, 1 + mine)  # besides `held` and this call's own look at the arguments
        if not alone and not (constants.release(held.storage) and _is_alone(target, 1 + mine)):
            raise fail(SharedError, self.__name__, "out= shares its memory with another tensor, a pending expression "
                                                   "or an export", "drop those first, or use mo.empty(...)")
        target.claim()
        return held

    def _deliver(self, chosen: Specialisation, buffers: list[Buffer], given: list[Target]) -> Any:
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
                copy_bytes(memory.address, buffer.address, target.nbytes)
            target.claim()  # once more: another thread may have packed elements that were half written
            results.append(target)
        return arranged(chosen.structure, results)

    def _run_reference(self, chosen: Specialisation, values: list[Tensor], out: Any, sizes: Mapping[str, int]) -> Any:
        """One NumPy operation at a time, for checking and where nothing can be compiled."""
        from morpho.backends import reference

        def leaf(node: Node) -> Any:
            return reference.decode(values[node["index"]].elements().numpy(), node.dtype)

        graph = chosen.plan.graph
        arrays = reference.run_graph(graph.outputs, leaf, sizes)
        found = [evaluation.store(reference.encode(a, n.dtype), n) for a, n in zip(arrays, graph.outputs, strict=True)]
        self._check_finite(chosen, found, values, sizes)
        return self._deliver(chosen, found, self._targets(chosen, out, sizes, values))

    # -- looking inside ------------------------------------------------------------------------------------------------
    @property
    def stats(self) -> dict[str, Any]:
        """Plain numbers: nodes per pass, kernels, bytes, milliseconds, cache hits, calls, recompiles, fallbacks, ..."""
        return statistics(self)

    @property
    def calls(self) -> int:
        return int(self.words[ContextField.CALLS]) + self.slow_calls

    @property
    def native_calls(self) -> int:
        """Calls that the native entry served without Python."""
        return int(self.words[ContextField.CALLS])

    def explain(self) -> str:
        """What was folded, merged, removed, fused and planned for the last signature, and what it cost; after `measure`
        also the time of every step and the share of the machine's limit it reached."""
        return explain_text(self)

    def measure(self, *args: Any, repeats: int = 5, **kwargs: Any) -> dict[str, list[float]]:
        """Call it `repeats` times, timing every step; the least seconds of each, and what the machine would need.

        The steps run one by one, so each pays its call from Python, about a microsecond. States change as they do in
        ordinary calls.

        >>> import morpho as mo
        >>> f = mo.compile(lambda x: mo.softmax(x @ x, axis=-1))
        >>> times = f.measure(mo.ones((32, 32)))
        >>> sorted(times)
        ['measured_s', 'predicted_s']
        """
        if repeats < 1:
            raise fail(ArgumentError, "measure", f"repeats={repeats} is not positive")
        self._slow(*args, **kwargs)
        rounds: list[list[float]] = []
        for _ in range(repeats):
            evaluation.clock.seconds = []
            try:
                self._slow(*args, **kwargs)
            finally:
                rounds.append(evaluation.clock.seconds)
                evaluation.clock.seconds = None
        assert self.current is not None
        self.current.seconds = [min(times) for times in zip(*rounds, strict=True)]
        return {"measured_s": list(self.current.seconds), "predicted_s": predicted_seconds(self)}

    def dot(self, path: Any = None) -> str:
        """The optimised graph for Graphviz, also written to `path` if given."""
        if self.current is None:
            raise fail(ArgumentError, "dot", f"{self.__name__} has not been called yet")
        text = to_dot(self.current.plan.optimised)
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return text

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<compiled {self.__name__}{self.signature}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: bound to its instance, which is then a static argument."""
        return self if instance is None else _Bound(self, instance)


class _Bound:
    """A compiled method of one instance."""

    def __init__(self, compiled: Compiled, instance: Any) -> None:
        self._compiled, self._instance = compiled, instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(self._instance, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)


_OUT = sys.intern("out")
_NOTHING = flatten(None, [])


def _is_default(parameter: inspect.Parameter, tree: Any) -> bool:
    """Whether a parameter that is not given means this tree."""
    default = {parameter.VAR_POSITIONAL: (), parameter.VAR_KEYWORD: {}}.get(parameter.kind, parameter.default)
    leaves: list[Any] = []
    return default is not parameter.empty and flatten(default, leaves) == tree and not leaves


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


def compile(function: Callable[..., Any] | None = None, *, dynamic: Mapping[str, Any] | None = None,
            whole: bool = False, memory_budget: int | float | str | None = None) -> Any:
    """Make one native function of a function of tensors; also a decorator.

    Call the result like the original. The first call with new shapes or dtypes traces the function and compiles it;
    later ones run native code. `f(a, b, out=c)` writes into a tensor you own. `f.explain()` says what was done,
    `f.stats` holds the numbers, `f.dot("graph.dot")` draws the graph.

    function: takes and returns tensors, or tuples, lists and dicts of them. Python numbers and strings among its
        arguments are constants of the compiled code; tensors of the surroundings and `mo.State` slots are inputs.
    dynamic: sizes that may change without recompiling, by parameter and axis: `{"x": {0: mo.Dim("n", 1, 4096)}}`.
        For a parameter that is a tuple, list or dict of tensors, the same form with such a dict, or None, in place
        of each tensor: `{"pair": ({0: n}, None)}`.
    whole: refuse a function with parts that run on the host instead of in native code.
    memory_budget: the most memory a call may need, with its arguments, states and results: a number of bytes, a text
        such as "200MB", or a share of what it needs otherwise, up to 1.0. What does not fit is computed again instead
        of being kept, with the same bits; `f.explain()` says what. An error names the least that can be had.

    >>> import morpho as mo
    >>> f = mo.compile(lambda a, b: mo.gelu(a + b) * 0.5)
    >>> f(mo.ones(3), mo.ones(3)).numpy()
    array([0.97724986, 0.97724986, 0.97724986], dtype=float32)
    """
    if function is None:
        return lambda inner: compile(inner, dynamic=dynamic, whole=whole, memory_budget=memory_budget)
    if not callable(function):
        raise fail(ArgumentError, "compile", f"{type(function).__name__} is not a function")
    made = Compiled(function, dynamic, whole, _budget(memory_budget))
    _install_entry(made)
    return made


def _budget(given: int | float | str | None) -> Budget | None:
    if given is None:
        return None
    if isinstance(given, str):
        return Budget(parse_bytes(given))
    if isinstance(given, float) and 0 < given <= 1:
        return Budget(share=given)
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return Budget(given)
    raise fail(ArgumentError, "compile", f"memory_budget={given!r} is no amount of memory",
               'give bytes as a whole number, a text such as "200MB", or a share from above 0.0 to 1.0')


def _measure() -> bool:
    """Tell the driver where things lie inside objects, and route calls of `Compiled` to its native entry where this
    interpreter's objects look as expected."""
    probe = Compiled.__new__(Compiled)
    inside = [slot_offset(Tensor, name) for name in ("_record", "_storage", "_node", "_layout")]
    set_distances(Distances(ctypes.addressof(probe) - id(probe) + 8, *inside))
    return make_vectorcallable(Compiled, probe)


_entry_ready = _measure()


@cache
def _say_unknown() -> None:
    log.warning("this Python's objects are unknown to Morpho: compiled calls go through Python (said once)")


def _install_entry(made: Compiled) -> None:
    if not _entry_ready:
        _say_unknown()
    made.entry = native().entry
