"""Bound the rounding errors of a transformer's block for all inputs in a range, and find where they come from."""

from __future__ import annotations

import numpy as np

import morpho as mo


def main() -> None:
    rng = np.random.default_rng(0)
    weights = [mo.asarray(rng.normal(size=shape).astype(np.float32) * 0.05) for shape in ((64, 128), (128, 64))]

    def block(x: mo.Tensor) -> mo.Tensor:
        return x + mo.gelu(mo.rms_norm(x) @ weights[0]) @ weights[1]

    bound = mo.certify(block, mo.within((8, 64), -2, 2))
    print(bound)

    x = rng.uniform(-2, 2, (8, 64)).astype(np.float32)
    exact = mo.compile(lambda x, a, b: x + mo.gelu(mo.rms_norm(x) @ a) @ b)(
        *[mo.asarray(each).astype(mo.float64) for each in (x, *weights)]).numpy()
    worst = float(np.abs(block(mo.asarray(x)).numpy() - exact).max())
    print(f"one draw: off by {worst:.2g}, and at most {bound.error:.2g} is possible")
    assert worst <= bound.error


if __name__ == "__main__":
    main()
