"""The native entry of a compiled function: a chain of signature tables, one per specialisation it serves."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from morpho.backends.driver.abi import CommonField, ContextField
from morpho.backends.driver.executable import native
from morpho.base import settings
from morpho.runtime.plans import evaluate as evaluation
from morpho.runtime.plans.device_entry import launch_error
from morpho.tensor.jit import constants
from morpho.tensor.jit.native.entries import entries
from morpho.tensor.jit.native.signature_tables import SignatureTables
from morpho.tensor.jit.specialise import Specialisation

MOST_KEPT_BYTES = 1 << 30  # a larger workspace is acquired call by call, through Python
SMALL_BYTES = 1 << 20  # a larger arena is kept between calls for the last signature only
MOST_SIGNATURES = 32  # served side by side; each costs the calls of those after it some 25 ns


class NativeEntry(ctypes.Structure):
    """An object whose calls go to native code: the address of the entry, and of what that reads."""

    _fields_ = [("entry", ctypes.c_void_p), ("context", ctypes.c_void_p)]
    entry: int | None
    context: int | None

    def __init__(self, through_python: Callable[..., Any]) -> None:
        super().__init__()
        self.through_python = through_python  # for calls that the entry does not serve
        self.specialisations: dict[Any, Specialisation] = {}
        self.signatures: dict[Any, int] = {}  # numbers of structures, dtypes, shapes and strides of arguments
        self.assumed: dict[Any, dict[int, Any]] = {}  # by signature: objects that its traces depend on
        self.dead: deque[Specialisation] = deque()  # to be dropped, because an object they are for is no more
        self.dropped = 0
        self.retired: Any = None  # memory a call in another thread may still read
        self.lock = threading.RLock()
        self.common = (ctypes.c_int64 * int(CommonField.SIZE))()
        self.served: list[SignatureTables] = []
        self._fault_bound = self._fault
        self._last: Specialisation | None = None  # of the calls through Python
        self.context = self._another().address
        entries.add(self)

    def __hash__(self) -> int:
        return id(self)

    @property
    def current(self) -> Specialisation | None:
        """That of the last call."""
        last = self.common[CommonField.LAST]
        return next((one.chosen for one in self.served if one.address == last), self._last)

    @property
    def is_enabled(self) -> bool:
        """Whether the entry serves any call."""
        return any(one.is_enabled for one in self.served)

    @property
    def is_busy(self) -> bool:
        """Whether the entry serves a call now, in this thread or another."""
        return any(chosen.is_busy for chosen in list(self.specialisations.values()))

    def _another(self) -> SignatureTables:
        """Tables for one more signature, at the end of the chain."""
        made = SignatureTables(self.through_python, self._fault_bound, ctypes.addressof(self.common))
        if self.served:
            self.served[-1].words[ContextField.NEXT] = made.address
        self.served.append(made)
        return made

    def show(self, chosen: Specialisation) -> None:
        """Let this be the last one, for whoever asks."""
        self._last, self.common[CommonField.LAST] = chosen, 0

    def choose(self, chosen: Specialisation) -> None:
        """A call runs this one through Python: large arenas of others are given back first."""
        self.show(chosen)
        for one in self.served:
            if one.chosen is not None and one.chosen is not chosen and one.chosen.kept_bytes > SMALL_BYTES:
                entries.stop(one)
                one.let_go()

    def serve(self, chosen: Specialisation, generation: int) -> None:
        """Let the native entry serve this specialisation from now on, unless it was found before a change of what may
        mean other code."""
        mine, found, rival = settings.current.get(), None, None
        for one in self.served:
            if one.chosen is chosen:  # with an arena that only one call at a time runs in: there are no two such
                found = one
            elif one.chosen is not None and one.chosen.signature == chosen.signature and one.serves is mine:
                rival = one
                entries.stop(one)  # one program is right for a call
        if found is not None and found.is_right:
            if found.serves is not mine:  # the same code for other settings
                entries.start(found, generation)
            return
        if not chosen.direct or chosen.kept_bytes > MOST_KEPT_BYTES or entries.refuses(generation):
            return
        self.entry = self.entry or native().entry  # none was needed where only the reference backend had run
        fixed = constants.fixed_table(chosen)
        if fixed is None:
            return  # the first call prepares; the next one comes here again
        found = found or rival or self._free()
        entries.stop(found)
        if found.chosen is not chosen:
            found.let_go()
        found.fill(chosen, fixed)
        entries.start(found, generation)

    def _free(self) -> SignatureTables:
        """Tables that no signature has yet, or those that were filled longest ago."""
        for one in self.served:
            if one.chosen is None:
                return one
        return self._another() if len(self.served) < MOST_SIGNATURES else min(self.served, key=lambda one: one.filled)

    def after_fork(self) -> None:
        """In a child: no thread of the parent holds the lock or runs the entry."""
        self.lock = threading.RLock()
        for one in self.served:
            one.words[ContextField.ENABLED] = 0
            one.chosen, one.is_right = None, False
        for chosen in self.specialisations.values():
            chosen.busy[:] = [0, 0, 0]
        self._last, self.common[CommonField.LAST] = None, 0

    def _fault(self, status: int, chosen: Specialisation) -> None:
        """Called by the native entry when a kernel of a program reports a fault."""
        if chosen.served is not None:
            raise launch_error(chosen.plan.device, status)
        raise evaluation.fault_of(chosen.plan, status)
