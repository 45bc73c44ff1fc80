"""expects: compute
remedy: narrower dtypes where the machine has them; nothing else without another network

Scores a night's camera images with a network that came as an ONNX file.

The file is made here, so that the script stands alone; usually somebody else trained it.
"""

import tempfile
from pathlib import Path

import numpy as np

import morpho as mo
from morpho import nn

SIZE, BATCH, BATCHES = 96, 16, 30


def export(path: Path) -> None:
    """The network as the other team would send it."""
    nn.seed(3)
    network = nn.Sequential(
        nn.Conv2d(3, 64, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128 * 24 * 24, 5),
    ).eval()
    mo.onnx.save(network, path, mo.zeros((BATCH, 3, SIZE, SIZE)), input_names=["images"])


def nights_images(seed: int):
    """Batches of images as a camera writes them: bytes, to be scaled to 0..1."""
    rng = np.random.default_rng(seed)
    for _ in range(BATCHES):
        raw = rng.integers(0, 256, (BATCH, 3, SIZE, SIZE), dtype=np.uint8)
        yield raw.astype(np.float32) / 255


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wildlife.onnx"
        export(path)
        network = mo.onnx.load(path)
        counts = np.zeros(5, dtype=int)
        for images in nights_images(seed=11):
            logits = network(images).numpy()
            counts += np.bincount(logits.argmax(axis=1), minlength=5)
    for name, count in zip(("deer", "boar", "fox", "badger", "nothing"), counts, strict=True):
        print(f"{name:8s} {count}")


if __name__ == "__main__":
    main()
