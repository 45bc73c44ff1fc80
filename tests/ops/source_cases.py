"""Constants, leaves, and the nodes that passes make."""

from __future__ import annotations

from typing import Any

from case_values import of_kinds
from shaped_case import Shaped, one_matrix

from morpho.base.dims import Dim
from morpho.base.dtypes import ALL, float32, float64, int32, int64
from morpho.ir.node import Node, build
from morpho.ops.algebra import expand, zeros_like
from morpho.ops.identity import Derivative, custom
from morpho.ops.reductions.contract import transpose


def _sources() -> list[Shaped]:
    def group(x: Node) -> Node:
        from morpho.passes.fusion.group import make_group

        node = make_group([build("negative", x), build("square", x)], [x], x.shape, ())
        return build("pick", node, index=1, spec=node.outputs[1])

    def gemm(x: Node) -> Node:
        from morpho.ir.graph import Graph
        from morpho.passes.fusion.epilogue import epilogue
        from morpho.passes.fusion.fuse import fuse

        product = build("matmul", x, transpose(x))
        return epilogue(fuse(Graph((build("square", build("negative", product)),)))).outputs[0]

    def doubled(x: Node) -> Node:
        """Two results, x * x and -x, with their own derivatives."""
        def double(node: Node) -> Node:
            return build("add", node, node)

        def pull(arguments: Any, cotangents: Any) -> list[Any]:
            square, negative = (zeros_like(x) if one is None else one for one in cotangents)
            return [build("subtract", build("multiply", square, double(arguments[0])), negative)]

        def push(arguments: Any, tangents: Any) -> list[Any]:
            return [build("multiply", tangents[0], double(arguments[0])), build("negative", tangents[0])]

        return custom([build("square", x), build("negative", x)], [x], Derivative(pull, push))[0]

    def constant(x: Node) -> Node:
        kinds: dict[str, Any] = {"b": True, "i": 3, "u": 3, "f": -0.0, "c": 1 - 2j}
        return expand(build("constant", value=kinds[x.dtype.kind], dtype=x.dtype), x.shape)

    def ranged(x: Node) -> Node:
        return build("iota", shape=x.shape, axis=1, dtype=x.dtype)

    return [
        Shaped("constant", "spread", ALL, one_matrix, constant, gradient=False),
        Shaped("iota", "columns", of_kinds("iuf"), one_matrix, ranged, gradient=False),
        Shaped("dimension", "length", (int64, float32, float64), one_matrix,
               lambda x: build("dimension", size=x.shape[1] * 2, dtype=x.dtype) if isinstance(x.shape[1], Dim)
               else build("constant", value=(float if x.dtype.is_float else int)(x.shape[1] * 2), dtype=x.dtype),
               gradient=False),
        Shaped("parameter", "itself", ALL, one_matrix, lambda x: x, gradient=False),
        Shaped("detach", "itself", of_kinds("f"), one_matrix, lambda x: build("negative", build("detach", x)),
               gradient=False),
        Shaped("mark", "itself", of_kinds("f"), one_matrix, lambda x: build("negative", build("mark", x, number=0))),
        Shaped("custom", "of two results", of_kinds("f"), one_matrix, doubled),
        Shaped("pick", "of a group", (float32,), one_matrix, group, gradient=False),
        Shaped("group", "of two", (float32, int32), one_matrix, group, gradient=False),
        Shaped("gemm", "with two operations", (float32, float64), one_matrix, gemm, gradient=False),
    ]


SOURCES: list[Shaped] = _sources()
