"""Gravitation of five bodies by leapfrog."""
import numpy as np

n, dt, soft = 5, 0.01, 0.1
mass = np.linspace(1.0, 2.0, n)
k = np.arange(n)
pos = np.column_stack([np.cos(k * 1.3), np.sin(k * 1.3), 0.1 * k])
vel = np.cross(np.array([0.0, 0.0, 1.0]), pos)
vel -= np.mean(mass[:, np.newaxis] * vel, 0) / np.mean(mass)


def acceleration(pos):
    gap = pos[np.newaxis, :, :] - pos[:, np.newaxis, :]
    inverse = (np.sum(gap ** 2, axis=-1) + soft ** 2) ** -1.5
    return np.einsum("ijk,ij,j->ik", gap, inverse, mass)


acc = acceleration(pos)
for _ in range(5):
    vel = vel + acc * dt / 2
    pos = pos + vel * dt
    acc = acceleration(pos)
    vel = vel + acc * dt / 2
result = [pos, 0.5 * np.sum(mass[:, None] * vel ** 2)]
