"""Collectives, of a group of one: what several ranks make of them is in tests/cluster."""

from __future__ import annotations

from shaped_case import SOME, Shaped, one_matrix

import morpho.cluster  # noqa: F401  (the group of one)
from morpho.ir.node import Node, build
from morpho.ops.collective import start_bucket, wait_bucket
from morpho.ops.sources import pick


def _bucket(x: Node, y: Node) -> Node:
    started = start_bucket([x, y], 0, 1, "sum", x.dtype.name)
    parts, _ = wait_bucket([x, y], 0, 1, started, started)
    return build("concatenate", *parts, axis=0)


FLOATS = tuple(dtype for dtype in SOME if dtype.is_float)
COLLECTIVE = [
    Shaped("all_reduce", "sum", FLOATS, one_matrix, lambda x: pick(build("all_reduce", x, group=0, op="sum"), 0)),
    Shaped("all_gather", "columns", SOME, one_matrix,
           lambda x: pick(build("all_gather", x, group=0, axis=1, size=1), 0)),
    Shaped("reduce_scatter", "rows", FLOATS, one_matrix,
           lambda x: pick(build("reduce_scatter", x, group=0, axis=0, size=1, op="mean"), 0)),
    Shaped("all_to_all", "rows to columns", SOME, one_matrix,
           lambda x: pick(build("all_to_all", x, group=0, axis=0, joined=1, size=1), 0)),
    Shaped("broadcast_from", "itself", SOME, one_matrix,
           lambda x: pick(build("broadcast_from", x, group=0, root=0, rank=0), 0)),
    *[Shaped(name, "two parts", FLOATS, lambda dtype, n: [((3, 5), dtype), ((2, 5), dtype)], _bucket, dynamic=False,
             lengths=(5,), gradient=False) for name in ("all_reduce_start", "all_reduce_wait", "all_reduce_memory")],
]
