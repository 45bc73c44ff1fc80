"""The Mandelbrot set in the terminal: forty iterations traced into one kernel.

    python examples/07_mandelbrot.py

A Python loop inside a compiled function is unrolled while it is traced. The chain is elementwise, so its intermediates
live in registers, and memory sees one read of each input and one write of the result.
"""

import morpho as mo

WIDTH, HEIGHT, STEPS = 76, 26, 40


@mo.compile
def escape_time(real, imaginary):
    """How many iterations of z*z + c stay within |z| <= 2."""
    x, y = real, imaginary
    count = mo.zeros(real.shape)
    for _ in range(STEPS):
        inside = x * x + y * y <= 4.0
        count = count + mo.where(inside, 1.0, 0.0)
        x, y = mo.where(inside, x * x - y * y + real, x), mo.where(inside, 2 * x * y + imaginary, y)
    return count


real, imaginary = mo.meshgrid(mo.linspace(-2.2, 0.8, WIDTH), mo.linspace(-1.2, 1.2, HEIGHT))
counts = escape_time(real, imaginary)
for line in counts.numpy():
    print("".join(" .:-=+*#%@"[min(9, int(9 * value / STEPS))] for value in line))
stats = escape_time.stats
print(f"{stats['passes']['inline']['before']:.0f} nodes, {stats['kernels']} kernel, "
      f"{stats['bytes_avoided']:,} bytes of intermediates never stored")
assert stats["kernels"] <= 2 and counts.max().item() == STEPS
