"""Errors that say in which layer they were raised: a note with the layer's path in the outermost module called.

>>> try:
...     mo.nn.Sequential(mo.nn.Linear(4, 8), mo.nn.Linear(7, 2))(mo.ones((3, 4)))
... except ValueError as error:
...     print(error.__notes__)
['in layer "1": Linear(7, 2)']
"""

from __future__ import annotations

import weakref
from typing import Any

MARK = "_morpho_layer"  # of an error: its trail


class Trail:
    """Of an error on its way up: the module it has passed last, the path from there to its layer, and the note.

    An error that is kept or pickled holds no model.
    """

    def __init__(self, module: Any = None, path: str = "", note: str = "", layer: str = "") -> None:
        self.module = weakref.ref(module) if module is not None else lambda: None
        self.path, self.note, self.layer = path, note, layer

    def __reduce__(self) -> tuple[Any, ...]:
        return Trail, ()


def note_layer(error: Exception, module: Any) -> None:
    """An error leaves a module: its layer's path grows by the name of the module it left before."""
    trail = vars(error).get(MARK)
    if trail is None:
        vars(error)[MARK] = Trail(module, layer=_described(module))
        return
    before = trail.module()
    name = next((name for name, child in module.named_modules() if child is before), "")
    if not name:
        return  # the module called something that is not part of it, or itself: the path is as it was
    path = f"{name}.{trail.path}" if trail.path else name
    if trail.note:
        error.__notes__.remove(trail.note)
    note = f'in layer "{path}": {trail.layer}'
    error.add_note(note)
    vars(error)[MARK] = Trail(module, path, note, trail.layer)


def _described(module: Any) -> str:
    """The first line of a module's `repr`; of one that is not finished, its class."""
    try:
        return f"{type(module).__name__}({module.describe()})"
    except Exception:  # the error that is told about comes first
        return type(module).__name__
