"""Gathers, and sums by index."""

from __future__ import annotations

import morpho as mo


def spmv(values, rows, columns, x):
    return mo.segment_sum(values * mo.take(x, columns), rows, x.shape[0])


def conjugate_gradients(values, rows, columns, b, steps):
    def step(carry, _):
        x, r, p, rr = carry
        q = spmv(values, rows, columns, p)
        alpha = rr / mo.sum(p * q)
        x, r = x + alpha * p, r - alpha * q
        new = mo.sum(r * r)
        return (x, r, r + new / rr * p, new), new

    carry, found = mo.scan(step, (mo.zeros_like(b), b, b, mo.sum(b * b)), length=steps)
    return carry[0], found


def mesh(state, first, second, area, steps):
    n = state.shape[0]

    def step(i, state):
        flow = area * (mo.take(state, first) - mo.take(state, second))
        return state - mo.segment_sum(flow, first, n) + mo.segment_sum(flow, second, n)

    return mo.fori_loop(0, steps, step, state)


def pagerank(rows, columns, share, steps):
    n = share.shape[0]
    start = mo.full(n, 1 / n, dtype=mo.float64)
    return mo.fori_loop(0, steps, lambda i, rank: 0.15 / n + 0.85 * mo.segment_sum(
        mo.take(rank * share, columns), rows, n), start)


FUNCTIONS = (spmv, conjugate_gradients, mesh, pagerank)
