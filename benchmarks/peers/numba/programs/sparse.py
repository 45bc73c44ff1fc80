"""Gathers, and sums by index."""

from __future__ import annotations

import numpy as np


def spmv(values, rows, columns, x):
    y = np.zeros_like(x)
    for entry in range(len(values)):
        y[rows[entry]] += values[entry] * x[columns[entry]]
    return y


def conjugate_gradients(values, rows, columns, b, steps):
    n = len(b)
    x, r, p, q = np.zeros(n), b.copy(), b.copy(), np.zeros(n)
    found = np.empty(steps)
    rr = 0.0
    for i in range(n):
        rr += r[i] * r[i]
    for t in range(steps):
        q[:] = 0.0
        for entry in range(len(values)):
            q[rows[entry]] += values[entry] * p[columns[entry]]
        pq = 0.0
        for i in range(n):
            pq += p[i] * q[i]
        alpha = rr / pq
        new = 0.0
        for i in range(n):
            x[i] += alpha * p[i]
            r[i] -= alpha * q[i]
            new += r[i] * r[i]
        for i in range(n):
            p[i] = r[i] + new / rr * p[i]
        rr = found[t] = new
    return x, found


def mesh(state, first, second, area, steps):
    state = state.copy()
    change = np.zeros_like(state)
    for _ in range(steps):
        change[:] = 0.0
        for edge in range(len(area)):
            flow = area[edge] * (state[first[edge]] - state[second[edge]])
            change[first[edge]] -= flow
            change[second[edge]] += flow
        for i in range(len(state)):
            state[i] += change[i]
    return state


def pagerank(rows, columns, share, steps):
    n = len(share)
    rank, new = np.full(n, 1 / n), np.zeros(n)
    for _ in range(steps):
        for i in range(n):
            rank[i] *= share[i]
            new[i] = 0.0
        for link in range(len(rows)):
            new[rows[link]] += rank[columns[link]]
        for i in range(n):
            rank[i] = 0.15 / n + 0.85 * new[i]
    return rank


FUNCTIONS = (spmv, conjugate_gradients, mesh, pagerank)
