"""Explicit state: a slot whose value a compiled function reads and replaces, in place where nothing else shares it.

>>> import morpho as mo
>>> total = mo.State(mo.zeros(3))
>>> @mo.compile
... def step(x):
...     total.value = total.value + x
...     return total.value.sum()
>>> step(mo.ones(3)).item(), step(mo.ones(3)).item(), total.version
(3.0, 6.0, 2)
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import weakref
from typing import Any

from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.runtime.tables import StateField
from morpho.tensor.core import Tensor, evaluate, tracing

_numbers = itertools.count()
_live: weakref.WeakSet[State] = weakref.WeakSet()


class Lock:
    """A state's lock, reentrant. Native code, which cannot take it, sees in a word of the state whether it is held."""

    __slots__ = ("_lock", "_words")

    def __init__(self, words: Any) -> None:
        self._lock, self._words = threading.RLock(), words

    def acquire(self) -> None:
        self._lock.acquire()
        self._words[StateField.HELD] += 1

    def release(self) -> None:
        self._words[StateField.HELD] -= 1
        self._lock.release()

    @property
    def native_release(self) -> Any:
        """The C function that lets the lock go; whoever calls it has taken back the word before."""
        return self._lock.release

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


class State:
    """A versioned slot. Outside a compiled function it is a plain holder; inside, reads are inputs and writes outputs.

    Its shape and dtype are fixed by its first value. A value that was read stays what it was: while someone holds it,
    a compiled function writes elsewhere. Calls that use a state take turns.
    """

    # `_tensor` and the words are read and written by compiled code; see runtime/state_code.py.
    __slots__ = ("__weakref__", "_tensor", "_words", "lock", "number")

    def __init__(self, value: Any) -> None:
        from morpho.tensor.create import asarray

        self._tensor = asarray(value, copy=True).realise()  # memory of its own: borrowed memory is never written
        self._words = (ctypes.c_int64 * int(StateField.SIZE))()
        self.number = next(_numbers)  # locks are taken in this order
        self.lock = Lock(self._words)  # held by a call through Python, and by a long native one, from start to end
        _live.add(self)

    @property
    def version(self) -> int:
        """How often the value was replaced."""
        return self._words[StateField.VERSION]

    @property
    def value(self) -> Tensor:
        """The current value, as a tensor of its own: holding it is seen by whoever wants to write in place."""
        trace = current_trace()
        if trace is not None:
            return trace.read(self)
        with self.lock:
            buffer = self._tensor.buffer()
            assert buffer is not None
            return Tensor.of_buffer(buffer)

    @value.setter
    def value(self, new: Any) -> None:
        from morpho.tensor.create import asarray

        tensor = asarray(new)
        if tensor.shape != self._tensor.shape or tensor.dtype is not self._tensor.dtype:
            raise fail(ShapeError, "State", f"a state of {self._tensor.dtype}{self._tensor.shape} is given "
                                            f"{tensor.dtype}{tensor.shape}", "convert or reshape it first")
        trace = current_trace()
        if trace is not None:
            trace.write(self, tensor)
            return
        self.replace(asarray(tensor, copy=True).realise())

    def replace(self, tensor: Tensor) -> None:
        """Put in a realised value and count the version."""
        with self.lock:
            self._tensor = tensor
            self._words[StateField.VERSION] += 1

    def __repr__(self) -> str:
        return f"State({self._tensor!r}, version={self.version})"


class Trace:
    """What a function being traced reads and writes besides its arguments."""

    def __init__(self, first_parameter: int) -> None:
        self.next_parameter = first_parameter
        self.states: list[State] = []
        self.inputs: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        self.written: dict[int, State] = {}
        self.captured: dict[int, tuple[Tensor, Node]] = {}

    def capture(self, tensor: Tensor) -> Node:
        """The leaf of a realised tensor of the surroundings; one of this trace alone, so that a later change of the
        tensor concerns where the function names it, and not programs made from its old value."""
        found = self.captured.get(id(tensor))
        if found is None:
            found = self.captured[id(tensor)] = (tensor, evaluate.leaf(tensor.elements()))
        return found[1]

    def read(self, state: State) -> Tensor:
        """The value the function sees: the last one it wrote, else the state as an input."""
        if id(state) not in self.values:
            tensor = state._tensor
            node = build("parameter", index=self.next_parameter, shape=tensor.shape, dtype=tensor.dtype)
            self.next_parameter += 1
            self.states.append(state)
            self.inputs[id(state)] = self.values[id(state)] = Tensor.of_node(node)
        return self.values[id(state)]

    def write(self, state: State, tensor: Tensor) -> None:
        self.read(state)
        self.values[id(state)] = tensor
        self.written[id(state)] = state

    @property
    def updates(self) -> list[tuple[int, Tensor]]:
        """(number among `states`, new value) of every state written."""
        return [(n, self.values[id(s)]) for n, s in enumerate(self.states) if id(s) in self.written]

    def __enter__(self) -> Trace:
        if current_trace() is not None:
            raise fail(ArgumentError, "compile", "a compiled function is traced inside another one's trace")
        tracing.current = self
        return self

    def __exit__(self, *exception: object) -> None:
        tracing.current = None


def current_trace() -> Trace | None:
    """The trace this thread is in, if any."""
    return getattr(tracing, "current", None)


def _after_fork() -> None:
    """A lock that another thread of the parent held has no one to release it in a child."""
    for state in list(_live):
        state._words[StateField.HELD] = 0
        state.lock = Lock(state._words)


os.register_at_fork(after_in_child=_after_fork)
