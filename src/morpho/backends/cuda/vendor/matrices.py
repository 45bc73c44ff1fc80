"""Matrices between the order of their users (rows) and that of NVIDIA's libraries (columns): one small kernel."""

from __future__ import annotations

import ctypes
from typing import Any

from morpho.backends.cuda.codegen.grid import GridEmitter, Header, entry
from morpho.backends.cuda.driver.interface import Device, Geometry

THREADS, BLOCKS = 256, 4096
WHOLE, LOWER, UPPER = 0, 1, 2
NUMBERS = 7  # rows, columns, strides of the target and of the source, which part


def text(itemsize: int) -> str:
    """target[i, j] = source[i, j], or zero outside the part that is wanted; elements by their bits."""
    e, first, kind = GridEmitter(), int(Header.SIZE), f"i{8 * itemsize}"
    target, source = e.address(first), e.address(first + 1)
    rows, columns, *steps, part = (e.word(first + 2 + n) for n in range(NUMBERS))
    start = e.ask("block") * e.ask("threads") + e.ask("thread")
    with e.loop(start, rows * columns, e.ask("blocks") * e.ask("threads")) as loop:
        row = e.instruction("udiv", loop.index, columns)
        column = loop.index - row * columns
        below, above = (e.icmp(name, column, row) for name in ("sgt", "slt"))
        outside = (e.icmp("eq", part, LOWER) & below) | (e.icmp("eq", part, UPPER) & above)
        value = e.load(e.offset(source, kind, row * steps[2] + column * steps[3]), kind, 1)
        e.store(e.select(outside, 0, value), e.offset(target, kind, row * steps[0] + column * steps[1]))
    return entry("kernel_main", first + 2 + NUMBERS, e.text(), " nounwind") + e.outside()


class MatrixCopy:
    """The kernel on one device, made once per size of an element."""

    def __init__(self, gpu: Device) -> None:
        self.gpu = gpu
        self.functions: dict[int, Any] = {}

    def __call__(self, target: int, source: int, sizes: tuple[int, int], to: tuple[int, int], of: tuple[int, int],
                 itemsize: int, stream: int, part: int = WHOLE) -> None:
        """Queue a copy of a matrix; `to` and `of` are the strides of rows and columns, in elements."""
        if sizes[0] * sizes[1] == 0:
            return
        function = self.functions.get(itemsize)
        if function is None:
            function = self.functions[itemsize] = self.gpu.load(self.gpu.build(text(itemsize)), "kernel_main")
        words = (ctypes.c_int64 * (int(Header.SIZE) + 2 + NUMBERS))(
            *[0] * int(Header.SIZE), target, source, *sizes, *to, *of, part)
        blocks = min(BLOCKS, -(-sizes[0] * sizes[1] // THREADS))
        self.gpu.launch(function, Geometry(blocks, THREADS), words, stream)
