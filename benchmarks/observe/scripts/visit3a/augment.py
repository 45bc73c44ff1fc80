"""expects: data
remedy: whole batches are shifted and flipped at once, by indices.

Pictures that are shifted and flipped pixel by pixel in `__getitem__`.
"""
import random
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
pictures = np.random.default_rng(0).normal(size=(1000, 32, 32)).astype(np.float32)


class Pictures:
    def __len__(self):
        return len(pictures)

    def __getitem__(self, i):
        dy, dx = random.randrange(5), random.randrange(5)
        if better:
            return np.roll(pictures[i], (-dy, -dx), (0, 1)).ravel()
        picture = pictures[i].tolist()
        return np.array([picture[(r + dy) % 32][(c + dx) % 32] for r in range(32) for c in range(32)], np.float32)


mo.nn.seed(0)
net = mo.nn.Sequential(mo.nn.Linear(1024, 64), mo.nn.ReLU(), mo.nn.Linear(64, 10))
predict = mo.compile(lambda x: mo.softmax(net(x), axis=-1).max(axis=-1).mean())
total = 0.0
for _ in range(8):
    for batch in mo.data.DataLoader(Pictures(), batch_size=50):
        total += float(predict(batch))
print(total)
