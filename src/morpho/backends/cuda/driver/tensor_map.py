"""Tensor maps: what the copy engine (TMA) must know of an operand, among the words of its launch.

On a GPU the driver writes them (`cuTensorMapEncodeTiled`); the emulated device reads a layout of its own.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from morpho.backends.cuda.driver.regions.traced import plain

MAP_WORDS = 16  # 128 bytes, which begin at a multiple of 64
KINDS = {"float16": 6, "bfloat16": 9}  # CU_TENSOR_MAP_DATA_TYPE_...
SWIZZLE_128B, PROMOTE_256B = 3, 3


@dataclass(frozen=True, slots=True)
class TensorMap:
    """An operand, memory's axis first: sizes, bytes from one line to the next and so on, and the box of one copy.
    `word`: where the map lies among the words of a launch."""

    operand: int
    word: int
    kind: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]


class MapArguments:
    """The arguments of the driver's function that stay the same."""

    def __init__(self, made: TensorMap) -> None:
        self.kind, self.rank = KINDS[made.kind], len(made.sizes)
        self.sizes = (ctypes.c_uint64 * self.rank)(*map(plain, made.sizes))
        self.strides = (ctypes.c_uint64 * (self.rank - 1))(*map(plain, made.strides))
        self.box = (ctypes.c_uint32 * self.rank)(*made.box)
        self.steps = (ctypes.c_uint32 * self.rank)(*[1] * self.rank)


def aligned_words(count: int) -> ctypes.Array[ctypes.c_int64]:
    """Words that begin at a multiple of 64 bytes: maps must."""
    room = (ctypes.c_int64 * (count + 8))()
    start = -ctypes.addressof(room) % 64
    return (ctypes.c_int64 * count).from_buffer(room, start)
