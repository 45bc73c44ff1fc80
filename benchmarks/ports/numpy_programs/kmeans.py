"""k-means on three clouds of points."""
import numpy as np

t = np.arange(60)
points = np.stack([np.sin(t * 1.7), np.cos(t * 2.3)], axis=1) * 0.5
points = points + np.array([[0.0, 0.0], [4.0, 4.0], [8.0, 0.0]]).repeat(20, axis=0)
centres = points[[0, 25, 50]].copy()
for _ in range(4):
    distances = np.linalg.norm(points[:, None, :] - centres[None, :, :], axis=2)
    labels = np.argmin(distances, axis=1)
    centres = np.array([points[labels == k].mean(axis=0) for k in range(3)])
result = [centres, labels]
