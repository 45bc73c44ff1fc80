"""Attention as data: what a kernel computes, and its numbers by name."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.kernel_abi import Record
from morpho.base.dims import Size
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel
from morpho.program.view import View

BATCH_AXES = 3
KEYS = 64  # of a block: the order in which a row's sum is taken depends on nothing else
OPERANDS = "qkvolxp"  # q, k, v, result, logarithms, mask, positions
ATTENTION = Record(" ".join(["queries keys heads group", f"batches[{BATCH_AXES}]",
                             *(f"{name}_batch[{BATCH_AXES}] {name}_head {name}_row" for name in OPERANDS), "x_column"]))

PAGED = ATTENTION.extended("pages k_page v_page t_batch t_column")  # of the pools, and of the table


def powers_of_two(depth: int, width: int) -> tuple[int, int]:
    """Depth and width as the tiles of a kernel have them."""
    return max(16, 1 << (depth - 1).bit_length()), max(16, 1 << (width - 1).bit_length())


@dataclass(frozen=True)
class AttentionSpec(Kernel):
    """Softmax(scale q k^T + mask) v. Called with q, k, v, the results, then the mask and the positions it has, and the
    table of pages where k and v are pools of them."""

    dtype: DType
    depth: int  # of q and k
    width: int  # of v
    scale: float
    offset: int
    causal: bool
    window: int
    mask: DType | None
    moving: bool
    rows: int  # queries of a block
    way: str = "mma"  # by warps, or "wgmma": by warpgroups
    paged: bool = False

    role = "attention"
    flops = 4

    @property
    def places(self) -> int:
        """Operands in memory."""
        return 5 + (self.mask is not None) + self.moving + self.paged

    @property
    def record(self) -> Record:
        return PAGED if self.paged else ATTENTION


# -- numbers of a node's operands ------------------------------------------------------------------------------------
def group_of(q: View, k: View) -> int:
    return int(q.shape[-3]) // int(k.shape[-3])


def filled(sizes: tuple[Size, ...], by: int) -> list[Size]:
    return [*[by] * (BATCH_AXES - len(sizes)), *sizes]


def steps_of(name: str, place: View | None) -> dict[str, Size | list[Size]]:
    """Strides of an operand along batches, heads and rows; its last axis lies side by side."""
    tail = {"l": 1, "s": 1, "p": 0}.get(name, 2)  # axes behind the heads
    if place is None:
        return {f"{name}_batch": [0] * BATCH_AXES, f"{name}_head": 0, f"{name}_row": 0}
    heads = len(place.shape) - 1 - tail
    steps = [0 if size == 1 else step for size, step in zip(place.shape, place.strides, strict=True)]
    return {f"{name}_batch": filled(tuple(steps[:heads]), 0), f"{name}_head": steps[heads],
            f"{name}_row": steps[heads + 1] if tail else 0}


def paged_values(inputs: list[View], targets: list[View]) -> tuple[tuple[Size, ...], Size]:
    """The numbers of attention over pages (q, the pools, the table, positions), and how many keys there are."""
    q, k, v, table, positions = inputs
    places = {"q": q, "k": None, "v": None, "o": targets[0], "l": targets[1], "x": None, "p": None}
    numbers = {key: value for name, place in places.items() for key, value in steps_of(name, place).items()}
    numbers |= {"p_batch": filled((positions.strides[0],), 0), "p_head": positions.strides[1]}
    for name, pool in (("k", k), ("v", v)):
        numbers |= {f"{name}_{axis}": pool.strides[at] for at, axis in enumerate(("page", "head", "row"))}
    keys = table.shape[1] * KEYS
    return PAGED.values(queries=q.shape[-2], keys=keys, heads=q.shape[1], group=q.shape[1] // k.shape[1],
                        batches=filled(q.shape[:1], 1), x_column=0, pages=k.shape[0], t_batch=table.strides[0],
                        t_column=table.strides[1], **numbers), keys
