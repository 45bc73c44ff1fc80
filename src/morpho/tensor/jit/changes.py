"""Causes of recompilation: which argument, by name, changes from call to call of a compiled function."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from morpho.base.trees import LEAF

Spec = tuple[Any, ...]  # dtype, sizes, strides or None, device


class Changes:
    """The arguments that differed from the compilation before, counted.

    >>> changes = Changes()
    >>> for k in (0.5, 0.25):
    ...     _ = changes.note((("k", ("static", "float", k)),), [], [])
    >>> changes.told()
    'the number k changes from call to call (0.25 now); pass it as a tensor: mo.asarray(k)'
    """

    def __init__(self) -> None:
        self._before: tuple[Any, dict[str, Spec]] | None = None
        self._counts: Counter[tuple[str, str]] = Counter()  # (what, hint)
        self._now: dict[tuple[str, str], str] = {}

    def note(self, structure: Any, specs: Sequence[Spec], names: Sequence[str]) -> bool:
        """Compare with the last compilation; whether there was none. `structure` keeps no object alive."""
        before, now = self._before, (structure, dict(zip(names, specs, strict=True)))
        self._before = now
        if before is None:
            return True
        found = [*_static(dict(before[0]), dict(structure)), *_shapes(before[1], now[1])]
        for what, hint, value in found or [("something besides the arguments (a setting, the mode of a module)",
                                            "call it with one of them at a time", "")]:
            self._counts[what, hint] += 1
            self._now[what, hint] = value
        return False

    def told(self) -> str:
        """Name the argument that changed most often, and a remedy."""
        (what, hint), _ = self._counts.most_common(1)[0]
        value = self._now[what, hint]
        return f"{what} changes from call to call{f' ({value} now)' if value else ''}; {hint}"


def _static(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Arguments that are constants of the code, or are arranged in another way."""
    for name, tree in now.items():
        if name in before and not is_same_tree(before[name], tree):
            yield from _differences(before[name], tree, name)


def is_same_tree(before: Any, now: Any) -> bool:
    """Whether two structures are equal, as far as their objects let themselves be compared."""
    try:
        return bool(before == now)
    except Exception:  # an object whose comparison fails, or gives no truth
        return before is now


def _differences(before: Any, now: Any, name: str) -> Iterator[tuple[str, str, str]]:
    same_kind = before is not LEAF and now is not LEAF and before[0] == now[0] and len(before[-1:]) == len(now[-1:])
    if same_kind and now[0] == "static":
        yield _of_constant(now, name)
        return
    if same_kind and len(before[-1]) == len(now[-1]):
        for place, (old, new) in enumerate(zip(before[-1], now[-1], strict=True)):
            key, old, new = (new[0], old[1], new[1]) if now[0] == "dict" else (place, old, new)
            if not is_same_tree(old, new):
                yield from _differences(old, new, f"{name}[{key!r}]")
        return
    yield f"the arrangement of {name}", "pass the same number of tensors, or stack them", ""


def _of_constant(tree: Any, name: str) -> tuple[str, str, str]:
    thing = tree[-1]
    if isinstance(thing, weakref.ref):
        return (f"the object {name} ({tree[1]})", "make it once and pass the same one, or pass its tensors", "")
    if type(thing) in (int, float, complex) or tree[1].startswith(("int", "float")):
        return (f"the number {name}", f"pass it as a tensor: mo.asarray({name})", repr(thing))
    return (f"the value of {name} ({tree[1]})", "compile a function for each of a few values", repr(thing)[:60])


def _shapes(before: dict[str, Spec], now: dict[str, Spec]) -> Iterator[tuple[str, str, str]]:
    """Tensors of another dtype, shape or layout."""
    for name, spec in now.items():
        if name not in before or before[name] == spec:
            continue
        (dtype, sizes, _, device), (old_dtype, old_sizes, _, old_device) = spec, before[name]
        if old_dtype != dtype:
            yield f"the dtype of {name}", "convert it first: x.astype(...)", str(dtype)
        elif old_device != device:
            yield f"the device of {name}", "move it first: x.to(...)", str(device)
        elif len(old_sizes) != len(sizes):
            yield f"the number of axes of {name}", "reshape it first", str(len(sizes))
        elif old_sizes == sizes:
            yield f"the order of {name} in memory", "copy it first: mo.asarray(x, copy=True)", ""
        else:
            axis = next(i for i, (old, new) in enumerate(zip(old_sizes, sizes, strict=True)) if old != new)
            root = name.split("[")[0]
            form = f"{{{root!r}: {{{axis}: mo.Dim('n', 1, 4096)}}}}" if root == name else "..."
            yield f"axis {axis} of {name}", f"declare its size with dynamic={form}", str(sizes[axis])
