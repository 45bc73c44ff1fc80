"""Numbers of float32 to the blocks of GGUF files.

Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1 have the bytes that llama.cpp's reference and the gguf library write. Q4_K, Q5_K and
Q6_K round to the nearest with each block's own range: llama.cpp searches for better scales, so its files have a smaller
error at the same size.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from morpho.base.errors import ArgumentError, fail

ROWS = 1 << 14  # blocks that are worked on at once


def _half(numbers: np.ndarray) -> np.ndarray:
    """Float16 as bytes, (blocks, 2)."""
    with np.errstate(over="ignore"):
        return numbers.astype("<f2").view(np.uint8).reshape(numbers.shape[0], 2)


def _away(numbers: np.ndarray) -> np.ndarray:
    """Round halves away from 0, as C does."""
    return np.asarray(np.trunc(numbers + np.copysign(np.float32(0.5), numbers)))


def _inverse(scale: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(scale == 0, 0, 1 / scale), np.float32)


def _q8_0(x: np.ndarray) -> np.ndarray:
    scale = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    return np.concatenate([_half(scale), _away(x * _inverse(scale)).astype(np.int8).view(np.uint8)], axis=1)


def _high_bits(codes: np.ndarray) -> np.ndarray:
    """The fifth bits of 32 codes, (blocks, 4)."""
    return np.packbits(codes >> 4 & 1, axis=1, bitorder="little")


def _low_halves(codes: np.ndarray) -> np.ndarray:
    return np.asarray(codes[:, :16] & 15 | (codes[:, 16:] & 15) << 4, np.uint8)


def _around(x: np.ndarray, bits: int) -> np.ndarray:
    """Q4_0 and Q5_0: the number farthest from 0 is the lowest code."""
    middle = 1 << (bits - 1)
    far = np.take_along_axis(x, np.abs(x).argmax(axis=1, keepdims=True), axis=1)
    scale = far / np.float32(-middle)
    wide = x.astype(np.float64) * _inverse(scale) + (middle + 0.5)
    codes = np.trunc(wide.astype(np.float32)).astype(np.uint8).clip(0, 2 * middle - 1)
    parts = [_half(scale), *([_high_bits(codes)] if bits == 5 else []), _low_halves(codes)]
    return np.concatenate(parts, axis=1)


def _from_least(x: np.ndarray, bits: int) -> np.ndarray:
    """Q4_1 and Q5_1: codes count from the least number."""
    least, most = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
    scale = (most - least) / np.float32((1 << bits) - 1)
    codes = np.trunc((x - least) * _inverse(scale) + np.float32(0.5)).astype(np.uint8).clip(0, (1 << bits) - 1)
    parts = [_half(scale), _half(least), *([_high_bits(codes)] if bits == 5 else []), _low_halves(codes)]
    return np.concatenate(parts, axis=1)


def _q45_k(x: np.ndarray, bits: int) -> np.ndarray:
    """Eight parts of 32: a scale and a least number of 6 bits each, of a float16 scale of all."""
    parts = x.reshape(-1, 8, 32)
    low = np.minimum(parts.min(axis=2), 0)
    steps = (parts.max(axis=2).clip(0) - low) / np.float32((1 << bits) - 1)
    wide, deep = (each.max(axis=1, keepdims=True) / np.float32(63) for each in (steps, -low))
    heads = [_half(wide), _half(deep)]
    wide, deep = (head.view("<f2").astype(np.float32) for head in heads)
    scales, mins = (np.rint(each * _inverse(of)).clip(0, 63).astype(np.uint8) for each, of in ((steps, wide),
                                                                                              (-low, deep)))
    step, least = (wide * scales)[..., None], (deep * mins)[..., None]
    codes = np.rint((parts + least) * _inverse(step)).clip(0, (1 << bits) - 1).astype(np.uint8)
    packed = np.empty((x.shape[0], 12), np.uint8)
    packed[:, :4] = scales[:, :4] | scales[:, 4:] >> 4 << 6
    packed[:, 4:8] = mins[:, :4] | mins[:, 4:] >> 4 << 6
    packed[:, 8:] = scales[:, 4:] & 15 | (mins[:, 4:] & 15) << 4
    pairs = codes.reshape(-1, 4, 2, 32)
    halves = (pairs[:, :, 0] & 15 | (pairs[:, :, 1] & 15) << 4).reshape(-1, 128)
    if bits == 4:
        return np.concatenate([*heads, packed, halves], axis=1)
    high = ((codes >> 4) << np.arange(8, dtype=np.uint8).reshape(1, 8, 1)).sum(axis=1, dtype=np.uint8)
    return np.concatenate([*heads, packed, high, halves], axis=1)


def _q6_k(x: np.ndarray) -> np.ndarray:
    """Sixteen parts of 16: a scale of 8 bits each, of a float16 scale of all."""
    parts = x.reshape(-1, 16, 16)
    far = np.take_along_axis(parts, np.abs(parts).argmax(axis=2)[..., None], axis=2)[..., 0] / np.float32(-32)
    head = _half(np.abs(far).max(axis=1, keepdims=True) / np.float32(127))
    wide = head.view("<f2").astype(np.float32)
    scales = np.rint(far * _inverse(wide)).clip(-128, 127).astype(np.int8)
    codes = (np.rint(parts * _inverse(wide * scales)[..., None]).clip(-32, 31) + 32).astype(np.uint8)
    quarters = codes.reshape(-1, 2, 4, 32)
    low = np.stack([quarters[:, :, each] & 15 | (quarters[:, :, each + 2] & 15) << 4 for each in (0, 1)], axis=2)
    high = ((quarters >> 4) << np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 1, 4, 1)).sum(axis=2, dtype=np.uint8)
    return np.concatenate([low.reshape(-1, 128), high.reshape(-1, 64), scales.view(np.uint8), head], axis=1)


# name -> number of the type, of the file's kind, values of a block, and what writes blocks
WRITTEN: dict[str, tuple[int, int, int, Callable[[np.ndarray], np.ndarray]]] = {
    "q4_0": (2, 2, 32, lambda x: _around(x, 4)), "q4_1": (3, 3, 32, lambda x: _from_least(x, 4)),
    "q5_0": (6, 8, 32, lambda x: _around(x, 5)), "q5_1": (7, 9, 32, lambda x: _from_least(x, 5)),
    "q8_0": (8, 7, 32, _q8_0), "q4_k": (12, 14, 256, lambda x: _q45_k(x, 4)),
    "q5_k": (13, 16, 256, lambda x: _q45_k(x, 5)), "q6_k": (14, 18, 256, _q6_k)}
PLAIN = {"f32": (0, 0), "f16": (1, 1), "bf16": (30, 32)}


def quantise(x: np.ndarray, kind: str) -> np.ndarray:
    """Rows (n, k) of float32 as bytes of blocks, (n, bytes).

    >>> import numpy as np
    >>> quantise(np.ones((2, 64), np.float32), "q8_0").shape
    (2, 68)
    """
    if kind not in WRITTEN:
        raise fail(ArgumentError, "convert", f"blocks of {kind!r} are not written", "one of " + ", ".join(WRITTEN))
    size, write = WRITTEN[kind][2:]
    if x.shape[1] % size:
        raise fail(ArgumentError, "convert", f"rows of {x.shape[1]} numbers are not whole blocks of {size}")
    if not np.isfinite(x).all():
        raise fail(ArgumentError, "convert", "weights hold NaN or infinite numbers, which no block has")
    blocks = np.ascontiguousarray(x, np.float32).reshape(-1, size)
    return np.concatenate([write(blocks[start:start + ROWS]) for start in range(0, len(blocks), ROWS)]).reshape(
        x.shape[0], -1)
