"""Conway's game of life on a torus: a glider and a blinker."""
import numpy as np

world = np.zeros((10, 10), dtype=np.int64)
world[1, 2] = world[2, 3] = 1
world[3, 1:4] = 1
world[7, 5:8] = 1
for _ in range(5):
    around = sum(np.roll(world, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
    world = np.where((around == 3) | ((world == 1) & (around == 2)), 1, 0)
result = [world, np.count_nonzero(world), np.argwhere(world)]
