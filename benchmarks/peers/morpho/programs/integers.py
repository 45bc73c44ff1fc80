"""Integers."""

from __future__ import annotations

import morpho as mo


def crc16(data):
    def byte(crc, value):
        crc = crc ^ value
        for _ in range(8):
            half = crc >> 1
            crc = mo.where((crc & 1) == 1, half ^ 0x8408, half)
        return crc, None

    return mo.scan(byte, mo.asarray(0xFFFF, dtype=mo.int32), data)[0]


def life(board, steps):
    def step(i, board):
        rows = board + mo.roll(board, 1, axis=0) + mo.roll(board, -1, axis=0)
        count = rows + mo.roll(rows, 1, axis=1) + mo.roll(rows, -1, axis=1)
        return ((count == 3) | ((count == 4) & (board == 1))).astype(board.dtype)

    return mo.fori_loop(0, steps, step, board)


def compute(a, b):
    return mo.clip(a, 2, 10) * 5 + b * 3 + 9


def nussinov(bases):
    """A row at a time: as soon as the best of a place is known, it is tried as the left part of all places behind."""
    n = bases.shape[0]
    index = mo.arange(n)

    def row(step, pairs):
        i = n - 2 - step
        inner = mo.concat([mo.zeros(1, dtype=mo.int32), pairs[i + 1][:-1]])
        best = mo.where(index > i, inner + ((i < index - 1) & (bases[i] + bases == 3)).astype(mo.int32), 0)

        def split(k, best):
            return mo.where(index > k, mo.maximum(best, best[k] + pairs[k + 1]), best)

        pairs[i] = mo.fori_loop(0, n - 1, split, best)  # there is nothing to add before i
        return pairs

    return mo.fori_loop(0, n - 1, row, mo.zeros((n, n), dtype=mo.int32))


def collatz(start, steps):
    def step(i, carry):
        start, count = carry
        going = start > 1
        new = mo.where(going, mo.where(start % 2 == 0, start // 2, 3 * start + 1), start)
        return new, count + going.astype(count.dtype)

    return mo.fori_loop(0, steps, step, (start, mo.zeros_like(start)))


FUNCTIONS = (crc16, life, compute, nussinov, collatz)
