"""A network of two layers learns XOR by hand-written gradients."""
import numpy as np


def nonlin(x, deriv=False):
    if deriv:
        return x * (1 - x)
    return 1 / (1 + np.exp(-x))


X = np.array([[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]])
y = np.array([[0], [1], [1], [0]])
syn0 = 2 * np.array([[0.1, 0.9, 0.3, 0.5], [0.8, 0.2, 0.7, 0.4], [0.3, 0.6, 0.1, 0.9]]) - 1
syn1 = 2 * np.array([[0.2], [0.7], [0.9], [0.4]]) - 1
errors = []
for step in range(60):
    l1 = nonlin(np.dot(X, syn0))
    l2 = nonlin(np.dot(l1, syn1))
    l2_error = y - l2
    if step % 20 == 0:
        errors.append(float(np.mean(np.abs(l2_error))))
    l2_delta = l2_error * nonlin(l2, deriv=True)
    l1_delta = l2_delta.dot(syn1.T) * nonlin(l1, deriv=True)
    syn1 += l1.T.dot(l2_delta)
    syn0 += X.T.dot(l1_delta)
result = [l2, np.array(errors)]
