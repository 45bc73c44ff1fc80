"""Principal components by singular values."""
import numpy as np

t = np.arange(40, dtype=np.float64)
X = np.vstack((np.sin(t), np.sin(t) * 2 + 0.1 * np.cos(5 * t), np.cos(t), 0.3 * t / 40)).T
X = X - X.mean(0)
X /= X.std(0, ddof=1)
U, s, Vt = np.linalg.svd(X, full_matrices=False)
ratio = s ** 2 / np.sum(s ** 2)
scores = np.abs(X @ Vt[:2].T)
order = np.argsort(ratio)[::-1]
result = [ratio, scores, order, np.corrcoef(X, rowvar=False)]
