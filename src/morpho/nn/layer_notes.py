"""Errors that say in which layer they were raised: a note with the layer's path in the outermost module called.

>>> try:
...     mo.nn.Sequential(mo.nn.Linear(4, 8), mo.nn.Linear(7, 2))(mo.ones((3, 4)))
... except ValueError as error:
...     print(error.__notes__)
['in layer "1": Linear(7, 2)']
"""

from __future__ import annotations

from typing import Any

MARK = "_morpho_layer"  # of an error: the module it has passed last, the path from there to its layer, and the note


def note_layer(error: Exception, module: Any) -> None:
    """An error leaves a module: its layer's path grows by the name of the module it left before."""
    inner = vars(error).get(MARK)
    if inner is None:
        vars(error)[MARK] = (module, "", "", _described(module))
        return
    before, path, note, layer = inner
    name = next((name for name, child in module.named_modules() if child is before), "")
    if not name:
        return  # the module called something that is not part of it, or itself: the path is as it was
    path = f"{name}.{path}" if path else name
    if note:
        error.__notes__.remove(note)
    note = f'in layer "{path}": {layer}'
    error.add_note(note)
    vars(error)[MARK] = (module, path, note, layer)


def _described(module: Any) -> str:
    """The first line of a module's `repr`; of one that is not finished, its class."""
    try:
        return f"{type(module).__name__}({module.describe()})"
    except Exception:  # the error that is told about comes first
        return type(module).__name__
