"""expects: python
remedy: the loop itself in a compiled function (`mo.fori_loop`, `mo.scan`), or many chains at once

Metropolis sampling of a dose-response curve: the posterior of slope and threshold of 120 trials.
"""

import numpy as np

import morpho as mo

STEPS, BURN_IN = 60_000, 5_000


def trials(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    dose = rng.uniform(0.0, 4.0, 120).astype(np.float32)
    answered = rng.random(120) < 1 / (1 + np.exp(-2.2 * (dose - 1.7)))
    return dose, answered.astype(np.float32)


DOSE, ANSWERED = (mo.asarray(part) for part in trials(seed=8))


@mo.compile
def log_posterior(parameters):
    """Bernoulli likelihood of the trials, wide normal priors."""
    logits = parameters[0] * (DOSE - parameters[1])
    likelihood = (ANSWERED * logits - mo.softplus(logits)).sum()
    return likelihood - (parameters**2).sum() / 50.0


def sample(seed: int) -> tuple[np.ndarray, float]:
    rng = np.random.default_rng(seed)
    here = np.array([1.0, 1.0], dtype=np.float32)
    value = log_posterior(here).item()
    chain, accepted = np.empty((STEPS, 2), np.float32), 0
    for step in range(STEPS):
        there = here + rng.normal(0.0, 0.25, 2).astype(np.float32)
        proposed = log_posterior(there).item()
        if np.log(rng.random()) < proposed - value:
            here, value = there, proposed
            accepted += 1
        chain[step] = here
    return chain[BURN_IN:], accepted / STEPS


def main() -> None:
    chain, rate = sample(seed=9)
    for name, column in zip(("slope", "threshold"), chain.T, strict=True):
        low, middle, high = np.quantile(column, [0.05, 0.5, 0.95])
        print(f"{name:10s} {middle:.3f}  (90 %: {low:.3f} to {high:.3f})")
    print(f"{rate:.1%} of the proposals were accepted")


if __name__ == "__main__":
    main()
