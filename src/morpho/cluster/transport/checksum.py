"""The checksum of frames: their words of 64 bits times odd weights, added modulo 2**64.

An odd weight has an inverse, so that any change of one word changes the sum; two words that change places do too, as
weights differ. It is what NumPy does at the speed of memory: a CRC of 16 KiB took longer than the message itself.

>>> import numpy as np
>>> frame = np.arange(64, dtype=np.uint8)
>>> other = frame.copy(); other[3] ^= 1
>>> checksum(frame) == checksum(frame.copy()), checksum(frame) == checksum(other)
(True, False)
"""

from __future__ import annotations

import numpy as np

BLOCK = 8192  # words that have weights of their own; a block's sum is multiplied by one of the block's
WORD = 8
WRAP = 1 << 64


def _weights(count: int) -> np.ndarray:
    """Odd numbers without a pattern (splitmix64), the same everywhere."""
    state = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (state ^ (state >> np.uint64(31))) | np.uint64(1)


WEIGHTS = _weights(BLOCK)


def checksum(raw: np.ndarray) -> int:
    """Of bytes, any number of them."""
    count = raw.size // WORD
    words = raw[:count * WORD].view(np.uint64)
    if count <= BLOCK:
        total = int(np.dot(words, WEIGHTS[:count]))
    else:
        parts = [words[at:at + BLOCK] for at in range(0, count, BLOCK)]
        total = sum(int(np.dot(part, WEIGHTS[:part.size])) * (int(WEIGHTS[block % BLOCK]) if block else 1)
                    for block, part in enumerate(parts))
    if raw.size % WORD:
        total += int.from_bytes(raw[count * WORD:].tobytes(), "little") * int(WEIGHTS[count % BLOCK])
    return total % WRAP


def folded(total: int) -> int:
    """A sum as the 32 bits that a header has room for.

    >>> hex(folded(0x1234567800000001))
    '0x12345679'
    """
    return (total ^ (total >> 32)) & 0xFFFFFFFF
