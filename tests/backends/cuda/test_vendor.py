"""NVIDIA's libraries: where they are looked for, and cuSOLVER over a fake of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_solver import FakeSolver

import morpho as mo
from morpho.backends.cuda.vendor import libraries
from morpho.backends.cuda.vendor.assembler import Assembler
from morpho.backends.cuda.vendor.solver import Solver
from morpho.backends.registry import backend_of
from morpho.base.errors import DeviceError, ValueFault

N = 40  # larger than what has native code


@pytest.fixture
def solver(gpu: str) -> Iterator[Solver]:
    backend: Any = backend_of(gpu)
    backend._solver = Solver(backend.gpu, FakeSolver())
    with mo.settings(fast=True):
        yield backend._solver
    backend._solver = None


def test_a_library_that_is_not_there_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "found", lambda name: None)
    with pytest.raises(DeviceError, match=r"libcusolver is not installed.*morpho-tensor\[cuda\]"):
        libraries.library("cusolver")


def test_without_fast_or_without_the_library_lapack_computes(gpu: str, rng: np.random.Generator) -> None:
    a = rng.standard_normal((N, N)).astype("f")
    backend: Any = backend_of(gpu)
    backend._solver = Solver(backend.gpu, FakeSolver())
    before = backend.host_steps
    mo.linalg.svd(mo.asarray(a, device=gpu))[1].numpy()
    assert backend.host_steps == before + 1 and backend._solver.calls == 0
    backend._solver = None
    with mo.settings(fast=True):
        mo.linalg.qr(mo.asarray(a, device=gpu))[0].numpy()
    assert backend.host_steps == before + 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_factorisations_are_laid_out_as_the_library_wants_them(gpu: str, solver: Solver, rng: np.random.Generator,
                                                               dtype: Any) -> None:
    before = backend_of(gpu).host_steps  # type: ignore[attr-defined]
    a, b = rng.standard_normal((2, N, N + 3)).astype(dtype), rng.standard_normal((2, N, 5)).astype(dtype)
    square = a[..., :N] + 8 * np.eye(N, dtype=dtype)
    positive = square @ square.swapaxes(-1, -2)

    def there(x: np.ndarray) -> Any:
        return mo.asarray(x, device=gpu)

    near = {"rtol": 0, "atol": 2e-2 if dtype is np.float32 else 1e-9}
    lower, upper = mo.linalg.cholesky(there(positive)).numpy(), mo.linalg.cholesky(there(positive), upper=True).numpy()
    np.testing.assert_allclose(lower @ lower.swapaxes(-1, -2), positive, **near)
    assert not np.triu(lower, 1).any() and not np.tril(upper, -1).any()
    np.testing.assert_allclose(upper, lower.swapaxes(-1, -2), **near)
    np.testing.assert_allclose(square @ mo.linalg.solve(there(square), there(b)).numpy(), b, **near)
    for matrix in (a, a.swapaxes(-1, -2)):
        q, r = (x.numpy() for x in mo.linalg.qr(there(matrix)))
        np.testing.assert_allclose(q @ r, matrix, **near)
        assert not np.tril(r, -1).any()
        for full in (False, True):
            u, s, v = (x.numpy() for x in mo.linalg.svd(there(matrix), full_matrices=full))
            np.testing.assert_allclose((u[..., :N] * s[..., None, :]) @ v[..., :N, :], matrix, **near)
    values, vectors = (x.numpy() for x in mo.linalg.eigh(there(positive)))
    np.testing.assert_allclose(positive @ vectors, vectors * values[..., None, :], rtol=1e-3, atol=0.5)
    np.testing.assert_allclose(mo.linalg.eigvalsh(there(positive)).numpy(), values, rtol=1e-4)
    np.testing.assert_allclose(mo.linalg.svdvals(there(a)).numpy(), np.linalg.svd(a, compute_uv=False), **near)
    assert solver.calls >= 2 * (2 + 1 + 2 * 3 + 3) and backend_of(gpu).host_steps == before  # type: ignore[attr-defined]


def test_what_the_library_finds_wrong_is_a_sentence(gpu: str, solver: Solver) -> None:
    zero = mo.asarray(np.zeros((N, N), "f"), device=gpu)
    with pytest.raises(ValueFault, match="not positive definite"):
        mo.linalg.cholesky(zero).numpy()
    with pytest.raises(ValueFault, match="singular"):
        mo.linalg.solve(zero, zero).numpy()


def test_memory_of_an_operation_is_given_back(gpu: str, solver: Solver, rng: np.random.Generator) -> None:
    a = mo.asarray(rng.standard_normal((N, N)).astype("f"), device=gpu)
    mo.linalg.svdvals(a).numpy()
    device: Any = backend_of(gpu).gpu  # type: ignore[attr-defined]
    before = len(device.blocks)
    for _ in range(3):
        mo.linalg.svdvals(a).numpy()
    assert len(device.blocks) == before


class FakeLinker:
    """nvJitLink: its code is the text in capitals; a text without a kernel is refused."""

    def __init__(self) -> None:
        self.text = b""
        self.open = 0

    def __getattr__(self, name: str) -> Any:
        stem = name.removeprefix("__nvJitLink").removesuffix("_13_0")
        return getattr(self, stem)

    def Create(self, out: Any, count: Any, options: Any) -> int:
        assert count.value == 1 and options[0] == b"-arch=sm_90a"
        self.open += 1
        return 0

    def AddData(self, linker: Any, kind: int, data: bytes, size: Any, name: bytes) -> int:
        assert kind == 2 and size.value == len(data) and data.endswith(b"\0")
        self.text = data[:-1]
        return 0

    def Complete(self, linker: Any) -> int:
        return int(b"entry" not in self.text)

    def GetLinkedCubinSize(self, linker: Any, size: Any) -> int:
        size._obj.value = len(self.text)
        return 0

    def GetLinkedCubin(self, linker: Any, room: Any) -> int:
        room.raw = self.text.upper()
        return 0

    def Destroy(self, linker: Any) -> int:
        self.open -= 1
        return 0


def test_the_assembler_gives_code_or_leaves_it_to_the_driver() -> None:
    fake = FakeLinker()
    found = Assembler(fake, "13_0")
    assert found.code(b".entry kernel_main", "sm_90a") == b".ENTRY KERNEL_MAIN"
    assert found.code(b"nothing", "sm_90a") is None and fake.open == 0
    for left in (b"wgmma.fence.sync.aligned;", b"call.uni (retval0), dot;", b"st.local.b64 [%rd1], %rd2;"):
        assert found.code(b".entry kernel_main { " + left + b" }", "sm_90a") is None
