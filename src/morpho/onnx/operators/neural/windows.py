"""The geometry of convolution and pooling: kernels, strides, dilations, padding by name or number."""

from __future__ import annotations

from typing import Any, NamedTuple

from morpho.onnx.run.call import Call
from morpho.onnx.run.values import bounded


class Windows(NamedTuple):
    """Per spatial axis."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]

    @property
    def extent(self) -> list[int]:
        """How far a kernel reaches, dilated."""
        return [(size - 1) * step + 1 for size, step in zip(self.kernel, self.dilations)]


def windows(call: Call, sizes: Any, kernel: Any = None) -> Windows:
    """The windows of a node over spatial sizes."""
    rank = len(sizes)
    kernel = [*(call.get("kernel_shape") or kernel or call.need("kernel_shape"))]
    strides, dilations = call.get("strides", [1] * rank), call.get("dilations", [1] * rank)
    pads = call.get("pads", [0] * 2 * rank)
    if not len(kernel) == len(strides) == len(dilations) == len(pads) // 2 == rank:
        raise call.error(f"kernel, strides, dilations and pads are not for {rank} axes")
    if min([*kernel, *strides, *dilations, 1]) < 1 or min([*pads, 0]) < 0:
        raise call.error("a kernel, stride or dilation is less than 1, or a pad less than 0")
    bounded([size + low + high for size, low, high in zip(sizes, pads, pads[rank:])], call.op)
    made = Windows(kernel, strides, dilations, pads[:rank], pads[rank:])
    how = call.choice("auto_pad", "NOTSET", ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"))
    if how == "VALID":
        return made._replace(before=[0] * rank, after=[0] * rank)
    if how in ("SAME_UPPER", "SAME_LOWER"):
        total = [max((-(-size // stride) - 1) * stride + reach - size, 0)
                 for size, stride, reach in zip(sizes, strides, made.extent)]
        small, large = [each // 2 for each in total], [each - each // 2 for each in total]
        return made._replace(before=small, after=large) if how == "SAME_UPPER" else made._replace(
            before=large, after=small)
    return made


def counts(call: Call, sizes: Any, made: Windows, ceiling: bool = False) -> list[Any]:
    """How many windows there are along each axis. With `ceiling`, one may reach beyond the end, but not begin there."""
    found = []
    for size, stride, reach, low, high in zip(sizes, made.strides, made.extent, made.before, made.after):
        free = size + low + high - reach
        if isinstance(free, int) and free < 0 and not ceiling:
            raise call.error(f"a kernel that reaches over {reach} does not fit a size of {size} with its padding")
        count = (-(-free // stride) if ceiling else free // stride) + 1
        if ceiling and isinstance(count, int) and (count - 1) * stride >= size + low:
            count -= 1
        found.append(count)
    return found
