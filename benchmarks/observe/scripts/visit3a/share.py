"""expects: data
remedy: num_workers=2.

Samples that come from slow storage.
"""
import sys
import time

import numpy as np

import morpho as mo

better = "better" in sys.argv


class Share:
    def __len__(self):
        return 512

    def __getitem__(self, i):
        time.sleep(0.004)
        return np.full((64,), i, np.float32), np.float32(i % 2)


mo.nn.seed(0)
net = mo.nn.Sequential(mo.nn.Linear(64, 64), mo.nn.ReLU(), mo.nn.Linear(64, 1))
opt = mo.optim.SGD(net.parameters(), lr=1e-6)


@mo.compile
def step(x, y):
    loss = ((net(x)[:, 0] - y) ** 2).mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss


for x, y in mo.data.DataLoader(Share(), batch_size=16, num_workers=2 if better else 0):
    loss = step(x, y)
print(float(loss))
