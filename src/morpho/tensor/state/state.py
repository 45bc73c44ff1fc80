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
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from morpho.backends.driver.abi import StateField
from morpho.base.dtypes import DType
from morpho.base.errors import ArgumentError, CompileError, DTypeError, ShapeError, fail
from morpho.base.shapes import contiguous_strides, is_contiguous
from morpho.runtime.memory.buffer import Buffer, OffHost
from morpho.runtime.memory.pool import pool
from morpho.runtime.trace.spans import first_value
from morpho.tensor import recording
from morpho.tensor.autodiff.grad_mode import tracing
from morpho.tensor.convert import asarray, borrowed
from morpho.tensor.core import Tensor, realise
from morpho.tensor.state.trace import current_trace
from morpho.tensor.steps import Step
from morpho.tensor.tools.foreign_calls import unpicklable

_numbers = itertools.count()
_live: weakref.WeakSet[State] = weakref.WeakSet()
_deferred: weakref.WeakSet[State] = weakref.WeakSet()  # states whose new value waits to be computed
_deferring = threading.Lock()
on_move: list[Callable[[], None]] = []  # called when a state's value went to another device, or its owner left it


class Lock:
    """A state's lock, reentrant. Native code, which cannot take it, sees in a word of the state whether it is held."""

    __slots__ = ("_lock", "_words")

    def __init__(self, words: Any) -> None:
        self._lock, self._words = threading.RLock(), words

    def acquire(self, blocking: bool = True) -> bool:
        taken = self._lock.acquire(blocking)
        self._words[StateField.HELD] += int(taken)
        return taken

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
    a compiled function writes elsewhere. So `s.value[0] = 5` changes a copy; do `y = s.value; y[0] = 5; s.value = y`.
    Calls that use a state take turns.

    >>> count = mo.State(mo.zeros(()))
    >>> @mo.compile
    ... def tick():
    ...     count.value = count.value + 1
    ...     return count.value
    >>> tick().item(), tick().item(), count.version
    (1.0, 2.0, 2)
    """

    # `_held` and the words are read and written by compiled code; see backends/driver/entry/state_code.py.
    __slots__ = ("__weakref__", "_held", "_is_left", "_waiting", "_words", "follows", "lock", "number")

    def __init__(self, value: Any, filled: bool = True) -> None:
        self._words = (ctypes.c_int64 * int(StateField.SIZE))()
        # Memory of its own: borrowed memory is never written. What is not `filled` takes none before its next value.
        try:
            with first_value():
                self._held = asarray(value, copy=True).realise() if filled else _zeros_of(asarray(value))
        except CompileError:
            if tracing.current is None:
                raise
            raise fail(CompileError, "State", "a parameter or state is made inside a function that is being compiled",
                       "make modules, optimisers and states outside of it") from None
        self._waiting: Tensor | None = None  # the next value, not computed yet
        self.number = next(_numbers)  # locks are taken in this order
        self._is_left = self.follows = False
        self.lock = Lock(self._words)  # held by a call through Python, and by a long native one, from start to end
        _live.add(self)

    @property
    def _tensor(self) -> Tensor:
        """The current value as it is kept; what waits to be computed is computed now."""
        if self._waiting is not None:
            settle(self)
        return self._held

    @property
    def version(self) -> int:
        """How often the value was replaced."""
        return self._words[StateField.VERSION]

    def wait_for(self, tensor: Tensor | None) -> None:
        """Say what the next value is, or that none waits; while one does, native code finds the state held."""
        self._words[StateField.HELD] += int(tensor is not None) - int(self._waiting is not None)
        self._waiting = tensor

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
        tensor = self.checked(borrowed(new))
        trace = current_trace()
        if trace is not None:
            trace.write(self, tensor)
            return
        if type(tensor._node) is Step:
            made = _owned(recording.shared(tensor).realise())
        else:
            made = asarray(tensor, copy=True).realise()
        made._track = None  # a value without a past: gradients end here
        self.replace(made)

    def checked(self, tensor: Tensor) -> Tensor:
        """A new value, if it has this state's shape and dtype."""
        if tracing.batched:
            raise fail(ArgumentError, "vmap", "a state is given a new value inside a function that is called for every "
                                              "row, and would have one of each",
                       "return the new values and write the state outside; draw with keys: mo.random.split(key, n)")
        if tracing.body is not None:
            raise fail(ArgumentError, tracing.body, "a state is given a new value inside a loop or branch that is not "
                                                    "part of a compiled function, and would have it once, whatever "
                                                    "runs",
                       "put mo.compile around it; or return the new value, and write the state outside")
        if tensor.shape != self._held.shape or tensor.dtype is not self._held.dtype:
            kind = DTypeError if tensor.shape == self._held.shape else ShapeError
            raise fail(kind, "State", f"a state of {self._held.dtype}{self._held.shape} is given "
                                      f"{tensor.dtype}{tensor.shape}", "convert or reshape it first")
        return tensor

    def replace(self, tensor: Tensor) -> None:
        """Put in a realised value and count the version."""
        with self.lock:
            if self._waiting is not None:
                self.wait_for(None)
            before, self._held = self._held, tensor
            self._words[StateField.VERSION] += 1
        is_elsewhere = isinstance(before._storage, OffHost) or isinstance(tensor._storage, OffHost)
        if is_elsewhere and before.device != tensor.device:
            _say_moved()

    @property
    def place(self) -> tuple[str, bool]:
        """Device of a state, and whether its owner has left it: programs are compiled for both."""
        return self._held.device, self._is_left

    def move(self, device: str) -> None:
        """Put the value in the memory of a device, also while a function is traced; one that has read it keeps it."""
        from morpho.tensor.device import elsewhere

        trace = current_trace()
        if device == self._held.device or (trace is not None and id(self) in trace.inputs):
            return
        with self.lock:
            self.replace(Tensor.of_buffer(elsewhere(self._tensor.elements(), device)))

    def follow(self, device: str) -> None:
        """Go to whoever draws from it next: the same as `move`, and compiled functions have it come to them, where
        another state that lies elsewhere than they take it to be has them compiled again."""
        self.follows = True
        self.move(device)

    def leave(self) -> None:
        """Detach a state that its owner has replaced: programs compiled for it are made again."""
        self._is_left = True
        _say_moved()

    def exchange(self, tensor: Tensor) -> Tensor:
        """Put in a realised value of this shape and dtype that nobody else holds, and give back the one that was there;
        nothing is copied. So one compiled function serves several sequences, each with a cache of its own.

        >>> state, other = mo.State(mo.zeros(2)), mo.State(mo.ones(2))
        >>> first = state.exchange(other.exchange(mo.zeros(2).realise()))
        >>> state.value.tolist(), first.tolist()
        ([1.0, 1.0], [0.0, 0.0])
        """
        self.checked(tensor)
        with self.lock:
            before = self._tensor
            self.replace(tensor)
        return before

    def __deepcopy__(self, memo: dict[int, Any]) -> State:
        made = memo[id(self)] = State(self.value)
        return made

    def __copy__(self) -> State:
        return self.__deepcopy__({})

    __reduce_ex__ = unpicklable("a state", "save its value with mo.weights.save(path, {name: state.value})")

    def __repr__(self) -> str:
        return f"State({self._tensor!r}, version={self.version})"


def _zeros_of(tensor: Tensor) -> Tensor:
    """Zeros of this shape and dtype in the memory of one."""
    one, shape = np.zeros((), tensor.dtype.numpy), tensor.shape
    buffer = Buffer(one, one.ctypes.data, shape, (0,) * len(shape), tensor.dtype, False)  # type: ignore[arg-type]
    return Tensor.of_buffer(buffer)


def zeros_state(shape: tuple[int, ...], dtype: DType) -> State:
    """A state of zeros in memory of its own that is not touched before it is written: a large one costs nothing to
    make, where the system gives pages of zeros.

    >>> float(mo.sum(zeros_state((2, 3), mo.float32).value).item())
    0.0
    """
    state = State(np.zeros((), dtype.numpy), filled=False)
    block = pool().acquire(max(math.prod(shape) * dtype.itemsize, 1), zero=True)
    buffer = Buffer(block, block.address, shape, contiguous_strides(shape), dtype, True)  # type: ignore[arg-type]
    state._held = Tensor.of_buffer(buffer)
    return state


def assign(values: Sequence[tuple[State, Any]], *others: Tensor) -> None:
    """Give several states new values, computed together with each other and with `others`, each from the old ones."""
    checked = [(state, state.checked(new if type(new) is Tensor else borrowed(new))) for state, new in values]
    trace = current_trace()
    if trace is not None:
        for state, tensor in checked:
            trace.write(state, tensor)
        return
    # Tensors of this function's own: a value that exists already, or is a view of one, is copied.
    made = [asarray(tensor, copy=True) if tensor.is_realised else
            tensor if type(tensor._node) is Step else Tensor.of_node(tensor.program())
            for _, tensor in checked]
    named = {id(state) for state, _ in checked}
    waiting = [(state, tensor) for state, tensor in _take_deferred() if id(state) not in named]
    realise(*made, *others, *[tensor for _, tensor in waiting])
    for number, (state, _) in enumerate(checked):
        tensor = made[number]
        if sys.getrefcount(tensor) > MINE:  # somebody else holds the tensor, who may go on with it
            tensor = asarray(tensor, copy=True)
        owned = _owned(tensor)
        with state.lock:
            state.replace(owned)
    _deliver(waiting)


MINE = 6  # references to a tensor in `assign`: of the values given, two pairs and a list, two names, the question


def _say_moved() -> None:
    for tell in on_move:
        tell()


def defer(state: State, new: Tensor) -> None:
    """Give a state a new value that is computed when it is first read, or together with the next `assign`: so running
    statistics do not compute the model before its loss and gradients do."""
    tensor = state.checked(new)
    if current_trace() is not None or tensor.is_realised:
        state.value = tensor
        return
    waiting = recording.shared(tensor) if type(tensor._node) is Step else Tensor.of_node(tensor.program())
    with state.lock, _deferring:
        state.wait_for(waiting)
        _deferred.add(state)


def settle(*states: State) -> None:
    """Compute what waits: that of all states together, since they have most of their programs in common."""
    waiting = {id(state): (state, tensor) for state, tensor in _take_deferred()}
    for state in states:  # one that another thread has taken is computed here too: it is wanted now
        if (tensor := state._waiting) is not None:
            waiting[id(state)] = (state, tensor)
    if waiting:
        found = sorted(waiting.values(), key=lambda pair: pair[0].number)
        realise(*[tensor for _, tensor in found])
        _deliver(found, states)


def _take_deferred() -> list[tuple[State, Tensor]]:
    with _deferring:
        states = sorted(_deferred, key=lambda state: state.number)  # in one order: equal programs are found in caches
        _deferred.clear()
    return [(state, tensor) for state in states if (tensor := state._waiting) is not None]


def _deliver(values: Sequence[tuple[State, Tensor]], wanted: Sequence[State] = ()) -> None:
    """Put in computed values that still are what their states wait for. A state that another thread has locked keeps
    waiting, with its value at hand, unless it is `wanted`: whoever waits here may hold a lock of its own."""
    for state, tensor in values:
        if not state.lock.acquire(blocking=any(state is one for one in wanted)):
            continue
        try:
            if state._waiting is tensor:
                state.replace(_owned(tensor))
        finally:
            state.lock.release()


def _owned(tensor: Tensor) -> Tensor:
    """A computed value in memory of its own, without a program."""
    tensor._track = None
    return tensor if _has_own_memory(tensor) else asarray(tensor, copy=True).realise()


def _has_own_memory(tensor: Tensor) -> bool:
    """Whether the elements are whole, in order, writable and nobody else's."""
    tensor.release_leaf()
    layout = tensor._layout
    _, shape, strides, _, writable = layout if layout is not None else tensor.realise()._layout  # type: ignore[misc]
    return writable and is_contiguous(shape, strides) and sys.getrefcount(tensor._storage) <= 2


def _after_fork() -> None:
    """A lock that another thread of the parent held has no one to release it in a child."""
    global _deferring
    _deferring = threading.Lock()
    for state in list(_live):
        state._words[StateField.HELD] = int(state._waiting is not None)
        state.lock = Lock(state._words)


os.register_at_fork(after_in_child=_after_fork)
