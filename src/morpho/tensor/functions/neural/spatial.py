"""Parts of convolutions and poolings: images of one or two spatial axes, and the forms of their arguments."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, TypeVar

from morpho.base.dims import Size, bounds, quotient_down
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ops.algebra import reduce, reshape

Call = TypeVar("Call", bound=Callable[..., Any])
Numbers = tuple[int, ...]
Widths = tuple[tuple[int, int], ...]  # elements before and after, per spatial axis


def batched(rank: int) -> Callable[[Call], Call]:
    """A function of x[N, C, ...] that also takes one x[C, ...], as a batch of one, and gives its result without N."""
    def around(function: Call) -> Call:
        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if not args or getattr(args[0], "ndim", 0) != rank + 1:
                return function(*args, **options)
            result = function(args[0][None], *args[1:], **options)
            return type(result)(*(part[0] for part in result)) if isinstance(result, tuple) else result[0]

        return call  # type: ignore[return-value]

    return around


def per_axis(name: str, what: str, value: Any, rank: int, least: int) -> Numbers:
    """One number for all spatial axes, or one for each."""
    items = list(value) if isinstance(value, tuple | list) else [value] * rank
    try:
        numbers = tuple(operator.index(item) for item in items)
    except TypeError:
        raise fail(ArgumentError, name, f"{what}={value!r} is not made of integers") from None
    if len(numbers) != rank or any(number < least for number in numbers):
        raise fail(ArgumentError, name, f"{what}={value!r} is not {rank} numbers of at least {least}")
    return numbers


def padding_widths(name: str, padding: Any, spans: tuple[Size, ...], steps: Numbers) -> Widths:
    """The widths that `padding` means: a number, a number or a (before, after) pair per axis, "same" or "valid".
    `spans` are the elements a window reaches over."""
    rank = len(spans)
    if padding == "valid":
        return ((0, 0),) * rank
    if padding == "same":
        if any(step != 1 for step in steps):
            raise fail(ArgumentError, name, f'padding="same" has no meaning with stride {steps}', "give the widths")
        return tuple(((operator.index(span) - 1) // 2, operator.index(span) // 2) for span in spans)
    if isinstance(padding, str):
        raise fail(ArgumentError, name, f"padding={padding!r} is unknown", "use 'same', 'valid' or numbers")
    items = list(padding) if isinstance(padding, tuple | list) else [padding] * rank
    if len(items) != rank:
        raise fail(ArgumentError, name, f"padding={padding!r} does not fit {rank} spatial axes",
                   "give a number, or a number or a (before, after) pair per axis")
    return tuple((pair[0], pair[1]) for item in items
                 if (pair := per_axis(name, "padding", item, 2, 0)))


def as_images(name: str, node: Node, rank: int) -> Node:
    """x[N, C, L] as images of one row; images of two axes as they are."""
    if len(node.shape) != rank + 2:
        axes = "N, C, L" if rank == 1 else "N, C, H, W"
        raise fail(ShapeError, name, f"shape {node.shape} is not [{axes}]")
    return node if rank == 2 else reshape(node, (*node.shape[:2], 1, node.shape[2]))


def as_given(node: Node, rank: int) -> Node:
    """The way back from `as_images`."""
    return node if rank == 2 else reshape(node, (*node.shape[:2], node.shape[3]))


def both(numbers: Any, rank: int, one: Any) -> Any:
    """Numbers per spatial axis for two axes; the rows of a single line get `one`."""
    return tuple(numbers) if rank == 2 else (one, *numbers)


def check_window(name: str, size: Size, widths: tuple[int, int], span: Size, step: int) -> None:
    """A window must fit its padded axis, and its windows must be countable."""
    padded = size + widths[0] + widths[1]
    if bounds(padded - span)[0] < 0:
        raise fail(ShapeError, name, f"a kernel that spans {span} elements is larger than the padded input of {padded}",
                   "pad more, or use a smaller kernel or dilation")
    if quotient_down(padded - span, step) is None:
        raise fail(ShapeError, name, f"stride {step} over the dynamic size {size} gives no size that is known",
                   f"declare the axis as a multiple: n = mo.Dim('n', 1, 512), and {step} * n for it")


def pooled(how: str, node: Node, axes: tuple[int, ...]) -> Node:
    """A reduction of windows; the slope of "max" goes to the first of equal elements, as in other libraries."""
    return build("max", node, axes=axes, first=True) if how == "max" and axes else reduce(how, node, axes)
