"""Calls of core ATen operations that PyTorch's operation database does not reach: composite ones, which tracing takes
apart, and overloads that no Python function calls. Each is a graph of one node, as `torch.export` may give it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import Graph, GraphModule
from torch.utils import _pytree as pytree

Make = Callable[..., Any]
Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def calls(dtype: torch.dtype) -> Iterator[Call]:
    """Names, arguments and keyword arguments of the operations that take this dtype."""
    whole = not dtype.is_floating_point and not dtype.is_complex

    def make(*shape: int) -> torch.Tensor:
        ends = {} if dtype is torch.bool else {"low": -4, "high": 5}
        found = torch.testing.make_tensor(shape, device="cpu", dtype=dtype, **ends)
        return found.masked_fill(found == 0, 1) if whole and dtype is not torch.bool else found

    yield "prod.dim_int", (make(3, 4), 1), {}
    yield "prod.dim_int", (make(3, 4), 0, True), {}
    if whole:
        number = dtype is torch.bool or 3
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
            yield f"{name}.Scalar", (make(5), number), {}
        yield "bitwise_xor.Tensor", (make(2, 3), make(3)), {}
    if dtype is torch.int64:
        yield "randperm.default", (9,), {}
    if dtype is not torch.bool and not dtype.is_complex:
        yield "fmod.Scalar", (make(7), 3), {}
        for mode in (None, "trunc", "floor"):
            yield "div.Scalar_mode", (make(7), 3), {"rounding_mode": mode}
    if dtype.is_floating_point:
        yield from floats(make, dtype)


def floats(make: Make, dtype: torch.dtype) -> Iterator[Call]:
    """Those of floats."""
    if dtype in (torch.float32, torch.float64):
        wide = make(3, 5).to(torch.complex128 if dtype is torch.float64 else torch.complex64)
        for norm in (0, 1, 2):
            yield "_fft_c2r.default", (wide, [1], norm, 8), {}
        yield "_pdist_forward.default", (make(5, 3), 2.0), {}
        yield "_pdist_forward.default", (make(5, 3), 1.0), {}
    image, line = make(2, 3, 6, 5), make(2, 3, 9)
    yield "_native_batch_norm_legit.no_stats", (image, make(3), make(3), True, 0.1, 1e-5), {}
    yield "_native_batch_norm_legit_no_training.default", (image, make(3), make(3), make(3), make(3).abs() + 1, 0.1,
                                                           1e-5), {}
    yield "adaptive_avg_pool1d.default", (line, [4]), {}
    yield "adaptive_avg_pool1d.default", (line[0], [1]), {}
    yield "avg_pool1d.default", (line, [3], [2], [1], True), {}
    yield "avg_pool1d.default", (line[0], [2], [], [0], False, False), {}
    yield "native_dropout.default", (line, 0.5, True), {}
    yield "native_dropout.default", (line, 0.5, False), {}
    yield "reflection_pad2d.default", (image, [1, 2, 2, 1]), {}
    yield "reflection_pad3d.default", (make(2, 3, 4, 5, 4), [1, 1, 2, 1, 0, 2]), {}
    yield "replication_pad3d.default", (make(2, 3, 4, 5, 4), [1, 1, 2, 1, 0, 2]), {}
    for align in (True, False):
        yield "upsample_bilinear2d.vec", (image, [9, 3], align, None), {}
        yield "upsample_bilinear2d.vec", (image, None, align, [1.5, 2.0]), {}
    yield "upsample_nearest2d.vec", (image, [9, 3], None), {}
    yield "upsample_nearest2d.vec", (image, None, [1.5, 2.0]), {}
    yield "var.dim", (make(3, 4), [1]), {}
    yield "var.dim", (make(3, 4), [0, 1], False, True), {}


def graph_of(name: str, args: Any, kwargs: Any) -> tuple[GraphModule, list[torch.Tensor], list[torch.Tensor]]:
    """A graph of one operation, the tensors it takes, and what PyTorch makes of them."""
    target = torch.ops.aten
    for part in name.split("."):
        target = getattr(target, part)
    graph, flat = Graph(), pytree.tree_flatten((args, kwargs))
    tensors = [leaf for leaf in flat[0] if isinstance(leaf, torch.Tensor)]
    given = iter([graph.placeholder(f"x{number}") for number in range(len(tensors))])
    filled = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in flat[0]]
    for node, tensor in zip(graph.nodes, tensors, strict=True):
        node.meta["val"] = tensor
    inner_args, inner_kwargs = pytree.tree_unflatten(filled, flat[1])
    node = graph.call_function(target, inner_args, inner_kwargs)
    expected = node.meta["val"] = target(*args, **kwargs)
    results = [node]
    if isinstance(expected, list | tuple):
        results = [graph.call_function(operator.getitem, (node, number)) for number in range(len(expected))]
        for result, value in zip(results, expected, strict=True):
            result.meta["val"] = value
    graph.output(results)
    module = GraphModule(torch.nn.Module(), graph)
    for node, source in zip(module.graph.nodes, graph.nodes, strict=True):
        node.meta.update(source.meta)
    return module, tensors, list(expected) if isinstance(expected, list | tuple) else [expected]
