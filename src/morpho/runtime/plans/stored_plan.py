"""Finished plans on disk: a traced graph that was compiled before, by any process, skips passes, lowering and LLVM.

The key is the digest of the traced graph with everything else that decides a plan: settings, threads, dispatch
thresholds, instruction set, and Morpho's own source. The value is the program as JSON; its kernels are named by
the keys of their code, which lies beside it. What was read is checked before it is used, and made again when anything
is odd. Plans with host steps, and those that operations, patterns or passes of a user's take part in, are not kept.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, get_args

from morpho.backends.code.compiler import code
from morpho.backends.driver import threads
from morpho.base import settings
from morpho.base.dims import Dim, Size
from morpho.base.dtypes import BY_NAME, DType
from morpho.base.errors import user_line
from morpho.base.machine import machine
from morpho.base.target import current_isa
from morpho.ir.deferred import DeferredGraph
from morpho.ir.graph import Graph, Unkeyed
from morpho.ir.op import REGISTRY, foreign
from morpho.passes import pipeline
from morpho.passes.memory.liveness import Updates
from morpho.passes.pipeline import Report
from morpho.passes.remat.remat import Budget, Recomputed
from morpho.program.co_schedule import AHEAD, is_sound
from morpho.program.kernel import Role
from morpho.program.program import Control, Cursor, Program, Slot, Step, is_nested
from morpho.program.view import View
from morpho.runtime import thresholds
from morpho.runtime.code_cache import store  # noqa: F401  (compiled code is kept from here on)
from morpho.runtime.code_cache.disk import Damaged

LEAST, MOST = -(1 << 63), (1 << 63) - 1
MOST_FIGURE = 1 << 200  # at the upper bounds of dynamic sizes
KINDS = ("input", "result", "temporary", "cursor")
KEY = re.compile(r"[0-9a-f]{64}")
NO_LINE = -1


@dataclass
class StoredPlan:
    """Content of one file: the program, and the numbers about the passes that `stats` shows."""

    program: Program
    report: Report
    figures: dict[str, int]


def plan_key(graph: Graph, own_outputs: bool, inputs: int, constants: Collection[int],
             updates: Updates = (), budget: Budget | None = None) -> str | None:
    """The disk key of a graph's plan here and now; None when it is not to be kept. The order in which an einsum
    contracts is part of the graph, whatever rates chose it; dispatch thresholds decide about kernels and are part of
    the key, so that a machine that was measured does not take plans made before."""
    if code.disk_cache() is None or pipeline.checking or not _is_plain(graph):
        return None
    try:
        digest = graph.digest()
    except Unkeyed:
        return None
    chosen = settings.get()
    parts = (digest, own_outputs, inputs, sorted(constants), tuple(updates), budget, chosen.code_key(),
             threads.wanted_threads(), machine().cores, machine().l1_bytes,
             machine().l2_bytes, thresholds.current(),
             code.code_key("plan", current_isa()))  # with the version of the source
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _is_plain(graph: Graph) -> bool:
    """Whether Morpho's own operations, rules and passes alone make the plan."""
    if not foreign:
        return True
    elsewhere = foreign - REGISTRY.keys()
    return not elsewhere and not any(node.op.name in foreign for node in graph.nodes)


# -- writing ---------------------------------------------------------------------------------------------------------
def save(key: str, graph: Graph, plan: StoredPlan) -> bool:
    """Keep a plan without host steps, and say whether the disk took it."""
    disk = code.disk_cache()
    return disk is not None and disk.put(key, json.dumps(_Writer(graph).plan(plan), separators=(",", ":")).encode())


class _Writer:
    """A plan as lists and numbers, in the order in which `_Reader` takes them apart."""

    def __init__(self, graph: Graph) -> None:
        self.lines: dict[str, int] = {}  # a user's line -> the first traced node that has it
        for number, node in enumerate(graph.nodes):
            self.lines.setdefault(node.origin, number)
        self.kernels: dict[Any, int] = {}

    def plan(self, plan: StoredPlan) -> dict[str, Any]:
        program = plan.program
        steps = [[self.control(step) if isinstance(step, Control) else self.step(step) for step in part
                  if isinstance(step, Step | Control)] for part in (program.steps, program.prepare)]
        return {
            "slots": [[s.kind, s.dtype.name, _number(s.elements), s.index, s.offset] for s in program.slots],
            "kernels": [astuple(code.stored_kernel(kernel))[:-1] for kernel in self.kernels],
            "steps": steps[0], "prepare": steps[1],
            "outputs": [self.place(place) for place in program.outputs],
            "kept": [[slot, read] for slot, read in program.kept.items()],
            "bytes": [program.copies, program.arena_bytes, program.liveness_bytes, program.reused_bytes],
            "passes": {name: [row["before"], row["after"]] for name, row in plan.report.passes.items()},
            "program": {name: [row["before"], row["after"]] for name, row in plan.report.program.items()},
            "ways": program.ways, "rules": plan.report.rules, "rolled": plan.report.rolled, "figures": plan.figures,
            "recomputed": None if plan.report.recomputed is None else asdict(plan.report.recomputed)}

    def step(self, step: Step) -> list[Any]:
        return [self.kernel(step.kernel), None if step.epilogue is None else self.kernel(step.epilogue),
                [None if place is None else self.place(place) for place in step.views], step.writes,
                [_number(n) for n in step.values], _number(step.rows), _number(step.columns), step.label,
                self.lines.get(step.origin, NO_LINE), step.splits_columns, step.in_place, step.scratch, step.threads,
                None if step.operations is None else _number(step.operations), step.checked,
                step.together, None if step.prologue is None else self.kernel(step.prologue), step.prologue_at,
                [_number(n) for n in step.sizes], step.choice]

    def control(self, step: Control) -> dict[str, Any]:
        """A mark of a loop or a branch."""
        def cursor(cursor: Cursor) -> list[Any]:
            return [cursor.slot, self.place(cursor.base), _number(cursor.stride)]

        return {"kind": step.kind, "number": step.number, "label": step.label,
                "line": self.lines.get(step.origin, NO_LINE),
                "turns": None if step.turns is None else _number(step.turns),
                "moving": [cursor(one) for one in step.moving],
                "carried": [[cursor(one), cursor(other)] for one, other in step.carried],
                "value": None if step.value is None else self.place(step.value), "backwards": step.backwards,
                "reads": [self.place(place) for place in step.reads],
                "written": [self.place(place) for place in step.written]}

    def kernel(self, kernel: Any) -> int:
        return self.kernels.setdefault(kernel, len(self.kernels))

    @staticmethod
    def place(place: View) -> list[Any]:
        return [place.slot, _number(place.offset), [_number(n) for n in place.shape],
                [_number(n) for n in place.strides], place.dtype.name, bool(place.borders)]


def _number(size: Size) -> Any:
    """A number, or the terms of a polynomial over dynamic sizes."""
    return size.terms if isinstance(size, Dim) else int(size)


# -- reading ---------------------------------------------------------------------------------------------------------
def load(key: str, graph: Graph, inputs: int) -> StoredPlan | None:
    """The plan of a graph of so many inputs, its kernels' code in memory; None when the disk has none that holds."""
    disk = code.disk_cache()
    data = disk.get(key) if disk is not None else None
    if disk is None or data is None:
        return None
    try:
        reader = _Reader(graph, inputs, json.loads(data))
        plan = reader.plan()
    except (Damaged, ValueError, TypeError, LookupError, AttributeError, RecursionError) as reason:
        disk.reject(key, f"it holds no plan of this graph ({reason})")
        return None
    if not code.load_kernels([kernel.key for kernel in reader.kernels]):
        return None
    code.counters.plan_hits += 1
    return plan


class _Reader:
    """Builds a program from parsed JSON, believing nothing: every number has its kind and its bounds."""

    def __init__(self, graph: Graph, inputs: int, content: Any) -> None:
        self.graph, self.inputs, self.content = graph, inputs, content
        self.symbols = {symbol for node in graph.parameters for size in node.shape if isinstance(size, Dim)
                        for monomial, _ in size.terms for symbol in monomial}
        if not isinstance(graph, DeferredGraph):  # whose sizes are known before the call
            self.symbols |= {symbol for node in graph.nodes if node.op.name == "counted"
                             for monomial, _ in node["size"].terms for symbol in monomial}
        self.kernels: list[code.StoredKernel] = []
        self.slots: list[Slot] = []
        self.dims: dict[str, Dim] = {}
        self.polynomials: dict[str, Size] = {}
        self.here: str | None = None
        self.slices: dict[int, tuple[int, int] | None] = {}  # cursor's slot -> bytes that one slice reaches over

    def plan(self) -> StoredPlan:
        content = self.content
        _check(isinstance(content, dict), "no table")
        copies, arena, liveness, reused = (_integer(n) for n in content["bytes"])
        self.slots = [self.slot(row, arena) for row in content["slots"]]
        self.kernels = [self.kernel(row) for row in content["kernels"]]
        program = Program(self.slots, self.steps(content["steps"]), [self.place(row) for row in content["outputs"]],
                          self.steps(content["prepare"]), dict(self.kept(row) for row in content["kept"]),
                          copies, arena, liveness, reused, ways={
                              _word(op): {_word(way): _integer(count) for way, count in rows.items()}
                              for op, rows in content["ways"].items()})
        self.check_ends(program)
        _check(is_sound(program), "a co-scheduled launch of steps that depend on each other")
        passes, over_program = (
            {_word(name): {"before": _integer(before), "after": _integer(after), "ms": 0.0}
             for name, (before, after) in content[part].items()} for part in ("passes", "program"))
        rules = {_word(name): _integer(count) for name, count in content["rules"].items()}
        figures = {_word(name): _integer(figure, MOST_FIGURE) for name, figure in content["figures"].items()}
        report = Report(passes, rules, recomputed=_recomputed(content["recomputed"]), program=over_program,
                        rolled=[_integer(turns) for turns in content["rolled"]])
        return StoredPlan(program, report, figures)

    def check_ends(self, program: Program) -> None:
        """Inputs and outputs are those of the graph; an input that passes found no need of is of no dtype."""
        used = {place.slot for step in (*program.steps, *program.prepare) for place in step.reads}
        used |= {place.slot for place in program.outputs}
        for node in self.graph.parameters:
            slot = program.slots[node["index"]]
            _check(slot.kind == "input" and (slot.dtype is node.dtype or node["index"] not in used), "another input")
        wanted = {"input": self.inputs + len(program.kept), "result": len({place.slot for place in program.outputs})}
        found = [(place.shape, place.dtype) for place in program.outputs]
        _check(found == list(self.graph.specs), "other outputs")
        for kind, count in wanted.items():
            numbers = sorted(slot.index for slot in program.slots if slot.kind == kind)
            _check(numbers == list(range(count)), f"a missing {kind}")

    def slot(self, row: Any, arena: int) -> Slot:
        kind, dtype, elements, index, offset = row
        _check(kind in KINDS, "an unknown kind of slot")
        slot = Slot(kind, _dtype(dtype), self.size(elements), _integer(index), _integer(offset))
        if kind == "temporary":
            _check(offset + slot.nbytes <= arena or slot.nbytes == 0, "a temporary outside its arena")
        return slot

    def kernel(self, row: Any) -> code.StoredKernel:
        key, flops, per_column, scratch, *flags, gathered, role = row
        _check(isinstance(key, str) and KEY.fullmatch(key) is not None, "no key")
        _check(role in get_args(Role), "an unknown role")
        transposed, may_fault, one_by_one, uneven, unit = (_flag(flag) for flag in flags)
        return code.StoredKernel(key, _integer(flops), _integer(per_column), _integer(scratch), transposed, may_fault,
                                 one_by_one, uneven, unit, tuple(_integer(n) for n in gathered), role)

    def kept(self, row: Any) -> tuple[int, bool]:
        slot, read = row
        return _integer(slot, len(self.slots) - 1), _flag(read)

    def steps(self, rows: Any) -> list[Any]:
        found = [self.control(row) if isinstance(row, dict) else self.step(row) for row in rows]
        _check(is_nested([step for step in found if isinstance(step, Control)]), "marks of loops in no order")
        return found

    def control(self, row: dict[str, Any]) -> Control:
        turns, value = row["turns"], row["value"]
        return Control(_word(row["kind"]), _integer(row["number"]), _word(row["label"]), self.origin(row["line"]),
                       None if turns is None else self.size(turns),
                       tuple([self.cursor(one, turns) for one in row["moving"]]),
                       tuple([(self.cursor(one), self.cursor(other)) for one, other in row["carried"]]),
                       None if value is None else self.place(value), _flag(row["backwards"]),
                       [self.place(place) for place in row["reads"]], [self.place(place) for place in row["written"]])

    def cursor(self, row: Any, turns: Any = 1) -> Cursor:
        """A slot and the memory it moves over, all turns of which lie in that."""
        slot, base, stride = row
        _check(self.slots[_integer(slot, len(self.slots) - 1)].kind == "cursor", "a cursor that is none")
        found = Cursor(slot, self.place(base), self.size(stride))
        first = found.base
        reach = _reach(replace(first, offset=0))
        _check(self.slices.setdefault(slot, reach) == reach, "a cursor of two slices")
        moved = View(first.slot, first.offset, (turns, *first.shape), (found.stride, *first.strides), first.dtype)
        if type(turns) is int and type(found.stride) is int and turns > 0:
            inside = self.slots[moved.slot].kind in ("input", "cursor") or _is_inside(moved, self.slots[moved.slot])
            _check(inside, "a cursor outside its slot")
        return found

    def step(self, row: Any) -> Step:
        (kernel, epilogue, places, writes, values, rows, columns, label, line, splits, in_place, scratch, shared,
         operations, checked, together, prologue, prologue_at, sizes, choice) = row
        last = len(self.kernels) - 1
        _check(shared in ("auto", "one", "many", "library"), "an unknown choice of threads")
        found = tuple([None if place is None else self.place(place) for place in places])
        return Step(self.kernels[_integer(kernel, last)], found,
                    tuple([_integer(n, len(found) - 1) for n in writes]), self.sizes(values), self.size(rows),
                    self.size(columns), _word(label), self.origin(line), _flag(splits), _flag(in_place),
                    None if epilogue is None else self.kernels[_integer(epilogue, last)],
                    _integer(scratch), shared, None if operations is None else self.size(operations), _flag(checked),
                    _integer(together, AHEAD),
                    None if prologue is None else self.kernels[_integer(prologue, last)],
                    _integer(prologue_at, len(found)), sizes=self.sizes(sizes), choice=_word(choice))

    def origin(self, line: Any) -> str:
        """The user's line of a traced node; of what passes made anew, the line that asks for the plan, as ever."""
        if line == NO_LINE:
            if self.here is None:
                self.here = user_line()
            return self.here
        return self.graph.line(_integer(line, len(self.graph) - 1))

    def place(self, row: Any) -> View:
        number, offset, shape, strides, dtype, bordered = row  # borders themselves are among the step's numbers
        place = View(_integer(number, len(self.slots) - 1), self.size(offset), self.sizes(shape), self.sizes(strides),
                      _dtype(dtype))
        _check(len(shape) == len(strides), "a place of two ranks")
        _check(_flag(bordered) or self.slots[number].kind == "input" or self.is_inside(place),
               "a place outside its slot")
        return place

    def is_inside(self, place: View) -> bool:
        """Whether a place lies in its slot; in that of a cursor, within one slice, which may have gaps between its
        rows (a scan over the second axis of its values) or run backwards."""
        if place.slot not in self.slices:
            return _is_inside(place, self.slots[place.slot])
        slice_, reach = self.slices[place.slot], _reach(place)
        return slice_ is None or reach is None or (slice_[0] <= reach[0] and reach[1] <= slice_[1])

    def sizes(self, rows: Any) -> tuple[Size, ...]:
        return tuple([row if type(row) is int and LEAST <= row <= MOST else self.size(row) for row in rows])

    def size(self, row: Any) -> Size:
        """A number, or a polynomial over the symbols of this graph."""
        if type(row) is int:
            return _integer(row, least=LEAST)
        said = repr(row)  # a plan says the same few hundreds of times, and adding them up is a fifth of reading it
        if said not in self.polynomials:
            self.polynomials[said] = self.polynomial(row)
        return self.polynomials[said]

    def polynomial(self, row: Any) -> Size:
        total: Size = 0
        for monomial, coefficient in row:
            term: Size = _integer(coefficient, least=LEAST)
            for name, least, most in monomial:
                _check((name, least, most) in self.symbols, "an unknown dynamic size")
                if name not in self.dims:
                    self.dims[name] = Dim(name, least, most)
                term = term * self.dims[name]
            total = total + term
        return total


def _recomputed(row: Any) -> Recomputed | None:
    if row is None:
        return None
    share = row["extra_time"]
    _check(isinstance(share, float) and 0 <= share < 1e9, "no share of time")
    kernels = {_word(label): _integer(count) for label, count in row["kernels"].items()}
    return Recomputed(_integer(row["plain_bytes"]), _integer(row["budget_bytes"]), _integer(row["peak_bytes"]), kernels,
                      _integer(row["flops"], MOST_FIGURE), share)


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise Damaged(what)


def _integer(value: Any, most: int = MOST, least: int = 0) -> int:
    if type(value) is int and least <= value <= most:
        return value
    raise Damaged("a number out of bounds")


def _flag(value: Any) -> bool:
    _check(type(value) is bool, "a flag that is none")
    return bool(value)


def _word(value: Any) -> str:
    _check(isinstance(value, str) and len(value) < 1000, "a name that is none")
    return str(value)


def _dtype(name: Any) -> DType:
    _check(isinstance(name, str) and name in BY_NAME, "an unknown dtype")
    return BY_NAME[name]


def _reach(place: View) -> tuple[int, int] | None:
    """The first byte of a place and the one after its last, counted from its slot's; None where a size is a symbol."""
    first = last = place.offset
    for size, stride in zip(place.shape, place.strides, strict=True):
        if type(size) is not int or type(stride) is not int:
            return None
        _check(size >= 0, "a negative size")
        if size == 0:
            return 0, 0
        if stride > 0:
            last += (size - 1) * stride
        else:
            first += (size - 1) * stride
    if type(first) is not int or type(last) is not int:
        return None
    return first * place.dtype.itemsize, (last + 1) * place.dtype.itemsize


def _is_inside(place: View, slot: Slot) -> bool:
    """Whether every element lies in the slot, as far as the numbers are known."""
    reach = _reach(place)
    return reach is None or (reach[0] >= 0 and reach[1] <= slot.nbytes)
