"""One problem of a program by itself: its node, the views and the group it reads, on memory of its own.

What is timed is the native program of that slice, lowered with a choice; packing of constant operands is done before,
as it is in the whole program.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from morpho.backends.driver import threads
from morpho.backends.driver.executable import Executable
from morpho.base.dims import upper
from morpho.base.dtypes import DType
from morpho.base.target import current_target
from morpho.cost.dispatch_thresholds import DispatchThresholds
from morpho.cost.tuned_choices import NO_CHOICES, Choice, Problem
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, has_symbols, rebuild
from morpho.ir.views import is_view, look_through
from morpho.program.pipeline import ProgramContext, finish
from morpho.program.program import HostStep
from morpho.runtime.memory.pool import Allocation, pool

MOST_BYTES = 1 << 30  # of the memory that one slice may take
SMALL_NUMBERS = np.random.default_rng(0).uniform(-1.0, 1.0, 1 << 12)


class Unsliced(Exception):
    """A problem that cannot run by itself."""


def slice_graph(problem: Problem, constants: Collection[int]) -> tuple[Graph, set[int]]:
    """The node on parameters of its own, and the numbers of those that are constants: which of them are is asked of the
    roots of what it reads."""
    leaves: dict[int, Node] = {}
    fixed: set[int] = set()

    def inside(node: Node) -> Node:
        if node.op.kind == "source" and node.op.name != "parameter" and not _is_data(node):
            return node  # numbers and ranges
        if node.serial not in leaves:
            if is_view(node) and node.op.name != "pick" and len(node.inputs) == 1:
                leaves[node.serial] = rebuild(node, [inside(node.inputs[0])])
            elif node.op.name == "group" and node.attributes.get("waits"):
                leaves[node.serial] = rebuild(node, [inside(child) for child in node.inputs])
            else:
                number = sum(leaf.op.name == "parameter" for leaf in leaves.values())
                kept = {"strides": node["strides"]} if node.attributes.get("strides") is not None else {}
                if node.op.name == "parameter" and node["index"] in constants:
                    fixed.add(number)
                leaves[node.serial] = build("parameter", index=number, shape=node.shape, dtype=node.dtype, **kept)
        return leaves[node.serial]

    node = problem.node
    if has_symbols(node):
        raise Unsliced("a size is dynamic")
    return Graph((rebuild(node, [inside(child) for child in node.inputs]),)), fixed


def _is_data(node: Node) -> bool:
    return node.op.name == "data"


class Slice:
    """A problem that can be run with any choice; `call(choice)` compiles it once."""

    def __init__(self, problem: Problem, constants: Collection[int], thresholds: DispatchThresholds) -> None:
        self.problem = problem
        self.thresholds = replace(thresholds, choices=NO_CHOICES)
        self.graph, self.fixed = slice_graph(problem, constants)
        self.specs = [(node.shape, node.dtype, _elements(node)) for node in self.graph.parameters]
        needed = sum(count * dtype.itemsize for _, dtype, count in self.specs)
        if needed + sum(upper(_count(spec.shape)) * spec.dtype.itemsize for spec in problem.node.outputs) > MOST_BYTES:
            raise Unsliced("it takes more memory than tuning may")
        self.inputs = [_filled(count, dtype) for _, dtype, count in self.specs]
        self._fill_what_is_no_number()
        self._calls: dict[Choice, tuple[Callable[[], Any], int]] = {}  # with the bytes each holds, the latest last
        self._shared: dict[Any, Allocation] = {}  # results and arenas: one choice runs at a time

    def call(self, choice: Choice) -> Callable[[], Any]:
        """The compiled call of a choice. What it has packed is kept, as far as there is room for all of them."""
        found = self._calls.pop(choice, None) or self._compiled(choice)
        self._calls[choice] = found
        while len(self._calls) > 2 and sum(held for _, held in self._calls.values()) > MOST_BYTES:
            del self._calls[next(iter(self._calls))]
        return found[0]

    def _fill_what_is_no_number(self) -> None:
        """Rows and indices of a sparse operand, rows of equal length; a mask that lets all pass."""
        node = self.graph.outputs[0]
        for place, child in enumerate(node.inputs):
            root, _ = look_through(child, is_view)
            if root.op.name != "parameter" or root.dtype.numpy.kind not in "biu":
                continue
            count = self.specs[root["index"]][2]
            values = np.ones(count, root.dtype.numpy)
            if self.problem.kind == "sparse":
                rows, elements, _ = self.problem.sizes
                limit = upper(node.inputs[0].shape[0])
                values = (np.linspace(0, elements, count) if place == 2 else
                          np.arange(count) * 7919 % limit).astype(root.dtype.numpy)
            elif self.problem.kind != "attention":
                continue
            ctypes.memmove(self.inputs[root["index"]].address, values.ctypes.data, values.nbytes)

    def bits(self, choice: Choice) -> list[bytes]:
        """Result of a choice, byte for byte."""
        self.call(choice)()
        return [ctypes.string_at(self._shared[name].address, name[2]) for name in sorted(
            name for name in self._shared if name[0] == "result")]

    def _room(self, name: tuple[Any, ...], nbytes: int) -> Allocation:
        """Memory that all choices use in turn, grown where one needs more."""
        found = self._shared.get(name)
        if found is None or found.capacity < nbytes:
            found = self._shared[name] = pool().acquire(max(1, nbytes))
        return found

    def _compiled(self, choice: Choice) -> tuple[Callable[[], Any], int]:
        dispatch = replace(self.thresholds, choices=NO_CHOICES.with_choice(self.problem.key, choice))
        from morpho.backends.lowering.lower_graph import build_program

        program = build_program(self.graph, True, len(self.specs), current_target(), self.fixed, dispatch)
        if self.problem.key not in program.problems:
            raise Unsliced("by itself it is another problem")
        if any(isinstance(step, HostStep) for step in program.steps):
            raise Unsliced("it runs on the host")
        finish(program, ProgramContext(threads.wanted_threads(), dispatch, self.fixed, own_outputs=True))
        kept = [pool().acquire(max(1, program.slots[slot].nbytes)) for slot in program.kept]
        inputs = [block.address for block in (*self.inputs, *kept)]
        results = [self._room(("result", slot.index, slot.nbytes), slot.nbytes) for slot in program.slots
                   if slot.kind == "result"]
        addresses = [*inputs, *(block.address for block in results)]
        if program.prepare:
            once = Executable(program, program.prepare, dispatch)
            room = self._room(("arena",), program.arena_bytes + once.scratch_needed({}))
            once.run([*inputs, *[0] * len(results)], {}, room.address)
        executable = Executable(program, program.steps, dispatch)
        arena = self._room(("arena",), program.arena_bytes + executable.scratch_needed({}))

        def call(keep: Any = (kept, arena, results)) -> Any:
            executable.run(addresses, {}, arena.address)

        return call, sum(program.slots[slot].nbytes for slot in program.kept)


def _count(shape: Any) -> Any:
    total: Any = 1
    for size in shape:
        total = total * size
    return total


def _elements(node: Node) -> int:
    """Elements of the memory that a parameter lies in: strides may reach beyond its own."""
    strides = node.attributes.get("strides")
    if strides is None:
        return upper(_count(node.shape))
    if any(upper(stride) < 0 for stride in strides):
        raise Unsliced("it is read backwards")
    return 1 + sum((upper(size) - 1) * upper(stride) for size, stride in zip(node.shape, strides, strict=True))


def _filled(count: int, dtype: DType) -> Allocation:
    """Memory with small numbers in it: zeros are no work for some processors, and subnormal ones too much."""
    block = pool().acquire(max(1, count * dtype.itemsize))
    values: np.ndarray = np.zeros(1, np.uint8)  # what is no number of a kernel's, such as an index
    if dtype.name == "bfloat16":
        values = (SMALL_NUMBERS.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif dtype.numpy.kind in "fc":
        values = SMALL_NUMBERS.astype(dtype.numpy)
    data = np.resize(values.view(np.uint8), count * dtype.itemsize)
    ctypes.memmove(block.address, data.ctypes.data, data.nbytes)
    return block


def seconds_of(call: Callable[[], Any], least_s: float, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one call: of as many as take `least_s` together, after one that is not timed. Infinitely many where
    the clock says that time is over, by infinity."""
    started = clock()
    call()
    one = max(clock() - started, 1e-7)
    if not math.isfinite(one):
        return math.inf
    count = max(1, min(10_000, int(least_s / one)))
    started = clock()
    for _ in range(count):
        call()
    taken = clock() - started
    return math.inf if math.isnan(taken) else taken / count
