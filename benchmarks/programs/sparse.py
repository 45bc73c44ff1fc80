"""5. Sparse-like programs: gathers and sums by index over lists of entries, edges and neighbours.

    morpho bench programs --only sparse
"""

from __future__ import annotations

import numpy as np

from benchmarks.harness.results import ThemeResult
from benchmarks.harness.session import Session
from benchmarks.programs.board import measure
from benchmarks.programs.program import Arrays, Program, table

Array = np.ndarray


def spmv(values: Array, rows: Array, columns: Array, x: Array) -> Array:
    """A sparse matrix, entries sorted by row, times a vector of as many elements as it has rows."""
    return np.bincount(rows, values * x[columns], len(x))


def conjugate_gradients(values: Array, rows: Array, columns: Array, b: Array, steps: int) -> tuple[Array, Array]:
    """A sparse system by conjugate gradients; the solution and the squared residual after each step."""
    x, r = np.zeros_like(b), b.copy()
    p, rr = r, r @ r
    found = np.empty(steps)
    for t in range(steps):
        q = spmv(values, rows, columns, p)
        alpha = rr / (p @ q)
        x, r = x + alpha * p, r - alpha * q
        new = found[t] = r @ r
        p, rr = r + new / rr * p, new
    return x, found


def mesh(state: Array, first: Array, second: Array, area: Array, steps: int) -> Array:
    """Diffusion on an unstructured mesh: what flows through each edge leaves one cell and enters another."""
    for _ in range(steps):
        flow = area * (state[first] - state[second])
        state = state - np.bincount(first, flow, len(state)) + np.bincount(second, flow, len(state))
    return state


def pagerank(rows: Array, columns: Array, share: Array, steps: int) -> Array:
    """The ranks of linked pages: most of a page's goes to those it links to, the rest to all."""
    n = len(share)
    rank = np.full(n, 1 / n)
    for _ in range(steps):
        rank = 0.15 / n + 0.85 * np.bincount(rows, (rank * share)[columns], n)
    return rank


def sparse_inputs(rng: np.random.Generator, n: int, each: int) -> Arrays:
    """A matrix with `each` entries in every row."""
    return {"values": rng.random(n * each), "rows": np.repeat(np.arange(n), each),
            "columns": rng.integers(0, n, n * each), "x": rng.random(n)}


def poisson_inputs(rng: np.random.Generator, n: int) -> Arrays:
    """The five-point Laplacian of an n x n grid, entries sorted by row."""
    cells = np.arange(n * n).reshape(n, n)
    pairs = [(cells.ravel(), cells.ravel(), 4.0)]
    for one, other in ((cells[1:], cells[:-1]), (cells[:, 1:], cells[:, :-1])):
        pairs += [(one.ravel(), other.ravel(), -1.0), (other.ravel(), one.ravel(), -1.0)]
    rows, columns = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
    values = np.concatenate([np.full(len(pair[0]), pair[2]) for pair in pairs])
    order = np.lexsort((columns, rows))
    return {"values": values[order], "rows": rows[order], "columns": columns[order], "b": rng.random(n * n)}


def mesh_inputs(rng: np.random.Generator, n: int, edges: int) -> Arrays:
    """Cells joined at random by faces so small that nothing overshoots."""
    return {"state": rng.random(n), "first": rng.integers(0, n, edges), "second": rng.integers(0, n, edges),
            "area": 0.05 * rng.random(edges)}


def link_inputs(rng: np.random.Generator, n: int, links: int) -> Arrays:
    """Links between pages, and one over the number of each page's."""
    columns = rng.integers(0, n, links)
    return {"rows": rng.integers(0, n, links), "columns": columns,
            "share": 1 / np.maximum(np.bincount(columns, minlength=n), 1)}


PROGRAMS = table(
    Program(spmv, sparse_inputs, (20, 3), (20_000, 30)),
    Program(conjugate_gradients, poisson_inputs, (5,), (100,), {"steps": 20}, relative=1e-8),
    Program(mesh, mesh_inputs, (15, 40), (20_000, 60_000), {"steps": 10}),
    Program(pagerank, link_inputs, (15, 60), (10_000, 100_000), {"steps": 10}))


def run(session: Session) -> ThemeResult:
    """A row per program."""
    return measure("sparse", PROGRAMS, session)
