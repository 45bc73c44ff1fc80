"""Hoisted results of a compiled function (packed weights and the like), kept until a captured tensor changes.

A captured tensor that gets other elements gets another layout object, so a change is seen by identity. The memory that
something was prepared from is held meanwhile: whoever wants to write it in place is told first (`release`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.runtime.plans import evaluate as evaluation
from morpho.tensor.core import Tensor
from morpho.tensor.jit.native.entries import Entry, entries
from morpho.tensor.jit.shared_packs import shared
from morpho.tensor.jit.specialise import NOTHING, Prepared, Specialisation


def prepared(made: Entry, chosen: Specialisation, captured: list[Tensor], addresses: list[int]) -> Prepared:
    """Values that depend on captured tensors alone, computed anew when one of those has changed."""
    found = chosen.prepared if captured else NOTHING
    if found is None or not found.fits(captured):
        changing = _is_being_written(chosen.captured)  # asked while `captured` holds the memory: nobody begins after it
        program, first = chosen.entry_plan.program, len(addresses) - len(captured)
        sources = {first + i: tensor for i, tensor in enumerate(captured)}
        buffers = evaluation.prepare(chosen.entry_plan, addresses, {} if changing else shared.find(program, sources))
        if not changing:
            shared.keep(program, sources, dict(zip(program.kept, buffers, strict=False)))
        read = {place.slot for step in program.prepare for place in step.reads}
        held = [tensor._storage for i, tensor in enumerate(captured) if first + i in read]
        found = Prepared([tensor._layout for tensor in captured], held, buffers)
        if changing:
            return found  # half of the old elements and half of the new: for this call, and no other
        with made.lock:
            _retire(made, chosen)
            chosen.prepared = found
        _stop(made, chosen)  # its table names the old ones; the next call fills it anew
    return found


def _is_being_written(tensors: list[Tensor]) -> bool:
    """Whether a native call in another thread writes any of these as its `out=` just now. Through Python the target is
    claimed once more at the end, so that what was packed meanwhile does not fit it."""
    mine = {id(tensor) for tensor in tensors}
    with entries.lock:
        functions = list(entries.live)
    return any(not mine.isdisjoint(chosen.written)
               for function in functions for chosen in list(function.specialisations.values()) if chosen.is_busy)


def fixed_table(chosen: Specialisation) -> list[Any] | None:
    """Inputs that are no arguments, for the native entry, and what keeps them; None before they are prepared."""
    if not chosen.captured:
        return [np.zeros(0, np.int64), np.zeros(0, np.int64)]
    found = chosen.prepared
    if found is None:
        return None
    records = [tensor._record for tensor in chosen.captured]
    if None in records or not found.fits(chosen.captured):
        return None
    rows = [(tensor._layout[0], id(tensor), id(record))  # type: ignore[index]
            for tensor, record in zip(chosen.captured, records, strict=True)]
    rows += [(address, 0, 0) for address in found.addresses]
    tensors = np.array([id(tensor) for tensor in chosen.captured], np.int64)
    return [np.array(rows, np.int64).reshape(-1), tensors, records, found]


def release(storage: Any) -> bool:
    """Let go of what was prepared from these elements, because they are about to be overwritten."""
    shared.forget(storage)
    with entries.lock:
        functions = list(entries.live)
    found = False
    for made in functions:
        for chosen in list(made.specialisations.values()):
            if chosen.prepared is not None and any(held is storage for held in chosen.prepared.storages):
                with made.lock:
                    _stop(made, chosen)
                    _retire(made, chosen)
                    chosen.prepared, chosen.keep, found = None, [], True
    return found


def _stop(made: Entry, chosen: Specialisation) -> None:
    for served in list(made.served):
        if served.chosen is chosen:
            entries.stop(served)


def _retire(made: Entry, chosen: Specialisation) -> None:
    """Keep the memory a call in another thread may still read; its tensors need not be held for that."""
    old = chosen.prepared.buffers if chosen.prepared is not None else None
    made.retired = [made.retired, old] if chosen.is_busy else None
