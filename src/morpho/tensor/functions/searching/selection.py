"""How many elements are selected is data: inside a compiled function that number is a bounded dynamic size.

`x[mask]`, `nonzero`, `unique` and what is built of them know their sizes only when the function runs. There they have a
`mo.Dim` between none and all of the elements: memory is planned for all of them, and kernels compute what is there.
"""

from __future__ import annotations

from morpho.base.dims import Dim, Shape, Size, product, upper
from morpho.base.dtypes import bool_, int64
from morpho.base.errors import CompileError, fail
from morpho.ir.node import Node, build, toposort
from morpho.ops.algebra import add, cast, constant, constant_like, expand, reshape, size_value, where
from morpho.ops.sources import pick
from morpho.tensor.autodiff.autograd import is_differentiated
from morpho.tensor.autodiff.grad_mode import has_rows, tracing
from morpho.tensor.core import Tensor, uses_parameters

LEAST = 256  # elements on a GPU; fewer are quicker on the host


def is_data(x: Tensor) -> bool:
    """Whether a value is known only when the function being compiled runs."""
    return tracing.current is not None and not x.is_realised and uses_parameters([x.node])


def is_compacted(x: Tensor) -> bool:
    """Whether the elements that are not zero are found on the device of a tensor (`compaction.py`)."""
    count = product(x.shape)
    return (tracing.current is None and x.device.split(":")[0].split("_")[0] == "cuda" and isinstance(count, int)
            and LEAST <= count < 1 << 31 and not x.dtype.is_complex)


def compacted(mask: Tensor) -> Tensor:
    """Positions at which a mask on a device holds, in the mask read as a line; their number goes to the host."""
    from morpho.tensor.functions.searching.compaction import compacted

    return compacted(mask)


def masked(x: Tensor, mask: Tensor) -> Tensor | None:
    """x[mask] on a device, of a mask of its shape; None where it is found otherwise."""
    if mask.shape != x.shape or x.dtype.is_complex or x.device != mask.device or not is_compacted(mask) \
            or is_differentiated(x):
        return None
    from morpho.tensor.functions.searching.compaction import masked

    return masked(x, mask)


def selected(mask: Tensor, operation: str) -> Tensor:
    """The places at which a mask of a function being compiled holds, in the mask read as a line; equal masks give the
    same tensor, of the same size."""
    node, trace = mask.node, tracing.current
    assert trace is not None and node.dtype is bool_
    if has_rows(mask) or any("region" in below.attributes for below in toposort([node])):
        raise fail(CompileError, operation, "a number of elements that depends on data is asked for in the body of a "
                                            "loop, a branch or vmap, where sizes are fixed",
                   "use mo.where, or multiply by the mask")
    found = trace.selected.get(node.serial)
    if found is None:
        count = product(node.shape)
        if count == 0:  # nothing to select from
            return Tensor.of_node(expand(constant(0, int64), (0,)))
        size = Dim(f"selected_{len(trace.selected)}", 0, upper(count))
        made = _places(reshape(node, (count,)), count, size)
        trace.counted.append((size, pick(made, 1)))
        found = trace.selected[node.serial] = (node, Tensor.of_node(pick(made, 0)))
    return found[1]  # type: ignore[no-any-return]


def _places(mask: Node, count: Size, size: Dim) -> Node:
    """Each place that holds is put where it stands among those that do; all others behind the last."""
    ones = cast(mask, int64)
    rank = add(build("cumulative_sum", ones, axis=0), constant_like(ones, -1))
    behind = expand(size_value(count, int64), (count,))
    places = build("iota", shape=(count,), axis=0, dtype=int64)
    room = expand(constant(0, int64), (count + 1,))
    listed = build("scatter", room, where(mask, rank, behind), places, axis=0, mode="set")
    total = reshape(build("sum", ones, axes=(0,)), ())
    return build("counted", build("slice", listed, starts=(0,), sizes=(count,), steps=(1,)), total, size=size)


def unravelled(places: Tensor, shape: Shape) -> list[Tensor]:
    """Places in a line as positions along the axes of a shape."""
    found, rest = [], places.node
    for axis in range(len(shape) - 1, 0, -1):
        length = expand(size_value(shape[axis], int64), rest.shape)
        found.append(Tensor.of_node(build("remainder", rest, length)))
        rest = build("floor_divide", rest, length)
    return [Tensor.of_node(rest), *reversed(found)]
