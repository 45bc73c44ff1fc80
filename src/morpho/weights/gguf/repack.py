"""Quantised types of GGUF files whose blocks products do not read as they stand: their bytes put into blocks that they
do, without a change of any value.

| in the file | bits a value | becomes | bits a value |
|---|---|---|---|
| Q4_0 | 4.5 | `q4_1`: the least value is -8 d | 5 |
| Q5_0 | 5.5 | `q8_0` | 8.5 |
| Q5_1 | 6 | `q8_m` | 9 |
| Q4_K | 4.5 | `q4_wm`: each block's scale and least value are multiplied out, exactly, in float32 | 6 |
| Q5_K | 5.5 | `q8_wm` | 10 |
| Q2_K, Q3_K | 2.6, 3.4 | `q4_wm16` | 8 |
| Q6_K | 6.6 | `q8_w16` | 10 |
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from morpho.base.errors import fail
from morpho.weights.errors import FileFault

BLOCK, SUPER = 32, 256
ROWS = 1 << 22  # bytes that are worked on at once


def _half(raw: np.ndarray, at: int) -> np.ndarray:
    """The float16 at byte `at` of each block, as float32: (blocks, 1)."""
    return np.ascontiguousarray(raw[:, at:at + 2]).view("<f2").astype(np.float32)


def _bytes(numbers: np.ndarray, kind: str) -> np.ndarray:
    return np.ascontiguousarray(numbers.astype(kind)).view(np.uint8).reshape(numbers.shape[0], -1)


def _nibbles(codes: np.ndarray) -> np.ndarray:
    """Codes (blocks, 32) below 16 -> bytes (blocks, 16): the first half low, the second high."""
    return np.asarray(codes[:, :16] | codes[:, 16:] << 4, np.uint8)


def _unpacked(raw: np.ndarray) -> np.ndarray:
    """Bytes (blocks, 16) -> (blocks, 32): low halves, then high ones."""
    return np.concatenate([raw & 15, raw >> 4], axis=1)


def _bits(raw: np.ndarray) -> np.ndarray:
    """Bytes (blocks, n) -> bits (blocks, 8 n), the lowest first."""
    return np.unpackbits(np.ascontiguousarray(raw), axis=1, bitorder="little")


def _q4_0(raw: np.ndarray) -> np.ndarray:
    scales = _half(raw, 0)
    if (np.isfinite(scales) & (np.abs(scales) > 8188)).any():
        raise fail(FileFault, "load_gguf", "a scale of Q4_0 weights is too large for float16 when multiplied by 8")
    return np.concatenate([raw[:, :2], _bytes(scales * -8, "<f2"), raw[:, 2:]], axis=1)


def _q5_0(raw: np.ndarray) -> np.ndarray:
    codes = (_unpacked(raw[:, 6:]) | _bits(raw[:, 2:6]) << 4).astype(np.int8) - 16
    return np.concatenate([raw[:, :2], codes.astype(np.int8).view(np.uint8)], axis=1)


def _q5_1(raw: np.ndarray) -> np.ndarray:
    return np.concatenate([raw[:, :4], _unpacked(raw[:, 8:]) | _bits(raw[:, 4:8]) << 4], axis=1)


# -- of 256 values -----------------------------------------------------------------------------------------------------
def _joined(headers: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Blocks of 32: headers (blocks, any) in float32, then codes as bytes."""
    return np.concatenate([_bytes(headers, "<f4"), codes.reshape(headers.shape[0], -1).view(np.uint8)], axis=1)


def _scales_of_eight(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Twelve bytes -> eight scales and eight least values of 6 bits."""
    low, mid, high = raw[:, :4], raw[:, 4:8], raw[:, 8:]
    scales = np.concatenate([low & 63, high & 15 | low >> 6 << 4], axis=1)
    return scales.astype(np.float32), np.concatenate([mid & 63, high >> 4 | mid >> 6 << 4], axis=1).astype(np.float32)


def _q45_k(raw: np.ndarray, high: bool) -> np.ndarray:
    scales, least = _scales_of_eight(raw[:, 4:16])
    headers = np.stack([_half(raw, 0) * scales, -(_half(raw, 2) * least)], axis=-1)  # (blocks, 8, 2)
    pairs = raw[:, 48 if high else 16:].reshape(-1, 4, 1, BLOCK)
    codes = np.concatenate([pairs & 15, pairs >> 4], axis=2).reshape(-1, 8, BLOCK)
    if high:
        extra = raw[:, 16:48, None] >> np.arange(8, dtype=np.uint8) & 1  # (blocks, 32, 8)
        codes = codes | extra.transpose(0, 2, 1) << 4
        return _joined(headers.reshape(-1, 2), codes.reshape(-1, BLOCK))
    return _joined(headers.reshape(-1, 2), _nibbles(codes.reshape(-1, BLOCK)))


def _twos(raw: np.ndarray) -> np.ndarray:
    """64 bytes -> 256 codes of 2 bits: of each half of the bytes the lowest pairs of bits, then the next, ..."""
    halves = raw.reshape(-1, 2, 1, BLOCK) >> np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 1, 4, 1) & 3
    return halves.reshape(-1, SUPER)


def _of_sixteen(scales: np.ndarray, least: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Blocks of 32 with a scale and a least value for each 16: (blocks, 16) each."""
    headers = np.stack([scales, least], axis=-1).reshape(-1, 4)
    return _joined(headers, _nibbles(codes.reshape(-1, BLOCK)))


def _q2_k(raw: np.ndarray) -> np.ndarray:
    scales = _half(raw, 80) * (raw[:, :16] & 15).astype(np.float32)
    return _of_sixteen(scales, -(_half(raw, 82) * (raw[:, :16] >> 4).astype(np.float32)), _twos(raw[:, 16:80]))


def _q3_k(raw: np.ndarray) -> np.ndarray:
    packed = raw[:, 96:108]
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    high = (packed[:, None, 8:] >> np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 4, 1) & 3).reshape(-1, 16)
    scales = _half(raw, 108) * ((low | high << 4).astype(np.float32) - 32)
    bits = (raw[:, None, :32] >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1) & 1).reshape(-1, SUPER)
    return _of_sixteen(scales, scales * -4, _twos(raw[:, 32:96]) | bits << 2)


def _q6_k(raw: np.ndarray) -> np.ndarray:
    low, high = raw[:, :128].reshape(-1, 2, 64), raw[:, 128:192].reshape(-1, 2, 1, BLOCK)
    fours = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, BLOCK)
    twos = high >> np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 1, 4, 1) & 3
    codes = (fours | twos << 4).astype(np.int8) - 32
    scales = _half(raw, 208) * np.ascontiguousarray(raw[:, 192:208]).view(np.int8).astype(np.float32)
    return _joined(scales.reshape(-1, 2), codes.astype(np.int8).reshape(-1, BLOCK))


# type in the file -> bytes of a block, values of it, what it becomes, how
REPACKED: dict[str, tuple[int, int, str, Callable[[np.ndarray], np.ndarray]]] = {
    "Q4_0": (18, BLOCK, "q4_1", _q4_0), "Q5_0": (22, BLOCK, "q8_0", _q5_0), "Q5_1": (24, BLOCK, "q8_m", _q5_1),
    "Q2_K": (84, SUPER, "q4_wm16", _q2_k), "Q3_K": (110, SUPER, "q4_wm16", _q3_k),
    "Q4_K": (144, SUPER, "q4_wm", lambda raw: _q45_k(raw, False)),
    "Q5_K": (176, SUPER, "q8_wm", lambda raw: _q45_k(raw, True)), "Q6_K": (210, SUPER, "q8_w16", _q6_k),
}


def repacked(rows: np.ndarray, kind: str) -> np.ndarray:
    """Rows of bytes as the file has them -> rows of bytes of the blocks they become.

    >>> from morpho.weights.gguf.repack import repacked
    >>> repacked(np.zeros((2, 3 * 144), np.uint8), "Q4_K").shape
    (2, 576)
    """
    size, values, _, function = REPACKED[kind]
    step = max(1, ROWS // max(1, rows.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        parts = [function(rows[start:start + step].reshape(-1, size)).reshape(len(rows[start:start + step]), -1)
                 for start in range(0, len(rows), step)]
    return np.concatenate(parts)
