"""expects: data
remedy: `num_workers`

Trains a small network on tomograms that are kept compressed in memory and unpacked as they are needed.
"""

import zlib

import numpy as np

import morpho as mo
from morpho import nn

VOLUMES, EDGE, BATCH, EPOCHS = 48, 72, 8, 20


def packed(seed: int) -> list[tuple[bytes, int]]:
    """Volumes with or without a bright ball in them, as compressed int16."""
    rng = np.random.default_rng(seed)
    grid = np.indices((EDGE, EDGE, EDGE), dtype=np.float32) - EDGE / 2
    ball = (grid**2).sum(axis=0) < (EDGE / 5) ** 2
    volumes = []
    for number in range(VOLUMES):
        volume = rng.integers(0, 90, (EDGE, EDGE, EDGE), dtype=np.int16)
        label = number % 2
        if label:
            volume[ball] += 60
        volumes.append((zlib.compress(volume.tobytes(), 1), label))
    return volumes


class Tomograms(mo.data.Dataset):
    """Unpacks, scales and coarsens one volume."""

    def __init__(self, volumes: list[tuple[bytes, int]]):
        self.volumes = volumes

    def __len__(self) -> int:
        return len(self.volumes)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        data, label = self.volumes[int(index)]
        volume = np.frombuffer(zlib.decompress(data), np.int16).reshape(EDGE, EDGE, EDGE)
        coarse = volume[::6, ::6, ::6].astype(np.float32)
        return (coarse - 50.0) / 30.0, label


def main() -> None:
    nn.seed(91)
    model = nn.Sequential(nn.Flatten(), nn.Linear((EDGE // 6) ** 3, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = mo.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    @mo.compile
    def step(volumes, labels):
        loss = mo.cross_entropy(model(volumes), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    loader = mo.data.DataLoader(Tomograms(packed(seed=92)), batch_size=BATCH, shuffle=True, seed=2)
    for epoch in range(EPOCHS):
        losses = [step(volumes, labels).item() for volumes, labels in loader]
        if epoch % 4 == 3:
            print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}")


if __name__ == "__main__":
    main()
