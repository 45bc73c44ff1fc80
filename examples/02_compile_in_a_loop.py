"""A compiled function in a loop, writing its result into memory you own with `out=`.

    python examples/02_compile_in_a_loop.py

Heat spreads along a rod. Two buffers take turns, so that the loop allocates nothing, and every call after the first is
served by the native entry, without Python between the kernels.
"""

import morpho as mo


@mo.compile
def step(u):
    """One explicit time step; the ends of the rod keep their temperature."""
    inner = u[1:-1] + 0.25 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return mo.concat([u[:1], inner, u[-1:]])


here, there = mo.empty(1025), mo.empty(1025)
here[...] = 0.0
here[512] = 1000.0
for _ in range(2000):
    step(here, out=there)
    here, there = there, here

print(f"heat in the rod: {here.sum().item():.2f}, hottest point: {here.max().item():.2f}")
print(f"{step.stats['calls']} calls, {step.native_calls} of them native, {step.stats['kernels']} kernels each")
assert abs(here.sum().item() - 1000.0) < 1.0
assert step.stats["recompiles"] == 0
