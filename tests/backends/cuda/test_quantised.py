"""Quantised weights and bytes on a GPU: layouts, the CPU's bits where they are promised, tensor cores, and ptxas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.cuda.assembly import ptx, ptxas
from morpho.backends.cuda.gemm.quantised.bytes import BytesMma
from morpho.backends.cuda.gemm.quantised.mma import FEW, QuantisedMma
from morpho.backends.cuda.gemm.quantised.rounded import RoundedDots, RoundRows
from morpho.backends.cuda.gemm.quantised.simt import QuantisedSimt
from morpho.backends.cuda.gemm.spec import ProductKernel
from morpho.base.dtypes import int16, int32
from morpho.ops.neural.float8 import table
from morpho.ops.neural.quantised import LAYOUTS
from morpho.tensor.functions.products.rounded import RoundedWeight


def weight_of(kind: str, n: int, k: int, rng: np.random.Generator) -> mo.Quantised:
    """Blocks of any layout: random codes, scales that are ordinary numbers; codes of floats are numbers too."""
    layout = LAYOUTS[kind]
    data = rng.integers(0, 256, (n, k // 32, layout.block_bytes)).astype(np.uint8)
    if layout.float8:
        data[~np.isfinite(table(layout.float8))[data]] = 0
    headers = rng.uniform(0.001, 0.02, (n, k // 32, layout.headers * layout.groups))
    data[..., :layout.header_bytes] = headers.astype("<f4" if layout.wide else "<f2").view(np.uint8)
    return mo.Quantised.from_bytes(data.tobytes(), (n, k), kind)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", LAYOUTS)
def test_every_layout(gpu: str, rng: np.random.Generator, kind: str) -> None:
    weight, x = weight_of(kind, 40, 96, rng), mo.asarray(rng.standard_normal((2, 3, 96)).astype("f"))
    f = mo.compile(lambda x, w: x @ mo.Quantised.of_tensor(w, (40, 96), kind))
    got = f(x.to(gpu), weight.data.to(gpu)).numpy()
    assert "dequantised on the way" in f.explain()
    assert got.tobytes() == f(x, weight.data).numpy().tobytes()  # one chain per result, as on the CPU
    half = x.astype(mo.float16)
    got = f(half.to(gpu), weight.data.to(gpu)).astype(mo.float32).numpy()
    rounded = weight.dequantise().astype(mo.float16).astype(mo.float64).numpy()
    want = half.astype(mo.float64).numpy() @ rounded.T
    np.testing.assert_allclose(got, want, rtol=2 ** -10, atol=1e-3)  # one rounding of the sum


def test_what_follows_quantised_weights_is_in_the_same_kernel(gpu: str, rng: np.random.Generator) -> None:
    weight = weight_of("q8_0", 64, 64, rng)
    x, b = (mo.asarray(rng.standard_normal(shape).astype("f")).astype(mo.bfloat16) for shape in ((20, 64), (64,)))
    f = mo.compile(lambda x, w, b: mo.relu(x @ mo.Quantised.of_tensor(w, (64, 64), "q8_0") + b))
    got = f(x.to(gpu), weight.data.to(gpu), b.to(gpu)).astype(mo.float32).numpy()
    assert "1 x QuantisedMma" in f.explain() and "with what follows" in f.explain()
    want = f(x, weight.data, b).astype(mo.float32).numpy()
    assert np.linalg.norm(got - want) <= 5e-3 * np.linalg.norm(want)


@pytest.mark.sampled
@pytest.mark.parametrize(("left", "right"), [(np.int8, np.int8), (np.uint8, np.int8)])
@pytest.mark.parametrize(("batch", "k"), [((), 48), ((2,), 64), ((), 20)])
def test_bytes_are_exact(gpu: str, rng: np.random.Generator, left: Any, right: Any, batch: tuple[int, ...],
                         k: int) -> None:
    a, b = (rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, (*batch, *shape)).astype(kind)
            for kind, shape in ((left, (33, k)), (right, (k, 24))))
    f = mo.compile(lambda a, b: mo.matmul(a, b, dtype=mo.int32))
    got = f(mo.asarray(a).to(gpu), mo.asarray(b).to(gpu)).numpy()
    assert (got == a.astype(np.int64) @ b.astype(np.int64)).all()
    assert ("tensor cores (mma), int8" in f.explain()) == (k % 16 == 0)


@pytest.mark.parametrize("kind", ["q8_0", "q4_1"])
def test_activations_in_8_bits_have_the_cpus_bits(gpu: str, rng: np.random.Generator, kind: str) -> None:
    weight = RoundedWeight(mo.quantise(rng.standard_normal((40, 96)).astype("f"), kind))
    x = rng.standard_normal((21, 96)).astype("f")
    x[3, :32], x[4, 32:64], x[5, 2] = 0.0, 1e-35, np.inf
    want = (mo.asarray(x) @ weight).numpy()
    weight.panels = weight.panels.to(gpu)
    got = (mo.asarray(x).to(gpu) @ weight).numpy()
    assert np.array_equal(got, want, equal_nan=True) and np.isnan(got[5]).all()


def test_their_kernels_assemble() -> None:
    if ptxas.find() is None:
        pytest.skip("ptxas is not installed (nvidia-cuda-nvcc)")
    product = ProductKernel(mo.bfloat16, mo.bfloat16, "k", "k", (32, 32, 2, 2))
    kernels = [QuantisedMma(product, mo.bfloat16, mo.bfloat16, "k", "k", tile, 3, 25, None, kind=kind)
               for tile, kind in ((FEW, "q8_0"),)]
    kernels += [QuantisedSimt(product, mo.float32, mo.float32, "k", "k", (32, 32, 2, 2), 25, "q4_1"),
                BytesMma(product, int16, int32, "k", "k", (64, 64, 32, 32), 3, 25, None, signs="us"),  # type: ignore
                RoundRows(), RoundedDots("q4_1")]  # type: ignore[list-item]
    said = ptxas.check([ptx.assembly(kernel.text(), "sm_80") for kernel in kernels])
    assert said.count("0 bytes spill stores") == len(kernels)


def test_packed_layers_follow_their_model(gpu: str, rng: np.random.Generator) -> None:
    table, weight = (mo.quantise(rng.standard_normal(shape).astype("f"), "q8_0") for shape in ((10, 64), (40, 64)))

    class Model(mo.nn.Module):
        def __init__(self) -> None:
            self.table, self.first = mo.nn.QuantisedEmbedding(table), mo.nn.QuantisedLinear(weight, np.ones(40, "f"))
            self.second = mo.nn.Int8Linear(mo.quantise(rng.standard_normal((8, 64)).astype("f"), "q4_1"))

        def forward(self, ids: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
            x = self.table(ids)
            return self.first(x), self.second(x)

    model, ids = Model(), mo.asarray([[1, 2, 9]])
    want = [x.numpy() for x in model(ids)]
    model.to(gpu)
    assert model.first.weight.data.device == gpu == model.second.weight.panels.device
    assert [x.numpy().tobytes() for x in model(ids.to(gpu))] == [x.tobytes() for x in want]


def test_a_packed_model_writes_the_cpus_text(gpu: str) -> None:
    mo.nn.seed(3)
    model = mo.models.create("llama", vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                             num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64)
    for module in [*model.modules()]:
        for name, child in [*module.named_children()]:
            if isinstance(child, mo.nn.Linear):
                setattr(module, name, mo.nn.QuantisedLinear(mo.quantise(child.weight, "q8_0")))
    here = [*mo.models.generate(model, [1, 2, 3], max_new_tokens=3)]
    assert [*mo.models.generate(model.to(gpu), [1, 2, 3], max_new_tokens=3)] == here
