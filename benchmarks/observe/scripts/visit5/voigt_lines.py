"""expects: host
remedy: native operations: a composition or an emitter

Fits the widths of six absorption lines; the profile is SciPy's, plugged in as an operation.
"""

import numpy as np
from scipy import special

import morpho as mo

POINTS, ROUNDS = 120_000, 7

voigt = mo.extend.op("voigt", reference=special.voigt_profile, native=False)

CENTRES = [656.1, 657.4, 658.3, 660.0, 661.2, 662.9]


@mo.compile
def misfit(wavelengths, spectrum, sigma, gamma, depths):
    """Mean squared difference between the spectrum and continuum minus lines."""
    model = mo.ones_like(wavelengths)
    for line, centre in enumerate(CENTRES):
        offset = wavelengths - centre
        model = model - depths[line] * voigt(offset, mo.broadcast_to(sigma, offset.shape),
                                             mo.broadcast_to(gamma, offset.shape))
    return mo.mean((spectrum - model) ** 2)


def observed(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    wavelengths = np.linspace(655.0, 664.0, POINTS)
    lines = sum(0.12 * special.voigt_profile(wavelengths - centre, 0.11, 0.06) for centre in CENTRES)
    return wavelengths, 1 - lines + rng.normal(0, 0.01, POINTS)


def main() -> None:
    wavelengths, spectrum = (mo.asarray(part) for part in observed(seed=51))
    depths = mo.asarray(np.full(len(CENTRES), 0.12))
    widths = np.array([0.2, 0.02])
    stride = np.array([0.08, 0.02])
    best = misfit(wavelengths, spectrum, *(mo.asarray(width) for width in widths), depths).item()
    for _ in range(ROUNDS):
        for axis in (0, 1):
            for sign in (-1.0, 1.0):
                tried = widths.copy()
                tried[axis] = max(tried[axis] + sign * stride[axis], 1e-3)
                value = misfit(wavelengths, spectrum, *(mo.asarray(width) for width in tried), depths).item()
                if value < best:
                    best, widths = value, tried
        stride *= 0.8
    print(f"sigma {widths[0]:.4f}, gamma {widths[1]:.4f}, misfit {best:.3e}")


if __name__ == "__main__":
    main()
