"""From attention of one query to its step; where its keys and values are a cache with one new line each, that is put in
by the same step."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from morpho.backends.cuda.attention.decode.kernel import APPEND, DecodeSpec
from morpho.backends.cuda.attention.decode.split import COLUMNS, SPAN
from morpho.backends.cuda.attention.hopper import KEYS as GROUP_KEYS
from morpho.backends.cuda.attention.lower import by_copy_engine, on_tensor_cores
from morpho.backends.cuda.attention.spec import ATTENTION, KEYS, filled, group_of, steps_of
from morpho.backends.lowering.lower_attention import as_reshaped
from morpho.backends.lowering.lowering import Lowering
from morpho.base.dims import Size, product
from morpho.base.dtypes import bool_, float32
from morpho.ir.node import Node
from morpho.ir.views import look_through
from morpho.program.program import Step
from morpho.program.view import View

PUTS_IN = ", puts the new line in"
SPLIT_KEYS = 1024  # of a cache, from which on several blocks share a head; the bits are the same


class Line(NamedTuple):
    """`where(here, new, held)`: a cache with a new line at a place."""

    here: Node
    new: Node
    held: Node


def waits_as_line(low: Lowering, node: Node) -> bool:
    """Whether a node is a cache with a new line that nothing looks at but attention, which puts the line in."""
    if line_of(node) is None:
        return False
    users = low.graph.users[node.serial]
    return len(users) == 1 and is_decode(users[0]) and node in users[0].inputs[1:3]


def lower_decode(low: Lowering, node: Node) -> bool:
    """The step; False where operands do not lie in chunks."""
    sides = node.inputs[1:3]
    lines = [line_of(side) if side.serial in low.waiting else None for side in sides]
    found = [line for line in lines if line is not None]
    appends = (len(found) == 2 and sides[0] is not sides[1] and found[0].here is found[1].here
               and all(in_chunks(low, line) for line in found))
    q, *extra = (low.view(node.inputs[n]) for n in (0, *range(3, len(node.inputs))))
    k, v = (low.view(line.held if appends and line else side) for side, line in zip(sides, lines, strict=True))
    if not on_tensor_cores(node, [q, k, v]):
        return False
    targets = [as_reshaped(low, node, 0), low.new_slot(node.outputs[1].shape, node.outputs[1].dtype)]
    places: dict[str, View | None] = {"q": q, "k": k, "v": v, "o": targets[0], "l": targets[1], "x": None,
                                      "p": extra[0] if node["moving"] else None}
    if appends:
        places |= appended(low, lines, sides)  # type: ignore[arg-type]
    keys = k.shape[-2]
    numbers = {key: value for name, place in places.items() for key, value in steps_of(name, place).items()}
    record = APPEND if appends else ATTENTION
    values = record.values(queries=1, keys=keys, heads=q.shape[-3], group=group_of(q, k), x_column=0,
                           batches=filled(q.shape[:-3], 1), **numbers)
    grouped = "wgmma" in low.target.machine.features and by_copy_engine(q, k, v)
    read = [place for name in "kvp" if (place := places[name]) is not None]
    kernel = DecodeSpec(q.dtype, int(q.shape[-1]), int(v.shape[-1]), node["scale"], node["offset"], node["causal"],
                        node["window"], None, node["moving"], 1, "decode", appends=appends,
                        still=all(low.program.slots[place.slot].kind == "input" for place in read),
                        most_keys=keys if isinstance(keys, int) else 0, shared=group_of(q, k),
                        heads=int(q.shape[-3]) if all(size == 1 for size in q.shape[:-3]) else 0,
                        step_keys=GROUP_KEYS if grouped else KEYS)
    if isinstance(keys, int) and keys >= SPLIT_KEYS and int(v.shape[-1]) % COLUMNS == 0:
        split_decode(low, node, kernel, places, values)
        low.views[node.serial] = targets
        return True
    views = tuple(place for place in places.values() if place is not None)
    work = product(tuple(q.shape[:-1])) * keys
    low.add(Step(kernel, views, (3, 4, *((len(views) - 2, len(views) - 1) if appends else ())), values, 1, work,
                 "attention", node.origin, operations=2 * work * (q.shape[-1] + v.shape[-1]),
                 choice="tensor cores (one query)" + PUTS_IN * appends))
    low.views[node.serial] = targets
    return True


def split_decode(low: Lowering, node: Node, kernel: DecodeSpec, places: dict[str, View | None],
                 values: tuple[Size, ...]) -> None:
    """Two steps over a long cache: the scores of its keys by spans, then the result by columns."""
    q, k, v = (places[name] for name in "qkv")
    assert q is not None and k is not None and v is not None
    heads, keys = product(tuple(q.shape[:-2])), k.shape[-2]
    places["s"] = low.new_slot((heads, keys), float32)
    scores, work = replace(kernel, part="scores"), heads * keys
    views = [places[name] for name in scores.names]
    writes = (3, *((len(views) - 2, len(views) - 1) if kernel.appends else ()))
    low.add(Step(scores, tuple(views), writes, values, 1, work, "attention (scores)", node.origin,
                 operations=2 * work * q.shape[-1],
                 choice=f"tensor cores (one query), {SPAN} keys a block" + PUTS_IN * kernel.appends))
    made = places["d"] if kernel.appends else v
    numbers = list(values[:len(ATTENTION)])
    for name, number in steps_of("v", made).items():
        at = ATTENTION.at(name)
        numbers[at:at + (len(number) if isinstance(number, list) else 1)] = (
            number if isinstance(number, list) else [number])
    weighted = replace(kernel, part="values", appends=False, still=False)
    views = [made if name == "v" else places[name] for name in weighted.names]
    low.add(Step(weighted, tuple(views), (1, 2), tuple(numbers), 1, work, "attention (values)", node.origin,
                 operations=2 * work * v.shape[-1], choice=f"tensor cores (one query), {COLUMNS} columns a block"))


def appended(low: Lowering, lines: list[Line], sides: tuple[Node, ...]) -> dict[str, View | None]:
    """The new lines, where they go, and memory for the caches with them."""
    found: dict[str, View | None] = {"n": low.view(lines[0].new), "w": low.view(lines[1].new),
                                     "h": low.view(lines[0].here)}
    for name, side in zip("cd", sides, strict=True):
        found[name] = target = low.new_slot(side.shape, side.dtype)
        low.views[side.serial] = [target]
        low.waiting.discard(side.serial)
        low.lowered.add(side.serial)
    return found


def in_chunks(low: Lowering, line: Line) -> bool:
    """Whether a new line is read in chunks of 16 bytes."""
    place = low.view(line.new)
    steps: tuple[Size, ...] = (*place.strides[:-1], place.offset)
    return place.strides[-1] == 1 and all(isinstance(n, int) and n % 8 == 0 for n in steps)


def is_decode(node: Node) -> bool:
    """Whether a node is attention of one query of every head, of which no mask says what it sees."""
    return node.op.name == "attention" and node.inputs[0].shape[-2] == 1 and not node["masked"]


def line_of(node: Node) -> Line | None:
    """New line that a group appends to a cache (batch, heads, length, depth)."""
    if node.op.name != "group" or node["axes"] or len(node.outputs) != 1 or len(node.shape) != 4:
        return None
    (made,) = node["body"].outputs
    if made.op.name != "where":
        return None
    if any(child.op.name != "parameter" for child in made.inputs):
        return None
    here, new, held = (look_through(node.inputs[child["index"]], lambda view: view.op.name == "expand")[0]
                       for child in made.inputs)
    batch, heads, length, depth = node.shape
    fits = (held.shape == node.shape and new.shape == (batch, heads, 1, depth) and here.dtype is bool_
            and len(here.shape) == 4 and here.shape[0] in (1, batch) and here.shape[1:] == (1, length, 1))
    return Line(here, new, held) if fits and length != 1 else None
