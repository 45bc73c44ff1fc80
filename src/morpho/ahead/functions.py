"""From a Python function to a program and its tables for one instruction set."""

from __future__ import annotations

import ctypes
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from morpho.ahead.targets import ExportTarget
from morpho.backends.driver.executable import Executable
from morpho.backends.driver.portable import Buffer, Copied, EntryPlan, Place, PortableTables
from morpho.backends.lowering.lower_graph import build_program
from morpho.backends.registry import HOST
from morpho.base import settings
from morpho.base.dims import Dim, Size, bounds, product, upper
from morpho.base.dtypes import DType, uint8
from morpho.base.errors import ArgumentError, CompileError, fail
from morpho.base.machine import Isa
from morpho.base.trees import flatten
from morpho.base.units import format_bytes
from morpho.cost.dispatch_thresholds import defaults_for
from morpho.ir.graph import Graph
from morpho.passes.pipeline import optimise
from morpho.program.footprint import Uses
from morpho.program.pipeline import ProgramContext, finish
from morpho.program.program import Control, HostStep, Program, Step
from morpho.runtime import thresholds
from morpho.runtime.memory.buffer import allocate
from morpho.runtime.plans import evaluate as evaluation
from morpho.tensor.core import Tensor
from morpho.tensor.jit import slow_path, tracing
from morpho.tensor.jit.compile import Compiled
from morpho.tensor.jit.dynamic import needed_elements, owners, sure_bounds
from morpho.tensor.jit.specialise import capture

C_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
C_KEYWORDS = frozenset([
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float",
    "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof",
    "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while",
    "class", "new", "delete", "this", "template", "typename", "namespace", "operator", "private", "public", "virtual",
    "weights", "workspace", "threads", "args", "bool"])
LINE = 64


class Field(NamedTuple):
    """A tensor of a call: one member of the C struct."""

    name: str
    role: str  # input, state, output
    dtype: DType
    shape: tuple[Size, ...]

    @property
    def bytes(self) -> Size:
        return product(self.shape) * self.dtype.itemsize


@dataclass
class Traced:
    """A function traced on examples: what is the same for every target. States that no function of the library writes
    are constants, such as the weights of a module."""

    name: str
    graph: Graph
    arguments: list[Field]
    results: list[Field]
    inputs: int
    states: list[Any]
    updates: list[tuple[int, int]]  # (state, output)
    captured: list[Tensor]
    outputs: int
    symbols: dict[str, tuple[int, int]]  # bounds of dynamic sizes
    state_names: dict[int, str] = field(default_factory=dict)  # of the caller's states, by their numbers

    @property
    def fields(self) -> list[Field]:
        """The buffers of a call in order: arguments, states, results."""
        held = [Field(name, "state", self.states[number]._tensor.dtype, tuple(self.states[number]._tensor.shape))
                for number, name in self.state_names.items()]
        return [*self.arguments, *held, *self.results]

    def field_of_state(self, number: int) -> int:
        """The number of a state's buffer."""
        return self.inputs + list(self.state_names).index(number)


@dataclass
class Constant:
    """Elements that a program reads besides its arguments."""

    slot: int
    array: np.ndarray  # of bytes


@dataclass
class Lowered:
    """A traced function as a program for one instruction set."""

    traced: Traced
    isa: Isa
    program: Program
    tables: PortableTables
    constants: list[Constant]
    entry: EntryPlan
    at: dict[int, int] = field(default_factory=dict)  # slot -> byte of the weights


def c_name(text: str, fallback: str) -> str:
    """A name for C that is like a Python expression: `x[0]['w']` is `x_0_w`."""
    found = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_") or fallback
    if found[0].isdigit() or found in C_KEYWORDS or keyword.iskeyword(found):
        found = f"{fallback}_{found}"
    return found


def _distinct(names: Sequence[str]) -> list[str]:
    used: set[str] = set()
    found = []
    for name in names:
        number, other = 2, name
        while other in used:
            other, number = f"{name}_{number}", number + 1
        used.add(other)
        found.append(other)
    return found


def trace(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], name: str,
          dynamic: Mapping[str, Any] | None, inputs: Sequence[str] = (), outputs_named: Sequence[str] = ()) -> Traced:
    """Trace a function on examples. `inputs` and `outputs_named` are names in place of the function's own. What no
    library can do is refused here, at the user's line."""
    if isinstance(function, Compiled):
        if dynamic is not None:
            raise fail(ArgumentError, "export", "dynamic= is given, and the function is compiled already",
                       "give dynamic= to mo.compile, or export the plain function")
        made = Compiled(function.function, function.dynamic, True)
    elif callable(function):
        made = Compiled(function, dynamic, True)
    else:
        raise fail(ArgumentError, "export", f"{type(function).__name__} is not a function")
    args, kwargs = slow_path.borrowed(args, kwargs)
    leaves: list[Any] = []
    structure = tuple((key, flatten(value, leaves)) for key, value in slow_path._bind(made, args, kwargs).items())
    tensors = [slow_path._argument(leaf) for leaf in leaves]
    owned = owners(structure, made.dynamic, made.__name__)
    specs = [tracing._spec(made, tensor, owner) for tensor, owner in zip(tensors, owned, strict=True)]
    for (_, _, strides, _), owner in zip(specs, owned, strict=True):
        if strides is not None:
            raise fail(ArgumentError, "export", f"the example of {owner.name} is not contiguous",
                       "give a contiguous example: callers of the library pass plain arrays")
    run = tracing._run_traced(made, structure, specs, {})
    if run.trace.counted:
        size, node = run.trace.counted[0]
        raise fail(CompileError, "export", f"the size {size} depends on data, which a caller of a library cannot know",
                   "use mo.where, or a size= that is fixed", line=node.origin)
    if run.trace.collectives:
        raise fail(CompileError, "export", "the function sends to other ranks, which a library has none of",
                   "export what one rank computes")
    graph, captured = capture(run.nodes, run.trace)
    device = evaluation.device_of([*run.nodes, *[tensor.node for tensor in run.parameters]])
    if device != HOST:
        raise fail(CompileError, "export", f"the function computes on {device}, and libraries run on processors",
                   "call tensor.to('cpu') and export again")
    results = list(outputs_named) if len(outputs_named) == run.outputs else _output_names(run)
    given = list(inputs) if len(inputs) == len(owned) else [c_name(owner.name, "x") for owner in owned]
    names = _distinct([*given, *results])
    arguments = [Field(names[i], "input", dtype, tuple(sizes)) for i, (dtype, sizes, *_) in enumerate(specs)]
    outputs = [Field(names[len(specs) + i], "output", dtype, tuple(shape))
               for i, (shape, dtype) in enumerate(graph.specs[:run.outputs])]
    symbols = {name: limits for each in (*arguments, *outputs) for size in each.shape if isinstance(size, Dim)
               for name, limits in size.symbols.items()}
    if symbols:
        least = sure_bounds(needed_elements(graph)) or {}
        symbols = {name: (max(low, least.get(name, low)), high) for name, (low, high) in symbols.items()}
    return Traced(name, graph, arguments, outputs, len(specs), list(run.trace.states), run.updates, captured,
                  run.outputs, symbols)


def name_states(traced: Sequence[Traced]) -> dict[str, Any]:
    """Give every state that a function of the library writes one name in all of them; the states by name."""
    written = {id(each.states[number]): each.states[number] for each in traced for number, _ in each.updates}
    known: dict[int, str] = {}
    taken = {field.name for each in traced for field in (*each.arguments, *each.results)}
    for each in traced:
        for state in each.states:
            if id(state) in written and id(state) not in known:
                known[id(state)] = next(name for number in range(len(known), 1 << 30)
                                        if (name := f"state{number}") not in taken)
                taken.add(known[id(state)])
    for each in traced:
        each.state_names = {number: known[id(state)] for number, state in enumerate(each.states) if id(state) in known}
    return {name: written[key] for key, name in known.items()}


def _output_names(run: Any) -> list[str]:
    """Names of results: keys of a dict, else out, out0, out1, ..."""
    if run.outputs == 1:
        return ["out"]
    keys = run.structure[1] if isinstance(run.structure, tuple) and run.structure[0] == "dict" else ()
    if len(keys) == run.outputs and all(isinstance(key, str) for key in keys):
        return [c_name(key, "out") for key in keys]
    return [f"out{number}" for number in range(run.outputs)]


# -- for one instruction set -------------------------------------------------------------------------------------------
def lower(traced: Traced, target: ExportTarget, isa: Isa, threads: int, symbol: str) -> Lowered:
    """The program of a traced function. Packed weights and other values that follow from constants are computed here,
    by the same kernels in this machine's instructions."""
    count = traced.inputs + len(traced.states) + len(traced.captured)
    fixed = {traced.inputs + number: state._tensor for number, state in enumerate(traced.states)
             if number not in traced.state_names}
    fixed |= {traced.inputs + len(traced.states) + number: tensor for number, tensor in enumerate(traced.captured)}
    own = set(fixed)
    moved = [(output, traced.inputs + number) for number, output in traced.updates]
    chosen = settings.get()
    lowering = target.lowering(isa, threads)
    dispatch = thresholds.current() if target.name == "native" else defaults_for(lowering.vector_bits)
    optimised, _ = optimise(traced.graph, chosen.level, chosen.passes_off, False, moved, None, None)
    program = build_program(optimised, True, count, lowering, own, dispatch)
    finish(program, ProgramContext(threads, dispatch, own, moved, True,
                                   concurrent=chosen.co_schedule and chosen.level > 0 and threads > 1,
                                   reuse=chosen.level > 0))
    _refuse(program)
    constants = _constants(fixed, count, program)
    sizes = [each.bytes for each in traced.fields]
    tables = PortableTables(program, dispatch, threads, [sizes])
    entry = _entry(traced, program, tables, moved, threads, symbol)
    return Lowered(traced, isa, program, tables, constants, entry)


def _refuse(program: Program) -> None:
    """Say what needs Python or another library while it runs, with the line that wrote it."""
    for step in (*program.steps, *program.prepare):
        if isinstance(step, HostStep):
            raise fail(CompileError, "export", f"{step.label} runs in Python, and a library has none",
                       "compute it outside, and pass its result as an argument", line=step.origin)
        if isinstance(step, Step) and hasattr(step.kernel, "routines") and step in program.steps:
            raise fail(CompileError, "export", f"{step.label} calls LAPACK, which a library does not bring along",
                       "compute it outside, and pass its result as an argument", line=step.origin)
        if isinstance(step, Control) and step.kind == "memory":
            raise fail(CompileError, "export", f"{step.label} reads memory that Python finds", line=step.origin)
    if program.arena_bytes > evaluation.MOST_BYTES:
        raise fail(ArgumentError, "export", f"at the upper bounds of its dynamic sizes the function needs "
                                            f"{format_bytes(program.arena_bytes)} for temporaries",
                   "give mo.Dim a smaller upper bound")


def _constants(fixed: Mapping[int, Tensor], count: int, program: Program) -> list[Constant]:
    """Tensors by the numbers of inputs, and what was computed from them, that a call reads."""
    tensors = {number: slow_path._snapshot(tensor) for number, tensor in fixed.items()}
    addresses = [tensors[number]._layout[0] if number in tensors else 0 for number in range(count)]  # type: ignore[index]
    buffers = [allocate((int(upper(program.slots[slot].elements)),), program.slots[slot].dtype)
               for slot in program.kept]
    if program.prepare:
        executable = Executable(program, program.prepare, thresholds.current())
        results = sum(slot.kind == "result" for slot in program.slots)
        room = allocate((program.arena_bytes + executable.scratch_needed({}) + LINE,), uint8)
        status = executable.run([*addresses, *[each.address for each in buffers], *[0] * results], {}, room.address)
        if status:
            raise fail(CompileError, "export", f"what follows from the weights could not be computed (status {status})",
                       "look at the values of the weights")
    read = {place.slot for step in program.steps for place in step.reads}
    constants = []
    for number, slot in enumerate(program.slots):
        if slot.kind != "input" or number not in read:
            continue
        if slot.index in tensors:
            constants.append(Constant(number, _elements(tensors[slot.index])))
        elif slot.index >= count:
            buffer = buffers[list(program.kept).index(number)]
            constants.append(Constant(number, np.frombuffer(_view(buffer.address, slot.nbytes), np.uint8).copy()))
    return constants


def _view(address: int, nbytes: int) -> Any:
    return (ctypes.c_uint8 * nbytes).from_address(address)


def _elements(tensor: Tensor) -> np.ndarray:
    """The memory that a captured tensor's view reads, from its first element on."""
    address, shape, strides, dtype, _ = tensor._layout  # type: ignore[misc]
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    if any(step < 0 for step in steps):
        raise fail(ArgumentError, "export", "a captured tensor runs backwards in memory", "copy it: mo.asarray(x, "
                                                                                          "copy=True)")
    nbytes = (sum(steps) + 1) * dtype.itemsize if all(shape) else 0
    return np.frombuffer(_view(address, nbytes), np.uint8).copy()


def _entry(traced: Traced, program: Program, tables: PortableTables, moved: Sequence[tuple[int, int]], threads: int,
           symbol: str) -> EntryPlan:
    _, first_bytes = tables.guards[0]
    aliases = Uses(program).in_place(moved)
    places: dict[int, Place] = {}
    fields = {number: number for number in range(traced.inputs)}
    fields |= {traced.inputs + number: traced.field_of_state(number) for number in traced.state_names}
    for number, slot in enumerate(program.slots):
        if slot.kind == "input" and slot.index in fields:
            places[tables.slot_number[number]] = Place("field", fields[slot.index])
    at = values_bytes = -(-8 * len(tables.table.sizes) // LINE) * LINE if tables.symbols else 0
    first_output = traced.inputs + len(traced.state_names)
    written: dict[int, Place] = {}  # by slot
    copies = []
    state_of = {output: traced.field_of_state(number) for number, output in traced.updates}
    for output, view in enumerate(program.outputs):
        number = first_output + output if output < traced.outputs else state_of[output]
        target = Place("field", number)
        if program.slots[view.slot].kind != "result" or view.offset != 0:
            raise fail(CompileError, "export", f"result {output} is memory of another one",
                       "return a copy of it: x + 0")
        if view.slot in written:
            copies.append(Copied(written[view.slot], target, first_bytes + number))
            continue
        if output >= traced.outputs and output not in aliases:  # other steps still read the old value
            staged = Place("workspace", at)
            at += -(-program.slots[view.slot].nbytes // LINE) * LINE
            copies.append(Copied(staged, target, first_bytes + number))
            target = staged
        written[view.slot] = target
        places[tables.slot_number[view.slot]] = target
    arena_at = at
    scratch_at = arena_at + -(-program.arena_bytes // LINE) * LINE
    arena = next((tables.slot_number[n] for n, slot in enumerate(program.slots) if slot.kind == "temporary"), None)
    if arena is not None:
        places[arena] = Place("workspace", arena_at)
    scratch = max((step.scratch_bytes(threads) for step in program.steps if isinstance(step, Step)), default=0)
    workspace = scratch_at + scratch
    buffers = [Buffer(first_bytes + number, each.dtype.itemsize // (2 if each.dtype.numpy.kind == "c" else 1))
               for number, each in enumerate(traced.fields)]
    limits = [traced.symbols[name] for name in tables.symbols]
    return EntryPlan(symbol, tables, buffers, places, limits, workspace, values_bytes, arena_at, scratch_at, threads,
                     copies=copies)


def largest(field: Field) -> int:
    """The bytes of a field at the upper bounds of its sizes."""
    return int(upper(field.bytes))


def limits(size: Size) -> tuple[int, int]:
    """The least and the most of a size."""
    return bounds(size) if isinstance(size, Dim) else (size, size)
