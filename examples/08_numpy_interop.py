"""NumPy in, NumPy out: what is shared, what is copied, and who may write.

    python examples/08_numpy_interop.py
"""

import numpy as np

import morpho as mo

# In: the value of this line. Memory that nobody can write is taken as it is, without a copy.
array = np.arange(12.0).reshape(3, 4)
kept = mo.asarray(array)
fixed = np.arange(3.0)
fixed.flags.writeable = False
assert mo.asarray(fixed).numpy().ctypes.data == fixed.ctypes.data

# `copy=False` borrows, with any strides: the tensor sees the array's memory, and reads it when the graph runs.
x = mo.asarray(array[:, ::-2], copy=False)
assert x.numpy().ctypes.data == array[:, ::-2].ctypes.data
print("borrowed, strides in elements:", x.strides)

# So a later change of the array is seen by what has not run yet.
lazy = x + 1
array[0, 3] = 100.0
print("read when it runs:", lazy.numpy()[0], " copied before:", kept.numpy()[0])

# Out: a read-only view, because tensors are values; a copy of your own on request.
view = kept.numpy()
try:
    view[0, 0] = 1
except ValueError as error:
    print("numpy() is read-only:", error)
mine = kept.numpy(copy=True)
mine[0, 0] = -1.0
assert kept[0, 0].item() == 0.0

# NumPy functions take tensors, and any object with the buffer or the array protocol becomes one.
print("NumPy on a tensor:", np.sin(np.asarray(mo.asarray([0.0, 1.0]))))
print("bytes as a tensor:", mo.asarray(memoryview(b"abc")))

# float16 and bfloat16 are dtypes like the others; NumPy has no bfloat16, so it comes out as float32.
half = mo.asarray([1.0, 1 / 3]).astype("bfloat16")
print("bfloat16:", half.numpy(), half.dtype, half.nbytes, "bytes")

# DLPack, both ways: the same memory, no copy, and what tensors export is read-only.
shared = np.from_dlpack(kept)
assert shared.ctypes.data == kept.numpy().ctypes.data and not shared.flags.writeable
assert mo.from_dlpack(array).numpy().ctypes.data == array.ctypes.data
print("DLPack: no byte was copied either way")
