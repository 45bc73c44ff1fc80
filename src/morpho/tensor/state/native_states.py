"""The states of a compiled function as its native entry sees them, and their locks.

A state's new value goes to its own memory where the program reads every element before it writes it and nothing can
fail after the first write. Elsewhere it goes to a spare tensor, and the two change places when the call is over.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from morpho.backends.driver.abi import StateRow
from morpho.backends.driver.layout import slot_offset
from morpho.backends.registry import HOST
from morpho.runtime.memory.buffer import allocate
from morpho.runtime.memory.device_memory import allocate_on
from morpho.tensor.core import Tensor
from morpho.tensor.state.state import State

if TYPE_CHECKING:
    from morpho.runtime.plans.evaluate import ExecutionPlan

MOST_SPARE_BYTES = 64 << 20  # with more the slow path is taken, which large programs can afford


class Spare:
    """Memory for a state's next value, in a slot where native code finds it."""

    __slots__ = ("_tensor",)

    def __init__(self, state: State) -> None:
        value = state._tensor
        shape: tuple[int, ...] = value.shape  # type: ignore[assignment]
        self._tensor = Tensor.of_buffer(allocate(shape, value.dtype) if value.device == HOST else
                                        allocate_on(value.device, shape, value.dtype))

    @property
    def is_free(self) -> bool:
        """Whether nobody holds the value that was in it."""
        return sys.getrefcount(self._tensor._storage) <= 2


class States:
    """The states of one specialisation. As a context manager it holds all their locks."""

    def __init__(self, states: list[State], updates: list[tuple[int, int]], aliases: dict[int, int],
                 given: Sequence[Any] = ()) -> None:
        self.count = len(states)
        weak = {id(thing) for thing in given}  # arguments: whoever calls holds them
        self._held = [weakref.ref(state) if id(state) in weak else partial(_same, state) for state in states]
        numbers = [state.number for state in states]  # calls never wait for each other in a circle
        self._order = sorted(range(len(states)), key=numbers.__getitem__)
        self.updates, self.aliases = updates, aliases
        self.spares: dict[int, Spare] = {}
        self.rows: np.ndarray | None = None
        self._places = [state.place for state in states]
        self.plan: ExecutionPlan | None = None

    @property
    def states(self) -> list[State]:
        """All of them; during a call, which holds those it is given."""
        return [held() for held in self._held]  # type: ignore[misc]

    @property
    def ordered(self) -> list[State]:
        """In the order in which their locks are taken."""
        states = self.states
        return [states[place] for place in self._order]

    @property
    def fits(self) -> bool:
        """Whether the states lie where they did when their program was compiled, and are whose they were."""
        return all(state.place == place for state, place in zip(self.states, self._places, strict=True)
                   if state is not None)

    def gather(self) -> None:
        """Have those come that follow whoever uses them."""
        for state, (device, _) in zip(self.states, self._places, strict=True):
            if state is not None and state.follows:
                state.move(device)

    def shown(self) -> States:
        """The states without their values."""
        made = States([], [], {})
        made.count = self.count
        return made

    @property
    def spare_bytes(self) -> int:
        """Memory that updates outside the states' own need."""
        states = self.states
        return sum(states[number]._tensor.nbytes for number, output in self.updates if output not in self.aliases)

    def table(self, plan: ExecutionPlan) -> np.ndarray:
        """Table of the entry: per state a `StateRow`. Its addresses are those of slots, which stay, and so does it: a
        call under way holds this object, whatever becomes of the specialisation."""
        if self.rows is not None:
            return self.rows
        executable, program, states = plan.native_code, plan.program, self.states
        rows = np.zeros((len(states), int(StateRow.SIZE)), np.int64)
        for number, state in enumerate(states):
            rows[number, StateRow.TENSOR] = id(state) + slot_offset(State, "_held")
            rows[number, StateRow.WORDS] = ctypes.addressof(state._words)
        for number, output in self.updates:
            rows[number, StateRow.RESULT] = executable.slot_number[program.outputs[output].slot]
            rows[number, StateRow.TARGET] = rows[number, StateRow.TENSOR]
            if output not in self.aliases:
                spare = self.spares.setdefault(number, Spare(states[number]))
                rows[number, StateRow.TARGET] = id(spare) + slot_offset(Spare, "_tensor")
        self.rows, self.plan = rows, plan
        return rows

    def refresh(self) -> None:
        """New memory in place of spares whose old value someone holds."""
        for number, spare in self.spares.items():
            if not spare.is_free:
                spare._tensor = Spare(self.states[number])._tensor

    # -- locks ---------------------------------------------------------------------------------------------------------
    def hold(self) -> tuple[Any, ...]:
        """Wait for all locks. Used by the native entry around long programs: what is returned holds this object and the
        C functions that let the locks go, so that no signal handler can come between the end of a run and them."""
        taken: list[State] = []
        try:
            for state in self.ordered:
                state.lock.acquire()
                taken.append(state)
            return (self, *[state.lock.native_release for state in taken])
        except BaseException:
            _release(taken)
            raise

    def __enter__(self) -> States:
        self.hold()
        return self

    def __exit__(self, *exception: object) -> None:
        _release(self.ordered)


def _same(state: State) -> State:
    return state


def _release(states: list[State]) -> None:
    for state in reversed(states):
        state.lock.release()
