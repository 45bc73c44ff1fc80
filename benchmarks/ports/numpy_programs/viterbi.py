"""The Viterbi algorithm, written element by element."""
import numpy as np
obs = [0, 1, 2, 1, 0]
start = np.array([0.6, 0.4])
trans = np.array([[0.7, 0.3], [0.4, 0.6]])
emit = np.array([[0.5, 0.4, 0.1], [0.1, 0.3, 0.6]])
T, N = len(obs), trans.shape[0]
delta = np.zeros((T, N))
psi = np.zeros((T, N), dtype=int)
delta[0] = start * emit[:, obs[0]]
for t in range(1, T):
    for j in range(N):
        probs = delta[t-1] * trans[:, j]
        psi[t, j] = np.argmax(probs)
        delta[t][j] = np.max(probs) * emit[j, obs[t]]
path = np.zeros(T, dtype=int)
path[T-1] = np.argmax(delta[T-1])
for t in range(T-2, -1, -1):
    path[t] = psi[t+1, path[t+1]]
result = [delta, psi, path]
