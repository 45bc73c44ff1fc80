"""7. Integers: checksums, cellular automata, clipping, dynamic programming. Answers are exact.

    morpho bench programs --only integers
"""

from __future__ import annotations

import numpy as np

from benchmarks.harness.results import ThemeResult
from benchmarks.harness.session import Session
from benchmarks.programs.board import measure
from benchmarks.programs.program import Arrays, Program, table

Array = np.ndarray
EXACT = {"relative": 0.0, "absolute": 0.25}


def crc16(data: Array) -> Array:
    """The cyclic redundancy check of CCITT (polynomial 0x1021 reflected, start 0xFFFF), bit by bit."""
    crc = 0xFFFF
    for byte in data.tolist():
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x8408 if crc & 1 else 0)
    return np.asarray(crc, np.int32)


def life(board: Array, steps: int) -> Array:
    """Conway's game on a torus."""
    for _ in range(steps):
        rows = board + np.roll(board, 1, axis=0) + np.roll(board, -1, axis=0)
        count = rows + np.roll(rows, 1, axis=1) + np.roll(rows, -1, axis=1)
        board = ((count == 3) | ((count == 4) & (board == 1))).astype(board.dtype)
    return board


def compute(a: Array, b: Array) -> Array:
    """Clip, scale, add."""
    return np.clip(a, 2, 10) * 5 + b * 3 + 9


def nussinov(bases: Array) -> Array:
    """The most pairs of bases (those whose codes add to 3) that can fold onto each other, for every stretch."""
    n = len(bases)
    pairs = np.zeros((n, n), np.int32)
    for i in range(n - 2, -1, -1):
        for j in range(i + 1, n):
            inner = pairs[i + 1, j - 1] + (i < j - 1 and bases[i] + bases[j] == 3)
            pairs[i, j] = max(inner, (pairs[i, i:j] + pairs[i + 1:j + 1, j]).max())
    return pairs


def collatz(start: Array, steps: int) -> tuple[Array, Array]:
    """Halve the even, three times plus one the odd; how many steps until 1, and where each is."""
    count = np.zeros_like(start)
    for _ in range(steps):
        going = start > 1
        start = np.where(going, np.where(start % 2 == 0, start // 2, 3 * start + 1), start)
        count = count + going
    return start, count


def board_inputs(rng: np.random.Generator, n: int, m: int) -> Arrays:
    """Cells, a third of them alive."""
    return {"board": (rng.random((n, m)) < 0.33).astype(np.uint8)}


PROGRAMS = table(
    Program(crc16, lambda rng, n: {"data": rng.integers(0, 256, n, dtype=np.int32)}, (20,), (8000,), **EXACT),
    Program(life, board_inputs, (9, 12), (400, 400), {"steps": 20}, **EXACT),
    Program(compute, lambda rng, n, m: {"a": rng.integers(0, 1000, (n, m)), "b": rng.integers(0, 1000, (n, m))},
            (9, 12), (1000, 1000), **EXACT),
    Program(nussinov, lambda rng, n: {"bases": rng.integers(0, 4, n, dtype=np.int32)}, (12,), (90,), **EXACT),
    Program(collatz, lambda rng, n: {"start": rng.integers(1, 10_000, n)}, (30,), (20_000,), {"steps": 40}, **EXACT))


def run(session: Session) -> ThemeResult:
    """A row per program."""
    return measure("integers", PROGRAMS, session)
