"""Functions that find the tensors among arguments of one structure, in a fraction of the time of flattening anew.

The native entry calls the one of its specialisation where tensors stand in lists or dicts or are given by name. It
checks all that the code was compiled for besides the tensors: kinds, lengths, keys and their order, constants.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from morpho.base.dtypes import float64, int64
from morpho.base.trees import LEAF, is_flat
from morpho.tensor.core import Tensor
from morpho.tensor.eager import number_tensor, scalar_tensor
from morpho.tensor.jit.lifetimes import held
from morpho.tensor.lifted import dtype_of

Take = Callable[[Any], Sequence[Any]]  # the leaves of a tree, in order; `Other` where it is not of the structure
COMPARED = (int, str, bytes)  # constants of these types may be other objects of the same value
_Kind = inspect.Parameter
_KINDS = (_Kind.POSITIONAL_ONLY, _Kind.POSITIONAL_OR_KEYWORD, _Kind.VAR_POSITIONAL, _Kind.KEYWORD_ONLY,
          _Kind.VAR_KEYWORD)  # in the order in which Python writes them


class Other(Exception):
    """The arguments are not arranged as those that the code was compiled for: the call goes through Python."""


def gatherer(signature: inspect.Signature, structure: Any, result: Any) -> Callable[..., tuple[Any, ...]] | None:
    """A function that is called as one of this signature is, besides with `out=`. For arguments of this structure it
    returns what `out=` is, or None, and then their tensors; for others it raises. Targets of a result that is neither
    one tensor nor a tuple of them are returned in a tuple. None where there is no such function.

    >>> structure = (("pair", ("tuple", (LEAF, LEAF))), ("scale", ("static", "int", 2)))
    >>> gather = gatherer(inspect.signature(lambda pair, scale=2: pair), structure, LEAF)
    >>> gather(("a", "b")), gather(scale=2, pair=("c", "d"), out="e")
    ((None, 'a', 'b'), ('e', 'c', 'd'))
    >>> gather(["a", "b"])
    Traceback (most recent call last):
    morpho.tensor.jit.native.argument_extractor.Other
    """
    parameters = signature.parameters
    if not all(name.isidentifier() and not keyword.iskeyword(name) for name in parameters):
        return None
    mark = max((*parameters, "out"), key=len) + "_"  # names that begin with it are nobody's
    things: dict[str, Any] = {}
    parts = ["None" if "out" in parameters else "out" if is_flat(result) else f"{mark}out(out)"]
    try:
        for name, tree in structure:
            things[f"{mark}take_{name}"] = taker(tree)
            parts.append(name if tree is LEAF else f"*{mark}take_{name}({name})")
        things[f"{mark}out"] = _targets(result)
    except _Unknown:
        return None
    try:
        exec(f"def {mark}({_head(parameters.values(), mark, things)}): return ({', '.join(parts)},)", things)
    except SyntaxError:  # names that a signature may have and a program may not
        return None
    return things.pop(mark)  # type: ignore[no-any-return]


def _head(parameters: Collection[inspect.Parameter], mark: str, things: dict[str, Any]) -> str:
    """The parameters as Python writes them, with `out` among those that have names only."""
    parts: dict[Any, list[str]] = {kind: [] for kind in _KINDS}
    stars = {_Kind.VAR_POSITIONAL: "*", _Kind.VAR_KEYWORD: "**"}
    known = {parameter.name for parameter in parameters}
    for parameter in parameters:
        default = ""
        if parameter.default is not parameter.empty:
            things[f"{mark}default_{parameter.name}"] = parameter.default
            default = f"={mark}default_{parameter.name}"
        parts[parameter.kind].append(stars.get(parameter.kind, "") + parameter.name + default)  # type: ignore[call-overload]
    if "out" not in known:
        parts[_Kind.KEYWORD_ONLY].append("out=None")
    if parts[_Kind.POSITIONAL_ONLY]:
        parts[_Kind.POSITIONAL_ONLY].append("/")
    if parts[_Kind.KEYWORD_ONLY] and not parts[_Kind.VAR_POSITIONAL]:
        parts[_Kind.VAR_POSITIONAL].append("*")
    return ", ".join(part for kind in _KINDS for part in parts[kind])


def _targets(result: Any) -> Callable[[Any], tuple[Any, ...] | None]:
    take = taker(result)
    return lambda out: None if out is None else tuple(take(out))


# -- trees -----------------------------------------------------------------------------------------------------------
class _Unknown(Exception):
    """A structure that is not known well enough to be compared: it says the name of a class, and not which it is."""


def taker(tree: Any) -> Take:
    """The function that takes the leaves of trees of this structure, and no other, as `trees.flatten` does."""
    if tree is LEAF:
        return _one
    kind, content = tree[0], tree[-1]
    if kind == "static":
        return _of_object(content, tree[2]) if may_change(tree) else _of_constant(content)
    if kind == "number":
        return _of_number(tree[1], *tree[2]) if tree[1] in ("int", "float") else _of_scalar(np.dtype(tree[1]).type)
    if kind == "dict":
        return _of_dict(tuple(key for key, _ in content), _of_children([child for _, child in content]))
    if kind not in ("named", "tuple", "list"):
        raise _Unknown
    return _of_sequence(tree[1] if kind == "named" else {"tuple": tuple, "list": list}[kind], len(content),
                        _of_children(content))


def _one(leaf: Any) -> Sequence[Any]:
    return (leaf,)


def _of_constant(constant: Any) -> Take:
    kind = type(constant)
    compared: Callable[[Any], Any] = lambda thing: thing
    if kind is float:
        compared = repr  # 0.0 == -0.0, but not in writing
    elif isinstance(constant, np.generic):
        compared = np.generic.tobytes
    wanted = compared(constant)

    def take_by_value(thing: Any) -> Sequence[Any]:
        if thing is not constant and (type(thing) is not kind or compared(thing) != wanted):
            raise Other
        return ()

    by_value = kind is float or kind in COMPARED or isinstance(constant, np.generic)
    return take_by_value if by_value else _of_identity(held(constant))


def _of_number(kind: str, low: int, high: int) -> Take:
    """A number that is an input of the program."""
    def take_int(thing: Any) -> Sequence[Any]:
        if type(thing) is not int or not low <= thing <= high:
            raise Other
        return (number_tensor(Tensor, thing, int64),)

    def take_float(thing: Any) -> Sequence[Any]:
        if type(thing) is not float:
            raise Other
        return (number_tensor(Tensor, thing, float64),)

    return take_int if kind == "int" else take_float


def _of_scalar(kind: type[np.generic]) -> Take:
    """A number of NumPy's that is an input of the program."""
    dtype = dtype_of(kind(0))
    assert dtype is not None, "it was lifted"

    def take(thing: Any) -> Sequence[Any]:
        if type(thing) is not kind:
            raise Other
        return (scalar_tensor(Tensor, thing, dtype),)

    return take


def _of_identity(same: Callable[[], Any]) -> Take:
    def take(thing: Any) -> Sequence[Any]:
        if thing is not same():
            raise Other
        return ()

    return take


def may_change(tree: Any) -> bool:
    """Whether a constant is an object whose `static_key()` may become another one without word of it."""
    thing = tree[-1]
    return len(tree) == 4 and hasattr(thing, "static_key") and not getattr(thing, "tells_changes", False)


def _of_object(constant: Any, key: Any) -> Take:
    same = held(constant)

    def take(thing: Any) -> Sequence[Any]:
        if thing is not same() or thing.static_key() != key:
            raise Other
        return ()

    return take


def _of_dict(keys: tuple[Any, ...], children: Take | None) -> Take:
    """The keys are looked at first; then all values are read at once, whatever other threads do."""
    read: Take = itemgetter(*keys) if len(keys) > 1 else lambda tree: [tree[key] for key in keys]

    def take(tree: Any) -> Sequence[Any]:
        if not isinstance(tree, dict) or tuple(tree) != keys:
            raise Other
        return read(tree) if children is None else children(read(tree))

    return take


def _of_sequence(kind: type, length: int, children: Take | None) -> Take:
    """The items are read at once, then counted: another thread may change a list meanwhile."""
    def take(tree: Any) -> Sequence[Any]:
        items: tuple[Any, ...] = tuple(tree) if type(tree) is kind else ()  # type: ignore[arg-type]
        if type(tree) is not kind or len(items) != length:
            raise Other
        return items if children is None else children(items)

    return take


def _of_children(trees: Sequence[Any]) -> Take | None:
    """The leaves of several trees, together; None where each is a leaf."""
    if all(tree is LEAF for tree in trees):
        return None
    takers = [taker(tree) for tree in trees]

    def take(items: Any) -> Sequence[Any]:
        leaves: list[Any] = []
        for inner, item in zip(takers, items, strict=True):
            leaves += inner(item)
        return leaves

    return take
