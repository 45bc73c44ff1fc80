"""Abstraction of a lazy program: realised values and most numbers become parameters, so that equal forms share a plan.

Programs that differ in these alone are one program, planned and compiled once: a loop with a factor that shrinks from
step to step runs the same code for every factor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import float32, float64
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, rebuild
from morpho.ops.identity import meant
from morpho.runtime.memory.buffer import Buffer, allocate, view_memory

LIFTS = "lifts constants"


def realised(node: Node) -> Buffer | None:
    """The elements of a node that exist already: a data leaf, or a node some live tensor has realised."""
    if node.op.name == "data":
        return node.payload  # type: ignore[no-any-return]
    if callable(node.payload):
        holder = node.payload()
        return holder.buffer() if holder is not None else None
    return None


def abstract(outputs: Sequence[Node], lift: bool = False) -> tuple[Graph, list[Buffer]]:
    """The same program with every realised value replaced by a numbered parameter, and its memory; with `lift`, numbers
    that no rule of algebra looks at too."""
    buffers: list[Buffer] = []
    done: dict[int, Node] = {}
    by_buffer: dict[tuple[Any, ...], Node] = {}
    lifted: dict[int, Node] = {}

    def parameter(buffer: Buffer) -> Node:
        buffers.append(buffer)
        return build("parameter", index=len(buffers) - 1, shape=buffer.shape, dtype=buffer.dtype,
                     strides=buffer.strides)

    def operand(child: Node) -> Node:
        """Operand that an operation with numbers from memory reads instead of `child`."""
        number = number_below(child)
        if number is None or not is_ordinary(number):
            return done[child.serial]
        if number.serial not in lifted:
            lifted[number.serial] = parameter(stored(number))
        return moved(child, number, lifted[number.serial])

    stack = list(reversed(outputs))
    while stack:
        node = stack[-1]
        if node.serial in done:
            stack.pop()
            continue
        buffer = realised(node)
        if buffer is not None:
            key = (buffer.address, buffer.shape, buffer.strides, buffer.dtype)
            if key not in by_buffer:
                by_buffer[key] = parameter(buffer)
            done[node.serial] = by_buffer[key]
            stack.pop()
            continue
        same = meant(node)
        needs = node.inputs if same is None else (same,)
        waiting = [child for child in needs if child.serial not in done]
        if waiting:
            stack.extend(waiting)
            continue
        if same is not None:
            done[node.serial] = done[same.serial]
            stack.pop()
            continue
        lifts = lift and LIFTS in node.op.properties and any(number_below(child) is None for child in node.inputs)
        inputs = [operand(child) if lifts else done[child.serial] for child in node.inputs]
        done[node.serial] = rebuild(node, inputs)
        stack.pop()
    return Graph(tuple(done[node.serial] for node in outputs)), buffers


def number_below(node: Node) -> Node | None:
    """The constant that a node is, or that it moves to other places."""
    while node.op.kind == "move" and len(node.inputs) == 1:
        node = node.inputs[0]
    return node if node.op.name == "constant" else None


def is_ordinary(number: Node) -> bool:
    """Whether it is no number that rules look for: 0, 1, powers of two, infinity."""
    value = number["value"]
    return (number.dtype in (float32, float64) and isinstance(value, float) and math.isfinite(value)
            and abs(math.frexp(value)[0]) not in (0.0, 0.5))


def stored(number: Node) -> Buffer:
    """A number in memory."""
    buffer = allocate((), number.dtype)
    view_memory(None, buffer.address, (), (), number.dtype)[...] = np.asarray(number["value"], number.dtype.numpy)
    return buffer


def moved(node: Node, number: Node, replacement: Node) -> Node:
    """`node`, which moves a number, with another in its place."""
    moves = []
    while node is not number:
        moves.append(node)
        node = node.inputs[0]
    for move in reversed(moves):
        replacement = rebuild(move, [replacement])
    return replacement
