"""The matrices of a case, and the check of what a peer computes.

A case is "<computation> <way>": `cholesky native` is Morpho's own in blocks, `cholesky lapack` LAPACK's, whoever calls
it; `solve refined` factorises in float32 and corrects. Shapes are (rows,). All in float64.
"""

from __future__ import annotations

import numpy as np

Arrays = dict[str, np.ndarray]
COMPUTATIONS = ("cholesky", "lu", "qr", "solve", "eig", "schur", "ldl", "sqrtm", "logm")
BOUND = 64.0  # a residual may be so many times n eps |a|


def few_rounds(n: int) -> int | None:
    """Of large matrices, so that a theme takes minutes: a round of them is long enough to be no noise."""
    return 5 if n >= 512 else None


def make_inputs(case: str, shape: tuple[int, ...]) -> Arrays:
    """A matrix, and of a solve a right side."""
    computation, rng, n = case.split()[0], np.random.default_rng(11), shape[0]
    a = rng.standard_normal((n, n))
    if computation in ("cholesky", "sqrtm", "logm"):
        a = a @ a.T / n + np.eye(n)
    if computation == "ldl":
        a = a + a.T
    return {"a": a, **({"b": rng.standard_normal(n)} if computation == "solve" else {})}


def residual(computation: str, inputs: Arrays, results: tuple[np.ndarray, ...]) -> float:
    """|a - what the factors make| as a multiple of n eps |a|; of a solve with |x|."""
    a, n = inputs["a"], len(inputs["a"])
    size = np.linalg.norm(a)
    if computation == "solve":
        x, size = results[0], size * np.linalg.norm(results[0]) + np.linalg.norm(inputs["b"])
        missed = np.linalg.norm(a @ x - inputs["b"])
    elif computation == "eig":
        missed = np.linalg.norm(a @ results[1] - results[1] * results[0])
    elif computation == "logm":  # of the exponential of what was found, by squarings of its Taylor sum
        x, missed = results[0] / 2**12, 0.0
        total = np.eye(n) + x @ (np.eye(n) + x @ (np.eye(n) / 2 + x @ (np.eye(n) / 6 + x / 24)))
        for _ in range(12):
            total = total @ total
        missed, size = np.linalg.norm(total - a), size * 2**12
    else:
        missed = np.linalg.norm(_made(computation, results) - a)
    return float(missed / (size * n * np.finfo(np.float64).eps))


def _made(computation: str, results: tuple[np.ndarray, ...]) -> np.ndarray:
    if computation == "cholesky":
        return results[0] @ results[0].T
    if computation == "sqrtm":
        return results[0] @ results[0]
    if computation == "ldl":
        outer, blocks = results
        return outer @ blocks @ outer.conj().T
    if computation == "schur":
        form, basis = results
        return basis @ form @ basis.conj().T
    return np.linalg.multi_dot(results)


def check(case: str, inputs: Arrays, results: tuple[np.ndarray, ...]) -> float:
    """The residual as a share of what is allowed; a wrong answer raises."""
    share = residual(case.split()[0], inputs, results) / BOUND
    if not share <= 1:
        raise ValueError(f"wrong result: a residual of {share * BOUND:.2g} n eps |a|")
    return share
