"""expects: transfers
remedy: the frame as the argument of the compiled function.

Frames of a camera, each copied into a tensor before it is looked at.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
frame = np.random.default_rng(0).integers(0, 255, (2160, 3840, 3)).astype(np.uint8)
brightness = mo.compile(lambda f: f[::16, ::16].astype("float32").mean())
for _ in range(150):
    value = float(brightness(frame if better else mo.asarray(frame, copy=True)))
print(value)
