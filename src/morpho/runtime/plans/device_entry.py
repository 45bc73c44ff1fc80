"""A program of another device as the native entry runs it: one step, whose function queues all its launches.

A backend whose executables have a `native_call` (`backends/cuda/`) is served so; programs of others go through Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from morpho.backends.driver.abi import LONG_WORK, ProgramField, StepField
from morpho.backends.driver.control_tables import ControlTables
from morpho.backends.driver.executable import Executable
from morpho.backends.registry import backend_of
from morpho.base.dims import Dim, Size, product
from morpho.ir.body import symbols_in
from morpho.passes.memory.liveness import Updates
from morpho.program.program import Program, Slot
from morpho.program.view import whole
from morpho.runtime import thresholds
from morpho.runtime.plans import on_device
from morpho.runtime.plans.evaluate import ExecutionPlan


class LaunchExecutable(Executable):
    """Tables of one step: all inputs and results are its operands, in that order."""

    def __init__(self, program: Program, call: Any, guards: Sequence[Sequence[Size]],
                 sizes: Sequence[Dim] = ()) -> None:
        self.call, self.symbols_given = call, sizes  # it is told the dynamic sizes after its own address
        super().__init__(program, [], thresholds.current(), guards)
        self.words[ProgramField.STEPS] = 1

    def _build_steps(self, addresses: Iterator[int]) -> None:
        self.co_schedule, self.place_tables, self.control_tables = {}, [], ControlTables(self)
        self._add_places([whole(number, (1,), slot.dtype) for number, slot in enumerate(self.program.slots)])
        words = [0] * int(StepField.SIZE)
        words[StepField.FUNCTION], words[StepField.PLACES] = self.call.function, len(self.program.slots)
        words[StepField.PLACE_TABLE] = self.place_tables[-1].ctypes.data
        words[StepField.VALUES] = self.table.run((self.call.context, *self.symbols_given))
        words[StepField.ROWS] = words[StepField.COLUMNS] = self.table.one(1)
        words[StepField.PIECES], words[StepField.LEAST] = 1, LONG_WORK
        self.step_table = np.array(words, np.int64)


def mark_of(device: str) -> int:
    """The number of a device in records; 0 where the native entry launches nothing there."""
    return int(getattr(backend_of(device), "native_mark", 0))


def entry_plan(plan: ExecutionPlan, inputs: int, guards: Sequence[Sequence[Size]]) -> ExecutionPlan | None:
    """The plan that the native entry runs for a plan of another device; None where that goes through Python."""
    found: Any = on_device.executable(plan.graph, plan.device)
    sizes = list(symbols_in([node.outputs for node in plan.graph.parameters]).values())
    call = found.native_call(inputs, sizes) if hasattr(found, "native_call") else None
    if call is None:
        return None
    parameters = {node["index"]: node for node in plan.graph.parameters}
    slots = [Slot("input", parameters[n].dtype if n in parameters else plan.graph.outputs[0].dtype, 1, n)
             for n in range(inputs)]
    outputs = []
    for number, node in enumerate(plan.graph.outputs):
        outputs.append(whole(len(slots), node.shape, node.dtype))
        slots.append(Slot("result", node.dtype, product(node.shape), number))
    program = Program(slots=slots, outputs=outputs)
    return replace(plan, program=program, executable=LaunchExecutable(program, call, guards, sizes), prepare=None)


def states_in_place(plan: ExecutionPlan, updates: Updates) -> dict[int, int]:
    """Of (output, input) pairs those where the program of another device may write the output over the input."""
    found: Any = on_device.executable(plan.graph, plan.device)
    places: dict[int, int] = found.in_place(updates) if hasattr(found, "in_place") else {}
    return places


def launch_error(device: str, status: int) -> BaseException:
    """The error behind the status of a native call."""
    error: BaseException = backend_of(device).launch_error(status & 0xFFFFFFFF)  # type: ignore[attr-defined]
    return error
