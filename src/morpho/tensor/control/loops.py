"""`scan`, `fori_loop`, `while_loop` and `map`: loops of a program, which run as native code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from morpho.base.checks import as_whole
from morpho.base.dims import Dim, Size
from morpho.base.dtypes import bool_, int64
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, ValueFault, fail
from morpho.base.trees import LEAF, unflatten
from morpho.ir.body import Body, cut_out
from morpho.ir.node import Node, asked_for, make
from morpho.ir.op import Spec
from morpho.ops.algebra import add, cast, constant
from morpho.ops.collective import come_after, of_a_body
from morpho.ops.control import records as control
from morpho.tensor.autodiff.autograd import settle
from morpho.tensor.control.body_trace import Traced, check_tensors, closed, leaves_of, trace
from morpho.tensor.control.guard import where_asked, where_turns
from morpho.tensor.convert import following
from morpho.tensor.core import Tensor
from morpho.tensor.functions.move import concat, reshape, stack
from morpho.tensor.state.trace import current_trace

_NOTHING = ("static", "NoneType", None)
MOST = 1 << 63  # turns, and the numbers of turns, are int64


def scan(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any = None, length: int | None = None,
         reverse: bool = False, unroll: int = 1) -> tuple[Any, Any]:
    """Carry a value through the slices of `xs` along their first axis: `carry, y = f(carry, x)` for each.

    Returns the last carry and all y, stacked. `init` and `xs` are tensors or trees of them; without `xs`, `length` says
    how many turns there are and x is None. `reverse` begins with the last slice; `unroll` writes that many turns out.
    The loop is one step of the program, compiled once whatever its length, with the bits of its turns written out.

    >>> total, sums = mo.scan(lambda c, x: (c + x, c + x), 0.0, mo.asarray([1.0, 2.0, 3.0]))
    >>> total.item(), sums.tolist()
    (6.0, [1.0, 3.0, 6.0])
    """
    inputs, xs_structure = leaves_of(xs)
    check_tensors("scan", xs_structure, "xs")
    turns = _length(inputs, length)
    times = as_whole(unroll)
    if times is None or times < 1:
        raise fail(ArgumentError, "scan", f"unroll={unroll!r} is not a positive whole number")
    start = _start(init, "scan")
    if times > 1 and isinstance(turns, int) and turns > times:
        return _unrolled(f, start, (inputs, xs_structure), turns, times, reverse)
    return _scan(f, start, (inputs, xs_structure), turns, reverse)


class Start(NamedTuple):
    """Initial values of a loop: tensors, their structure, and which of them were Python numbers."""

    carries: list[Tensor]
    structure: Any
    numbers: list[Tensor]


def _start(init: Any, operation: str) -> Start:
    numbers: list[Tensor] = []
    carries, structure = leaves_of(init, numbers)
    check_tensors(operation, structure, "init")
    return Start(carries, structure, numbers)


def _length(inputs: Sequence[Tensor], length: Any) -> Size:
    """How many turns xs and `length` ask for."""
    for tensor in inputs:
        if not tensor.shape:
            raise fail(ShapeError, "scan", "xs holds a single number, which has no slices",
                       "give it to the function by itself, or stack values along a first axis")
    sizes = [tensor.shape[0] for tensor in inputs]
    if length is not None:
        asked = length if isinstance(length, Dim) else as_whole(length)
        if asked is None or (isinstance(asked, int) and asked < 0):
            raise fail(ArgumentError, "scan", f"length={length!r} is not a number of iterations")
        sizes.append(asked)
    if not sizes:
        raise fail(ArgumentError, "scan", "without xs the number of iterations is unknown", "give length=")
    if any(size != sizes[0] for size in sizes):
        raise fail(ShapeError, "scan", f"the first axes of xs, and length=, differ: {sizes}")
    return sizes[0]


Tree = tuple[Sequence[Tensor], Any]  # tensors and their structure


def _scan(f: Callable[..., Any], init: Start, xs: Tree, turns: Size, reverse: bool,
          counts: bool = False) -> tuple[Any, Any]:
    """The loop of the turns; with `counts` the function is given the turn's number in place of a slice."""
    carries, structure, _ = init
    inputs, xs_structure = xs
    slices = [Spec(tensor.shape[1:], tensor.dtype) for tensor in inputs]
    given, specs = ([structure, LEAF], [control.COUNTER]) if counts else ([structure, xs_structure], slices)

    def attempt(nodes: Sequence[Node], states: Sequence[Any]) -> Traced:
        return trace(f, given, [[node.spec for node in nodes], specs], "scan", states)

    with asked_for() as own, of_a_body() as groups:
        nodes, states, traced = _settled(attempt, [tensor.node for tensor in carries], init, "scan", _carry_of)
    carried, ys_structure = _carry_of(traced, "scan", structure)
    leaves = list(traced.leaves)
    first_state = len(nodes) + len(specs)
    counter = leaves.pop(len(nodes)) if counts else None
    state_leaves = leaves[first_state - int(counts):]
    # In the order in which the op hands them over: carries, states, slices, constants, the turn's number.
    ordered = [*leaves[:len(nodes)], *state_leaves, *leaves[len(nodes):first_state - int(counts)]]
    outputs = [*carried, *traced.written, *traced.outputs[len(carried):]]
    body, constants = _with_counter(ordered, outputs, counter)
    outer = [*nodes, *[_state_node(state) for state in states]]
    fixed = where_turns(turns, constants, own)
    found = control.scan(body, outer, [tensor.node for tensor in inputs], fixed, turns, reverse, counts)
    come_after(groups, found)
    results = [Tensor.of_node(node) for node in found]
    settle(groups, results)
    _write_states(states, results[len(nodes):len(outer)])
    last = unflatten(structure, iter(results[:len(nodes)]))
    return last, unflatten(ys_structure, iter(results[len(outer):]))


def _with_counter(leaves: Sequence[Node], outputs: Sequence[Node], counter: Node | None) -> tuple[Body, list[Node]]:
    """The body of a scan, whose turn's number comes behind the constants."""
    if counter is None:
        (body,), constants = closed([(leaves, outputs)])
        return body, constants
    _, constants = closed([([*leaves, counter], outputs)])
    return cut_out(outputs, [*leaves, *constants, counter]), constants


def _carry_of(traced: Traced, operation: str, structure: Any) -> tuple[list[Node], Any]:
    """The carried values among the results of a turn of `scan`, and the structure of the others."""
    if not (isinstance(traced.structure, tuple) and traced.structure[0] in ("tuple", "list")
            and len(traced.structure[-1]) == 2):
        raise fail(ArgumentError, operation, "the function must return two things: the carry and an output",
                   "return carry, None where there is no output")
    carry, ys = traced.structure[-1]
    if carry != structure:
        raise fail(ArgumentError, operation, f"the carry goes in as {structure} and comes out as {carry}",
                   "an iteration must return a carry of the same structure")
    check_tensors(operation, ys, "the output of a turn")
    return traced.outputs[:_count(carry)], ys


def _count(structure: Any) -> int:
    if structure is LEAF:
        return 1
    if not isinstance(structure, tuple) or structure[0] == "static":
        return 0
    return sum(_count(item[1] if structure[0] == "dict" else item) for item in structure[-1])


def _all_of(traced: Traced, operation: str, structure: Any) -> tuple[list[Node], Any]:
    """The carried values of a loop whose turn returns nothing else."""
    if traced.structure != structure:
        raise fail(ArgumentError, operation, f"the carry goes in as {structure} and comes out as {traced.structure}",
                   "an iteration must return a value of the same structure")
    return traced.outputs, _NOTHING


def _settled(attempt: Callable[[Sequence[Node], Sequence[Any]], Traced], nodes: list[Node], init: Start, operation: str,
             carry_of: Callable[..., tuple[list[Node], Any]]) -> tuple[list[Node], list[Any], Traced]:
    """Trace until nothing changes any more: Python numbers that a loop begins with take the dtype of what it makes of
    them, and states that it writes are carried."""
    weak = [any(tensor is number for number in init.numbers) for tensor in init.carries]
    states: list[Any] = []
    for _ in range(4):
        traced = attempt(nodes, states)
        carried, _ = carry_of(traced, operation, init.structure)
        for number, (node, new) in enumerate(zip(nodes, carried, strict=True)):
            if node.dtype is not new.dtype and node.shape == new.shape and weak[number]:
                nodes = [*nodes[:number], cast(node, new.dtype), *nodes[number + 1:]]
                break
        else:
            if len(traced.states) == len(states):
                return nodes, states, traced
            states = traced.states
    raise fail(DTypeError, operation, "the dtypes of the carried values do not settle",
               "begin with tensors of the dtype the loop makes")


def _state_node(state: Any) -> Node:
    outer = current_trace()
    assert outer is not None
    return outer.read(state).node


def _write_states(states: Sequence[Any], values: Sequence[Tensor]) -> None:
    outer = current_trace()
    for state, value in zip(states, values, strict=True):
        assert outer is not None
        outer.write(state, value)


def _unrolled(f: Callable[..., Any], init: Start, xs: Tree, turns: int, times: int,
              reverse: bool) -> tuple[Any, Any]:
    """Turns in blocks of several, written out, and then those that are left."""
    def block(carry: Any, part: Any) -> Any:
        found = []
        parts, _ = leaves_of(part)
        order = range(times - 1, -1, -1) if reverse else range(times)
        for number in order:
            carry, y = f(carry, unflatten(xs[1], iter([p[number] for p in parts])))
            found.append(leaves_of(y))
        if reverse:
            found.reverse()
        columns = [stack([leaves[place] for leaves, _ in found]) for place in range(len(found[0][0]))]
        return carry, unflatten(found[0][1], iter(columns))

    whole, rest = turns - turns % times, turns % times
    first = [x[rest:] if reverse else x[:whole] for x in xs[0]]
    last = [x[:rest] if reverse else x[whole:] for x in xs[0]]
    blocks = [reshape(x, (whole // times, times, *x.shape[1:])) for x in first]
    structure = xs[1] if xs[0] else _NOTHING
    carry, ys = _scan(block, init, (blocks, structure), whole // times, reverse)
    tensors, ys_structure = leaves_of(ys)
    flat = [reshape(y, (whole, *y.shape[2:])) for y in tensors]
    if rest:
        carry, more = _scan(f, _start(carry, "scan"), (last, structure), rest, reverse)
        ends, _ = leaves_of(more)
        flat = [concat([b, a] if reverse else [a, b], axis=0) for a, b in zip(flat, ends, strict=True)]
    return carry, unflatten(ys_structure, iter(flat))


def fori_loop(lower: Any, upper: Any, body: Callable[[Tensor, Any], Any], init: Any) -> Any:
    """`value = body(i, value)` for i from `lower` to `upper`, which is not reached.

    With Python numbers as bounds the number of turns is known, and the loop has a gradient; with tensors it is a
    `while_loop`. i is an int64 tensor.

    >>> mo.fori_loop(0, 5, lambda i, x: x + i, 0).item()
    10
    """
    start, end = (None if isinstance(bound, Tensor) else as_whole(bound) for bound in (lower, upper))
    if start is None or (end is None and not isinstance(upper, Dim)):
        return _fori_by_test(_bound(lower, "lower"), _bound(upper, "upper"), body, init)
    for bound in (start, end):
        if bound is not None and not -MOST <= bound < MOST:
            raise fail(ValueFault, "fori_loop", f"the bound {bound} leaves int64")
    turns = upper - start if isinstance(upper, Dim) else max(end - start, 0)  # type: ignore[operator]
    if not isinstance(turns, Dim) and turns >= MOST:
        raise fail(ValueFault, "fori_loop", f"{turns} iterations are more than int64 can count")

    def turn(value: Any, number: Tensor) -> Any:
        at = Tensor.of_node(add(number.node, constant(start, int64))) if start else number
        return body(at, value), None

    return _scan(turn, _start(init, "fori_loop"), ([], _NOTHING), turns, False, counts=True)[0]


def _bound(value: Any, name: str) -> Tensor:
    tensor = value if isinstance(value, Tensor) else following(value)
    if tensor.shape != () or not tensor.dtype.is_integer:
        raise fail(ArgumentError, "fori_loop", f"{name} is {tensor.dtype}{list(tensor.shape)}, not a whole number")
    return Tensor.of_node(cast(tensor.node, int64))


def _fori_by_test(lower: Tensor, upper: Tensor, body: Callable[[Tensor, Any], Any], init: Any) -> Any:
    found = while_loop(lambda state: state[0] < upper, lambda state: (state[0] + 1, body(*state)), (lower, init))
    return found[1]


def while_loop(cond: Callable[[Any], Any], body: Callable[[Any], Any], init: Any) -> Any:
    """`value = body(value)` as long as `cond(value)` is true; returns the last value.

    >>> mo.while_loop(lambda x: x < 100, lambda x: x * 2, 3).item()
    192
    """
    start = _start(init, "while_loop")
    structure = start.structure

    def attempt(nodes: Sequence[Node], states: Sequence[Any]) -> Traced:
        return trace(body, [structure], [[node.spec for node in nodes]], "while_loop", states)

    with asked_for() as own, of_a_body() as groups:
        nodes, states, traced = _settled(attempt, [t.node for t in start.carries], start, "while_loop", _all_of)
    with of_a_body() as asked:
        test = trace(cond, [structure], [[node.spec for node in nodes]], "while_loop", states)
    if len(test.states) > len(states):
        raise fail(ArgumentError, "while_loop", "the condition writes a state", "write it in the body")
    if test.structure is not LEAF or test.outputs[0].shape != () or test.outputs[0].dtype is not bool_:
        raise fail(ArgumentError, "while_loop", "the condition must give one bool",
                   "compare single numbers, or use mo.any or mo.all")
    (turn, asks), constants = closed([(traced.leaves, [*traced.outputs, *traced.written]),
                                      (test.leaves, test.outputs)])
    outer = [*nodes, *[_state_node(state) for state in states]]
    fixed = where_asked(asks, outer, constants, own)
    made = make(control.WHILE, (*outer, *fixed), {"turn": turn, "test": asks, "carries": len(outer)})
    come_after(groups | asked, control.results(made))
    results = [Tensor.of_node(node) for node in control.results(made)]
    settle(groups | asked, results)
    _write_states(states, results[len(nodes):])
    return unflatten(structure, iter(results[:len(nodes)]))


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """`f` of every slice of `xs` along the first axis, the results stacked: one after the other, with one slice's
    memory; `mo.vmap` computes them side by side.

    >>> mo.map(lambda row: row / row.sum(), mo.asarray([[1.0, 3.0], [2.0, 2.0]])).tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    """
    inputs, structure = leaves_of(xs)
    check_tensors("map", structure, "xs")
    turns = _length(inputs, None) if inputs else 0
    if not inputs:
        raise fail(ArgumentError, "map", "xs holds no tensor")
    return _scan(lambda carry, x: ((), f(x)), Start([], ("tuple", ()), []), (inputs, structure), turns, False)[1]
