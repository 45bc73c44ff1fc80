"""Which kernel computes a Fourier transform, and over what."""

from __future__ import annotations

import struct
from typing import NamedTuple

from morpho.backends.kernels.fft.fft import ColumnFftKernel, RowFftKernel
from morpho.backends.kernels.fft.fft_plan import fits_rows, round_length, wide_lanes
from morpho.backends.lowering.lowering import Lowering
from morpho.base.dims import Size, product
from morpho.base.target import Target
from morpho.ir.node import Node
from morpho.ops.complex.fourier import radices
from morpho.ops.complex.parts import REAL_OF
from morpho.program.program import Step


class DftCall(NamedTuple):
    """A kernel, its numbers, and its work."""

    kernel: RowFftKernel | ColumnFftKernel
    values: tuple[Size, ...]
    rows: Size
    columns: Size


def dft_call(node: Node, target: Target) -> DftCall:
    """Lanes along rows that are long enough; across columns, or across short rows, otherwise."""
    n, axis, kind, inverse = (node[name] for name in ("length", "axis", "kind", "inverse"))
    dtype = REAL_OF[node.dtype]
    bits = struct.unpack("<q", struct.pack("<d", node["scale"]))[0]
    scaled = node["scale"] != 1
    shape = node.inputs[0].shape
    outer, inner = product(shape[:axis]), product(shape[axis + 1:])
    smooth = radices(n) is not None
    if kind != "complex" or not smooth or (axis == len(shape) - 1 and fits_rows(n, dtype)):
        assert axis == len(shape) - 1, "rows lie along the last axis"
        points = n if kind == "complex" else n // 2
        around = 0 if radices(points) is not None else round_length(2 * points - 1)
        kernel = RowFftKernel(n, dtype, kind, inverse, scaled, around)
        return DftCall(kernel, kernel.record.values(scale=bits), outer, n)
    lanes = min(target.isa.lanes(dtype.itemsize), wide_lanes(dtype))
    across = axis < len(shape) - 1
    columns = inner if across else outer
    blocks = -(-columns // lanes)
    found = ColumnFftKernel(n, dtype, inverse, scaled, across, lanes)
    return DftCall(found, found.record.values(scale=bits, columns=columns, blocks=blocks),
                   outer * blocks if across else blocks, n * lanes)


def lower_dft(low: Lowering, node: Node) -> None:
    """A Fourier transform of an array that lies side by side."""
    place = low.view(node.inputs[0])
    place = place if place.is_contiguous else low.copied(place, node)
    target = low.new_slot(node.shape, node.dtype)
    found = dft_call(node, low.target)
    low.add(Step(found.kernel, (place, target), (1,), found.values, found.rows, found.columns, "fft", node.origin))
    low.views[node.serial] = [target]
