"""expects: compute
remedy: the distances do not depend on the width: compute them once

A Parzen classifier for digits: which width of the kernel classifies held-out images best.

The score of a class is the sum of Gaussian kernels over its training images.
"""

import numpy as np

import morpho as mo

TRAIN, HELD_OUT, PIXELS, CLASSES = 16_000, 4_000, 784, 10


def made_up_digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images around one template per class, with a lot of noise."""
    templates = np.random.default_rng(0).random((CLASSES, PIXELS), dtype=np.float32)
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    return templates[labels] + rng.standard_normal((count, PIXELS), dtype=np.float32), labels


@mo.compile
def class_scores(images, stored, classes, gamma):
    """Gaussian kernels of all pairs, added up by class."""
    squares = (images**2).sum(axis=1)[:, None] + (stored**2).sum(axis=1)[None, :]
    distances = squares - 2 * (images @ stored.T)
    return mo.exp(-gamma * distances / PIXELS) @ classes


def main() -> None:
    stored, stored_labels = made_up_digits(TRAIN, seed=1)
    images, labels = made_up_digits(HELD_OUT, seed=2)
    classes = np.eye(CLASSES, dtype=np.float32)[stored_labels]
    stored, images, classes = mo.asarray(stored), mo.asarray(images), mo.asarray(classes)

    best = (0.0, 0.0)
    for gamma in np.geomspace(0.5, 64.0, 7):
        scores = class_scores(images, stored, classes, mo.asarray(np.float32(gamma)))
        right = float((scores.numpy().argmax(axis=1) == labels).mean())
        print(f"gamma {gamma:7.3f}: {right:.1%} right")
        best = max(best, (right, gamma))
    print(f"best: gamma {best[1]:.3f} with {best[0]:.1%}")


if __name__ == "__main__":
    main()
