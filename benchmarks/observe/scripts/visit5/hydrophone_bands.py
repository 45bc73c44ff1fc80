"""expects: imbalance
remedy: the bands as rows of one batch

The energy in forty-five bands of a hydrophone's recording: one resonator per band, run over the whole recording.
"""

import numpy as np

import morpho as mo

RATE, SECONDS, BANDS = 16_000, 600, 45


def recording(seed: int) -> np.ndarray:
    """Sea noise with a ship at 180 Hz."""
    rng = np.random.default_rng(seed)
    samples = rng.standard_normal(RATE * SECONDS, dtype=np.float32)
    samples += 0.3 * np.sin(np.arange(samples.size, dtype=np.float32) * np.float32(2 * np.pi * 180 / RATE))
    return samples


def resonator(frequency: float, quality: float = 12.0) -> np.ndarray:
    """Coefficients b0, b2, a1, a2 of a band pass, the b1 of which is 0."""
    omega = 2 * np.pi * frequency / RATE
    alpha = np.sin(omega) / (2 * quality)
    parts = np.array([alpha, -alpha, -2 * np.cos(omega), 1 - alpha])
    return (parts / (1 + alpha)).astype(np.float32)


@mo.compile
def band_energy(samples, coefficients):
    """Mean square of the filtered recording in every second."""
    b0, b2, a1, a2 = coefficients[0], coefficients[1], coefficients[2], coefficients[3]

    def turn(state, x):
        first, second = state
        y = b0 * x + first
        return (second - a1 * y, b2 * x - a2 * y), y

    _, filtered = mo.scan(turn, (mo.asarray(0.0), mo.asarray(0.0)), samples)
    return (filtered.reshape((SECONDS, RATE)) ** 2).mean(axis=1)


def main() -> None:
    samples = mo.asarray(recording(seed=2))
    centres = np.geomspace(40.0, 6000.0, BANDS)
    energy = np.empty((BANDS, SECONDS), np.float32)
    for row, centre in enumerate(centres):
        energy[row] = band_energy(samples, mo.asarray(resonator(centre))).numpy()
    loudest = energy.mean(axis=1).argmax()
    print(f"loudest band: {centres[loudest]:.0f} Hz, {10 * np.log10(energy[loudest].mean()):.1f} dB")


if __name__ == "__main__":
    main()
