"""expects: data
remedy: num_workers=2.

Pictures of leaves that are unpacked and cut in the dataset, before a small network sees them.
"""
import sys
import zlib

import numpy as np

import morpho as mo

better = "better" in sys.argv
packed = [zlib.compress(np.random.default_rng(n).integers(0, 50, (160, 160, 3), dtype=np.uint8).tobytes(), 1)
          for n in range(40)]


class Leaves:
    def __len__(self):
        return 800

    def __getitem__(self, i):
        picture = np.frombuffer(zlib.decompress(packed[i % 40]), np.uint8).reshape(160, 160, 3)
        picture = np.rot90(picture.astype(np.float32) / 255.0)
        return np.ascontiguousarray(picture[16:144:8, 16:144:8]).ravel(), np.float32(i % 2)


net = mo.nn.Sequential(mo.nn.Linear(768, 32), mo.nn.ReLU(), mo.nn.Linear(32, 1))
predict = mo.compile(lambda x: net(x)[:, 0])
right = 0.0
for x, y in mo.data.DataLoader(Leaves(), batch_size=16, num_workers=2 if better else 0):
    right += float(((predict(x) > 0) == (y > 0.5)).astype(mo.float32).sum())
print(right)
