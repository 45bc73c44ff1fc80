"""Gradients put together into buckets, in the reverse order of use: what the backward pass computes first travels
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from morpho.base.errors import ArgumentError, fail

FIRST_BYTES = 1_000_000  # the first bucket is small, so that something travels soon
LEAST_BUCKETS = 8  # of a model that is larger: what is in the last one travels when nothing is left to compute


def planned(parameters: Sequence[Any], bucket_bytes: int) -> list[list[Any]]:
    """Parameters in the reverse of their order, each bucket of one dtype and, but for a single large parameter, of at
    most so many bytes, or an eighth of the model's where that is less.

    >>> import morpho as mo
    >>> sizes = [mo.zeros(n) for n in (1000, 10, 500, 10)]
    >>> [[t.size for t in bucket] for bucket in planned(sizes, 2100)]
    [[10, 500, 10], [1000]]
    """
    if bucket_bytes < 1:
        raise fail(ArgumentError, "DistributedDataParallel", f"bucket_bytes={bucket_bytes} is not positive")
    total = sum(int(parameter.size) * parameter.dtype.itemsize for parameter in parameters)
    bucket_bytes = min(bucket_bytes, max(FIRST_BYTES, total // LEAST_BUCKETS))
    buckets: list[list[Any]] = []
    filled = 0
    for parameter in reversed(parameters):
        nbytes = int(parameter.size) * parameter.dtype.itemsize
        limit = bucket_bytes if len(buckets) > 1 else min(bucket_bytes, FIRST_BYTES)
        if buckets and filled + nbytes <= limit and buckets[-1][0].dtype is parameter.dtype:
            buckets[-1].append(parameter)
            filled += nbytes
        else:
            buckets.append([parameter])
            filled = nbytes
    return buckets
