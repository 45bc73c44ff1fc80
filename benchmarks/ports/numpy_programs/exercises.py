"""Forty of the short exercises that people learn NumPy with."""
import numpy as np
# in the manner of "100 numpy exercises"
out = []
Z = np.zeros(10); Z[4] = 1; out.append(Z)
Z = np.arange(50)[::-1]; out.append(Z)
Z = np.ones((10, 10)); Z[1:-1, 1:-1] = 0; out.append(Z)
Z = np.pad(np.ones((5, 5)), pad_width=1, mode='constant', constant_values=0); out.append(Z)
Z = np.zeros((8, 8), dtype=int); Z[1::2, ::2] = 1; Z[::2, 1::2] = 1; out.append(Z)
out.append(np.unravel_index(99, (6, 7, 8)))
Z = np.tile(np.array([[0, 1], [1, 0]]), (4, 4)); out.append(Z)
Z = np.arange(11); Z[(3 < Z) & (Z < 8)] *= -1; out.append(Z)
out.append(sum(range(5), -1))
Z = np.linspace(0, 1, 11, endpoint=False)[1:]; out.append(Z)
Z = np.arange(100); v = 42.3; index = (np.abs(Z - v)).argmin(); out.append(Z[index])
Z = np.zeros((5, 5)); Z += np.arange(5); out.append(Z)
def generate():
    for x in range(10):
        yield x
Z = np.fromiter(generate(), dtype=float, count=-1); out.append(Z)
X, Y = np.meshgrid(np.linspace(0, 1, 5), np.linspace(0, 1, 5))
D = np.sqrt((X-0.5)**2 + (Y-0.5)**2); out.append(np.exp(-((D-1.0)**2/(2.0*0.5**2))))
Z = np.array([[3, 1, 2], [9, 8, 7], [4, 6, 5]]); out.append(Z[Z[:, 1].argsort()])
A = np.arange(25).reshape(5, 5); A[[0, 1]] = A[[1, 0]]; out.append(A)
Z = np.array([1, 2, 3, 4, 5]); nz = 3; Z0 = np.zeros(len(Z) + (len(Z)-1)*(nz)); Z0[::nz+1] = Z; out.append(Z0)
I = np.array([1, 3, 9, 3, 4, 1]); X = np.array([1, 2, 3, 4, 5, 6]); out.append(np.bincount(I, X))
C = np.bincount([1, 1, 2, 3, 4, 4, 6]); A = np.repeat(np.arange(len(C)), C); out.append(A)
Z = np.ones(10); Iq = np.array([1, 2, 2, 5]); Z += np.bincount(Iq, minlength=len(Z)); out.append(Z)
Z = np.ones(10); np.add.at(Z, Iq, 1); out.append(Z)
w, h = 16, 16; Im = np.arange(w*h*3).reshape(h, w, 3) % 7; F = Im[..., 0]*(256*256) + Im[..., 1]*256 + Im[..., 2]; out.append(len(np.unique(F)))
A = np.arange(3*4*3*4).reshape(3, 4, 3, 4); out.append(A.sum(axis=(-2, -1)))
D = np.array([1., 2, 3, 4, 5, 6]); S = np.array([0, 0, 1, 1, 2, 2]); out.append(np.bincount(S, weights=D)/np.bincount(S))
A = np.arange(25).reshape(5, 5); B = A.T; out.append(np.diag(np.dot(A, B))); out.append(np.einsum("ij,ji->i", A, B))
a = np.array([1, 5, 2]); b = np.array([[1, 2, 3]]); out.append(np.all(np.isfinite(a / b)))
Z = np.array([0, 1, 2, 0, 0, 4]); out.append(np.nonzero(Z))
def moving_average(a, n=3):
    ret = np.cumsum(a, dtype=float)
    ret[n:] = ret[n:] - ret[:-n]
    return ret[n - 1:] / n
out.append(moving_average(np.arange(20), n=3))
Z = np.random.randint(0, 2, 100); np.logical_not(Z, out=Z); out.append(Z.shape)
Z = np.array([-1.5, 2.0]); np.negative(Z, out=Z); out.append(Z)
P0 = np.array([[0., 0]]); P1 = np.array([[1., 1]]); p = np.array([[0., 1]])
T = P1 - P0; L = (T**2).sum(axis=1); U = -((P0[:, 0]-p[..., 0])*T[:, 0] + (P0[:, 1]-p[..., 1])*T[:, 1]) / L; U = U.reshape(len(U), 1); out.append(np.sqrt(((P0 + U*T - p)**2).sum(axis=1)))
out.append(np.linalg.matrix_rank(np.ones((3, 3))))
out.append(np.bincount([0, 3, 3, 5]).argmax())
Z = np.arange(16*16).reshape(16, 16); k = 4
S = np.add.reduceat(np.add.reduceat(Z, np.arange(0, Z.shape[0], k), axis=0), np.arange(0, Z.shape[1], k), axis=1); out.append(S)
Z = np.arange(20.)[::-1].copy(); n = 5; out.append(Z[np.argsort(Z)[-n:]])
def cartesian(arrays):
    arrays = [np.asarray(a) for a in arrays]
    shape = (len(x) for x in arrays)
    ix = np.indices(shape, dtype=int)
    ix = ix.reshape(len(arrays), -1).T
    for n, arr in enumerate(arrays):
        ix[:, n] = arrays[n][ix[:, n]]
    return ix
out.append(cartesian(([1, 2, 3], [4, 5], [6, 7])))
I = np.array([0, 1, 2, 3, 15, 16, 32, 64, 128], dtype=np.uint8); out.append(np.unpackbits(I[:, np.newaxis], axis=1))
Z = np.array([[1, 2], [1, 2], [3, 4]]); out.append(np.unique(Z, axis=0))
X = np.arange(10.); N = 3; idx = np.arange(12).reshape(3, 4) % 10; means = X[idx].mean(axis=1); out.append(np.percentile(means, [2.5, 97.5]))
result = out
