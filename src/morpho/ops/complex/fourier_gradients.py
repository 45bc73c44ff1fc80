"""Gradients of Fourier transforms."""

from __future__ import annotations

from typing import Any

from morpho.base.dims import smaller
from morpho.base.dtypes import int64
from morpho.ir.node import Node, build
from morpho.ops.algebra import add, conj, constant_like, div, expand, mul, size_value, where, zeros_like
from morpho.ops.complex.gradients import real_as

_ADJOINT = {"backward": "forward", "forward": "backward", "ortho": "ortho"}  # which side is divided by the length


def fft_rule(node: Node, ct: Node) -> list[Node]:
    """The adjoint of a transform is the one back, divided by the length on the other side. In half a spectrum each
    frequency that stands for two counts twice."""
    function, axes, sizes = node["function"], node["axes"], node["sizes"]
    x, norm = node.inputs[0], _ADJOINT[node["norm"]]
    if function in ("hfft", "ihfft"):  # of the conjugate, with the directions exchanged
        norm = node["norm"]
        ct = conj(ct)
    if function in ("fftn", "ifftn"):
        found = _transform(ct, "ifftn" if function == "fftn" else "fftn", axes, sizes, norm)
    elif function in ("rfftn", "ihfft"):
        found = _transform(div(ct, _doubles(ct, axes[-1], sizes[-1])), "irfftn", axes, sizes, norm)
    else:
        found = _transform(ct, "rfftn", axes, sizes, norm)
        found = mul(found, _doubles(found, axes[-1], sizes[-1]))
    if function == "hfft":
        found = conj(found)
    return [real_as(_fitted(found, x), x.dtype)]


def _transform(x: Node, function: str, axes: Any, sizes: Any, norm: str) -> Node:
    return build("fft", x, function=function, axes=axes, sizes=sizes, norm=norm)


def _doubles(half: Node, axis: int, length: Any) -> Node:
    """2, but 1 for the frequency 0 and, of an even length, the highest."""
    number = build("iota", shape=half.shape, axis=axis, dtype=int64)
    whole = expand(size_value(length, int64), half.shape)
    single = build("equal", build("remainder", add(number, number), whole), zeros_like(number))
    return where(single, constant_like(half, 1), constant_like(half, 2))


def _fitted(found: Node, x: Node) -> Node:
    """Cut or filled with zeros to the shape of x, which the transform had filled or cut."""
    rank = len(x.shape)
    kept = tuple(smaller(one, other) for one, other in zip(found.shape, x.shape, strict=True))
    if kept != found.shape:
        found = build("slice", found, starts=(0,) * rank, sizes=kept, steps=(1,) * rank)
    if kept != x.shape:
        after = tuple(whole - part for whole, part in zip(x.shape, kept, strict=True))
        found = build("pad", found, before=(0,) * rank, after=after, value=0.0)
    return found
