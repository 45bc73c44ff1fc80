"""expects: host
remedy: a length that is known (pad to one or a few sizes)

The loudest frequency of every bat call in a night of recordings; each call has its own length.
"""

import numpy as np

import morpho as mo

CALLS, RATE = 420, 250_000

length = mo.Dim("length", 1, 400_000)


def loudest(call):
    """Index and share of the strongest line of the spectrum, and the call's energy."""
    centred = call - call.mean()
    power = mo.abs(mo.fft.fft(centred)) ** 2
    return mo.argmax(power), mo.max(power) / mo.sum(power), (centred**2).mean()


measure = mo.compile(loudest, dynamic={"call": {0: length}})


def night(seed: int):
    """Calls cut out of one long recording, as the detector marked them."""
    rng = np.random.default_rng(seed)
    sound = rng.standard_normal(2_000_000, dtype=np.float32)
    sound += np.sin(np.arange(sound.size, dtype=np.float32) * np.float32(2 * np.pi * 45_000 / RATE))
    for _ in range(CALLS):
        size = int(rng.integers(60_000, 300_000))
        start = int(rng.integers(0, sound.size - size))
        yield sound[start:start + size]


def main() -> None:
    frequencies, shares = [], []
    for call in night(seed=41):
        index, share, energy = measure(call)
        line = index.item()
        frequencies.append(min(line, call.size - line) * RATE / call.size)
        shares.append(share.item())
    print(f"{len(frequencies)} calls, median {np.median(frequencies) / 1e3:.2f} kHz, "
          f"strongest line {np.mean(shares):.1%} of the power")


if __name__ == "__main__":
    main()
