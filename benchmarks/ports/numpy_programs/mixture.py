"""A mixture of two Gaussians by expectation maximisation."""

import numpy as np


def lcg(n, seed=7):
    out = np.empty(n)
    for i in range(n):
        seed = (1103515245 * seed + 12345) % 2**31
        out[i] = seed / 2**31
    return out


u = lcg(240).reshape(2, -1)
z = np.sqrt(-2 * np.log(u[0] + 1e-12)) * np.cos(2 * np.pi * u[1])
w = np.sqrt(-2 * np.log(u[0] + 1e-12)) * np.sin(2 * np.pi * u[1])
X = np.stack((z, w), axis=1)
X[:60] += np.array([4, 4])
X[60:90] *= 0.3


def log_gaussian(X, mu, cov):
    d = X.shape[1]
    diff = X - mu
    L = np.linalg.cholesky(cov)
    y = np.linalg.solve(L, diff.T)
    return -0.5 * (d * np.log(2 * np.pi) + 2 * np.log(np.diag(L)).sum() + (y ** 2).sum(axis=0))


K = 2
pi = np.ones(K) / K
mu = X[[0, -1]].copy()
cov = np.array([np.eye(2) for _ in range(K)])
for it in range(20):
    logp = np.zeros((len(X), K))
    for k in range(K):
        logp[:, k] = np.log(pi[k]) + log_gaussian(X, mu[k], cov[k])
    m = logp.max(axis=1, keepdims=True)
    lse = m + np.log(np.exp(logp - m).sum(axis=1, keepdims=True))
    r = np.exp(logp - lse)
    ll = lse.sum()
    Nk = r.sum(0)
    pi = Nk / len(X)
    mu = (r.T @ X) / Nk[:, None]
    for k in range(K):
        d = X - mu[k]
        cov[k] = (r[:, k, None] * d).T @ d / Nk[k] + 1e-6 * np.identity(2)
labels = r.argmax(axis=1)
result = [mu, cov, pi, np.bincount(labels)]
