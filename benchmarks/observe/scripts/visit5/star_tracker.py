"""expects: transfers
remedy: the window cut from the NumPy array, the array as an argument, or `copy=False`

Follows one star through a night of frames: background, flux and centroid in a small window of each frame.
"""

import numpy as np

import morpho as mo

HEIGHT, WIDTH, FRAMES, HALF = 3000, 4200, 260, 24


def camera(seed: int):
    """Full frames as the driver hands them over: the same few buffers, filled in turn."""
    rng = np.random.default_rng(seed)
    buffers = [rng.random((HEIGHT, WIDTH), dtype=np.float32) for _ in range(3)]
    for number in range(FRAMES):
        frame = buffers[number % len(buffers)]
        row, column = 1500 + number // 8, 2100 + number // 5
        frame[row - 3:row + 4, column - 3:column + 4] = 40.0
        yield row, column, frame


@mo.compile
def photometry(window):
    """Flux above the background, and the centroid within the window."""
    background = mo.mean(window[:6, :])
    light = mo.maximum(window - background, 0.0)
    flux = light.sum()
    places = mo.arange(2 * HALF, dtype="float32")
    return flux, (light.sum(axis=1) * places).sum() / flux, (light.sum(axis=0) * places).sum() / flux


def main() -> None:
    fluxes, drift = [], []
    for row, column, frame in camera(seed=61):
        image = mo.asarray(frame)
        window = image[row - HALF:row + HALF, column - HALF:column + HALF]
        flux, down, right = photometry(window)
        fluxes.append(flux.item())
        drift.append((down.item() - HALF, right.item() - HALF))
    print(f"{len(fluxes)} frames, flux {np.mean(fluxes):.1f} +- {np.std(fluxes):.2f}, "
          f"mean offset {np.mean(drift, axis=0).round(3)}")


if __name__ == "__main__":
    main()
