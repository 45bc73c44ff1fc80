"""A digits classifier: data loader, compiled training step, test accuracy above 98 % in seconds.

    python examples/14_digits.py

The digits are drawn here and not downloaded: figures of 3 x 5 dots, twice as large, somewhere in 12 x 12 noisy pixels.
"""

import time

import numpy as np

import morpho as mo
from morpho import nn

FONT = "75557 26227 71747 71717 55711 74717 74757 71111 75757 75717"  # five rows a digit, three bits a row
rng = np.random.default_rng(0)


def draw(count):
    """Noisy images (count, 144) and which digit each shows."""
    glyphs = [np.kron([[int(row) >> bit & 1 for bit in (2, 1, 0)] for row in rows], np.ones((2, 2)))
              for rows in FONT.split()]
    labels = rng.integers(0, 10, count)
    images = rng.normal(0, 0.25, (count, 12, 12)).astype(np.float32)
    for image, label in zip(images, labels):
        top, left = rng.integers(0, 3), rng.integers(0, 7)
        image[top:top + 10, left:left + 6] += glyphs[label]
    return images.reshape(count, 144), labels


nn.seed(0)
model = nn.Sequential(nn.Linear(144, 128), nn.ReLU(), nn.Linear(128, 10))
opt = mo.optim.AdamW(model.parameters(), lr=3e-3)
print(model.summary((125, 144)))


@mo.compile  # forward, backward and the update of all parameters: one native function
def step(images, labels):
    loss = mo.cross_entropy(model(images), labels)
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss


loader = mo.data.DataLoader(mo.data.TensorDataset(*draw(10_000)), batch_size=125, shuffle=True)
images, labels = draw(2000)
started = time.perf_counter()
for epoch in range(10):
    losses = [step(*batch) for batch in loader]
    accuracy = mo.count_nonzero(model(images).argmax(axis=-1) == labels).item() / len(labels)
    print(f"epoch {epoch}: loss {np.mean([loss.item() for loss in losses]):.4f}, right {accuracy:.2%}")
print(f"{time.perf_counter() - started:.1f} s, compiled {1 + step.stats['recompiles']} time")
assert accuracy > 0.98
