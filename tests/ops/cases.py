"""One table of every op in the registry: dtypes, attributes, inputs, and how closely backends must agree.

`ELEMENTWISE` holds the ops whose inputs and output have one shape, `SHAPED` the rest, a file for each family of both.
`test_ops.py` and `test_gradients.py` walk both; a test fails if an op of the registry is in neither.
"""

from __future__ import annotations

from collective_cases import COLLECTIVE
from control_cases import CONTROL
from elementwise_cases import ELEMENTWISE
from host_cases import HOST
from layer_cases import LAYERS
from moving_cases import MOVING
from shaped_case import Shaped
from source_cases import SOURCES
from sparse_cases import SPARSE
from special_cases import SPECIAL

SHAPED: list[Shaped] = [*MOVING, *LAYERS, *HOST, *SOURCES, *CONTROL, *SPECIAL, *COLLECTIVE, *SPARSE]
ELSEWHERE = {"data": "a leaf that holds memory: every lazy evaluation in tests/fuzz uses it",
             "counted": "a size that is data, which compiled functions alone have: tests/compile/test_data_sizes.py",
             "tile_kernel": "a program in itself, with checks and gradients of its own: tests/kernel"}


def covered() -> set[str]:
    """Names of the ops in the table."""
    return {case.op for case in ELEMENTWISE} | {case.op for case in SHAPED} | set(ELSEWHERE)
