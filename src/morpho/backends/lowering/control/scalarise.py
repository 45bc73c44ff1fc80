"""The body of a loop taken apart into scalars, for a `RegisterLoop`: a value is an array of instruction numbers.

Moves of elements are moves of numbers, by the NumPy meaning of their records. Reductions and products become their
operations in the order of docs/numerics.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.backends.kernels.linalg import unrolled
from morpho.backends.kernels.linalg.matrix import FAULTS, UNROLLED
from morpho.backends.kernels.loops.loop_spec import TREE_LANES
from morpho.backends.kernels.loops.sequential.register_loop import Instruction, Operand
from morpho.backends.lowering.lower_linalg import options_of
from morpho.base.dtypes import DType, bool_, int64
from morpho.ir.body import Body
from morpho.ir.node import Node
from morpho.ops.control.records import parts
from morpho.program.view import View

Numbers = np.ndarray  # of instructions, in the shape of a value


class Scalars:
    """Instructions while they are gathered; equal ones are one."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.known: dict[Any, int] = {}
        self.operands: list[Operand] = []
        self.views: list[View] = []

    def add(self, name: str, dtype: DType, inputs: Sequence[int] = (), attributes: tuple[Any, ...] = ()) -> int:
        """The number of an instruction."""
        made = Instruction(name, dtype, tuple(int(number) for number in inputs), attributes)
        key = (made, repr(attributes), tuple(type(one) for one in attributes))  # 0.0 is not -0.0, nor 1 True
        if key not in self.known:
            self.known[key] = len(self.instructions)
            self.instructions.append(made)
        return self.known[key]

    def operand(self, place: View, moves: bool) -> int:
        """The number of a place in memory among the kernel's."""
        self.operands.append(Operand(place.dtype, moves))
        self.views.append(place)
        return len(self.operands) - 1

    def loaded(self, operand: int) -> Numbers:
        """All elements of an operand."""
        place = self.views[operand]
        found = [self.add("load", place.dtype, (), (operand, offset)) for offset in offsets_of(place)]
        return np.array(found, np.int64).reshape(place.shape)

    def constant(self, value: Any, dtype: DType) -> int:
        return self.add("constant", dtype, (), (value,))

    # -- bodies --------------------------------------------------------------------------------------------------------
    def run(self, body: Body, given: Sequence[Numbers | int]) -> list[Numbers]:
        """The outputs of a body; `given` are its inputs, an operand's number where one is looked up in memory."""
        values: dict[int, list[Numbers]] = {}
        for node in body.graph.nodes:
            if node.op.name == "parameter":
                one = given[node["index"]]
                values[node.serial] = [self.loaded(one) if isinstance(one, int) and not _only_looked_up(node, body)
                                       else one]
            elif node.op.name == "pick":
                values[node.serial] = [values[node.inputs[0].serial][node["index"]]]
            else:
                values[node.serial] = self.node(node, [values[child.serial][0] for child in node.inputs])
        return [values[output.serial][0] for output in body.outputs]

    def node(self, node: Node, inputs: list[Numbers]) -> list[Numbers]:
        """The results of one operation."""
        kind, name = node.op.kind, node.op.name
        if name == "scan":
            return self.scan(node, inputs)
        if name == "switch":
            return self.switch(node, inputs)
        if name == "gather":
            return [self.gather(node, inputs)]
        if kind == "elementwise":
            return [self.each(name, node.dtype, inputs, node.shape)]
        if kind == "reduce":
            return [self.reduce(node, inputs[0])]
        if name == "matmul":
            return [self.matmul(node, *inputs)]
        if name in UNROLLED:
            return self.matrices(node, inputs)
        if name == "constant":
            return [np.array(self.constant(node["value"], node.dtype), np.int64)]
        if name == "iota":
            line = np.asarray(node.op.reference(node.attributes))
            kinds: dict[str, Any] = {"f": float, "i": int, "u": int}
            found = [self.constant(kinds[node.dtype.kind](value), node.dtype) for value in line.ravel()]
            return [np.array(found, np.int64).reshape(line.shape)]
        attributes = dict(node.attributes)
        if name == "pad":
            attributes["value"] = self.constant(node["value"], node.dtype)
        if name == "remat_barrier":
            return [inputs[0]]
        return [np.asarray(node.op.reference(attributes, *inputs), np.int64)]

    def each(self, name: str, dtype: DType, inputs: list[Numbers], shape: Any) -> Numbers:
        found = [self.add(name, dtype, numbers) for numbers in zip(*[one.ravel() for one in inputs], strict=True)]
        return np.array(found, np.int64).reshape(shape)

    def reduce(self, node: Node, x: Numbers) -> Numbers:
        """Rows of at most 64 elements: lane i holds element i, and lanes fold by halves."""
        axes = node["axes"]
        outer = [axis for axis in range(x.ndim) if axis not in axes]
        rows = x.transpose(*outer, *axes).reshape(int(np.prod([x.shape[a] for a in outer], dtype=int)), -1)
        return np.array([self.fold(node, list(row)) for row in rows], np.int64).reshape(node.shape)

    def fold(self, node: Node, row: list[int]) -> int:
        name, dtype = node.op.name, node.dtype
        step = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "any": "logical_or",
                "all": "logical_and"}[name]
        lanes: list[int | None] = [*row, *[None] * (TREE_LANES - len(row))]
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [self.joined(step, dtype, lanes[i], lanes[i + half]) for i in range(half)]
        start = {"sum": 0, "prod": 1, "any": False, "all": True}.get(name)
        if lanes[0] is None:
            return self.constant(float(start) if dtype.is_float else start, dtype)  # type: ignore[arg-type]
        # Lanes begin at 0.0, so a sum of -0.0 alone is 0.0; one addition at the end does the same.
        return self.add("add", dtype, (lanes[0], self.constant(0.0, dtype))) if name == "sum" and dtype.is_float \
            else lanes[0]

    def joined(self, step: str, dtype: DType, one: int | None, other: int | None) -> int | None:
        if one is None or other is None:
            return one if other is None else other
        return self.add(step, dtype, (one, other))

    def matmul(self, node: Node, left: Numbers, right: Numbers) -> Numbers:
        """One chain per element, k ascending, from zero."""
        dtype, terms = node.dtype, left.shape[-1]
        zero = self.constant(0.0 if dtype.is_float else 0, dtype)
        found_shape = tuple(int(size) for size in node.shape)
        batch = found_shape[:-2]
        a = np.broadcast_to(left, (*batch, *left.shape[-2:]))
        b = np.broadcast_to(right, (*batch, *right.shape[-2:]))
        found = np.zeros(node.shape, np.int64)
        for place in np.ndindex(*node.shape):
            total = zero
            for k in range(terms):
                pair = (a[(*place[:-1], k)], b[(*place[:-2], k, place[-1])])
                total = (self.add("fma", dtype, (*pair, total)) if dtype.is_float else
                         self.add("add", dtype, (total, self.add("multiply", dtype, pair))))
            found[place] = total
        return found

    def matrices(self, node: Node, inputs: list[Numbers]) -> list[Numbers]:
        """A factorisation or solve of every matrix, by the operations of its kernel."""
        found = [np.zeros(spec.shape, np.int64) for spec in node.outputs]
        arithmetic = Elements(self, node.inputs[0].dtype, FAULTS.get(node.op.name, 0))
        for place in np.ndindex(*inputs[0].shape[:-2]):
            a, *right = ([list(row) for row in one[place]] for one in inputs)
            results = unrolled.run(arithmetic, node.op.name, options_of(node), a, right[0] if right else [])
            for target, result in zip(found, results, strict=True):
                target[place] = result
        return found

    # -- control flow inside -------------------------------------------------------------------------------------------
    def scan(self, node: Node, inputs: list[Numbers]) -> list[Numbers]:
        """A loop inside, its turns written out."""
        carries, xs, _ = parts(node)
        state = inputs[:len(carries)]
        sliced, fixed = inputs[len(carries):len(carries) + len(xs)], inputs[len(carries) + len(xs):]
        rows: list[list[Numbers]] = [[] for _ in node.outputs[len(carries):]]
        order = range(node["length"])
        for turn in reversed(order) if node["reverse"] else order:
            number = [np.array(self.constant(turn, int64), np.int64)] if node["counts"] else []
            found = self.run(node["turn"], [*state, *[x[turn] for x in sliced], *fixed, *number])
            state = found[:len(carries)]
            for row, value in zip(rows, found[len(carries):], strict=True):
                row.append(value)
        return [*state, *[np.stack(row[::-1] if node["reverse"] else row) for row in rows]]

    def switch(self, node: Node, inputs: list[Numbers]) -> list[Numbers]:
        """All branches, of which one is chosen: nothing in them can fail."""
        which, operands = inputs[0], inputs[1:]
        branches = [self.run(branch, operands) for branch in node["branches"]]
        found = branches[0]
        for number, branch in enumerate(branches[1:], 1):
            least = self.constant(number, node.inputs[0].dtype)
            taken = self.add("greater_equal", bool_, (int(which), least))
            found = [self.each("where", spec.dtype, [np.broadcast_to(taken, one.shape), other, one], spec.shape)
                     for one, other, spec in zip(found, branch, node.outputs, strict=True)]
        return found

    def gather(self, node: Node, inputs: list[Any]) -> Numbers:
        """Elements of an operand in memory, by index."""
        operand, index = inputs
        place, axis = self.views[operand], node["axis"]
        found = np.zeros(node.shape, np.int64)
        for at in np.ndindex(*node.shape):
            offset = sum(i * stride for d, (i, stride) in enumerate(zip(at, place.strides, strict=True)) if d != axis)
            found[at] = self.add("lookup", node.dtype, (index[at],),
                                 (operand, offset, place.strides[axis], place.shape[axis]))
        return found


class Elements:
    """The `Arithmetic` of `linalg/unrolled.py` on instructions."""

    def __init__(self, scalars: Scalars, dtype: DType, fault: int) -> None:
        self.scalars, self.dtype, self.fault = scalars, dtype, fault

    def number(self, value: float) -> int:
        return self.scalars.constant(value, self.dtype)

    def fma(self, a: int, b: int, c: int) -> int:
        return self.scalars.add("fma", self.dtype, (a, b, c))

    def multiply(self, a: int, b: int) -> int:
        return self.scalars.add("multiply", self.dtype, (a, b))

    def divide(self, a: int, b: int) -> int:
        return self.scalars.add("divide", self.dtype, (a, b))

    def add(self, a: int, b: int) -> int:
        return self.scalars.add("add", self.dtype, (a, b))

    def negative(self, a: int) -> int:
        return self.scalars.add("negative", self.dtype, (a,))

    def absolute(self, a: int) -> int:
        return self.scalars.add("absolute", self.dtype, (a,))

    def sqrt(self, a: int) -> int:
        return self.scalars.add("sqrt", self.dtype, (a,))

    def log(self, a: int) -> int:
        return self.scalars.add("log", self.dtype, (a,))

    def greater(self, a: int, b: int) -> int:
        return self.scalars.add("greater", bool_, (a, b))

    def is_zero(self, a: int) -> int:
        return self.scalars.add("equal", bool_, (a, self.number(0.0)))

    def either(self, a: int, b: int) -> int:
        return self.scalars.add("logical_or", bool_, (a, b))

    def unless(self, a: int, b: int) -> int:
        return self.scalars.add("logical_and", bool_, (a, self.scalars.add("logical_not", bool_, (b,))))

    def select(self, mask: int, a: int, b: int) -> int:
        return self.scalars.add("where", self.dtype, (mask, a, b))

    def fail_if(self, mask: int) -> None:
        self.scalars.add("fault", bool_, (mask,), (self.fault,))

    def fail_unless(self, mask: int) -> None:
        self.fail_if(self.scalars.add("logical_not", bool_, (mask,)))


def offsets_of(place: View) -> list[int]:
    """Where the elements of a place lie, in elements from its first one, in order."""
    return [sum(int(i) * int(stride) for i, stride in zip(at, place.strides, strict=True))
            for at in np.ndindex(*place.shape)]


def _only_looked_up(leaf: Node, body: Body) -> bool:
    """Whether nothing but lookups reads a parameter."""
    users = body.graph.users[leaf.serial]
    return bool(users) and all(user.op.name == "gather" and user.inputs[0] is leaf and user.inputs[1] is not leaf
                               for user in users)
