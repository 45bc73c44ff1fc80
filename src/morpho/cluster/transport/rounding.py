"""The types activations are sent in: f32 as they are, f16, bf16, or int8 with a scale for each row.

What a receiver gets is `rounded(x, dtype)`, whoever computes it: a pipeline that sends less than f32 has the tokens of
one process that rounds at the same cuts.

>>> import numpy as np
>>> x = np.array([[1.0, -2.0, 0.1]], np.float32)
>>> rounded(x, "bf16").tolist()
[[1.0, -2.0, 0.10009765625]]
"""

from __future__ import annotations

import numpy as np

from morpho.cluster.transport.frame import payload_bytes


def encode(x: np.ndarray, dtype: str, out: np.ndarray) -> int:
    """Write float32 activations as `dtype` into bytes; says how many. One pass, straight into the send buffer."""
    size = payload_bytes(dtype, x.shape)
    if dtype == "f32":
        np.copyto(out[:size].view(np.float32).reshape(x.shape), x)
    elif dtype == "f16":
        with np.errstate(over="ignore"):
            np.copyto(out[:size].view(np.float16).reshape(x.shape), x, casting="same_kind")
    elif dtype == "bf16":
        out[:size].view(np.uint16).reshape(x.shape)[...] = _to_bf16(x)
    else:
        scales, numbers = _to_int8(x)
        at = scales.nbytes
        out[:at] = scales.view(np.uint8).reshape(-1)
        out[at:size] = numbers.view(np.uint8).reshape(-1)
    return size


def decode(payload: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Activations as float32 in memory of their own."""
    if dtype == "f32":
        return np.array(payload, np.float32).reshape(shape)
    if dtype == "f16":
        return payload.astype(np.float32).reshape(shape)
    if dtype == "bf16":
        return (payload.astype(np.uint32) << np.uint32(16)).view(np.float32).reshape(shape)
    rows = int(np.prod(shape[:-1]))
    scales = payload[:4 * rows].copy().view(np.float32)
    numbers = payload[4 * rows:].view(np.int8).reshape(rows, shape[-1])
    return (numbers.astype(np.float32) * scales[:, None]).reshape(shape)


def rounded(x: np.ndarray, dtype: str) -> np.ndarray:
    """Round `x` as a receiver gets it when it is sent as `dtype`."""
    x = np.ascontiguousarray(x, np.float32)
    raw = np.empty(payload_bytes(dtype, x.shape), np.uint8)
    encode(x, dtype, raw)
    view = raw if dtype == "int8" else raw.view({"f32": np.float32, "f16": np.float16, "bf16": np.uint16}[dtype])
    return decode(view, dtype, x.shape)


def _to_bf16(x: np.ndarray) -> np.ndarray:
    """The upper halves, rounded to the nearest even one; a NaN stays a NaN."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    lowest = (bits >> np.uint32(16)) & np.uint32(1)
    found = ((bits + np.uint32(0x7FFF) + lowest) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), found)


def _to_int8(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = np.ascontiguousarray(x, np.float32).reshape(-1, x.shape[-1])
    most = np.abs(rows).max(axis=1)
    scales = np.where(most > 0, most / np.float32(127), np.float32(1)).astype(np.float32)
    return scales, np.rint(rows / scales[:, None]).astype(np.int8)
