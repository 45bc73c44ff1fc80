"""The `Op` record: everything Morpho knows about one operation, in one place, and the registry of them.

Passes never name an operation; they ask for its `kind` and its `properties`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from morpho.base.dims import Shape
from morpho.base.dtypes import DType
from morpho.base.errors import ArgumentError, fail

Attributes = Mapping[str, Any]

KINDS = frozenset({"source", "elementwise", "reduce", "move", "contract", "index", "scan", "random", "fused",
                   "host", "collective", "control"})


class Spec(NamedTuple):
    """Shape and dtype of one value."""

    shape: Shape
    dtype: DType


class Cost(NamedTuple):
    """Cost of a node: floating-point (or integer) operations, and bytes read and written once each."""

    flops: int
    bytes: int


@dataclass(frozen=True, slots=True)
class NoGradient:
    """An explicit "none" in place of a gradient, with the reason. Zero by nature, unless `missing`: then asking for it
    is an error."""

    reason: str
    missing: bool = False


Arity = tuple[int, float]  # the least and the most inputs
NONE, ONE, TWO, THREE = (0, 0), (1, 1), (2, 2), (3, 3)
ANY: Arity = (0, math.inf)
JOINT = "joint gradient"  # a property
_EXACT = frozenset({"exact", "one rounding"})

Infer = Callable[[Sequence[Spec], Attributes], Spec | tuple[Spec, ...]]
Gradient = Callable[[Any, Any], Sequence[Any]]  # of nodes, which know their op: ops do not know of nodes
Reference = Callable[..., Any]
# (node, inputs with a batch axis in front where `batched` says so, batched, rows) -> the node of the batch
Batching = Callable[[Any, Sequence[Any], Sequence[bool], Any], Any]
# (node, tangents of its inputs or None, push) -> tangents of its outputs or None; push(outputs, {serial: tangent})
Forward = Callable[[Any, Sequence[Any], Callable[..., Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Op:
    """One operation.

    `infer` gives shape and dtype from the inputs' and raises the user's error; `vjp(node, cotangent)` gives the
    gradient of each input as ordinary nodes; `reference(attributes, *arrays)` is its meaning in NumPy;
    `flops` is the cost of one output element (one input element for reductions); `numerics` names the rounding and
    order rule of docs/numerics.md. `composition(node)` is how a fused op reads in plain ones.

    `batch(node, inputs, batched, rows)` is the op on `rows.size` rows at once: inputs have them along an axis in front
    where `batched` says so, and so have all outputs of the node it returns, or each node of a list of them. Elementwise
    ops and those with a composition need none. `jvp(node, tangents, push)` gives the tangent of each output from those
    of the inputs, None for zero; without one it follows from the composition, or from `vjp`, which is transposed. For
    an op with a body `batching.batch_of` batches a body and `push(outputs, {serial: tangent})` pushes tangents through.

    `arity` is how many inputs it takes, None where nobody said. `autocast` is its class under mixed precision: "full"
    for float32, the name of a family that takes the low dtype, or nothing where it follows its operands. An op with a
    `summary` is a public function of that description under its own name; `floating` ones compute integers as floats.

    Properties: "view" has the memory of its first input; "commutative"; "identity" has its value, "stops" is where
    gradients end; "needs elements" has no value for none; "by dtype" finds the dtype of the result among its
    reference's attributes; "lifts constants" computes the same from a number in memory as from one in its code;
    "joint gradient" has several outputs and `vjp(node, cotangents)` gets those of all of them at once, None where
    nothing depends on one (other ops get the cotangent of one output); "checks" may find its inputs wrong when it runs.
    """

    name: str
    kind: str
    infer: Infer
    vjp: Gradient | NoGradient
    reference: Reference
    flops: int = 1
    numerics: str = "exact"
    properties: frozenset[str] = frozenset()
    composition: Callable[[Any], Any] | None = None
    arity: Arity | None = None
    autocast: str = ""
    summary: str = ""
    floating: bool = False
    batch: Batching | None = None
    jvp: Forward | None = None

    @property
    def exact(self) -> bool:
        """Whether each result is the exact one, rounded at most once: NumPy's are the same bits."""
        return self.numerics in _EXACT

    @property
    def may_fault(self) -> bool:
        """Whether asking for a value may be an error: of an index outside, a singular matrix, whatever is on the host.
        A loop or branch may hold such operations."""
        return self.kind in ("index", "host", "control") or "checks" in self.properties

    def refusal(self, count: int) -> str:
        """Reason why an operation cannot take so many inputs; empty if it can."""
        if self.arity is None or self.arity[0] <= count <= self.arity[1]:
            return ""
        least, most = self.arity
        wanted = f"{least}" if least == most else f"{least} or more" if most == math.inf else f"{least} to {most:.0f}"
        return f"takes {wanted} input{'' if wanted == '1' else 's'}, not {count}"

    def __repr__(self) -> str:
        return f"Op({self.name})"


REGISTRY: dict[str, Op] = {}
_changes = 0
listeners: list[Callable[[], None]] = []  # called when ops, rules or passes change
foreign: set[Any] = set()  # names of ops and passes, and rules, that are not Morpho's: no plan with them goes to disk


def changed() -> None:
    """Say that ops, rules or passes are not what they were: plans made before are not used any more."""
    global _changes
    _changes += 1
    for listener in listeners:
        listener()


def changes() -> int:
    """How often that was said; part of the key of every plan."""
    return _changes


def register(op: Op) -> Op:
    """Put an op on the list; a name is taken once."""
    if op.kind not in KINDS:
        raise fail(ArgumentError, "register", f"kind {op.kind!r} of {op.name} is unknown",
                   "the kinds are " + ", ".join(sorted(KINDS)))
    if op.name in REGISTRY:
        raise fail(ArgumentError, "register", f"an op named {op.name!r} is registered already")
    REGISTRY[op.name] = op
    changed()
    return op
