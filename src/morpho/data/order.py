"""A shuffled order that is never stored: position i of a permutation is computed from i, the seed and the epoch alone.

The bits of an index are halved and mixed in rounds (a Feistel network), which is one-to-one on a power of four; what
falls outside the range is sent through again until it falls inside.
"""

from __future__ import annotations

import numpy as np

ROUNDS = 6
MASK = (1 << 64) - 1


def _mixed(x: np.ndarray) -> np.ndarray:
    """64 bits in, 64 thoroughly mixed bits out (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def permuted(positions: np.ndarray, count: int, seed: int, epoch: int = 0) -> np.ndarray:
    """Where a shuffle of `range(count)` has put each of some positions.

    >>> sorted(mo.data.permuted(np.arange(5), 5, seed=1).tolist())
    [0, 1, 2, 3, 4]
    """
    if count < 2:
        return np.zeros_like(positions)
    bits = np.uint64(max((count - 1).bit_length() + 1, 2) // 2)  # of a half
    low = np.uint64((1 << int(bits)) - 1)
    keys = _mixed(np.array([(seed * 0x9E3779B97F4A7C15 + epoch * 0xD1342543DE82EF95 + r * 0xA0761D6478BD642F) & MASK
                            for r in range(1, ROUNDS + 1)], np.uint64))
    values = np.asarray(positions).astype(np.uint64)
    outside = np.ones(values.shape, bool)
    while outside.any():
        left, right = values[outside] >> bits, values[outside] & low
        for key in keys:
            left, right = right, left ^ (_mixed(right + key) & low)
        values[outside] = (left << bits) | right
        outside &= values >= count
    return values.astype(np.int64)


def _bits(count: int, seed: int, epoch: int, stream: int = 0) -> np.ndarray:
    """64 random bits for each of some numbers, from the seed, the epoch and the number alone."""
    start = (seed * 0x9E3779B97F4A7C15 + epoch * 0xD1342543DE82EF95 + stream * 0xA0761D6478BD642F + 1) & MASK
    key = _mixed(np.array([start], np.uint64))
    return _mixed(_mixed(np.arange(count, dtype=np.uint64) + key) + key)


def drawn(count: int, below: int, seed: int, epoch: int = 0) -> np.ndarray:
    """`count` numbers of `range(below)`, each drawn anew; position i depends on i, the seed and the epoch alone.

    >>> mo.data.order.drawn(3, 10, seed=1).shape
    (3,)
    """
    return np.minimum((uniform(count, seed, epoch) * below).astype(np.int64), below - 1)


def uniform(count: int, seed: int, epoch: int = 0) -> np.ndarray:
    """Numbers evenly in [0, 1), 53 random bits each."""
    return (_bits(count, seed, epoch) >> np.uint64(11)).astype(np.float64) / float(1 << 53)
