"""expects: imbalance
remedy: that row by itself (it is dense), or cut into several

How often each word appears under different weightings of the documents: words x documents, a sparse matrix.

The first row is the word "the", which nearly every document has; the others are rare.
"""

import numpy as np

import morpho as mo

DOCUMENTS, WORDS, RARE, WEIGHTINGS, ROUNDS = 3_000_000, 4_000, 60, 8, 100


def matrix(seed: int) -> "mo.sparse.CSR":
    rng = np.random.default_rng(seed)
    common = np.arange(DOCUMENTS, dtype=np.int32)
    rare = np.sort(rng.integers(0, DOCUMENTS // RARE, (WORDS - 1, RARE)), axis=1)
    rare = (rare % (DOCUMENTS // RARE) + np.arange(RARE) * (DOCUMENTS // RARE)).astype(np.int32)  # distinct, in order
    indices = np.concatenate([common, rare.ravel()])
    starts = np.concatenate([[0], DOCUMENTS + RARE * np.arange(WORDS)]).astype(np.int32)
    return mo.sparse.csr(np.ones(indices.size, np.float32), indices, starts, (WORDS, DOCUMENTS))


@mo.compile
def weighted_counts(counts, weights):
    """Counts of all words for each column of weights, damped as a logarithm."""
    return mo.log1p(counts @ weights)


def main() -> None:
    counts = matrix(seed=12)
    rng = np.random.default_rng(13)
    weights = mo.asarray(rng.random((DOCUMENTS, WEIGHTINGS), dtype=np.float32))
    change = []
    last = np.zeros((WORDS, WEIGHTINGS), np.float32)
    for round_number in range(ROUNDS):
        now = weighted_counts(counts, weights).numpy()
        change.append(float(np.abs(now - last).max()))
        last = now * (1 - 1 / (round_number + 2))
    print(f"{counts}: the commonest word counts {now[0].mean():.2f}, the others {now[1:].mean():.2f}")
    print(f"largest change in the last round {change[-1]:.3f}")


if __name__ == "__main__":
    main()
