"""Conway's Life on a torus: bytes, rolled and added, a thousand generations in one native loop.

    python examples/26_life.py
"""

import time

import numpy as np

import morpho as mo

SIZE, GENERATIONS = 256, 1000


@mo.compile
def life(board):
    def generation(i, board):
        rows = board + mo.roll(board, 1, axis=0) + mo.roll(board, -1, axis=0)
        count = rows + mo.roll(rows, 1, axis=1) + mo.roll(rows, -1, axis=1)
        return ((count == 3) | ((count == 4) & (board == 1))).astype(mo.uint8)

    return mo.fori_loop(0, GENERATIONS, generation, board)


glider = np.zeros((SIZE, SIZE), np.uint8)
glider[1:4, 1:4] = [[0, 1, 0], [0, 0, 1], [1, 1, 1]]
board = mo.asarray(glider)
life(board)
start = time.perf_counter()
end = life(board).numpy()
seconds = time.perf_counter() - start
moved = GENERATIONS // 4  # a glider is one cell further down and to the right every four generations
assert np.array_equal(end, np.roll(glider, (moved, moved), axis=(0, 1)))
rate = SIZE * SIZE * GENERATIONS / seconds
print(f"{GENERATIONS} generations of {SIZE} x {SIZE} in {seconds * 1e3:.1f} ms: {rate / 1e9:.2f} billion cells/s")
print(f"the glider is {moved} cells further, {life.stats['kernels']} kernels")
