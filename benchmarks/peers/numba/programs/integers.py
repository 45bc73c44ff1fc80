"""Integers."""

from __future__ import annotations

import numpy as np
from numba import prange


def crc16(data):
    crc = 0xFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x8408 * (crc & 1))
    return crc


def life(board, steps):
    n, m = board.shape
    board, new = board.copy(), np.empty_like(board)
    for _ in range(steps):
        for i in prange(n):
            up, down = (i - 1) % n, (i + 1) % n
            for j in range(m):
                left, right = j - 1 if j > 0 else m - 1, j + 1 if j < m - 1 else 0
                count = (board[up, left] + board[up, j] + board[up, right] + board[i, left] + board[i, right]
                         + board[down, left] + board[down, j] + board[down, right])
                new[i, j] = 1 if count == 3 or (count == 2 and board[i, j] == 1) else 0
        board, new = new, board
    return board


def compute(a, b):
    out = np.empty_like(a)
    for i in prange(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, j] = min(max(a[i, j], 2), 10) * 5 + b[i, j] * 3 + 9
    return out


def nussinov(bases):
    n = len(bases)
    pairs = np.zeros((n, n), np.int32)
    for i in range(n - 2, -1, -1):
        for j in range(i + 1, n):
            pairs[i, j] = pairs[i + 1, j - 1] + (1 if i < j - 1 and bases[i] + bases[j] == 3 else 0)
        for k in range(i, n - 1):
            for j in range(k + 1, n):
                pairs[i, j] = max(pairs[i, j], pairs[i, k] + pairs[k + 1, j])
    return pairs


def collatz(start, steps):
    start, count = start.copy(), np.zeros_like(start)
    for i in prange(len(start)):
        at, turns = start[i], 0
        for _ in range(steps):
            if at <= 1:
                break
            at = at // 2 if at % 2 == 0 else 3 * at + 1
            turns += 1
        start[i], count[i] = at, turns
    return start, count


FUNCTIONS = (crc16, life, compute, nussinov, collatz)
