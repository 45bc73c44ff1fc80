"""expects: data
remedy: `num_workers`

Trains on satellite patches that lie in an object store: each patch is a request of its own.
"""

import time

import numpy as np

import morpho as mo
from morpho import nn

PATCHES, SIZE, BATCH, EPOCHS = 640, 16, 16, 4


class Store:
    """Stands in for the bucket: a few milliseconds to the first byte, then the patch."""

    def __init__(self, seed: int):
        rng = np.random.default_rng(seed)
        self.pixels = rng.random((PATCHES, 3, SIZE, SIZE), dtype=np.float32)
        self.water = (self.pixels[:, 2].mean(axis=(1, 2)) > 0.5).astype(np.int64)

    def get(self, key: int) -> tuple[np.ndarray, int]:
        time.sleep(0.004)
        return self.pixels[key], int(self.water[key])


class Patches(mo.data.Dataset):
    def __init__(self, store: Store):
        self.store = store

    def __len__(self) -> int:
        return PATCHES

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        pixels, water = self.store.get(int(index))
        return pixels - 0.5, water


nn.seed(81)
model = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, 128), nn.GELU(), nn.Linear(128, 2))
optimizer = mo.optim.AdamW(model.parameters(), lr=2e-3)
criterion = nn.CrossEntropyLoss()


@mo.compile
def step(pixels, water):
    loss = criterion(model(pixels), water)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def main() -> None:
    loader = mo.data.DataLoader(Patches(Store(seed=82)), batch_size=BATCH, shuffle=True, seed=1)
    for epoch in range(EPOCHS):
        losses = [step(pixels, water).item() for pixels, water in loader]
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}")


if __name__ == "__main__":
    main()
