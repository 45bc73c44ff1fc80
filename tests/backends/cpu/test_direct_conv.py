"""Convolutions whose windows are read where they lie: which ones, how they are divided, their bits, and their code."""

from __future__ import annotations

import doctest
import re
from typing import Any

import numpy as np
import pytest
from running import Native, parameter

import morpho as mo
from morpho.backends.code.compiler import llvm
from morpho.backends.kernels.conv import direct_conv
from morpho.backends.kernels.conv.direct_conv import TALLEST, DirectConv, DirectConvKernel, direct_register, line_length
from morpho.backends.kernels.conv.implicit_gemm import ImplicitGemmKernel, Windows
from morpho.backends.kernels.generators import generate
from morpho.base import settings
from morpho.base.dims import Dim
from morpho.base.dtypes import DType, float16, float32, float64
from morpho.base.machine import ISAS, Isa, choose_isa, foreign_machine
from morpho.base.target import target_for
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build
from morpho.program.view import View, whole
from morpho.runtime.plans.evaluate import make_plan

TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}


def conv(x: Any, weight: Any, dtype: DType = float32, **changes: Any) -> Node:
    how = {"before": (1, 1), "after": (1, 1), "steps": (1, 1), "dilations": (1, 1), "groups": 1, **changes}
    return build("conv", parameter(0, x, dtype), parameter(1, weight, dtype), **how)


def kernel_of(node: Node, isa: str = "vector128") -> Any:
    with settings.settings(isa=isa):
        return Native([node]).program.steps[-1].kernel


# -- which ones ------------------------------------------------------------------------------------------------------
DIRECT = {"plain": conv((2, 3, 9, 9), (5, 3, 3, 3)), "float64": conv((2, 3, 9, 9), (5, 3, 3, 3), float64),
          "strided": conv((2, 4, 9, 9), (6, 2, 3, 3), steps=(2, 2), dilations=(1, 2), groups=2),
          "any number of images": conv((Dim("n", 0, 8), 3, 9, 9), (5, 3, 3, 3))}
PACKED = {"float16": conv((2, 3, 9, 9), (5, 3, 3, 3), float16), "short lines": conv((2, 3, 9, 3), (5, 3, 3, 3)),
          "large windows": conv((1, 2, 20, 20), (3, 2, 13, 13)),
          "far apart": conv((1, 2, 40, 40), (3, 2, 2, 2), dilations=(1, 33)),
          "large steps": conv((1, 2, 40, 40), (3, 2, 2, 2), steps=(5, 5)),
          "long lines": conv((1, 2, 1, 2000), (3, 2, 1, 3), before=(0, 1), after=(0, 1)),
          "any height": conv((1, 3, Dim("h", 4, 8), 9), (5, 3, 3, 3))}


@pytest.mark.parametrize("name", DIRECT)
def test_windows_are_read_in_place(name: str) -> None:
    assert type(kernel_of(DIRECT[name])) is DirectConvKernel


@pytest.mark.parametrize("name", PACKED)
def test_windows_are_packed_elsewhere(name: str) -> None:
    assert type(kernel_of(PACKED[name])) is ImplicitGemmKernel


def test_without_vectors_windows_are_packed() -> None:
    assert type(kernel_of(DIRECT["plain"], "scalar")) is ImplicitGemmKernel


def steps_of_product(k: int, constants: tuple[int, ...], columns: int = 48, dtype: DType = float32) -> list[Any]:
    """The kernels of every call, where inputs of these numbers are constants."""
    node = build("matmul", parameter(0, (6, k), dtype), parameter(1, (k, columns), dtype))
    with settings.settings(isa="vector128"):
        plan = make_plan(Graph((node,)), True, 2, constants=constants)
    return [step.kernel for step in plan.program.steps]


def test_a_constant_matrix_is_packed_once_and_the_other_never() -> None:
    (kernel,) = steps_of_product(128, (0,))
    assert type(kernel) is DirectConvKernel and kernel.flat


OTHERS = [(128, ()), (128, (1,)), (64, (0,)), (128, (0,), 401), (128, (0,), 48, float16)]


@pytest.mark.parametrize("given", OTHERS, ids=str)
def test_other_products_are_not_turned(given: Any) -> None:
    """Matrices that change, too few values of k for sums to be turned around, no equal lines, half floats."""
    assert not any(isinstance(kernel, DirectConvKernel) for kernel in steps_of_product(*given))


def test_the_examples_are_true() -> None:
    assert doctest.testmod(direct_conv).failed == 0


# -- bits ------------------------------------------------------------------------------------------------------------
CASES = [  # x, weight, options; the instruction set without vectors packs windows
    ((2, 5, 9, 17), (7, 5, 3, 3), {"padding": 1}),
    ((1, 3, 5, 30), (33, 3, 3, 3), {"padding": ((0, 2), (3, 1))}),
    ((1, 4, 13, 29), (6, 2, 3, 2), {"stride": 2, "padding": 2, "groups": 2}),
    ((1, 2, 12, 40), (9, 2, 2, 3), {"stride": (1, 3), "dilation": (2, 2), "padding": 4}),
    ((2, 3, 2, 4), (5, 3, 5, 5), {"padding": 4}),  # lines of zeros alone
    ((1, 66, 4, 5), (5, 66, 3, 3), {"padding": 1}),  # several blocks of channels
    ((2, 4, 8, 9), (6, 2, 1, 1), {"groups": 2}),  # lines that follow one another
    ((2, 4, 9, 9), (6, 2, 1, 1), {"groups": 2, "stride": 2}),
    ((2, 130, 6, 8), (5, 130, 1, 1), {}),
    ((1, 3, 14, 57), (50, 3, 7, 7), {"stride": 2, "padding": 3}),
    ((1, 2, 5, 500), (3, 2, 1, 3), {"stride": (3, 1)}),
    ((1, 9, 11, 13), (3, 9, 1, 1), {"stride": (3, 2), "padding": ((0, 0), (1, 0))}),
]


@pytest.mark.sampled
@pytest.mark.parametrize("shape, kernel, options", CASES, ids=str)
def test_the_bits_of_packed_windows(shape: Any, kernel: Any, options: Any, rng: np.random.Generator) -> None:
    x, weight, bias = (mo.asarray(rng.normal(0, 1, s).astype(np.float32), copy=True)
                       for s in (shape, kernel, kernel[:1]))
    found = set()
    for chosen in ({"isa": "scalar"}, {"threads": 1}, {"threads": 3}):
        with mo.settings(**chosen):
            layer = mo.compile(lambda images: mo.relu(mo.conv2d(images, weight, bias, **options)))
            found.add(layer(x).numpy().tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("options", [{"padding": 1}, {"stride": 2, "padding": 2}], ids=str)
def test_images_of_any_layout(options: Any, rng: np.random.Generator) -> None:
    """Channels last, rows backwards, and a part of each line."""
    x = rng.normal(0, 1, (2, 9, 20, 3)).astype(np.float32)
    weight = mo.asarray(rng.normal(0, 1, (5, 3, 3, 3)).astype(np.float32), copy=True)
    layer = mo.compile(lambda images: mo.conv2d(images, weight, **options))
    seen = mo.permute_dims(mo.asarray(x, copy=True), (0, 3, 1, 2))[:, :, ::-1, 2:19]
    plain = mo.asarray(np.ascontiguousarray(x.transpose(0, 3, 1, 2)[:, :, ::-1, 2:19]), copy=True)
    assert layer(seen).numpy().tobytes() == layer(plain).numpy().tobytes()


IN_PLACE = [{}, {"stride": 2}, {"stride": (1, 3), "dilation": (2, 1)}, {"groups": 2}]


@pytest.mark.parametrize("options", IN_PLACE, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_images_with_channels_last_are_not_copied(options: Any, dtype: Any, rng: np.random.Generator) -> None:
    x = rng.normal(0, 1, (3, 14, 31, 8)).astype(dtype)
    weight = mo.asarray(rng.normal(0, 1, (20, 8 // options.get("groups", 1), 5, 3)).astype(dtype), copy=True)
    layer = mo.compile(lambda images: mo.conv2d(images, weight, **options))
    seen = mo.permute_dims(mo.asarray(x, copy=True), (0, 3, 1, 2))
    plain = mo.asarray(np.ascontiguousarray(x.transpose(0, 3, 1, 2)), copy=True)
    want = layer(plain).numpy().tobytes()
    for chosen in ({"threads": 1}, {"threads": 3}, {"isa": "scalar"}, {"isa": "vector128"}):
        with mo.settings(**chosen):
            assert mo.compile(lambda images: mo.conv2d(images, weight, **options))(seen).numpy().tobytes() == want


def test_how_far_pixels_lie_apart() -> None:
    def apart(image: Any, before: Any = (0, 0), steps: Any = (1, 1), dtype: DType = float32) -> int:
        n, c, h, w = image
        place = View(0, 0, image, (h * w * c, 1, w * c, c), dtype)
        shape = (n, 4, (h + before[0] - 3) // steps[0] + 1, (w + before[1] - 3) // steps[1] + 1)
        return direct_conv.pixels_apart(shape, place, (3, 3), Windows(before, steps, (1, 1), 1))

    assert apart((1, 16, 9, 9)) == 16 and apart((1, 16, 9, 9), steps=(2, 2)) == 32
    assert apart((1, 16, 9, 9), before=(1, 1)) == 0  # what lies around an image is in no memory
    assert apart((1, 128, 9, 9)) == 0 and apart((1, 32, 9, 9), dtype=float64) == 32
    near = conv((1, 16, 9, 9), (4, 16, 3, 3), before=(0, 0), after=(0, 0))
    assert kernel_of(near).apart == 0  # lines of neighbours are copied, a vector at a time


def test_small_items_and_blocks(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several items of lines and of channels, and several blocks of k, give the bits of one."""
    x, weight = (mo.asarray(rng.normal(0, 1, s).astype(np.float32), copy=True) for s in ((1, 7, 11, 12), (60, 7, 3, 3)))
    want = mo.conv2d(x, weight, padding=1).numpy()
    for name, size in (("MOST_PIXELS", 24), ("MOST_CHANNELS", 24), ("MOST_DEPTH", 20)):
        monkeypatch.setattr(direct_conv, name, size)
    node = conv((1, 7, 11, 12), (60, 7, 3, 3))
    program = Native([node])
    assert program.program.steps[-1].rows > 6
    assert program([x.numpy(), weight.numpy()])[0].tobytes() == want.tobytes()


# -- channels last -----------------------------------------------------------------------------------------------------
def last(x: Any, weight: Any, bias: Any, **options: Any) -> Any:
    """A convolution of images with channels last."""
    found = mo.conv2d(mo.permute_dims(x, (0, 3, 1, 2)), weight, bias, **options)
    return mo.permute_dims(mo.relu(found), (0, 2, 3, 1))


FOLLOWED = {"nothing": lambda x, w, b: mo.permute_dims(mo.conv2d(mo.permute_dims(x, (0, 3, 1, 2)), w), (0, 2, 3, 1)),
            "elementwise": lambda x, w, b: last(x, w, b, padding=1),
            "elementwise, then more": lambda x, w, b: last(x, w, b) * b + 1.0,
            "a norm": lambda x, w, b: last(x, w, b) / mo.mean(mo.exp(last(x, w, b)), axis=(0, 1, 2))}


@pytest.mark.parametrize("name", FOLLOWED)
def test_results_with_channels_last_are_written_so(name: str, rng: np.random.Generator) -> None:
    """The sums have their channels side by side: nothing is transposed, and the bits stay."""
    given = [mo.asarray(rng.normal(0, 1, shape).astype(np.float32), copy=True)
             for shape in ((2, 9, 13, 6), (37, 6, 3, 3), (37,))]
    found = set()
    for chosen in ({"isa": "scalar"}, {"threads": 1}, {"threads": 3}, {"isa": "vector128"}, {"passes_off": "views"}):
        with mo.settings(**chosen):
            layer = mo.compile(lambda *given: FOLLOWED[name](*given))
            found.add(layer(*given).numpy().tobytes())
            if "threads" in chosen:
                assert "copy" not in layer.explain() and "transposed" not in layer.explain()
    assert len(found) == 1


def test_groups_and_several_readers_keep_their_channels(rng: np.random.Generator) -> None:
    x, weight = (mo.asarray(rng.normal(0, 1, s).astype(np.float32), copy=True) for s in ((2, 9, 13, 6), (8, 3, 3, 3)))

    def both(x: Any) -> Any:
        found = mo.conv2d(mo.permute_dims(x, (0, 3, 1, 2)), weight, groups=2)
        return found, mo.permute_dims(found + 1.0, (0, 2, 3, 1))

    first, second = mo.compile(both)(x)
    alone = mo.compile(lambda x: both(x)[1])(x)
    assert second.numpy().tobytes() == alone.numpy().tobytes()
    assert np.array_equal(first.numpy().transpose(0, 2, 3, 1) + np.float32(1), alone.numpy())


# -- tiles -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["avx512", "avx2", "neon"])
def test_a_line_is_divided_evenly(name: str) -> None:
    for line in (*range(4, 64), 112, 223, 224):
        for channels in (1, 12, 48, 64, 80, 512):
            register = direct_register(float32, ISAS[name], line, channels)
            height, *lower = register.heights
            tall = line - -(-line // height) * (height - 1)
            assert tall * height + (-(-line // height) - tall) * (height - 1) == line
            assert lower == ([] if tall * height == line else [height - 1])
            assert height <= max(kind[register.vectors] for kind in TALLEST.values())


def test_panels_fit_the_channels() -> None:
    """64 channels are two panels of 32, not one of 48 and a third of another."""
    wide = ISAS["avx512"]
    assert [direct_register(float32, wide, 56, channels).width for channels in (64, 48, 16, 128)] == [32, 48, 16, 32]
    assert direct_register(float32, wide, 28, 128).heights == (14,)


def test_pixels_may_be_divided_into_any_lines() -> None:
    isa = target_for("vector128").isa
    assert line_length(49, 512, isa) == 49 and 3136 % line_length(3136, 64, isa) == 0
    assert line_length(2 * 401, 64, isa) == 0  # a prime is no product of short lines


RESNET = [(64, 56, 64), (128, 28, 128), (256, 14, 256), (512, 7, 512)]


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("channels, side, count", RESNET)
def test_items_are_even(channels: int, side: int, count: int, threads: int) -> None:
    """All lines and panels are there, and no thread has much more of them than the others."""
    found = DirectConv((1, count, side, side), whole(0, (1, channels, side, side), float32),
                          whole(1, (count, channels, 3, 3), float32), Windows((1, 1), (1, 1), (1, 1), 1),
                          target_for("vector128", threads))
    tiling = found.tiling
    lines = tiling.tile_rows // side
    assert lines * side == tiling.tile_rows and (tiling.row_tiles - 1) * lines < side <= tiling.row_tiles * lines
    assert (tiling.column_tiles - 1) * tiling.tile_panels < found.panels <= tiling.column_tiles * tiling.tile_panels
    assert tiling.items >= threads and tiling.depth % 9 == 0
    longest = -(-tiling.items // threads) * lines * tiling.tile_panels
    assert longest * threads <= 1.2 * side * found.panels


LARGE = [((1, 40, 64, 1024), (800, 40, 3, 3), (1, 1), (1, 1)), ((1, 40, 200, 300), (9, 40, 2, 2), (4, 4), (32, 32)),
         ((1, 2048, 14, 14), (2048, 2048, 1, 1), (1, 1), (1, 1)), ((1, 64, 4000, 16), (64, 64, 3, 3), (4, 4), (1, 1))]


@pytest.mark.parametrize("shape, kernel, steps, dilations", LARGE, ids=str)
def test_scratch_is_bounded(shape: Any, kernel: Any, steps: Any, dilations: Any) -> None:
    """A thread's share is a few megabytes, whatever the sizes."""
    how = {"before": (0, 0), "after": (0, 0), "steps": steps, "dilations": dilations}
    with settings.settings(isa="vector128"):
        step = Native([conv(shape, kernel, **how)]).program.steps[-1]
    assert type(step.kernel) is DirectConvKernel and step.scratch < 5 << 20


# -- code ------------------------------------------------------------------------------------------------------------
CODE = [("avx512", (14,), 2, False), ("avx512", (8,), 3, False), ("avx512", (12, 11), 2, True),
        ("avx2", (6,), 2, False), ("avx2", (4,), 3, True), ("neon", (12,), 2, False), ("neon", (8,), 3, True)]
FMA = {"x86_64": r"\bvfmadd\w+ps\b", "aarch64": r"\bfmla\b"}
SPILL = r"[yz]mm\d+, -?\d*\(%[re]sp\)|\bst[rp]\s+q\d+.*\[sp"


def target(name: str) -> Isa:
    return choose_isa(name, foreign_machine("aarch64" if name == "neon" else "x86_64"))


@pytest.mark.parametrize("name, heights, vectors, flat", CODE, ids=str)
def test_the_sums_stay_in_registers(name: str, heights: tuple[int, ...], vectors: int, flat: bool) -> None:
    isa = target(name)
    kernel = DirectConvKernel(float32, heights=heights, vectors=vectors, flat=flat)
    text = llvm.assembly(generate(kernel, isa, "kernel"), isa, TRIPLES[isa.architecture])
    for height in heights:
        body = re.search(rf"^micro{height}:\n(.*?)^\.Lfunc_end", text, re.DOTALL | re.MULTILINE)
        assert body is not None
        # Four steps of k at a time, then one: nothing else multiplies.
        assert len(re.findall(FMA[isa.architecture], body[1])) == 5 * height * vectors
        assert not re.search(SPILL, body[1])


def test_wide_panels_are_asked_for_ahead_of_time() -> None:
    for name, found in (("avx512", True), ("avx2", False), ("neon", False)):
        isa = target(name)
        assert ("llvm.prefetch" in generate(DirectConvKernel(float32, heights=(4,)), isa, "kernel")) == found


@pytest.mark.sampled
@pytest.mark.parametrize(("made", "read", "kernel", "step"), [(64, 32, 3, 1), (64, 96, 3, 2), (40, 24, 3, 1),
                                                              (32, 30, 5, 1)])
@pytest.mark.parametrize("dtype", ("float32", "float64", "bfloat16"))
def test_gradients_move_weights_once(made: int, read: int, kernel: int, step: int, dtype: str) -> None:
    """Those for the image read weights turned round, which go into panels from where they lie; those of weights are
    written in the order of the weights. Both are what the reference makes of them."""
    rng = np.random.default_rng(made)
    x, w = rng.standard_normal((2, read, 9, 9)), 0.1 * rng.standard_normal((made, read, kernel, kernel))

    def gradients(x: mo.Tensor, w: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        return mo.grad(lambda x, w: mo.sum(mo.sin(mo.conv2d(x, w, stride=step, padding=1))), argnums=(0, 1))(x, w)

    values = [mo.asarray(array, dtype=dtype) for array in (x, w)]
    native = mo.compile(gradients)
    found = [value.astype("float64").numpy() for value in native(*values)]
    with mo.settings(device="reference"):
        expected = [value.astype("float64").numpy() for value in mo.compile(gradients)(*values)]
    for ours, theirs in zip(found, expected, strict=True):
        error = np.max(np.abs(ours - theirs)) / np.max(np.abs(theirs))
        assert error < {"float32": 1e-4, "float64": 1e-12, "bfloat16": 0.05}[dtype]
    steps = native.current.plan.lowered.steps
    written = {place.slot for place in native.current.plan.program.outputs}
    labels = [step.label for step in steps if written & {step.views[n].slot for n in step.writes}]
    if step == 1:  # with strides the image's gradient is put together of its phases
        assert labels == ["conv", "conv"]  # none of the outputs is a copy
    if dtype != "bfloat16" and read % 32 == 0:  # by vectors of 8 and 16: panels are full
        shapes = [step.views[0].shape for step in steps if step.label == "pack"]
        assert shapes.count((made, read, kernel, kernel)) == 1  # of the forward pass
