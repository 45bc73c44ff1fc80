"""A graph of complex numbers as one of their parts.

A complex value is either *whole*, in memory as pairs (what is passed in, and what NumPy computes), or a *pair* of real
values. Arithmetic takes the parts, moves keep what they find, and a value that is wanted in memory, a result or an
operand of a host operation, is put together by `complex`. What is left computes with real numbers, and is fused and
compiled like all else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from morpho.base.dims import product
from morpho.ir.body import Body, parameter
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, in_place_of, make, rebuild, toposort
from morpho.ir.op import Spec
from morpho.ir.views import literal, root_of
from morpho.ops.algebra import cast, constant, expand, neg, permute, reshape, zeros_like
from morpho.ops.complex.parts import REAL_OF, as_complex, as_real, part
from morpho.ops.control import records as control
from morpho.ops.order import NUMBERS
from morpho.passes.complex import arithmetic as a
from morpho.passes.complex import exponential as e
from morpho.passes.complex import inverse as i
from morpho.passes.complex.arithmetic import Pair
from morpho.passes.complex.fourier import is_static, transforms

Value = Node | Pair

FUNCTIONS: dict[str, Callable[..., Value]] = {
    "negative": a.negative, "absolute": a.magnitude, "sign": a.sign, "square": a.square, "sqrt": e.sqrt,
    "reciprocal": a.reciprocal, "isnan": a.any_part("isnan"), "isinf": a.any_part("isinf"), "isfinite": a.is_finite,
    "real": lambda z: z.re, "imag": lambda z: z.im, "conj": a.conjugate, "exp": e.exp, "expm1": e.expm1, "log": e.log,
    "log2": e.scaled_log(1 / math.log(2)), "log10": e.scaled_log(1 / math.log(10)), "log1p": e.log1p, "sin": e.sin,
    "cos": e.cos, "tan": e.tan, "sinh": e.sinh, "cosh": e.cosh, "tanh": e.tanh, "asin": i.asin, "acos": i.acos,
    "atan": i.atan, "asinh": i.asinh, "acosh": i.acosh, "atanh": i.atanh, "add": a.plus, "subtract": a.minus,
    "multiply": a.times, "divide": a.quotient, "equal": a.equal, "not_equal": a.not_equal,
}
EACH = frozenset({"reshape", "permute", "slice", "expand", "window", "sum", "cumulative_sum", "copy"})  # of parts alike
TOGETHER = frozenset({"concatenate", "update"})  # copied as pairs where all of them lie so


def has_complex(graph: Graph) -> bool:
    """Whether a graph computes with complex numbers."""
    return any(spec.dtype.is_complex for node in graph.nodes for spec in node.outputs)


def split_complex(graph: Graph) -> Graph:
    """The graph without arithmetic on complex numbers."""
    return Splitter().graph(graph) if has_complex(graph) else graph


class Splitter:
    """New form of every node, by serial."""

    def __init__(self) -> None:
        self.done: dict[int, Value] = {}

    def graph(self, graph: Graph) -> Graph:
        self.walk(graph.nodes)
        return Graph(tuple(in_place_of(node, lambda n: self.whole(n)) for node in graph.outputs))

    def walk(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self.done[node.serial] = in_place_of(node, self.node)

    def whole(self, node: Node) -> Node:
        """A value as one node: complex numbers in memory."""
        found = self.done[node.serial]
        return _joined(*found) if isinstance(found, Pair) else found

    def pair(self, node: Node) -> Pair:
        found = self.done[node.serial]
        return found if isinstance(found, Pair) else Pair(part(found, 0), part(found, 1))

    def real(self, node: Node) -> Node:
        found = self.done[node.serial]
        assert isinstance(found, Node)
        return found

    def value(self, node: Node) -> Value:
        """An operand: the parts of a complex one."""
        return self.pair(node) if node.dtype.is_complex else self.real(node)

    def node(self, node: Node) -> Value:
        specs = (*node.outputs, *(child.spec for child in node.inputs))
        if not any(spec.dtype.is_complex for spec in specs):
            return rebuild(node, [self.real(child) for child in node.inputs])
        if node.op.composition is not None:
            return self.written_out(node.op.composition(node))
        if node.op.name == "fft" and is_static(node):
            return self.written_out(transforms(node))
        name = node.op.name
        if name in FUNCTIONS:
            return FUNCTIONS[name](*[self.value(child) for child in node.inputs])
        if name in EACH and isinstance(self.done[node.inputs[0].serial], Pair):
            return self.each(node)
        if name in ("sum", "cumulative_sum"):
            return self.each(node)
        if name in TOGETHER and any(isinstance(self.done[child.serial], Pair) for child in node.inputs):
            return self.each(node)
        special: dict[str, Callable[[Node], Value]] = {
            "constant": _constant, "dimension": _dimension, "iota": _iota, "complex": self.joined, "cast": self.cast,
            "where": self.where, "pow": self.power, "matmul": self.matmul, "gather": self.gather, "pad": self.pad,
            "prod": self.prod, "cumulative_prod": self.running_product, "remat_barrier": self.barrier}
        if name in special:
            return special[name](node)
        return rebuild(node, [self.whole(child) for child in node.inputs])

    def written_out(self, made: Node) -> Value:
        """A node's value, in other nodes."""
        self.walk(toposort([made], set(self.done)))
        return self.done[made.serial]

    def each(self, node: Node) -> Pair:
        """The same operation on the parts."""
        parts = [self.pair(child) for child in node.inputs]
        return Pair(*[make(node.op, [p[n] for p in parts], node.attributes, origin=node.origin) for n in (0, 1)])

    def joined(self, node: Node) -> Pair:
        return Pair(self.real(node.inputs[0]), self.real(node.inputs[1]))

    def cast(self, node: Node) -> Pair:
        source, to = node.inputs[0], REAL_OF[node.dtype]
        if source.dtype.is_complex:
            return a.both(self.pair(source), lambda x: cast(x, to))
        found = cast(self.real(source), to)
        return Pair(found, zeros_like(found))

    def where(self, node: Node) -> Pair:
        mask, yes, no = node.inputs
        return Pair(*[build("where", self.real(mask), one, other)
                      for one, other in zip(self.pair(yes), self.pair(no), strict=True)])

    def power(self, node: Node) -> Pair:
        x, y = node.inputs
        return e.power(self.pair(x), self.pair(y), literal(y))

    def matmul(self, node: Node) -> Value:
        """One real product: pairs of the left side as they lie, with b and ib below each other on the right. Each part
        of a result is one chain, k ascending, of which every k adds two products."""
        x, y = node.inputs
        left = reshape(as_real(self.whole(x)), (*x.shape[:-1], 2 * x.shape[-1]))
        if y.shape[-1] == 1 and x.shape[-2] != 1:
            return self.vector_product(node, left, self.pair(y))
        shape = (*node.shape[:-2], 2 * y.shape[-2], 2 * y.shape[-1])
        found = make(node.op, (left, expand(self.right_side(_unspread(y)), shape)), node.attributes, origin=node.origin)
        return as_complex(reshape(found, (*node.shape, 2)))

    def right_side(self, y: Node) -> Node:
        """[..., 2k, 2n]: rows of b and of ib in turn."""
        *batch, k, n = y.shape
        parts = self.pair(y)
        rows = [reshape(as_real(one), (*batch, k, 1, 2 * n))
                for one in (self.whole(y), _joined(neg(parts.im), parts.re))]
        return reshape(build("concatenate", *rows, axis=len(batch) + 1), (*batch, 2 * k, 2 * n))

    def vector_product(self, node: Node, left: Node, y: Pair) -> Pair:
        """The same chains for a single column: two rows, for both parts, times the matrix turned."""
        *batch, k, _ = y.re.shape
        rank = len(batch)
        lines = [reshape(as_real(_joined(*one)), (*batch, 1, 2 * k)) for one in ((y.re, neg(y.im)), (y.im, y.re))]
        rows = build("concatenate", *lines, axis=rank)
        found = make(node.op, (rows, permute(left, (*range(rank), rank + 1, rank))), node.attributes,
                     origin=node.origin)
        shape = (*batch, 1, found.shape[-1])
        return Pair(*[reshape(build("slice", found, starts=(*[0] * rank, row, 0), sizes=shape, steps=(1,) * (rank + 2)),
                              node.shape) for row in (0, 1)])

    def gather(self, node: Node) -> Pair:
        index = self.real(node.inputs[1])
        return Pair(*[make(node.op, (x, index), node.attributes, origin=node.origin)
                      for x in self.pair(node.inputs[0])])

    def pad(self, node: Node) -> Pair:
        value = complex(node["value"])
        return Pair(*[make(node.op, (x,), dict(node.attributes) | {"value": fill}, origin=node.origin)
                      for x, fill in zip(self.pair(node.inputs[0]), (value.real, value.imag), strict=True)])

    def barrier(self, node: Node) -> Value:
        after = [one for child in node.inputs[1:] for one in self.nodes(child)]
        found = [build("remat_barrier", one, *after) for one in self.nodes(node.inputs[0])]
        return Pair(*found) if len(found) == 2 else found[0]

    def nodes(self, node: Node) -> Sequence[Node]:
        found = self.done[node.serial]
        return found if isinstance(found, Pair) else (found,)

    # -- products along an axis ----------------------------------------------------------------------------------------
    def prod(self, node: Node) -> Value:
        """One chain over the reduced axes in row-major order, from 1: a loop that carries both parts."""
        x, axes = node.inputs[0], node["axes"]
        kept = tuple(axis for axis in range(len(x.shape)) if axis not in axes)
        count = product(tuple(x.shape[axis] for axis in axes))
        lines = [reshape(permute(one, (*axes, *kept)), (count, *(x.shape[axis] for axis in kept)))
                 for one in self.pair(x)]
        found = _chain(lines, count, False)
        return Pair(*[reshape(one, node.shape) for one in found])

    def running_product(self, node: Node) -> Value:
        x, axis = node.inputs[0], node["axis"]
        order = (axis, *(d for d in range(len(x.shape)) if d != axis))
        back = tuple(order.index(d) for d in range(len(order)))
        found = _chain([permute(one, order) for one in self.pair(x)], x.shape[axis], True)
        return Pair(*[permute(one, back) for one in found])


def _joined(re: Node, im: Node) -> Node:
    """Complex numbers of two parts; of two views that look alike, the view of them, so that what computes the parts can
    write pairs."""
    if re.op.name in ("reshape", "permute") and re.op is im.op and re.attributes == im.attributes \
            and re.inputs[0].spec == im.inputs[0].spec:
        return rebuild(re, (_joined(re.inputs[0], im.inputs[0]),))
    computed = [one.op.kind == "elementwise" for one in (re, im)]
    if any(computed) and not all(computed):  # a part that is what it was: one kernel shall write both
        re, im = (one if one.op.kind == "elementwise" or root_of(one).op.name in NUMBERS else
                  build("copysign", one, one) for one in (re, im))
    return build("complex", re, im)


def _unspread(y: Node) -> Node:
    """Matrices before they were repeated for a batch: what is made of them is made once."""
    spread = y.op.name == "expand" and y.inputs[0].shape[-2:] == y.shape[-2:]
    return y.inputs[0] if spread else y


def _chain(lines: Sequence[Node], count: Any, every: bool) -> list[Node]:
    """The product of `count` complex numbers along the first axis of their parts, or `every` product on the way."""
    shape, dtype = lines[0].shape[1:], lines[0].dtype
    leaves = [parameter(n, Spec(shape, dtype)) for n in range(4)]
    turned = a.times(Pair(*leaves[:2]), Pair(*leaves[2:]))
    first = [expand(constant(value, dtype), shape) for value in (1.0, 0.0)]
    turn = Body((*turned, *turned) if every else tuple(turned))
    found = control.scan(turn, first, lines, (), count)
    return found[2:] if every else found[:2]


def _constant(node: Node) -> Pair:
    value, to = complex(node["value"]), REAL_OF[node.dtype]
    return Pair(constant(value.real, to), constant(value.imag, to))


def _dimension(node: Node) -> Pair:
    found = build("dimension", **dict(node.attributes) | {"dtype": REAL_OF[node.dtype]})
    return Pair(found, constant(0.0, found.dtype))


def _iota(node: Node) -> Pair:
    found = build("iota", **dict(node.attributes) | {"dtype": REAL_OF[node.dtype]})
    return Pair(found, zeros_like(found))
