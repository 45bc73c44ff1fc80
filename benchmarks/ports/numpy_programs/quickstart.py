"""What the first pages of NumPy's tutorial do: shapes, indices by arrays, stacking, counting."""
import numpy as np


def f(x, y):
    return 10 * x + y


a = np.arange(12).reshape(3, 4)
q = np.fromfunction(f, (5, 4), dtype=int)
data = np.sin(np.arange(20)).reshape(5, 4)
ind = data.argmax(axis=0)
time = np.linspace(20, 145, 5)
z = np.arange(5)
z[[0, 0, 2]] = [1, 2, 3]
ax, bx = np.ix_(np.array([2, 3, 4, 5]), np.array([8, 5, 4]))
b = np.array([[3, 1, 2], [9, 7, 8]])
values, counts = np.unique(np.array([1, 1, 2, 5, 5, 5]), return_counts=True)
result = [a.cumsum(axis=1), a.min(axis=1), q[1:3, :], time[ind], data[ind, range(data.shape[1])], z, ax * bx,
          np.vstack((b, b)), np.column_stack((a[:2, 0], b[:, 0])), b[:, b[0].argsort()], np.argsort(-b, axis=1),
          values, counts, np.isin(b, [1, 9]), np.insert(b, 1, 5, axis=1), np.delete(b, 0, axis=0),
          np.digitize([0.2, 6.4, 3.0], [0.0, 1.0, 2.5, 4.0, 10.0]), np.where((b > 2) & (b < 9), b, -1),
          np.array(np.unravel_index(np.argmax(b), b.shape)), np.lexsort((b[0], b[1])), np.round(b / 7, 2)]
