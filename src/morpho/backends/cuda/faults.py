"""Faults that kernels report, and the errors they become: at the end of a run, or when somebody waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from morpho.backends.base import Event
from morpho.backends.code.kernel_abi import FAULT_ENDLESS, FAULT_INDEFINITE, FAULT_SINGULAR
from morpho.backends.cuda.driver.interface import Device
from morpho.base.errors import IndexFault, MorphoError, ValueFault, fail
from morpho.program.program import Step

SAID = {FAULT_SINGULAR: "singular matrix", FAULT_INDEFINITE: "matrix is not positive definite",
        FAULT_ENDLESS: "the factorisation did not converge"}


class RunEvent:
    """The end of a run. Faults that kernels reported become errors here, once."""

    def __init__(self, event: Event, faults: Any, steps: Sequence[Step], held: Any) -> None:
        self.event, self.faults, self.steps, self.held = event, faults, steps, held
        self.error: MorphoError | None = None
        self.over = self.seen = False

    def done(self) -> bool:
        """Whether it is over."""
        return self.over or self.event.done()

    def wait(self) -> None:
        """Return when it is over; raise what failed."""
        if not self.over:
            self.event.wait()
            self.error, self.over, self.held = self._fault(), True, None
            self.faults = None
        self.seen = True
        if self.error is not None:
            raise self.error

    def _fault(self) -> MorphoError | None:
        return None if self.faults is None else fault_error(self.faults, self.steps)


class StandingFaults:
    """Words that all native calls of a program report faults in, looked at whenever somebody waits for the device."""

    def __init__(self, words: Any, steps: Sequence[Step], gpu: Device) -> None:
        self.words, self.steps, self.gpu, self.address = words, steps, gpu, words.address

    def error(self) -> MorphoError | None:
        """The error of a fault that nobody has seen; work that was queued must be over."""
        if not self.words.array.any():
            return None
        found = fault_error(self.words.array, self.steps)
        self.words.array[:] = 0
        return found


def fault_error(faults: Any, steps: Sequence[Step]) -> MorphoError | None:
    """Error of the first step with a status."""
    for step, status in zip(steps, faults, strict=True):
        if status:
            words = next((text for bit, text in SAID.items() if status & bit), None)
            if words is not None:
                return fail(ValueFault, step.label, words, line=step.origin)
            return fail(IndexFault, step.label, "an index lies outside its axis", line=step.origin)
    return None
