"""A sphere over a plane, shaded, by marching along rays."""
import numpy as np

h, w = 6, 8
y, x = np.meshgrid(np.linspace(1, -1, h), np.linspace(-1.3, 1.3, w), indexing="ij")
rays = np.stack([x, y, np.ones_like(x)], axis=-1)
rays = rays / np.linalg.norm(rays, axis=-1, keepdims=True)


def scene(p):
    sphere = np.linalg.norm(p - np.array([0.0, 0.0, 3.0]), axis=-1) - 1.0
    return np.minimum(sphere, p[..., 1] + 1.0)


depth = np.zeros((h, w))
for _ in range(30):
    depth = np.clip(depth + scene(depth[..., None] * rays), 0, 20)
hit = depth < 19
point = depth[..., None] * rays
normal = np.stack([scene(point + 1e-2 * e) - scene(point - 1e-2 * e) for e in np.eye(3)], axis=-1)
light = np.array([1.0, 2.0, -1.0])
shade = np.clip(np.inner(normal, light / np.sqrt(np.dot(light, light))) * 50, 0, 1)
result = [np.where(hit, shade, 0).round(2), hit.sum()]
