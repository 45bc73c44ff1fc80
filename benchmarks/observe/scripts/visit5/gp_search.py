"""expects: recompiles
remedy: `dynamic=`, or arrays padded to the last size

Bayesian optimisation of a reactor's yield: a Gaussian process over the runs made so far says where to try next.
"""

import numpy as np

import morpho as mo

RUNS, CANDIDATES, LENGTH_SCALE, NOISE = 18, 400, 0.3, 1e-3


def yield_of(point: np.ndarray) -> float:
    """The experiment: temperature and flow, both scaled to 0..1."""
    a, b = point
    return float(np.sin(5 * a) * (1 - b) + 0.6 * np.exp(-30 * ((a - 0.7) ** 2 + (b - 0.3) ** 2)))


def kernel(x, y):
    square = ((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=-1)
    return mo.exp(-square / (2 * LENGTH_SCALE**2))


@mo.compile
def posterior(tried, results, candidates):
    """Mean and standard deviation at the candidates."""
    covariance = kernel(tried, tried) + NOISE * mo.eye(tried.shape[0], dtype="float64")
    across = kernel(tried, candidates)
    weights = mo.linalg.solve(covariance, across)
    mean = (weights * results[:, None]).sum(axis=0)
    variance = 1.0 - (weights * across).sum(axis=0)
    return mean, mo.sqrt(mo.maximum(variance, 1e-9))


def main() -> None:
    rng = np.random.default_rng(31)
    tried = rng.random((3, 2))
    results = np.array([yield_of(point) for point in tried])
    for run in range(RUNS):
        candidates = rng.random((CANDIDATES, 2))
        mean, spread = posterior(tried, results, candidates)
        bound = mean.numpy() + 2.0 * spread.numpy()
        chosen = candidates[bound.argmax()]
        tried = np.vstack([tried, chosen])
        results = np.append(results, yield_of(chosen))
        if run % 8 == 7:
            print(f"run {run + 1}: best yield so far {results.max():.4f} at {tried[results.argmax()].round(3)}")
    print(f"{len(results)} runs, best {results.max():.4f}")


if __name__ == "__main__":
    main()
