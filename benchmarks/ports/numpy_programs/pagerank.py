"""PageRank by iteration and by an eigenvector."""
import numpy as np

M = np.array([[0, 0, 0, 0, 1], [0.5, 0, 0, 0, 0], [0.5, 0, 0, 0, 0], [0, 1, 0.5, 0, 0], [0, 0, 0.5, 1, 0]])
N = M.shape[1]
v = np.ones(N) / N
M_hat = 0.85 * M + (1 - 0.85) / N
for _ in range(60):
    v_last = v
    v = M_hat @ v
    if np.linalg.norm(v - v_last, 2) < 1e-6:
        break
w, vectors = np.linalg.eig(M_hat)
p = np.real(vectors[:, np.argmax(np.real(w))])
result = [v, p / p.sum()]
