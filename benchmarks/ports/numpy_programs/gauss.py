"""Gaussian elimination with pivots, rows exchanged in place."""
import numpy as np


def gauss(A, b):
    n = len(b)
    M = np.concatenate((A, b.reshape(-1, 1)), axis=1).astype(float)
    for i in range(n):
        p = i + np.argmax(np.abs(M[i:, i]))
        M[[i, p]] = M[[p, i]]
        for j in range(i + 1, n):
            M[j, i:] -= M[j, i] / M[i, i] * M[i, i:]
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        x[i] = (M[i, -1] - M[i, i + 1:n] @ x[i + 1:n]) / M[i, i]
    return x


A = np.array([[2.0, 1, -1], [-3, -1, 2], [-2, 1, 2]])
b = np.array([8.0, -11, -3])
x = gauss(A, b)
result = [x, np.allclose(A @ x, b, atol=1e-4)]
