"""Quantised types of GGUF files whose blocks products do not read as they stand: their bytes put into blocks that they
do, without a change of any value.

| in the file | bits a value | becomes | bits a value |
|---|---|---|---|
| Q5_0 | 5.5 | `q8_0` | 8.5 |
| Q5_1 | 6 | `q8_m` | 9 |
| Q4_K | 4.5 | `q4_wm`: each block's scale and least value are multiplied out, exactly, in float32 | 6 |
| Q5_K | 5.5 | `q8_wm` | 10 |
| Q2_K, Q3_K | 2.6, 3.4 | `q4_wm16` | 8 |
| Q6_K | 6.6 | `q8_w16` | 10 |
| IQ4_XS | 4.25 | `iq4_w`: codes of 4 bits into the file's codebook, and a scale in float32 | 5 |
| MXFP4, NVFP4 | 4.25, 4.5 | `e2m1_w`, `e2m1_w16` | 5, 6 |
| IQ3_XXS, IQ3_S | 3.1, 3.4 | `iq3_xxs_w`, `iq3_s_w`: a lattice point's numbers, one by one | 5 |
| IQ2_XXS, IQ2_XS, IQ2_S | 2.1 to 2.6 | `iq2_w`, `iq2_w16` | 5, 6 |
| IQ1_S, IQ1_M | 1.6, 1.75 | `iq1_w`, `iq1_w16` | 5, 6 |
| TQ1_0, TQ2_0 | 1.7, 2.1 | `ternary` | 4.5 |

Q8_0, Q4_0, Q4_1 and IQ4_NL are read as they stand. Lattices of IQ1, IQ2 and IQ3 come from the gguf library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from morpho.base.distribution import install
from morpho.base.errors import fail
from morpho.ops.neural.float8 import POWERS, table
from morpho.ops.neural.quantised import BLOCK, BOOKS, LAYOUTS
from morpho.weights.errors import MissingExtra

SUPER = 256  # values of a block of most types
VALUES = 1 << 22  # that are worked on at once
HALF_ONE = np.array([1], "<f2").view(np.uint8)


def gguf_library() -> Any:
    """The gguf library, which knows the lattices of IQ types and the names of those that Morpho does not read."""
    try:
        import gguf
    except ImportError:
        raise fail(MissingExtra, "load_gguf", "the file has types of weights that need the gguf library",
                   install("models")) from None
    return gguf


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


# -- codes into a codebook ---------------------------------------------------------------------------------------------
def _halves_of(raw: np.ndarray) -> np.ndarray:
    """Bytes (blocks, n) -> numbers of 4 bits (blocks, 2 n), the low half of each byte first."""
    return np.stack([raw & 15, raw >> 4], axis=-1).reshape(len(raw), -1)


def _iq4_xs(raw: np.ndarray) -> np.ndarray:
    high = np.ascontiguousarray(raw[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    scales = (_halves_of(raw[:, 4:8]) | high << 4).astype(np.float32) - 32
    return _joined((_half(raw, 0) * scales).reshape(-1, 1), raw[:, 8:].reshape(-1, BLOCK // 2))


def _mxfp4(raw: np.ndarray) -> np.ndarray:
    half = table(POWERS)[raw[:, :1]] * np.float32(0.5)
    half[raw[:, :1] == 255] = 2.0**127  # GGML has no NaN among these
    return _joined(half, raw[:, 1:])


def _nvfp4(raw: np.ndarray) -> np.ndarray:
    bits = raw[:, :4]
    scales = np.where(bits == 127, 0, table("F8_E4M3")[bits & 127]).astype(np.float32)
    scales = np.where(bits == 255, np.float32(480), scales) * np.float32(0.5)
    halves = raw[:, 4:].reshape(-1, 8)
    codes = np.concatenate([halves & 15, halves >> 4], axis=1)
    return _joined(scales.reshape(-1, 2), _nibbles(codes.reshape(-1, BLOCK)))


def _ternary(scale: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Blocks of 32 of blocks of 256 with one scale, its bytes (blocks, 2)."""
    scales = np.repeat(scale, SUPER // BLOCK, axis=0)
    return np.concatenate([scales, _nibbles(codes.reshape(-1, BLOCK).astype(np.uint8))], axis=1)


def _tq1_0(raw: np.ndarray) -> np.ndarray:
    powers = np.array([1, 3, 9, 27, 81], np.uint8).reshape(1, 5, 1)
    parts = [(raw[:, None, start:stop] * powers[:, :count]).reshape(len(raw), -1)  # modulo 256
             for start, stop, count in ((0, 32, 5), (32, 48, 5), (48, 52, 4))]
    return _ternary(raw[:, 52:], np.concatenate(parts, axis=1).astype(np.uint16) * 3 >> 8)


def _tq2_0(raw: np.ndarray) -> np.ndarray:
    return _ternary(raw[:, 64:], _twos(raw[:, :64]))


def _fours(raw: np.ndarray, at: int, step: int) -> np.ndarray:
    """The high halves of every `step`-th byte from `at` on."""
    return raw[:, at::step] >> 4


def _threes(raw: np.ndarray, at: int, shifts: tuple[int, ...]) -> np.ndarray:
    """Numbers of 3 bits at `shifts` of each 16 bits from `at` on."""
    words = np.ascontiguousarray(raw[:, at:]).view("<u2")
    return (words[..., None] >> np.array(shifts, np.uint16) & 7).reshape(len(raw), -1)


def _half_over(raw: np.ndarray) -> np.ndarray:
    """The float16 of IQ1_M, 4 bits in each of its last four words."""
    words = np.ascontiguousarray(raw[:, 48:]).view("<u2") >> 12
    bits = (words << np.array([0, 4, 8, 12], np.uint16)).sum(axis=1, dtype=np.uint16)
    half: np.ndarray = bits.view("<f2").astype(np.float32)[:, None]
    return half


def _lattice(name: str, kind: str, scales: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """A function that puts blocks of lattice points into those of `kind`. `scales` are the numbers that the type has
    for each 32 or 16 values, without the block's float16: of blocks whose float16 is 1, the library's values over
    these are the codebook's numbers."""
    book = BOOKS[LAYOUTS[kind].book]
    codes_of = np.zeros(256, np.uint8)
    for code, number in reversed([*enumerate(book)]):
        codes_of[number + 128] = code

    def blocks(raw: np.ndarray) -> np.ndarray:
        library = gguf_library()
        ones = raw.copy()
        if name == "IQ1_M":
            words = ones[:, 48:].view("<u2")
            words &= 0x0FFF
            words |= np.array([0, 0, 0xC000, 0x3000], np.uint16)  # 0x3C00 is 1
            half = _half_over(raw)
        else:
            ones[:, :2] = HALF_ONE
            half = _half(raw, 0)
        values = library.dequantize(ones, getattr(library.GGMLQuantizationType, name))
        each = scales(raw)
        numbers = (values.reshape(*each.shape, -1) / each[..., None]).astype(np.int16)
        codes = codes_of[numbers + 128].reshape(-1, BLOCK)
        return _joined((half * each).reshape(len(codes), -1), _nibbles(codes))

    return blocks


def _plus_half(numbers: np.ndarray, factor: float) -> np.ndarray:
    return (numbers.astype(np.float32) + np.float32(0.5)) * np.float32(factor)


def _odd(numbers: np.ndarray, factor: float = 1.0) -> np.ndarray:
    return (2 * numbers.astype(np.float32) + 1) * np.float32(factor)


class Repacked(NamedTuple):
    """A type of blocks in a file: bytes and values of a block, and the layout it becomes, by a function of blocks."""

    size: int
    values: int
    kind: str
    function: Callable[[np.ndarray], np.ndarray]


REPACKED: dict[str, Repacked] = {
    "Q5_0": Repacked(22, BLOCK, "q8_0", _q5_0), "Q5_1": Repacked(24, BLOCK, "q8_m", _q5_1),
    "Q2_K": Repacked(84, SUPER, "q4_wm16", _q2_k), "Q3_K": Repacked(110, SUPER, "q4_wm16", _q3_k),
    "Q4_K": Repacked(144, SUPER, "q4_wm", lambda raw: _q45_k(raw, False)),
    "Q5_K": Repacked(176, SUPER, "q8_wm", lambda raw: _q45_k(raw, True)),
    "Q6_K": Repacked(210, SUPER, "q8_w16", _q6_k),
    "IQ4_XS": Repacked(136, SUPER, "iq4_w", _iq4_xs), "MXFP4": Repacked(17, BLOCK, "e2m1_w", _mxfp4),
    "NVFP4": Repacked(36, 64, "e2m1_w16", _nvfp4),
    "TQ1_0": Repacked(54, SUPER, "ternary", _tq1_0), "TQ2_0": Repacked(66, SUPER, "ternary", _tq2_0),
    "IQ2_XXS": Repacked(66, SUPER, "iq2_w", _lattice(
        "IQ2_XXS", "iq2_w", lambda raw: _plus_half(_fours(raw, 9, 8), 0.25))),
    "IQ2_XS": Repacked(74, SUPER, "iq2_w16", _lattice(
        "IQ2_XS", "iq2_w16", lambda raw: _plus_half(_halves_of(raw[:, 66:]), 0.25))),
    "IQ2_S": Repacked(82, SUPER, "iq2_w16", _lattice(
        "IQ2_S", "iq2_w16", lambda raw: _plus_half(_halves_of(raw[:, 74:]), 0.25))),
    "IQ3_XXS": Repacked(98, SUPER, "iq3_xxs_w", _lattice(
        "IQ3_XXS", "iq3_xxs_w", lambda raw: _plus_half(_fours(raw, 69, 4), 0.5))),
    "IQ3_S": Repacked(110, SUPER, "iq3_s_w", _lattice(
        "IQ3_S", "iq3_s_w", lambda raw: _odd(_halves_of(raw[:, 106:])))),
    "IQ1_S": Repacked(50, SUPER, "iq1_w", _lattice(
        "IQ1_S", "iq1_w", lambda raw: _odd(_threes(raw, 34, (12,)), 0.125))),
    "IQ1_M": Repacked(56, SUPER, "iq1_w16", _lattice(
        "IQ1_M", "iq1_w16", lambda raw: _odd(_threes(raw, 48, (0, 3, 6, 9)), 0.125))),
}


def repacked(rows: np.ndarray, kind: str) -> np.ndarray:
    """Rows of bytes as the file has them -> rows of bytes of the blocks they become.

    >>> from morpho.weights.gguf.repack import repacked
    >>> repacked(np.zeros((2, 3 * 144), np.uint8), "Q4_K").shape
    (2, 576)
    """
    size, values, _, function = REPACKED[kind]
    step = max(1, VALUES // max(1, rows.shape[1] // size * values))
    with np.errstate(over="ignore", invalid="ignore"):
        parts = [function(rows[start:start + step].reshape(-1, size)).reshape(len(rows[start:start + step]), -1)
                 for start in range(0, len(rows), step)]
    return np.concatenate(parts)
