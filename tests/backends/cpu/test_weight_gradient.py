"""Gradients of convolutions: by weights without packed windows, kernels packed as they lie, strides without zeros."""

from __future__ import annotations

import doctest
import re
from typing import Any

import numpy as np
import pytest
from running import Native, parameter

import morpho as mo
from morpho.backends.code.compiler import llvm
from morpho.backends.kernels.conv import kernel_pack, weight_gradient
from morpho.backends.kernels.conv.implicit_gemm import ImplicitGemmKernel, Windows
from morpho.backends.kernels.conv.kernel_pack import KernelPackKernel
from morpho.backends.kernels.conv.weight_gradient import WeightGradientConv, WeightGradientKernel
from morpho.backends.kernels.generators import generate
from morpho.base import settings
from morpho.base.dtypes import DType, float16, float32
from morpho.base.machine import Isa, choose_isa, foreign_machine
from morpho.base.target import target_for
from morpho.ir.node import Node, build
from morpho.ops.neural import convolution
from morpho.program.view import whole

TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}


def conv(x: Any, weight: Any, dtype: DType = float32, **changes: Any) -> Node:
    how = {"before": (1, 1), "after": (1, 1), "steps": (1, 1), "dilations": (1, 1), "groups": 1, **changes}
    return build("conv", parameter(0, x, dtype), parameter(1, weight, dtype), **how)


def kernels_of(node: Node, isa: str = "vector128") -> list[Any]:
    with settings.settings(isa=isa):
        return [step.kernel for step in Native([node]).program.steps]


# -- by weights --------------------------------------------------------------------------------------------------------
def test_a_window_as_large_as_an_image_is_a_gradient_of_weights() -> None:
    large = conv((5, 2, 9, 9), (6, 2, 9, 9))
    assert WeightGradientKernel in map(type, kernels_of(large))
    others = {"scalar": large, "vector128": conv((5, 2, 9, 9), (6, 2, 9, 9), float16)}
    for isa, node in others.items():
        assert ImplicitGemmKernel in map(type, kernels_of(node, isa))
    strided = conv((5, 2, 49, 9), (6, 2, 9, 9), dilations=(6, 1))
    assert WeightGradientKernel in map(type, kernels_of(strided))
    assert WeightGradientKernel not in map(type, kernels_of(conv((5, 2, 9, 49), (6, 2, 9, 9), dilations=(1, 6))))


CASES = [  # x, weight, options
    ((1, 5, 9, 17), (7, 5, 3, 3), {"padding": 1}),
    ((3, 5, 9, 8), (40, 5, 3, 5), {"padding": ((0, 2), (3, 1))}),  # several images and panels
    ((2, 3, 21, 30), (6, 3, 7, 7), {"stride": 2, "padding": 3}),
    ((1, 24, 12, 15), (9, 24, 1, 1), {"stride": (2, 3)}),  # register tiles of several channels
    ((2, 7, 12, 13), (3, 7, 1, 1), {"stride": 2}),
    ((1, 4, 20, 13), (9, 4, 2, 3), {"dilation": (2, 3), "padding": 2}),
    ((1, 13, 37, 5), (2, 13, 3, 2), {}),  # a prime number of lines
    ((1, 3, 4, 300), (5, 3, 1, 3), {}),  # lines longer than a block
]


def gradients(x: Any, weight: Any, options: Any) -> tuple[bytes, ...]:
    cotangent = mo.asarray(np.random.default_rng(3).normal(0, 1, mo.conv2d(x, weight, **options).shape), dtype=x.dtype)
    step = mo.compile(lambda x, w, ct: tuple(mo.vjp(lambda x, w: mo.conv2d(x, w, **options), x, w)[1](ct)))
    return tuple(part.numpy().tobytes() for part in step(x, weight, cotangent))


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape, kernel, options", CASES, ids=str)
def test_the_bits_of_packed_windows(shape: Any, kernel: Any, options: Any, dtype: Any,
                                    rng: np.random.Generator) -> None:
    """Those of an instruction set without vectors, which packs windows, for any number of threads."""
    x, weight = (mo.asarray(rng.normal(0, 1, s).astype(dtype), copy=True) for s in (shape, kernel))
    found = set()
    for chosen in ({"isa": "scalar"}, {"threads": 1}, {"threads": 3}, {"isa": "vector128"}):
        with mo.settings(**chosen):
            found.add(gradients(x, weight, options))
    assert len(found) == 1


def test_small_items_and_blocks(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several items of channels and kernels, and several blocks of lines, give the bits of one."""
    x, weight = (rng.normal(0, 1, shape).astype(np.float32) for shape in ((12, 2, 14, 11), (60, 2, 12, 9)))
    node = conv((12, 2, 14, 11), (60, 2, 12, 9))
    want = Native([node])([x, weight])[0].tobytes()
    for name, size in (("SUMS_BYTES", 4096), ("MOST_DEPTH", 20)):
        monkeypatch.setattr(weight_gradient, name, size)
    program = Native([node])
    (step,) = [s for s in program.program.steps if isinstance(s.kernel, WeightGradientKernel)]
    assert step.rows > 3
    assert program([x, weight])[0].tobytes() == want


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("channels, side", [(64, 56), (128, 28), (256, 14), (512, 7)])
def test_items_of_resnet(channels: int, side: int, threads: int) -> None:
    """Enough items for all threads, and the scratch memory of one stays small."""
    shape = channels, channels, 3, 3
    found = WeightGradientConv(shape, whole(0, (channels, 1, side, side), float32),
                               whole(1, (channels, 1, side, side), float32), Windows((1, 1), (1, 1), (1, 1), 1),
                               target_for("vector128", threads))
    assert found.items >= threads and found.places[3] < 1 << 20
    assert found.tile_images % found.group == 0 == found.window[0] % found.lines


def test_what_follows_reads_it_through_a_view(rng: np.random.Generator) -> None:
    """The gradient has the layout of the weights: a step of an optimiser needs no copy of it."""
    x, weight, ct = (mo.asarray(rng.normal(0, 1, shape).astype(np.float32))
                     for shape in ((2, 5, 9, 9), (7, 5, 3, 3), (2, 7, 9, 9)))

    def step(x: Any, weight: Any, ct: Any) -> Any:
        return weight - 0.5 * mo.vjp(lambda w: mo.conv2d(x, w, padding=1), weight)[1](ct)[0]

    with mo.settings(isa="vector128"):
        compiled = mo.compile(step)
        found = compiled(x, weight, ct).numpy()
    assert "copy" not in compiled.explain()
    with mo.settings(isa="scalar"):
        assert mo.compile(step)(x, weight, ct).numpy().tobytes() == found.tobytes()


# -- code ------------------------------------------------------------------------------------------------------------
CODE = [("avx512", (9,), 2, 0), ("avx512", (10, 9), 2, 0), ("avx512", (8,), 2, 7), ("avx2", (5, 4), 2, 0),
        ("neon", (9,), 2, 0)]
FMA = {"x86_64": r"\bvfmadd\w+ps\b", "aarch64": r"\bfmla\b"}
SPILL = r"[yz]mm\d+, -?\d*\(%[re]sp\)|\bst[rp]\s+q\d+.*\[sp"


def target(name: str) -> Isa:
    return choose_isa(name, foreign_machine("aarch64" if name == "neon" else "x86_64"))


@pytest.mark.parametrize("name, heights, vectors, columns", CODE, ids=str)
def test_the_sums_stay_in_registers(name: str, heights: tuple[int, ...], vectors: int, columns: int) -> None:
    isa = target(name)
    kernel = WeightGradientKernel(float32, heights, vectors, 1, columns)
    text = llvm.assembly(generate(kernel, isa, "kernel"), isa, TRIPLES[isa.architecture])
    for height in heights:
        body = re.search(rf"^micro{height}:\n(.*?)^\.Lfunc_end", text, re.DOTALL | re.MULTILINE)
        assert body is not None
        # Four columns at a time, then one; or all of a line.
        assert len(re.findall(FMA[isa.architecture], body[1])) == (columns or 5) * height * vectors
        assert not re.search(SPILL, body[1])


# -- kernels as they lie -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("options", [{"padding": 1}, {"stride": 2, "padding": 1}, {"groups": 2}], ids=str)
def test_kernels_that_are_turned_around_are_not_copied(options: Any, rng: np.random.Generator) -> None:
    groups = options.get("groups", 1)
    x, weight = (mo.asarray(rng.normal(0, 1, s).astype(np.float32)) for s in ((1, 6, 9, 12), (50, 6 // groups, 3, 3)))
    ct = mo.ones(mo.conv2d(x, weight, **options).shape)
    with mo.settings(isa="vector128"):
        back = mo.compile(lambda x, w, ct: mo.vjp(lambda x: mo.conv2d(x, w, **options), x)[1](ct)[0])
        back(x, weight, ct)
    steps = [line for line in back.explain().splitlines() if " kernel " in line]
    copied = [line for line in steps if " copy " in line and "x 9" in line]
    assert any(" pack " in line for line in steps) and (groups > 1 or not copied)


def test_packed_by_places(rng: np.random.Generator) -> None:
    """Every second place of kernels with their axes exchanged, a full panel and part of one."""
    whole_kernels = rng.normal(0, 1, (4, 53, 3, 5)).astype(np.float32)
    kernels = whole_kernels.transpose(1, 0, 2, 3)[:, :, ::-1, ::-2]
    x = rng.normal(0, 1, (2, 4, 8, 9)).astype(np.float32)
    given = build("permute", parameter(1, whole_kernels.shape, float32), axes=(1, 0, 2, 3))
    given = build("slice", given, starts=(0, 0, 2, 4), sizes=kernels.shape, steps=(1, 1, -1, -2))
    how = {"before": (1, 1), "after": (1, 1), "steps": (1, 1), "dilations": (1, 1), "groups": 1}
    program = Native([build("conv", parameter(0, x.shape, float32), given, **how)])
    assert [type(step.kernel) for step in program.program.steps][0] is KernelPackKernel
    plain = Native([build("conv", parameter(0, x.shape, float32), parameter(1, kernels.shape, float32), **how)])
    found = program([x, whole_kernels])[0]
    assert found.tobytes() == plain([x, np.ascontiguousarray(kernels)])[0].tobytes()


def test_the_examples_are_true() -> None:
    for module in (kernel_pack, weight_gradient, convolution):
        assert doctest.testmod(module).failed == 0


# -- strides -----------------------------------------------------------------------------------------------------------
SPREAD = [((2, 4, 5, 6), (4, 4, 3, 3), (2, 2), (1, 1)), ((1, 4, 4, 5), (4, 2, 4, 5), (3, 2), (1, 1)),
          ((1, 4, 5, 4), (4, 3, 3, 4), (2, 4), (2, 3)), ((2, 4, 3, 3), (4, 1, 1, 1), (3, 2), (1, 1)),
          ((1, 2, 3, 4), (2, 3, 2, 3), (4, 1), (3, 2))]


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("x, kernel, steps, dilations", SPREAD, ids=str)
def test_phases_have_the_bits_of_a_convolution_with_zeros(x: Any, kernel: Any, steps: Any, dilations: Any, groups: int,
                                                          rng: np.random.Generator) -> None:
    before = (1, 0)
    sizes = tuple((x[2 + d] - 1) * steps[d] + (kernel[2 + d] - 1) * dilations[d] + 1 - before[d] for d in (0, 1))
    images, weight = parameter(0, x, float32), parameter(1, kernel, float32)
    phases = convolution.transposed(images, weight, sizes, before, steps, dilations, groups)
    spread = convolution._dilated(images, steps)
    zeros = convolution.transposed(spread, weight, sizes, before, (1, 1), dilations, groups)
    arrays = [rng.normal(0, 1, shape).astype(np.float32) for shape in (x, kernel)]
    assert phases is not zeros
    assert Native([phases])(arrays)[0].tobytes() == Native([zeros])(arrays)[0].tobytes()


def test_half_floats_keep_their_zeros() -> None:
    """A sum of bfloat16 has chains of its own for every second product: leaving out a zero changes them."""
    node = convolution.transposed(parameter(0, (1, 2, 3, 3), float16), parameter(1, (2, 2, 3, 3), float16), (5, 5),
                                  (1, 1), (2, 2), (1, 1), 1)
    assert node.op.name == "conv" and node.inputs[0].op.name == "update"
