"""expects: memory
remedy: one compiled function for the step

Acoustic waves through layered ground: finite differences in time, a damped frame around the model.

Each part of a time step is a compiled function of its own, as it was taken over from the older program.
"""

import numpy as np

import morpho as mo

ROWS, COLUMNS, STEPS = 3600, 4000, 60
SPACING, INTERVAL = 5.0, 0.0008


@mo.compile
def laplacian(u):
    return (mo.roll(u, 1, axis=0) + mo.roll(u, -1, axis=0) + mo.roll(u, 1, axis=1) + mo.roll(u, -1, axis=1)
            - 4.0 * u)


@mo.compile
def acceleration(curvature, courant):
    return curvature * courant


@mo.compile
def advance(u, before, force):
    return 2.0 * u - before + force


@mo.compile
def damped(u, frame):
    return u * frame


def ground() -> np.ndarray:
    """The square of the Courant number in every cell: slow layers above fast ones."""
    depth = np.arange(ROWS, dtype=np.float32)[:, None] + np.zeros((1, COLUMNS), np.float32)
    velocity = np.where(depth < 900, 1500.0, np.where(depth < 2000, 2300.0, 3100.0)).astype(np.float32)
    return (velocity * np.float32(INTERVAL / SPACING)) ** 2


def frame() -> np.ndarray:
    edge = np.ones((ROWS, COLUMNS), np.float32)
    for width in range(40):
        edge[width, :] = edge[-1 - width, :] = edge[:, width] = edge[:, -1 - width] = 0.9 + 0.0025 * width
    return edge


def main() -> None:
    courant, edge = mo.asarray(ground()), mo.asarray(frame())
    start = np.zeros((ROWS, COLUMNS), np.float32)
    start[300, COLUMNS // 2] = 1.0
    u, before = mo.asarray(start), mo.asarray(start)
    for step in range(STEPS):
        force = acceleration(laplacian(u), courant)
        u, before = damped(advance(u, before, force), edge), u
        if step % 20 == 19:
            print(f"t = {step * INTERVAL:.3f} s: at the geophone {u[40, COLUMNS // 2].item():+.3e}")


if __name__ == "__main__":
    main()
