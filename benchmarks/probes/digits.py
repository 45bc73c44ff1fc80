"""Train a small convolutional net on digits of 8 x 8 pixels in this process, and test it.

    python -m benchmarks.probes.digits [epochs] [images]

The digits are the 1797 handwritten ones that scikit-learn holds (of the UCI repository); where that is not installed,
digits drawn from a font at other places, in other strengths and in noise, which are an easier task: the answer says
which. A quarter is for testing and is never trained on.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

SEED, BATCH, EPOCHS = 3, 64, 25
FONT = ("75557", "26227", "71747", "71717", "55711", "74717", "74757", "71122", "75757", "75717")  # rows of 3 bits


def handwritten() -> tuple[np.ndarray, np.ndarray, str] | None:
    """scikit-learn's digits, 0 to 1; None where it is not installed."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        return None
    found = load_digits()
    return (found.images / 16).astype(np.float32), found.target.astype(np.int64), "handwritten (scikit-learn)"


def drawn(count: int = 1797) -> tuple[np.ndarray, np.ndarray, str]:
    """Digits of 5 x 3 points at random places of 8 x 8 pixels, faint or strong, in noise."""
    rng = np.random.default_rng(SEED)
    glyphs = np.array([[[int(row) >> bit & 1 for bit in (2, 1, 0)] for row in glyph] for glyph in FONT], np.float32)
    classes = rng.integers(0, 10, count)
    images = rng.normal(0, 0.1, (count, 8, 8)).astype(np.float32)
    for image, digit in zip(images, classes, strict=True):
        top, left = rng.integers(1, 3), rng.integers(1, 5)
        image[top:top + 5, left:left + 3] += glyphs[digit] * rng.uniform(0.6, 1, (5, 3))
    return images, classes, "drawn from a font (scikit-learn is not installed)"


def shifted(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each image moved by up to one pixel: what training sees; (batch, 8, 8)."""
    wide = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    places = rng.integers(0, 3, (len(images), 2))
    return np.stack([image[row:row + 8, column:column + 8] for image, (row, column) in zip(wide, places, strict=True)])


def train(images: np.ndarray, classes: np.ndarray, epochs: int) -> dict[str, Any]:
    """A fixed number of epochs, then the test images are looked at once."""
    import morpho as mo

    rng = np.random.default_rng(SEED)
    order = rng.permutation(len(images))
    test, rest = np.split(order, [len(order) // 4])
    mo.nn.seed(SEED)
    model = mo.models.create("cnn", size=8, widths=[32, 64], hidden=128, dropout=0.2)
    batches = len(rest) // BATCH
    opt = mo.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-2)
    schedule = mo.optim.WarmupCosineLR(opt, warmup_iters=batches, total_iters=epochs * batches)

    @mo.compile
    def step(x: mo.Tensor, y: mo.Tensor) -> mo.Tensor:
        loss = mo.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    started = time.perf_counter()
    for _ in range(epochs):
        numbers = rng.permutation(rest)[:batches * BATCH].reshape(batches, BATCH)
        for batch in numbers:
            step(mo.asarray(shifted(images[batch], rng)[:, None]), mo.asarray(classes[batch]))
            schedule.step()
    model.eval()
    guessed = mo.compile(lambda x: mo.argmax(model(x), axis=-1))(mo.asarray(images[test][:, None])).numpy()
    seconds = time.perf_counter() - started
    return {"accuracy": float(np.mean(guessed == classes[test])), "tested": len(test), "trained": len(rest),
            "seconds": seconds, "epochs": epochs, "steps": epochs * batches}


def main(epochs: int, images: int) -> None:
    """Print the accuracy on the test images, and the seconds with compiling and testing."""
    pictures, classes, source = handwritten() or drawn()
    print(json.dumps({"source": source, **train(pictures[:images], classes[:images], epochs)}))


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(*(given + [EPOCHS, 1797][len(given):]))
