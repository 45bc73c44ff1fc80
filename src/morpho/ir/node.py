"""Immutable, interned nodes: structurally equal programs are the same object.

The table is weak, so a dropped result frees its inputs. Inputs are keyed by serial numbers, never addresses. The
user's line is kept beside the identity: two lines that build the same program share one node.
"""

from __future__ import annotations

import itertools
import os
import struct
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import numpy as np

from morpho.base import settings
from morpho.base.dims import Dim, Shape
from morpho.base.dtypes import DType
from morpho.base.errors import ArgumentError, DeviceError, fail, user_line
from morpho.base.shapes import check_shape
from morpho.ir.op import REGISTRY, Attributes, Op, Spec

Made = TypeVar("Made")

_serials = itertools.count(1)
_table: weakref.WeakValueDictionary[tuple[Any, ...], Node] = weakref.WeakValueDictionary()
_lock = threading.Lock()
_PYTHON_KINDS = ((np.bool, bool), (np.integer, int), (np.floating, float), (np.complexfloating, complex))


class _Written(threading.local):
    """Source location given to new nodes (None: the user's stack frame), and whether reused nodes keep their own."""

    origin: str | None = None
    kept: bool = False
    numpy: bool = False  # whether attributes that were looked at hold numbers of NumPy's
    asked: set[int] | None = None  # serials of all nodes that were asked for, where somebody wants to know


_written = _Written()


class Node:
    """One operation on other nodes. `payload` is the realised data of a `data` leaf and nothing elsewhere."""

    __slots__ = ("__weakref__", "attributes", "depth", "device", "inputs", "op", "origin", "outputs", "payload",
                 "serial")

    op: Op
    inputs: tuple[Node, ...]
    attributes: Attributes
    outputs: tuple[Spec, ...]
    device: str
    serial: int
    origin: str
    payload: Any
    depth: int  # operations on the longest way down to a leaf

    @property
    def shape(self) -> Shape:
        return self.outputs[0].shape

    @property
    def dtype(self) -> DType:
        return self.outputs[0].dtype

    @property
    def spec(self) -> Spec:
        return self.outputs[0]

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]

    def __repr__(self) -> str:
        return f"<{self.op.name} {self.dtype}{list(self.shape)} #{self.serial}>"


def _key(value: Any) -> Any:
    """A hashable key in which NaN equals itself and -0.0 is not 0.0."""
    kind = type(value)
    if kind is int or kind is DType or kind is str:
        return value
    if kind is tuple:
        return tuple([_key(item) for item in value])
    if isinstance(value, float):
        _written.numpy |= kind is not float
        return ("f", struct.pack("<d", value))
    if isinstance(value, complex):
        _written.numpy |= kind is not complex
        return ("c", struct.pack("<dd", value.real, value.imag))
    if isinstance(value, bool):
        return ("b", value)
    if isinstance(value, tuple):
        return tuple(_key(item) for item in value)
    if isinstance(value, np.generic):
        _written.numpy = True
        return _key(_plain(value))
    return value


def _plain(value: Any) -> Any:
    """An attribute with NumPy's numbers as Python's: whoever reads one meets plain numbers only."""
    if type(value) is tuple:
        return tuple([_plain(item) for item in value])
    if isinstance(value, np.generic):
        return next((kind(value) for numpy_kind, kind in _PYTHON_KINDS if isinstance(value, numpy_kind)), value)
    return value


def make(op: Op, inputs: Sequence[Node] = (), attributes: Attributes | None = None, *, device: str = "",
         payload: Any = None, origin: str | None = None) -> Node:
    """The node for `op` on `inputs`: an existing one if an equal one lives, else a new one, inferred and checked.
    Its `origin` is the user's line on the stack unless one is given. Its device is that of its inputs; what has none,
    such as a number, goes with any."""
    attributes = attributes or {}
    inputs = tuple(inputs)
    for node in inputs:
        if node.device and node.device != device:
            device = node.device if not device else _refuse_mixed(op, device, node.device)
    key = (op.name, tuple([node.serial for node in inputs]), device,
           tuple([(name, _key(attributes[name])) for name in
                  (sorted(attributes) if len(attributes) > 1 else attributes)]))
    found = _table.get(key)
    if found is not None and found.op is op:  # not one that was removed and given its name to another
        if _written.asked is not None:
            _written.asked.add(found.serial)
        # Of those who wrote this program the latest one asks for its values: its line is told where there is a fault.
        if not _written.kept and (op.kind == "index" or "checks" in op.properties or settings.get().nans):
            found.origin = _line() if origin is None else origin
        return found
    if _written.numpy:
        _written.numpy, attributes = False, {name: _plain(value) for name, value in attributes.items()}
    if problem := op.refusal(len(inputs)):
        raise fail(ArgumentError, op.name, problem)
    outputs = op.infer([node.spec for node in inputs], attributes)
    node = object.__new__(Node)
    node.op, node.inputs, node.attributes, node.device, node.payload = op, inputs, attributes, device, payload
    node.outputs = (outputs,) if isinstance(outputs, Spec) else tuple(outputs)
    for shape, dtype in node.outputs:
        if not inputs or shape is not inputs[0].outputs[0].shape or dtype.itemsize > inputs[0].dtype.itemsize:
            check_shape(shape, op.name, dtype.itemsize)  # kernels count on it: a negative size would write anywhere
    node.origin = _line() if origin is None else origin
    node.depth = 1 + max([below.depth for below in inputs]) if inputs else 0
    node.serial = next(_serials)
    with _lock:  # two threads may build the same program: the first one is kept
        found = _table.get(key)
        if found is not None and found.op is op:
            node = found
        else:
            _table[key] = node
    if _written.asked is not None:
        _written.asked.add(node.serial)
    return node


def _refuse_mixed(op: Op, one: str, other: str) -> NoReturn:
    raise fail(DeviceError, op.name, f"its operands lie on {one} and on {other}",
               f"move one of them first: x.to({one!r})")


def _line() -> str:
    return user_line() if _written.origin is None else _written.origin


@contextmanager
def keeping_lines() -> Iterator[None]:
    """In a pass: nodes that live keep the lines of whoever wrote them."""
    before, _written.kept = _written.kept, True
    try:
        yield
    finally:
        _written.kept = before


@contextmanager
def asked_for() -> Iterator[set[int]]:
    """The serials of all nodes that are asked for in this block, whether they live already or not."""
    before, asked = _written.asked, set[int]()
    _written.asked = asked
    try:
        yield asked
    finally:
        _written.asked = before
        if before is not None:
            before |= asked


@contextmanager
def written_at(origin: str) -> Iterator[None]:
    """Nodes made in this block carry a place that is no line of Python: a node of an ONNX file."""
    before, _written.origin = _written.origin, origin
    try:
        yield
    finally:
        _written.origin = before


def in_place_of(node: Node, write: Callable[[Node], Made]) -> Made:
    """`write(node)`, whose nodes carry the line of this one: a pass has no line of its own."""
    before, _written.origin = _written.origin, node.origin
    try:
        return write(node)
    finally:
        _written.origin = before


def build(name: str, *inputs: Node, **attributes: Any) -> Node:
    """`make` by name: `build("add", a, b)`."""
    return make(REGISTRY[name], inputs, attributes)


def rebuild(node: Node, inputs: Sequence[Node]) -> Node:
    """The same operation on other inputs, keeping the user's line."""
    inputs = tuple(inputs)
    if inputs == node.inputs:  # the same objects: nodes compare by identity
        return node
    device = "" if inputs else node.device
    return make(node.op, inputs, node.attributes, device=device, origin=node.origin)  # not with the payload


def has_symbols(node: Node) -> bool:
    """Whether a node has a size, or stands for one, that is known only when a compiled function runs."""
    return node.op.name == "dimension" or any(isinstance(size, Dim) for size in node.shape)


def toposort(outputs: Iterable[Node], seen: set[int] | None = None) -> list[Node]:
    """Every node below `outputs`, inputs before users; iterative, so depth does not matter. Those in `seen`, by serial,
    are left out, and the others put there."""
    order: list[Node] = []
    seen = set() if seen is None else seen
    stack: list[Node | None] = list(reversed(tuple(outputs)))
    while stack:
        node = stack.pop()
        if node is None:  # everything below the next one is in order
            ready = stack.pop()
            assert ready is not None
            order.append(ready)
            continue
        if node.serial in seen:
            continue
        seen.add(node.serial)
        if not node.inputs:
            order.append(node)
            continue
        stack += (node, None)
        for child in reversed(node.inputs):
            if child.serial not in seen:
                stack.append(child)
    return order


def _after_fork() -> None:
    """Another thread of the parent may have held the lock."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def next_serial() -> int:
    """A number between those of the nodes made before and of those made from now on."""
    return next(_serials)


def live_nodes() -> int:
    """How many interned nodes are alive; tests watch it to see that results are freed."""
    return len(_table)
