"""One layer as the planner sees it: its work, its bytes, and what crosses the cut after it; the types it knows."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from morpho.base.errors import ValueFault, fail

# Bytes an element of a weight or an activation takes; q4 is 4-bit in blocks of 32 with a 16-bit scale each.
BYTES_OF = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "int8": 1.0, "q4": 0.5625}
# Relative rounding error of an activation sent in a type: half a unit in its last place, int8 scaled by row.
ACTIVATION_ERROR = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8, "int8": 2.0**-7}
PHASES = ("decode", "prefill")


@dataclass(frozen=True, slots=True)
class Layer:
    """One link of the chain: the planner never splits it.

    `prefill_*` is the work of a whole prompt (`context` tokens of `batch` sequences), `decode_*` that of one further
    token of each sequence with a full context. Work is FLOPs (a multiply-add is two) and bytes moved between memory
    and core. `kv_bytes` is the cache of one micro-batch, `workspace_bytes` the scratch that the layer needs while it
    runs, and `*_cut_elements` how many numbers cross to the next stage if the chain is cut after this layer. Members
    of a tensor-parallel stage sum `*_reduce_elements` numbers over each other, in `reduces` all-reduces. `key` names
    kind and sizes, so that a node's measured time can be found (`Node.measured`).

    >>> from morpho import plan
    >>> block = plan.ModelCard.from_config("gpt2", dtype="f32").layers[1]
    >>> block.kind, block.weight_bytes
    ('block', 28351488)
    """

    name: str
    kind: str
    prefill_flops: float
    prefill_bytes: float
    decode_flops: float
    decode_bytes: float
    weight_bytes: int
    kv_bytes: int = 0
    prefill_cut_elements: int = 0
    decode_cut_elements: int = 0
    workspace_bytes: int = 0
    prefill_reduce_elements: int = 0
    decode_reduce_elements: int = 0
    reduces: int = 0
    key: str = ""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name not in ("name", "kind", "key") and not (math.isfinite(value) and value >= 0):
                raise fail(ValueFault, "plan", f"layer {self.name!r} has {item.name} = {value}",
                           "every quantity is finite and not negative")

    def flops(self, phase: str) -> float:
        """FLOPs of a phase."""
        return self.decode_flops if phase == "decode" else self.prefill_flops

    def bytes(self, phase: str) -> float:
        """Bytes moved in a phase."""
        return self.decode_bytes if phase == "decode" else self.prefill_bytes

    def cut_elements(self, phase: str) -> int:
        """Numbers that cross a cut after the layer in a phase."""
        return self.decode_cut_elements if phase == "decode" else self.prefill_cut_elements

    def reduce_elements(self, phase: str) -> int:
        """Numbers that tensor-parallel members sum over each other in a phase."""
        return self.decode_reduce_elements if phase == "decode" else self.prefill_reduce_elements
