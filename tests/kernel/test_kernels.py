"""Kernels of the table in NumPy with all checks, on the CPU and on the emulated GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_table import Case, table

import morpho as mo
from morpho.backends.cuda.assembly.ptx import assembly
from morpho.backends.cuda.emulator.install import install
from morpho.backends.cuda.tiles.kernel import TileGrid

TABLE = table()
NAMES = [f"{case.kernel.function.__name__}{'-' * bool(case.name)}{case.name}" for case in TABLE]


def results(value: Any) -> list[np.ndarray]:
    return [np.asarray(one.numpy() if isinstance(one, mo.Tensor) else one)
            for one in (value if isinstance(value, tuple) else (value,))]


@pytest.mark.parametrize("case", TABLE, ids=NAMES)
def test_a_kernel_has_its_value_on_every_backend(case: Case, rng: np.random.Generator,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    write = TileGrid.text
    monkeypatch.setattr(TileGrid, "text", lambda self: texts.append(write(self)) or texts[-1])
    arrays = case.arrays(rng)
    want = results(case.want(*arrays))
    here = [mo.asarray(array) for array in arrays]
    there = [one.to(install()) for one in here]
    cpu = results(case.kernel(*here, **case.constants))
    gpu = results(case.kernel(*there, **case.constants))
    for which in (cpu, gpu, results(case.kernel(*here, **case.constants, check=True))):
        for got, expected in zip(which, want, strict=True):
            assert got.shape == expected.shape
            np.testing.assert_allclose(got.astype(float), np.asarray(expected, float), case.tolerance, case.tolerance)
    for one, two in zip(cpu, gpu, strict=True):
        assert one.tobytes() == two.tobytes()
    if not case.name:  # a GPU's assembly of it
        assert all("kernel_main" in assembly(text) for text in texts)
