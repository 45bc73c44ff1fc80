"""Gathers, and sums by index."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jax.ops import segment_sum


def spmv(values, rows, columns, x):
    return segment_sum(values * x[columns], rows, len(x), indices_are_sorted=True)


def conjugate_gradients(values, rows, columns, b, steps):
    def step(carry, _):
        x, r, p, rr = carry
        q = spmv(values, rows, columns, p)
        alpha = rr / (p @ q)
        x, r = x + alpha * p, r - alpha * q
        new = r @ r
        return (x, r, r + new / rr * p, new), new

    carry, found = lax.scan(step, (jnp.zeros_like(b), b, b, b @ b), length=steps)
    return carry[0], found


def mesh(state, first, second, area, steps):
    n = len(state)

    def step(i, state):
        flow = area * (state[first] - state[second])
        return state - segment_sum(flow, first, n) + segment_sum(flow, second, n)

    return lax.fori_loop(0, steps, step, state)


def pagerank(rows, columns, share, steps):
    n = len(share)
    return lax.fori_loop(0, steps, lambda i, rank: 0.15 / n + 0.85 * segment_sum((rank * share)[columns], rows, n),
                         jnp.full(n, 1 / n))


FUNCTIONS = (spmv, conjugate_gradients, mesh, pagerank)
