"""The Lorenz system by Runge and Kutta's fourth-order rule."""
import numpy as np


def lorenz(s, sigma=10, rho=28, beta=8 / 3):
    x, y, z = s
    return np.array([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])


s, dt = np.array([1.0, 1.0, 1.0], dtype=np.float64), 0.01
trajectory = [s]
for _ in range(30):
    k1 = lorenz(s)
    k2 = lorenz(s + dt / 2 * k1)
    k3 = lorenz(s + dt / 2 * k2)
    k4 = lorenz(s + dt * k3)
    s = s + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    trajectory.append(s)
trajectory = np.array(trajectory)
result = [trajectory, trajectory.mean(axis=0)]
