"""A compiled function up to the moment when its graph would be optimised, and a program up to when LLVM would begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn
from unittest import mock

from benchmarks.gate.targets import GateTarget, lowering_for
from morpho.base.settings import settings
from morpho.program.program import Program
from morpho.runtime.plans import evaluate
from morpho.tensor.jit import tracing


class _Caught(BaseException):
    """Carries what was made past every `except Exception`."""


def _throw(made: Any) -> NoReturn:
    raise _Caught(made)


@dataclass(frozen=True)
class Traced:
    """A graph as `mo.compile` hands it to `make_plan`: with its constants, updates and budget."""

    given: tuple[Any, ...]
    named: dict[str, Any]

    def lowered(self, target: GateTarget, **chosen: Any) -> Program:
        """The program for a machine, under settings such as `passes_off`; its kernels are data, nothing is compiled."""
        with lowering_for(target, **chosen), mock.patch.object(evaluate, "_compiled", lambda make, *_: _throw(make())):
            try:
                evaluate.make_plan(*self.given, **{**self.named, "on_disk": False})
            except _Caught as caught:
                return caught.args[0].program  # type: ignore[no-any-return]
        raise ValueError("a plan was made without lowering its graph")


def trace(call: Callable[[], Any]) -> Traced:
    """What the first compiled function that `call` calls is traced to."""
    # A recording that makes the inputs would be compiled first, and be counted in the function's place.
    with (settings(record=False),
          mock.patch.object(tracing, "make_plan", lambda *given, **named: _throw(Traced(given, named)))):
        try:
            call()
        except _Caught as caught:
            return caught.args[0]  # type: ignore[no-any-return]
    raise ValueError("no compiled function was called")
