"""A program: the graph as a list of steps over slots of memory, ready to be compiled and run.

Slots are inputs, results (memory the caller keeps) and temporaries (in one planned arena). A step is a native kernel
with its places and numbers, or a host operation on NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from morpho.base.dims import Size, product, upper
from morpho.base.dtypes import DType
from morpho.cost.tuned_choices import Problem
from morpho.ir.node import Node
from morpho.ir.op import Cost
from morpho.program.kernel import Kernel
from morpho.program.view import View

LINE_BYTES = 64  # of a cache


@dataclass(slots=True)
class Slot:
    """Memory for `elements` of a dtype. `kind` is input, result, temporary, cursor (memory of another slot, which a
    loop chooses at every turn) or memory (of somebody else, found at every call); `index` counts within the kind, and
    says in which memory a slot lies."""

    kind: str
    dtype: DType
    elements: Size
    index: int = 0
    offset: int = 0  # of a temporary in the arena, or of a part of a memory in it, in bytes

    @property
    def nbytes(self) -> int:
        """The most bytes it can need."""
        return upper(self.elements) * self.dtype.itemsize


@dataclass(slots=True)
class Step:
    """One native kernel call."""

    kernel: Kernel
    views: tuple[View | None, ...]  # of its operands
    writes: tuple[int, ...]  # positions in `views`
    values: tuple[Size, ...]
    rows: Size
    columns: Size
    label: str
    origin: str
    splits_columns: bool = False
    in_place: bool = False  # every element is read before it is written, so an output may take an input's memory
    epilogue: Kernel | None = None  # called by the kernel on every finished tile
    scratch: int = 0  # bytes besides what the kernel always needs
    threads: str = "auto"  # "one" and "many" leave no choice; "library": one of ours, it has its own
    operations: Size | None = None  # of the whole step, where rows x columns do not say it
    checked: bool = False  # its indices were found right by an earlier step
    together: int = 1  # how many steps from here on run as one launch; 0 for those after the first
    prologue: Kernel | None = None  # called by the kernel on rows of its left operand, before they are packed
    prologue_at: int = 0  # where its operands begin in `views`
    choice: str = ""  # for people: which kernel was taken for a product, and which others could have been
    sizes: tuple[Size, ...] = ()  # of a product, for people: rows x columns count its pieces and their multiply-adds

    @property
    def cost(self) -> Cost:
        """Operations, and every element of its operands moved once, at the largest sizes."""
        return self.cost_at(upper)

    def cost_at(self, number: Callable[[Size], int]) -> Cost:
        """The same at the sizes that `number` gives."""
        operations = self.rows * self.columns * self.kernel.flops if self.operations is None else self.operations
        places = {(p.slot, p.offset, p.shape, p.strides): self._moved(p, i, number) * p.dtype.itemsize
                  for i, p in enumerate(self.views) if p is not None}
        return Cost(number(operations), sum(places.values()))

    def traffic_at(self, number: Callable[[Size], int]) -> Cost:
        """As `cost_at`, with the bytes that memory moves: whole lines of the cache where elements of an operand lie
        apart, at most all that lies between them, and of a reduction's second half the blocks' values alone."""
        joins = getattr(self.kernel, "part", "") == "join"
        most = number(self.rows * self.columns)
        moved: dict[int, dict[tuple[Size, ...], int]] = {}  # by slot: several views of it may share lines
        extent: dict[int, tuple[int, int]] = {}
        for i, place in enumerate(self.views):
            if place is None:
                continue
            each = place.dtype.itemsize if i in self.kernel.gathered else _apart_bytes(place, number)
            count = self._moved(place, i, number)
            key = (place.offset, *place.shape, *place.strides)
            moved.setdefault(place.slot, {})[key] = each * (min(count, most) if joins else count)
            low, high = _extent(place, number)
            before = extent.get(place.slot, (low, high))
            extent[place.slot] = min(low, before[0]), max(high, before[1])
        total = sum(min(sum(parts.values()), extent[slot][1] - extent[slot][0]) for slot, parts in moved.items())
        return Cost(self.cost_at(number).flops, total)

    def lies_apart(self, number: Callable[[Size], int] = upper) -> bool:
        """Whether most of what memory moves for it are neighbours of what it reads."""
        return self.traffic_at(number).bytes > 2 * self.cost_at(number).bytes

    def reads_across(self) -> bool:
        """Whether it writes lines of what it reads column by column: a transpose, among other operations."""
        if self.is_product or not self.written:
            return False
        result = self.written[0]
        return any(place.shape == result.shape and _is_transposed(place, result) for place in self.reads)

    def _moved(self, place: View, position: int, number: Callable[[Size], int]) -> int:
        """Elements of an operand that go through memory; of a table those that are looked up."""
        there = number(_distinct(place))
        return min(there, number(self.rows * self.columns)) if position in self.kernel.gathered else there

    @property
    def width(self) -> float:
        """Bytes of what it computes with, as a multiple of float32: a vector holds so many times fewer of them. Only
        products gain by shorter ones."""
        places = self.views[:1] if self.is_product else self.views
        widest = max((place.dtype.compute.itemsize for place in places if place is not None), default=4)
        return widest / 4 if self.is_product else max(1, widest / 4)

    @property
    def work(self) -> int:
        """Operations per column, moving its operands among them."""
        return self.kernel.flops + 2 * len(self.views)

    @property
    def is_product(self) -> bool:
        """Whether rows x columns are the multiply-adds of a product."""
        return self.kernel.role in ("gemm", "gemv")

    @property
    def reads(self) -> list[View]:
        return [p for i, p in enumerate(self.views) if p is not None and i not in self.writes]

    @property
    def written(self) -> list[View]:
        return [place for i in self.writes if (place := self.views[i]) is not None]

    def scratch_bytes(self, threads: int, number: Callable[[Size], int] = upper) -> int:
        """Scratch of so many threads together, at the largest sizes or at those that `number` gives."""
        columns = (number(self.columns) + 63) // 64 * 64
        one = columns * self.kernel.scratch_bytes_per_column + self.kernel.scratch_bytes + self.scratch
        return (int(one) + 63) // 64 * 64 * threads  # lines of the cache: co-scheduled steps share a stride

    @property
    def operands(self) -> set[int]:
        """Slots that are read until the step is over, whatever `in_place` says: those of a product's two sides."""
        if self.epilogue is None:
            return set()
        sides = (*self.views[:2], *(self.views[self.prologue_at:] if self.prologue is not None else ()))
        return {place.slot for place in sides if place is not None}

    @property
    def kernels(self) -> list[Kernel]:
        """The kernel, then those that it calls."""
        return [kernel for kernel in (self.kernel, self.epilogue, self.prologue) if kernel is not None]

    @property
    def may_fault(self) -> bool:
        """Whether the step checks indices that no earlier one has."""
        return not self.checked and any(kernel.may_fault for kernel in self.kernels)


def _is_transposed(place: View, result: View) -> bool:
    """Whether neighbours of a result, along its last axis, lie lines of the cache apart in what is read, and neighbours
    along another axis do not."""
    if not place.strides:
        return False
    *steps, last = place.strides
    longer = [step for size, step in zip(place.shape, steps, strict=False) if size != 1]
    if not longer or place.shape[-1] == 1 or result.strides[-1] != 1 or not isinstance(last, int):
        return False
    return abs(last) * place.dtype.itemsize >= LINE_BYTES and 1 in longer


def _distinct(place: View) -> Size:
    """Elements of a place that lie apart: a broadcast axis repeats them."""
    return product(tuple(size for size, stride in zip(place.shape, place.strides, strict=True) if stride != 0))


def _apart_bytes(place: View, number: Callable[[Size], int]) -> int:
    """Bytes that memory moves for one element: itself, or a cache line if its neighbours belong to others."""
    steps = [abs(number(stride)) for size, stride in zip(place.shape, place.strides, strict=True)
             if number(size) > 1 and stride != 0]
    return min(LINE_BYTES, max(place.dtype.itemsize, min(steps, default=1) * place.dtype.itemsize))


def _extent(place: View, number: Callable[[Size], int]) -> tuple[int, int]:
    """From the first to behind the last byte of a place, in whole lines."""
    ends = [(number(size) - 1) * number(stride) for size, stride in zip(place.shape, place.strides, strict=True)]
    start = number(place.offset) * place.dtype.itemsize
    low = start + sum(min(end, 0) for end in ends) * place.dtype.itemsize
    high = start + (sum(max(end, 0) for end in ends) + 1) * place.dtype.itemsize
    return low, max(low + (high - low + LINE_BYTES - 1) // LINE_BYTES * LINE_BYTES, low)


@dataclass(slots=True)
class HostStep:
    """An operation that runs in NumPy between native steps."""

    node: Node
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]
    label: str
    origin: str
    fallback: bool

    may_fault = True
    in_place = False

    @property
    def reads(self) -> list[View]:
        return list(self.inputs)

    @property
    def written(self) -> list[View]:
        return list(self.outputs)

    @property
    def views(self) -> tuple[View, ...]:
        """All its places in memory."""
        return (*self.inputs, *self.outputs)

    @property
    def operands(self) -> set[int]:
        """It is never computed in place."""
        return {place.slot for place in self.inputs}


@dataclass(frozen=True, slots=True)
class Cursor:
    """A slot whose memory moves: `base`, and `stride` elements further at every turn of a loop."""

    slot: int
    base: View
    stride: Size = 0


@dataclass(slots=True)
class Control:
    """Where the order of steps is not the one they stand in. Steps of a loop stand between a "loop" and its "end",
    which have the same `number`; a "test" between them leaves the loop when its value is false. Branches follow a
    "branch", each behind a "case", up to the "join". A "size" makes a symbol, its `turns`, the number that its value
    is: steps behind it compute as many. A "memory" has the slots of its number lie at the address that its value is.
    """

    kind: str
    number: int
    label: str = ""
    origin: str = ""
    turns: Size | None = None  # of a loop; None where a test ends it
    moving: tuple[Cursor, ...] = ()  # of a loop: set anew at every turn
    carried: tuple[tuple[Cursor, Cursor], ...] = ()  # of a loop: read and written memory, exchanged after every turn
    value: View | None = None  # one number: a test's bool, a branch's whole number, or where a loop puts its turn's
    backwards: bool = False  # whether a loop counts its turns down
    reads: list[View] = field(default_factory=list)  # what must be there until here
    written: list[View] = field(default_factory=list)

    may_fault = False
    in_place = False

    @property
    def operands(self) -> set[int]:
        """It reads nothing by itself."""
        return set()

    @property
    def cost(self) -> Cost:
        """Cost of the steps between marks; marks cost nothing."""
        return Cost(0, 0)


AnyStep = Step | HostStep | Control


def span(steps: Sequence[AnyStep], first: int) -> int:
    """How many steps belong to the one at `first`: itself, or a loop to its end, a branch to its join."""
    step = steps[first]
    if not isinstance(step, Control) or step.kind not in ("loop", "branch"):
        return 1
    last = {"loop": "end", "branch": "join"}[step.kind]
    return next(n + 1 for n, other in enumerate(steps[first:])
                if isinstance(other, Control) and other.kind == last and other.number == step.number)


def is_nested(marks: Sequence[Control]) -> bool:
    """Whether loops and branches are closed in the order in which they were opened, each once.

    >>> loop, end = Control("loop", 0), Control("end", 0)
    >>> is_nested([loop, end]), is_nested([end, loop]), is_nested([loop])
    (True, False, False)
    """
    opened: list[Control] = []
    numbers: set[int] = set()
    for mark in marks:
        if mark.kind == "size" and not opened and mark.turns is not None and mark.value is not None:
            continue
        if mark.kind in ("loop", "branch"):
            if mark.number in numbers:
                return False
            numbers.add(mark.number)
            opened.append(mark)
            continue
        wanted = {"end": "loop", "test": "loop", "case": "branch", "join": "branch"}.get(mark.kind)
        if not opened or opened[-1].kind != wanted or opened[-1].number != mark.number:
            return False
        if mark.kind in ("end", "join"):
            opened.pop()
    return not opened


@dataclass
class Program:
    """Steps, slots, and the place of every output."""

    slots: list[Slot] = field(default_factory=list)
    steps: list[AnyStep] = field(default_factory=list)
    outputs: list[View] = field(default_factory=list)
    prepare: list[Step] = field(default_factory=list)  # steps on constants, run once
    kept: dict[int, bool] = field(default_factory=dict)  # slots they write, and whether a call reads them
    copies: int = 0
    arena_bytes: int = 0
    liveness_bytes: int = 0
    reused_bytes: int = 0
    problems: dict[str, Problem] = field(default_factory=dict)  # what a tuner may choose for, by key
    ways: dict[str, dict[str, int]] = field(default_factory=dict)  # by op: rows of the table, and nodes of each

    @property
    def kernels(self) -> int:
        return sum(isinstance(step, Step) for step in self.steps)

    @property
    def is_native(self) -> bool:
        return not any(isinstance(step, HostStep) for step in self.steps)

    @property
    def is_kept(self) -> bool:
        """Whether it may be kept on disk: without host steps, and without routines of other libraries, which lie
        elsewhere in every process."""
        return self.is_native and not any(getattr(step.kernel, "routines", ()) for step in (*self.steps, *self.prepare)
                                          if isinstance(step, Step))

    @property
    def loops(self) -> bool:
        """Whether its steps stand in another order than they run in."""
        return any(isinstance(step, Control) and step.kind != "memory" for step in self.steps)

    @property
    def memories(self) -> int:
        """How many memories of others its slots lie in."""
        return sum(isinstance(step, Control) and step.kind == "memory" for step in self.steps)
