"""Collectives: values that all ranks of a group make together, as ordinary nodes.

A node knows its group by a number (`runtime/groups/registry.py`); 0 is the group of one, where each is the identity or
nearly so. Ranks must come to their collectives in the same order, whatever order a scheduler prefers: every one takes a
token, an output of the one before it, where there is one. `all_reduce_start` and `all_reduce_wait` are the two halves
of one that goes on while others compute: buckets of gradients. A backend whose kernels can write into memory of
others asks `all_reduce_memory` where the buckets lie, starts them without parts, and reads what was waited for there.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from morpho.base.dims import bounds, product
from morpho.base.dtypes import BY_NAME, bool_, int32, int64
from morpho.base.errors import ArgumentError, GroupError, ShapeError, fail
from morpho.ir.node import Node, build, make, rebuild
from morpho.ir.op import JOINT, Attributes, NoGradient, Op, Spec, register
from morpho.ops.algebra import cast, constant, constant_like, expand, mul, reshape
from morpho.ops.batching import Rows, in_front
from morpho.ops.sources import pick

TOKEN = Spec((), int32)
LINEAR = ("sum", "mean")  # reductions that have gradients

_Runner = Callable[[str, Attributes, Sequence[Any]], Any]


def _alone(name: str, attributes: Attributes, arrays: Sequence[Any]) -> Any:
    """Collectives of a process without groups."""
    raise fail(GroupError, name, f"there is no group {attributes['group']}")


runner: _Runner = _alone  # set by the runtime, which has the groups


def set_runner(function: _Runner) -> None:
    """Say who runs the collectives of groups."""
    global runner
    runner = function


# -- the order of collectives ------------------------------------------------------------------------------------------
Order = dict[int, Node]  # group -> a token of what was written last
_order: Callable[[], Order | None] = lambda: None  # of the function being traced, if any: set by who traces


def set_order(function: Callable[[], Order | None]) -> None:
    """Say how to find the order of the function being traced; None outside of one."""
    global _order
    _order = function


class _Blocks(threading.local):
    """Bodies that a thread writes, one inside another."""

    def __init__(self) -> None:
        self.groups: list[set[int]] = []  # of each
        self.order: Order | None = None  # where they are written outside of a trace


_blocks = _Blocks()


def _current() -> Order | None:
    order = _order()
    return _blocks.order if order is None else order


def chained(name: str, *inputs: Node, **attributes: Any) -> Node:
    """A collective after those that were written before it in the function being traced; its first output, or the node
    itself where it is all a token. Outside of a trace there is no order but that of the program."""
    node = build(name, *inputs, *last_token(attributes["group"]), **attributes)
    note_last(attributes["group"], node)
    return pick(node, 0)


def computed_again(node: Node, inputs: Sequence[Node]) -> Node:
    """A node of a region that is computed again; a collective comes after those written before it by then, and not only
    after what its first run waited for: all ranks run it at the same place among the others."""
    if node.op not in MOVING:
        return rebuild(node, inputs)
    group = node["group"]
    again = make(node.op, (inputs[0], *last_token(group)), node.attributes, origin=node.origin)
    note_last(group, again)
    return again


def last_token(group: int) -> list[Node]:
    """The token of what was written last in the function being traced, if there is one."""
    order = _current()
    return [] if order is None or group not in order else [order[group]]


def note_last(group: int, node: Node) -> None:
    """Say which collective was written last; outside of a trace nobody asks."""
    order = _current()
    if order is not None:
        order[group] = pick(node, len(node.outputs) - 1)


def in_common_order(nodes: Sequence[Node], outputs: Sequence[Node]) -> list[Node]:
    """The outputs of a program that was not traced, with each collective after the one before it in `nodes`: the order
    in which the program reads them, which is the same on ranks that wrote the same program."""
    last: dict[int, Node] = {}
    done: dict[int, Node] = {}
    for node in nodes:
        inputs = [done[child.serial] for child in node.inputs]
        if node.op not in MOVING:
            done[node.serial] = rebuild(node, inputs)
            continue
        if len(inputs) == 1 and node["group"] in last:
            inputs.append(last[node["group"]])
        made = make(node.op, inputs, node.attributes, origin=node.origin)
        done[node.serial], last[node["group"]] = made, pick(made, len(made.outputs) - 1)
    return [done[node.serial] for node in outputs]


@contextmanager
def of_a_body(sees_outside: bool = True) -> Iterator[set[int]]:
    """Collectives written in this block are those of a body or a row, and come after those outside where it sees them.
    What follows the block waits for none of them by itself: give `come_after` the groups, and what runs the body."""
    order, groups = _current(), set[int]()
    is_untraced = order is None
    if order is None:
        order = _blocks.order = {}
    before = dict(order)
    if not sees_outside:
        order.clear()
    inside = dict(order)
    _blocks.groups.append(groups)
    try:
        yield groups
    finally:
        _blocks.groups.pop()
        groups |= {group for group, token in order.items() if token is not inside.get(group)}
        if _blocks.groups:
            _blocks.groups[-1].update(groups)
        order.clear()
        order |= before
        if is_untraced:
            _blocks.order = None


def come_after(groups: set[int], made: Sequence[Node]) -> None:
    """Order later collectives of these groups after a loop, a branch or rows with these results."""
    order = _current()
    result = next((node for node in made if bounds(product(node.shape))[0] > 0), None)
    if order is None or result is None:
        return
    rank = len(result.shape)
    first = reshape(build("slice", result, starts=(0,) * rank, sizes=(1,) * rank, steps=(1,) * rank), ())
    is_any = cast(build("real", first) if first.dtype.is_complex else first, bool_)
    token = build("bitwise_right_shift", cast(is_any, int32), constant(1, int32))  # it is 0: no pass knows
    for group in groups:
        order[group] = build("bitwise_or", order[group], token) if group in order else token


# -- shapes ------------------------------------------------------------------------------------------------------------
def _infer_same(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    return inputs[0], TOKEN


def _along(name: str, spec: Spec, axis: int, by: int, parts: int) -> Spec:
    """The shape with an axis made `by` times longer, then cut into `parts`."""
    if not 0 <= axis < len(spec.shape):
        raise fail(ArgumentError, name, f"axis {axis} is out of range for {len(spec.shape)} dimensions")
    size = spec.shape[axis]
    if parts > 1 and size % parts != 0:
        raise fail(ShapeError, name, f"axis {axis} of size {size} does not part into {parts} equal shares")
    return Spec((*spec.shape[:axis], size * by // parts, *spec.shape[axis + 1:]), spec.dtype)


def _infer_gather(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    return _along("all_gather", inputs[0], attributes["axis"], attributes["size"], 1), TOKEN


def _infer_scatter(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    return _along("reduce_scatter", inputs[0], attributes["axis"], 1, attributes["size"]), TOKEN


def _infer_exchange(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    cut = _along("all_to_all", inputs[0], attributes["axis"], 1, attributes["size"])
    return _along("all_to_all", cut, attributes["joined"], attributes["size"], 1), TOKEN


# -- gradients ---------------------------------------------------------------------------------------------------------
def _adjoint(node: Node, cotangents: Sequence[Node | None], name: str, **changes: Any) -> list[Node | None]:
    found = cotangents[0]
    if found is None:
        return [None] * len(node.inputs)
    return [chained(name, found, **{**node.attributes, **changes}), *[None] * (len(node.inputs) - 1)]


def _vjp_reduce(node: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    _check_linear(node)
    return _adjoint(node, cotangents, "all_reduce")


def _check_linear(node: Node) -> None:
    if node["op"] not in LINEAR:
        raise fail(ArgumentError, node.op.name, f"the {node['op']} over ranks has no gradient here",
                   "sum and mean have", line=node.origin)


def _vjp_gather(node: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    return _adjoint(node, cotangents, "reduce_scatter", op="sum")


def _vjp_scatter(node: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    _check_linear(node)
    found = cotangents[0]
    if found is None:
        return [None] * len(node.inputs)
    whole = chained("all_gather", found, **{name: node[name] for name in ("group", "size", "axis")})
    if node["op"] == "mean":
        whole = mul(whole, constant_like(whole, 1 / node["size"]))
    return [whole, *[None] * (len(node.inputs) - 1)]


def _vjp_exchange(node: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    return _adjoint(node, cotangents, "all_to_all", axis=node["joined"], joined=node["axis"])


def _vjp_broadcast(node: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    """The root gets everybody's; what the others gave was not used, but they come to the sum too: their zeros are made
    of its token, or nothing would ask for it there, and the root would wait for ever."""
    found = cotangents[0]
    if found is None:
        return [None] * len(node.inputs)
    total = chained("all_reduce", found, group=node["group"], op="sum")
    zero = expand(cast(pick(total.inputs[0], 1), total.dtype), total.shape)
    return [total if node["rank"] == node["root"] else zero, *[None] * (len(node.inputs) - 1)]


def _jvp(node: Node, tangents: Sequence[Node | None], push: Any) -> Sequence[Node | None]:
    """All of them are linear, or have no gradient."""
    if node.op.name in ("all_reduce", "reduce_scatter"):
        _check_linear(node)
    if tangents[0] is None:
        return [None, None]
    return [chained(node.op.name, tangents[0], **node.attributes), None]


def _batch(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    """Rows go together; tokens have none."""
    later = {name: node[name] + 1 for name in ("axis", "joined") if name in node.attributes}
    return make(node.op, (in_front(inputs[0], batched[0], rows.size), *inputs[1:]), {**node.attributes, **later})


# -- meaning -----------------------------------------------------------------------------------------------------------
def _reference(name: str) -> Callable[..., Any]:
    def run(attributes: Attributes, x: Any, *token: Any) -> Any:
        found = x if attributes["group"] == 0 else runner(name, attributes, [x])
        return found, np.int32(0)

    return run


def _reference_memory(attributes: Attributes) -> Any:
    return runner("all_reduce_memory", attributes, ())


def _infer_memory(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    return Spec((len(attributes["buckets"]),), int64)


def _reference_start(attributes: Attributes, *arrays: Any) -> Any:
    runner("all_reduce_start", attributes, arrays[:attributes["count"]])
    return np.int32(0)


def _reference_wait(attributes: Attributes, *tokens: Any) -> Any:
    parts = runner("all_reduce_wait", attributes, ())
    return (*parts, np.int32(0)) if attributes["shapes"] else np.int32(0)


def _infer_start(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    return TOKEN


def _infer_wait(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    return (*[Spec(shape, attributes["dtype"]) for shape in attributes["shapes"]], TOKEN)


def _batch_start(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    count = node["count"]
    return make(node.op, (*rows.all(inputs[:count], batched[:count]), *inputs[count:]), node.attributes)


def _batch_wait(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    return make(node.op, inputs, {**node.attributes, "shapes": tuple((rows.size, *s) for s in node["shapes"])})


_OVER_RANKS = "as the group adds: plain in any order, ordered by a fixed tree"
_WITH = frozenset({JOINT, "by dtype"})
_ONE_OR_TOKEN = (1, 2)


def _collective(name: str, infer: Any, vjp: Any, numerics: str) -> Op:
    return register(Op(name, "collective", infer, vjp, _reference(name), 1, numerics, _WITH, arity=_ONE_OR_TOKEN,
                       batch=_batch, jvp=_jvp))


ALL_REDUCE = _collective("all_reduce", _infer_same, _vjp_reduce, _OVER_RANKS)
REDUCE_SCATTER = _collective("reduce_scatter", _infer_scatter, _vjp_scatter, _OVER_RANKS)
ALL_GATHER = _collective("all_gather", _infer_gather, _vjp_gather, "exact")
ALL_TO_ALL = _collective("all_to_all", _infer_exchange, _vjp_exchange, "exact")
BROADCAST = _collective("broadcast_from", _infer_same, _vjp_broadcast, "exact")
MOVING = (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, BROADCAST)
_INSIDE = NoGradient("a bucket of gradients is not differentiated again", missing=True)
START = register(Op("all_reduce_start", "collective", _infer_start, _INSIDE, _reference_start, 0, _OVER_RANKS,
                    arity=(0, math.inf), batch=_batch_start))
WAIT = register(Op("all_reduce_wait", "collective", _infer_wait, _INSIDE, _reference_wait, 1, _OVER_RANKS,
                   frozenset({JOINT}), arity=(1, 2), batch=_batch_wait))
MEMORY = register(Op("all_reduce_memory", "collective", _infer_memory, NoGradient("addresses are not differentiated"),
                     _reference_memory, 0, "exact", arity=(0, 0)))
_LINE_BYTES = 64  # of a cache: parts of a bucket begin there


def bucket_places(shapes: Sequence[Sequence[int]], wire: str) -> tuple[list[int], int]:
    """Where the parts of a bucket begin in it, and its length, in elements of the dtype that travels: the same on all
    ranks, whatever their backends.

    >>> bucket_places([(3, 5), (), (2,)], "float32")
    ([0, 16, 32], 34)
    """
    line, places, end = _LINE_BYTES // BY_NAME[wire].itemsize, [], 0
    for shape in shapes:
        places.append(-(-end // line) * line)
        end = places[-1] + math.prod(shape)
    return places, end


def start_bucket(parts: Sequence[Node], group: int, bucket: int, op: str, wire: str, *after: Node,
                 which: tuple[int, ...] = ()) -> Node:
    """The token of a bucket whose reduction begins when its parts are there; `wire` is the dtype that travels, `which`
    numbers that say of what the parts are, the same on all ranks."""
    return build("all_reduce_start", *parts, *after, group=group, bucket=bucket, op=op, wire=wire, count=len(parts),
                 dtype=parts[0].dtype, which=which)


def wait_bucket(parts: Sequence[Node], group: int, bucket: int, started: Node, last: Node) -> tuple[list[Node], Node]:
    """The reduced parts of a bucket that was started, after `last`, and a token."""
    made = build("all_reduce_wait", started, last, group=group, bucket=bucket, dtype=parts[0].dtype,
                 wire=started["wire"], shapes=tuple(part.shape for part in parts))
    return [pick(made, index) for index in range(len(parts))], pick(made, len(parts))
