"""Integers."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax


def crc16(data):
    def byte(crc, value):
        crc = crc ^ value
        for _ in range(8):
            crc = (crc >> 1) ^ (0x8408 * (crc & 1))
        return crc, None

    return lax.scan(byte, jnp.int32(0xFFFF), data)[0]


def life(board, steps):
    def step(i, board):
        rows = board + jnp.roll(board, 1, axis=0) + jnp.roll(board, -1, axis=0)
        count = rows + jnp.roll(rows, 1, axis=1) + jnp.roll(rows, -1, axis=1)
        return ((count == 3) | ((count == 4) & (board == 1))).astype(board.dtype)

    return lax.fori_loop(0, steps, step, board)


def compute(a, b):
    return jnp.clip(a, 2, 10) * 5 + b * 3 + 9


def nussinov(bases):
    n = len(bases)
    index = jnp.arange(n)

    def row(step, pairs):
        i = n - 2 - step
        inner = jnp.concatenate([jnp.zeros(1, jnp.int32), pairs[i + 1][:-1]])
        best = jnp.where(index > i, inner + ((i < index - 1) & (bases[i] + bases == 3)).astype(jnp.int32), 0)

        def split(k, best):
            return jnp.where(index > k, jnp.maximum(best, best[k] + pairs[k + 1]), best)

        return pairs.at[i].set(lax.fori_loop(i, n - 1, split, best))

    return lax.fori_loop(0, n - 1, row, jnp.zeros((n, n), jnp.int32))


def collatz(start, steps):
    def step(i, carry):
        start, count = carry
        going = start > 1
        return jnp.where(going, jnp.where(start % 2 == 0, start // 2, 3 * start + 1), start), count + going

    return lax.fori_loop(0, steps, step, (start, jnp.zeros_like(start)))


FUNCTIONS = (crc16, life, compute, nussinov, collatz)
