"""A small convolutional net with batch norm, whose running statistics become part of the convolution's kernel.

    python examples/15_convolutional_net.py

It tells discs, squares, rings and crosses apart. They are drawn here, in several sizes, on 16 x 16 noisy pixels.
"""

import numpy as np

import morpho as mo
from morpho import nn

rng = np.random.default_rng(1)


def draw(count):
    """Images (count, 1, 16, 16) and which of the four shapes each shows."""
    kinds, size = rng.integers(0, 4, count), rng.uniform(4, 6.5, (count, 1, 1))
    rows = np.arange(16)[:, None] - rng.uniform(6.5, 9, (count, 1, 1))  # from the middle of the shape
    columns = np.arange(16) - rng.uniform(6.5, 9, (count, 1, 1))
    far = np.hypot(rows, columns)
    inside = np.maximum(abs(rows), abs(columns)) < size
    shapes = [far < size, inside, (far < size) & (far > size - 1.7),
              inside & (np.minimum(abs(rows), abs(columns)) < 1.2)]
    images = np.choose(kinds[:, None, None], shapes) + rng.normal(0, 0.2, (count, 16, 16))
    return mo.asarray(images[:, None].astype(np.float32)), mo.asarray(kinds)


nn.seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),  # (n, 8, 8, 8)
    nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),  # (n, 16, 4, 4)
    nn.Flatten(), nn.Linear(256, 4))
opt = mo.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
schedule = mo.optim.CosineAnnealingLR(opt, T_max=80)


@mo.compile
def step(images, kinds):
    loss = mo.cross_entropy(model(images), kinds)
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss


for number in range(80):
    loss = step(*draw(64))
    schedule.step()
    if number % 20 == 19:
        print(f"step {number + 1}: loss {loss.item():.3f}")

model.eval()  # from here on batch norm is a factor and a shift, in the kernel of the convolution before it
predict = mo.compile(lambda images: model(images).argmax(axis=-1))
images, kinds = draw(400)
right = mo.count_nonzero(predict(images) == kinds).item() / 400
print(f"right: {right:.1%}, {model[1].num_batches_tracked.item()} batches seen")
print(*[line.split()[2] for line in predict.explain().splitlines() if " kernel conv" in line], sep="\n")
assert right > 0.9
