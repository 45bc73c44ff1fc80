"""A Kalman filter of position and velocity."""
import numpy as np

F = np.array([[1.0, 0.1], [0.0, 1.0]])
H = np.array([[1.0, 0.0]])
Q, R = np.eye(2) * 1e-3, np.array([[0.1]])
x, P = np.zeros((2, 1)), np.eye(2)
seen = []
for step in range(6):
    z = np.array([[0.5 * step * 0.1 + 0.05 * float(np.sin(step))]])
    x = F @ x
    P = F @ P @ F.T + Q
    K = P @ H.T @ np.linalg.inv(H @ P @ H.T + R)
    x = x + np.dot(K, z - H @ x)
    P = (np.identity(2) - K @ H) @ P
    seen.append(x[0, 0].item())
result = [np.array(seen), P]
