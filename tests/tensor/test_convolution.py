"""Convolutions against plain loops in float64: every argument, dtype and layout; bits, gradients, kernels, errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, ShapeError
from morpho.base.machine import available_isas, machine

Array = Any
ISAS = available_isas(machine())


# -- references ------------------------------------------------------------------------------------------------------
def loop_conv(x: Array, weight: Array, bias: Array | None = None, stride: Any = (1, 1), padding: Any = ((0, 0), (0, 0)),
              dilation: Any = (1, 1), groups: int = 1) -> Array:
    """A convolution by its definition, one product at a time."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *padding))
    count, taken, rows, columns = weight.shape
    height = (x.shape[2] - dilation[0] * (rows - 1) - 1) // stride[0] + 1
    width = (x.shape[3] - dilation[1] * (columns - 1) - 1) // stride[1] + 1
    result = np.zeros((x.shape[0], count, height, width))
    for o, i, j in itertools.product(range(count), range(height), range(width)):
        first = o // (count // groups) * taken
        for c, r, s in itertools.product(range(taken), range(rows), range(columns)):
            at = x[:, first + c, i * stride[0] + r * dilation[0], j * stride[1] + s * dilation[1]]
            result[:, o, i, j] += at * np.float64(weight[o, c, r, s])
    return result if bias is None else result + bias.astype(np.float64)[:, None, None]


def loop_transpose(x: Array, weight: Array, stride: Any, padding: Any, output_padding: Any, dilation: Any,
                   groups: int) -> Array:
    """A transposed convolution by its definition: every element of x spreads a kernel."""
    channels, per_group, rows, columns = weight.shape
    full = [(x.shape[2 + d] - 1) * stride[d] + dilation[d] * (weight.shape[2 + d] - 1) + 1 for d in (0, 1)]
    spread = np.zeros((x.shape[0], per_group * groups, full[0] + output_padding[0], full[1] + output_padding[1]))
    for c, o, r, s in itertools.product(range(channels), range(per_group), range(rows), range(columns)):
        target = c // (channels // groups) * per_group + o
        for i, j in itertools.product(range(x.shape[2]), range(x.shape[3])):
            spread[:, target, i * stride[0] + r * dilation[0], j * stride[1] + s * dilation[1]] += (
                x[:, c, i, j].astype(np.float64) * np.float64(weight[c, o, r, s]))
    height, width = spread.shape[2] - 2 * padding[0], spread.shape[3] - 2 * padding[1]
    return spread[:, :, padding[0]:padding[0] + height, padding[1]:padding[1] + width]


def close(got: Array, want: Array, eps: float = 1e-5) -> None:
    assert got.shape == want.shape
    assert np.allclose(got, want, rtol=eps, atol=eps * (1 + np.max(np.abs(want), initial=0)))


def draw(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(0, 1, shape).astype(np.float32)


# -- values ----------------------------------------------------------------------------------------------------------
CASES = [  # x, weight, stride, padding, dilation, groups
    ((1, 1, 3, 3), (1, 1, 3, 3), (1, 1), (0, 0), (1, 1), 1),
    ((2, 3, 7, 9), (5, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((2, 3, 11, 8), (25, 3, 5, 3), (2, 1), (2, 0), (1, 1), 1),
    ((1, 4, 12, 13), (6, 2, 3, 3), (1, 2), (0, 3), (2, 3), 2),
    ((3, 6, 9, 9), (9, 2, 1, 4), (3, 3), (1, 2), (1, 2), 3),
    ((2, 5, 6, 7), (3, 5, 1, 1), (1, 1), (0, 0), (1, 1), 1),  # a product of matrices
    ((2, 5, 6, 7), (3, 5, 1, 1), (2, 3), (0, 0), (1, 1), 1),
    ((2, 4, 6, 7), (8, 2, 1, 1), (1, 1), (0, 0), (1, 1), 2),
    ((2, 5, 9, 8), (5, 1, 3, 3), (1, 1), (1, 1), (1, 1), 5),  # depthwise
    ((2, 3, 9, 8), (6, 1, 3, 2), (2, 1), (1, 0), (1, 2), 3),
    ((2, 1, 20, 33), (13, 1, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((1, 70, 5, 5), (3, 70, 3, 3), (1, 1), (1, 1), (1, 1), 1),  # more than one block of k
    ((0, 3, 7, 9), (5, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("with_bias", [False, True])
def test_conv2d(case: Any, with_bias: bool, rng: np.random.Generator) -> None:
    shape, kernel, stride, padding, dilation, groups = case
    x, weight = draw(rng, *shape), draw(rng, *kernel)
    bias = draw(rng, kernel[0]) if with_bias else None
    want = loop_conv(x, weight, bias, stride, tuple((p, p) for p in padding), dilation, groups)
    got = mo.conv2d(x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups)
    close(got.numpy(), want)


@pytest.mark.parametrize("dtype, eps", [(mo.float64, 1e-13), (mo.float32, 1e-5), (mo.float16, 2e-3),
                                        (mo.bfloat16, 2e-2)], ids=str)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_dtypes(dtype: Any, eps: float, groups: int, rng: np.random.Generator) -> None:
    x = mo.asarray(draw(rng, 2, 4, 6, 7)).astype(dtype)
    weight = mo.asarray(draw(rng, 8, 4 // groups, 3, 3)).astype(dtype)
    got = mo.conv2d(x, weight, padding=1, groups=groups)
    assert got.dtype is dtype
    wide = [np.asarray(t.astype(mo.float64).numpy()) for t in (x, weight)]
    close(got.astype(mo.float64).numpy(), loop_conv(*wide, padding=((1, 1), (1, 1)), groups=groups), eps)


def test_all_forms_of_padding(rng: np.random.Generator) -> None:
    x, weight = draw(rng, 1, 2, 8, 9), draw(rng, 3, 2, 4, 3)
    forms = {0: ((0, 0), (0, 0)), 2: ((2, 2), (2, 2)), (1, 2): ((1, 1), (2, 2)), ((1, 2), (0, 3)): ((1, 2), (0, 3)),
             "valid": ((0, 0), (0, 0)), "same": ((1, 2), (1, 1)), ((0, 1), 2): ((0, 1), (2, 2))}
    for given, widths in forms.items():
        close(mo.conv2d(x, weight, padding=given).numpy(), loop_conv(x, weight, padding=widths))
    assert mo.conv2d(x, weight, padding="same", dilation=2).shape == (1, 3, 8, 9)


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"dilation": 3, "groups": 2}, {"padding": "same"},
                                     {"padding": ((2, 0),)}], ids=str)
def test_conv1d(options: dict[str, Any], rng: np.random.Generator) -> None:
    groups = options.get("groups", 1)
    x, weight, bias = draw(rng, 2, 4, 17), draw(rng, 6, 4 // groups, 3), draw(rng, 6)
    widths = {1: (1, 1), "same": (1, 1), ((2, 0),): (2, 0)}.get(options.get("padding", 0), (0, 0))
    want = loop_conv(x[:, :, None], weight[:, :, None], bias, (1, options.get("stride", 1)), ((0, 0), widths),
                     (1, options.get("dilation", 1)), groups)
    close(mo.conv1d(x, weight, bias, **options).numpy(), want[:, :, 0])


TRANSPOSED = [  # x, weight, stride, padding, output_padding, dilation, groups
    ((2, 3, 4, 5), (3, 2, 3, 3), (1, 1), (0, 0), (0, 0), (1, 1), 1),
    ((1, 4, 5, 4), (4, 3, 3, 2), (2, 3), (1, 0), (1, 2), (1, 1), 2),
    ((2, 2, 3, 4), (2, 5, 2, 3), (2, 1), (1, 2), (0, 1), (3, 2), 1),
    ((2, 4, 3, 3), (4, 1, 3, 3), (2, 2), (1, 1), (1, 1), (1, 1), 4),
    ((0, 2, 3, 4), (2, 5, 2, 3), (2, 1), (0, 0), (0, 0), (1, 1), 1),
]


@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_conv_transpose2d(case: Any, rng: np.random.Generator) -> None:
    shape, kernel, stride, padding, output_padding, dilation, groups = case
    x, weight, bias = draw(rng, *shape), draw(rng, *kernel), draw(rng, kernel[1] * groups)
    want = loop_transpose(x, weight, stride, padding, output_padding, dilation, groups) + bias[:, None, None]
    got = mo.conv_transpose2d(x, weight, bias, stride=stride, padding=padding, output_padding=output_padding,
                              dilation=dilation, groups=groups)
    close(got.numpy(), want)


def test_conv_transpose1d(rng: np.random.Generator) -> None:
    x, weight = draw(rng, 2, 3, 6), draw(rng, 3, 2, 4)
    want = loop_transpose(x[:, :, None], weight[:, :, None], (1, 3), (0, 2), (0, 1), (1, 2), 1)
    got = mo.conv_transpose1d(x, weight, stride=3, padding=2, output_padding=1, dilation=2)
    close(got.numpy(), want[:, :, 0])


def test_operands_of_any_layout(rng: np.random.Generator) -> None:
    """Images with channels last and weights turned around are read where they lie."""
    x, weight = draw(rng, 2, 9, 8, 3), draw(rng, 3, 3, 3, 5)
    images = mo.permute_dims(mo.asarray(x), (0, 3, 1, 2))[:, :, ::-1, 1:]
    kernels = mo.permute_dims(mo.asarray(weight), (3, 2, 0, 1))
    want = loop_conv(x.transpose(0, 3, 1, 2)[:, :, ::-1, 1:], weight.transpose(3, 2, 0, 1), padding=((1, 1), (1, 1)))
    close(mo.conv2d(images, kernels, padding=1).numpy(), want)


def test_nan_and_infinity_stay_where_they_are(rng: np.random.Generator) -> None:
    x, weight = draw(rng, 1, 2, 9, 9), draw(rng, 3, 2, 3, 3)
    x[0, 1, 4, 4] = np.nan
    got = np.isnan(mo.conv2d(x, weight, padding=1).numpy())
    assert got[:, :, 3:6, 3:6].all() and got.sum() == 3 * 9


# -- bits ------------------------------------------------------------------------------------------------------------
FORMS = {"general": ((7, 4, 3, 3), {"padding": 1}), "groups": ((6, 2, 3, 2), {"stride": 2, "groups": 2}),
         "pointwise": ((5, 4, 1, 1), {}), "depthwise": ((4, 1, 3, 3), {"padding": 1, "groups": 4})}


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [mo.float32, mo.float64, mo.float16, mo.bfloat16], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_the_same_bits_everywhere(form: str, dtype: Any, rng: np.random.Generator) -> None:
    """Threads, level, instruction set, batch, static or dynamic: one answer."""
    kernel, options = FORMS[form]
    x = mo.asarray(rng.normal(0, 1, (5, 4, 11, 13))).astype(dtype).realise()
    weight = mo.asarray(rng.normal(0, 1, kernel)).astype(dtype).realise()
    bias = mo.asarray(rng.normal(0, 1, kernel[0])).astype(dtype).realise()

    def layer(images: mo.Tensor) -> mo.Tensor:
        return mo.relu(mo.conv2d(images, weight, bias, **options))

    def bits(result: mo.Tensor) -> bytes:
        return result.astype(mo.float64).numpy().tobytes()

    want = bits(layer(x))
    for chosen in ({"threads": 1}, {"threads": 2}, {"level": 0}, {"level": 3}, *({"isa": isa} for isa in ISAS)):
        with mo.settings(**chosen):
            assert bits(layer(x)) == want, chosen
    rows = [layer(x[i:i + 1]).astype(mo.float64).numpy() for i in range(5)]
    assert np.concatenate(rows).tobytes() == want
    dynamic = mo.compile(layer, dynamic={"images": {0: mo.Dim("n", 0, 64)}})
    assert bits(dynamic(x)) == want
    assert np.array_equal(dynamic(x[:2]).astype(mo.float64).numpy(), np.concatenate(rows[:2]))
    assert dynamic(x[:0]).shape[0] == 0
    assert dynamic.stats["recompiles"] == 0


# -- gradients -------------------------------------------------------------------------------------------------------
def numeric(function: Any, arrays: list[Array], which: int) -> Array:
    """Central differences of a scalar function, element by element."""
    result = np.zeros_like(arrays[which])
    for place in np.ndindex(*arrays[which].shape):
        sides = []
        for sign in (1, -1):
            moved = [a.copy() for a in arrays]
            moved[which][place] += sign * 1e-5
            sides.append(float(function(*[mo.asarray(a) for a in moved])))
        result[place] = (sides[0] - sides[1]) / 2e-5
    return result


GRADIENTS = [
    ("conv2d", (2, 2, 5, 4), (3, 2, 3, 2), {"stride": (2, 1), "padding": ((1, 0), (0, 2)), "dilation": (1, 2)}),
    ("conv2d", (1, 4, 4, 4), (4, 2, 2, 2), {"groups": 2, "stride": 2}),
    ("conv2d", (2, 3, 3, 4), (2, 3, 1, 1), {}),
    ("conv2d", (1, 2, 5, 5), (4, 1, 3, 2), {"groups": 2, "stride": (1, 2), "padding": 1}),
    ("conv1d", (2, 2, 7), (3, 2, 3), {"stride": 3, "padding": 1}),
    ("conv_transpose2d", (1, 2, 3, 2), (2, 2, 2, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    ("conv_transpose1d", (2, 4, 3), (4, 1, 2), {"stride": 2, "dilation": 2, "groups": 2}),
]


@pytest.mark.parametrize("name, shape, kernel, options", GRADIENTS, ids=str)
def test_gradients(name: str, shape: Any, kernel: Any, options: Any, rng: np.random.Generator) -> None:
    count = kernel[0] if name.startswith("conv1") or name == "conv2d" else kernel[1] * options.get("groups", 1)
    arrays = [rng.normal(0, 1, s) for s in (shape, kernel, (count,))]
    function = getattr(mo, name)
    factors = rng.normal(0, 1, function(*arrays, **options).shape)

    def loss(x: Any, weight: Any, bias: Any) -> mo.Tensor:
        return (function(x, weight, bias, **options) * mo.asarray(factors)).sum()

    for which in range(3):
        def one(leaf: Any, which: int = which) -> mo.Tensor:
            return loss(*[leaf if i == which else mo.asarray(a) for i, a in enumerate(arrays)])

        close(mo.grad(one)(mo.asarray(arrays[which])).numpy(), numeric(loss, arrays, which), 1e-6)


def test_the_gradient_has_a_gradient(rng: np.random.Generator) -> None:
    x, weight = (mo.asarray(rng.normal(0, 1, s)) for s in ((1, 2, 4, 4), (2, 2, 3, 3)))

    def inner(kernels: Any) -> mo.Tensor:
        return mo.grad(lambda images: mo.square(mo.conv2d(images, kernels, padding=1)).sum())(x).sum()

    close(mo.grad(inner)(weight).numpy(), numeric(lambda k: inner(k), [weight.numpy().copy()], 0), 1e-6)


# -- kernels ---------------------------------------------------------------------------------------------------------
def owned(array: Array) -> mo.Tensor:
    """A tensor with memory of its own, which a compiled function takes for a constant."""
    return mo.asarray(array, copy=True)


def constants(rng: np.random.Generator, count: int) -> list[mo.Tensor]:
    return [owned(draw(rng, count)), owned(draw(rng, count)), owned(np.abs(draw(rng, count)) + 0.5),
            owned(draw(rng, count)), owned(draw(rng, count))]


def test_convolution_and_what_follows_is_one_kernel(rng: np.random.Generator) -> None:
    """Bias, batch norm and relu run on the tiles; packing of weights and folding of the norm ran once."""
    x, residual = mo.asarray(draw(rng, 2, 3, 12, 10)), mo.asarray(draw(rng, 2, 8, 12, 10))
    weight = owned(draw(rng, 8, 3, 3, 3))
    bias, mean, variance, gain, shift = constants(rng, 8)

    @mo.compile
    def layer(images: Any, other: Any) -> mo.Tensor:
        normal = mo.batch_norm(mo.conv2d(images, weight, bias, padding=1), mean, variance, gain, shift)
        return mo.relu(normal + other)

    got = layer(x, residual).numpy()
    assert layer.stats["kernels"] == 1 and layer.stats["host_steps"] == 0 and layer.stats["copies"] == 0
    assert "conv+add" in layer.explain()
    want = loop_conv(x.numpy(), weight.numpy(), bias.numpy(), padding=((1, 1), (1, 1)))
    scale = gain.numpy() / np.sqrt(variance.numpy().astype(np.float64) + 1e-5)
    want = (want - mean.numpy()[:, None, None]) * scale[:, None, None] + shift.numpy()[:, None, None]
    close(got, np.maximum(want + residual.numpy(), 0))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("length, groups", [(3, 1), (3, 2), (3, 16), (1, 1)], ids=str)
def test_lines_and_what_follows_are_one_kernel(length: int, groups: int, count: int, rng: np.random.Generator) -> None:
    """The bias is added to lines, so that no change of shape parts it from the norm and the relu."""
    x, weight = draw(rng, count, 16, 21), owned(draw(rng, 16, 16 // groups, length))
    bias, mean, variance, gain, shift = constants(rng, 16)

    def layer(lines: Any) -> mo.Tensor:
        found = mo.conv1d(lines, weight, bias, padding=length // 2, groups=groups)
        return mo.relu(mo.batch_norm(found, mean, variance, gain, shift))

    compiled = mo.compile(layer)
    got = compiled(mo.asarray(x)).numpy()
    assert compiled.stats["copies"] == 0
    assert compiled.stats["kernels"] == 1 or length == 1  # a product may pack its lines first
    assert any(f"{product}+add+multiply+add+maximum" in compiled.explain() for product in ("conv", "matmul", "sum"))
    want = loop_conv(x[:, :, None], weight.numpy()[:, :, None], bias.numpy(), padding=((0, 0), (length // 2,) * 2),
                     groups=groups)[:, :, 0]
    scale = gain.numpy() / np.sqrt(variance.numpy().astype(np.float64) + 1e-5)
    close(got, np.maximum((want - mean.numpy()[:, None]) * scale[:, None] + shift.numpy()[:, None], 0))
    with mo.settings(level=0):
        assert np.array_equal(layer(mo.asarray(x)).numpy(), got)


def test_two_layers_are_two_kernels(rng: np.random.Generator) -> None:
    first, second = owned(draw(rng, 6, 3, 3, 3)), owned(draw(rng, 4, 6, 3, 3))

    @mo.compile
    def network(images: Any) -> mo.Tensor:
        return mo.relu(mo.conv2d(mo.relu(mo.conv2d(images, first, padding=1, stride=2)), second, padding="same"))

    x = draw(rng, 2, 3, 9, 9)
    got = network(mo.asarray(x)).numpy()
    assert network.stats["kernels"] == 2
    inner = np.maximum(loop_conv(x, first.numpy(), stride=(2, 2), padding=((1, 1), (1, 1))), 0)
    close(got, np.maximum(loop_conv(inner, second.numpy(), padding=((1, 1), (1, 1))), 0))


def test_windows_are_never_written_down(rng: np.random.Generator) -> None:
    """The arena of a 5 x 5 convolution is far from the 25 copies of the image that its matrix would be."""
    weight = owned(draw(rng, 4, 8, 5, 5))
    layer = mo.compile(lambda images: mo.conv2d(images, weight, padding=2) + 1)
    x = mo.asarray(draw(rng, 1, 8, 40, 40))
    layer(x)
    assert layer.stats["kernels"] == 1 and layer.stats["arena_bytes"] == 0


def test_a_pointwise_convolution_takes_what_follows(rng: np.random.Generator) -> None:
    """Its columns are the two axes of the image."""
    weight, bias = owned(draw(rng, 10, 5, 1, 1)), owned(draw(rng, 10))
    layer = mo.compile(lambda images: mo.relu(mo.conv2d(images, weight, bias)))
    x = draw(rng, 3, 5, 7, 9)
    close(layer(mo.asarray(x)).numpy(), np.maximum(loop_conv(x, weight.numpy(), bias.numpy()), 0))
    assert "matmul+add+maximum" in layer.explain()


@pytest.mark.parametrize(("padding", "kernels"), [(0, 1), ((1, 2), 3)], ids=["bare", "with a border"])
def test_depthwise_is_one_kernel(rng: np.random.Generator, padding: Any, kernels: int) -> None:
    """With what follows it; a border is written once, by a fill and a copy: windows that look for it are slower."""
    weight, bias = owned(draw(rng, 6, 1, 3, 3)), owned(draw(rng, 6))
    layer = mo.compile(lambda x: mo.relu(mo.conv2d(x, weight, bias, groups=6, padding=padding, stride=(1, 2))))
    layer(mo.asarray(draw(rng, 2, 6, 9, 9)))
    assert layer.stats["kernels"] == kernels and layer.stats["copies"] == 0


@pytest.mark.parametrize("width", [3, 5, 7, 14, 17, 28, 56, 70])
def test_depthwise_windows_of_short_lines(rng: np.random.Generator, width: int) -> None:
    """Chunks of whole, half and quarter vectors, and single elements, have the bits of one lane."""
    weight = owned(draw(rng, 4, 1, 5, 3))
    x = mo.asarray(draw(rng, 1, 4, 6, width))
    for stride in (1, 2):
        wide = mo.conv2d(x, weight, groups=4, padding=(2, 1), stride=stride).numpy()
        with mo.settings(isa="scalar"):
            narrow = mo.conv2d(x, weight, groups=4, padding=(2, 1), stride=stride).numpy()
        np.testing.assert_array_equal(wide, narrow)


def test_what_reads_the_result_otherwise_stays_apart(rng: np.random.Generator) -> None:
    """A mean over the pixels, or a view of the result, cannot run on tiles."""
    weight = owned(draw(rng, 4, 3, 3, 3))
    x = draw(rng, 2, 3, 8, 8)
    want = loop_conv(x, weight.numpy())
    close(mo.compile(lambda t: mo.conv2d(t, weight).mean(axis=(2, 3)))(mo.asarray(x)).numpy(), want.mean(axis=(2, 3)))
    close(mo.compile(lambda t: mo.permute_dims(mo.conv2d(t, weight), (0, 2, 3, 1)) * 2)(mo.asarray(x)).numpy(),
          2 * want.transpose(0, 2, 3, 1))
    both = mo.compile(lambda t: (mo.conv2d(t, weight), mo.relu(mo.conv2d(t, weight))))(mo.asarray(x))
    close(both[0].numpy(), want)
    close(both[1].numpy(), np.maximum(want, 0))


def test_dynamic_images(rng: np.random.Generator) -> None:
    """At stride 1 the sizes of images may be dynamic too."""
    weight = owned(draw(rng, 4, 2, 3, 3))
    layer = mo.compile(lambda x: mo.relu(mo.conv2d(x, weight, padding=1)),
                       dynamic={"x": {0: mo.Dim("n", 0, 8), 2: mo.Dim("h", 1, 40), 3: mo.Dim("w", 1, 40)}})
    for shape in ((1, 2, 5, 9), (3, 2, 33, 17), (2, 2, 1, 1)):
        x = draw(rng, *shape)
        close(layer(mo.asarray(x)).numpy(), np.maximum(loop_conv(x, weight.numpy(), padding=((1, 1), (1, 1))), 0))
    assert layer.stats["recompiles"] == 0


def test_the_reference_backend_agrees(rng: np.random.Generator) -> None:
    x, weight = mo.asarray(draw(rng, 2, 3, 8, 8)), mo.asarray(draw(rng, 4, 3, 3, 3))
    got = mo.relu(mo.conv2d(x, weight, padding=1)).numpy()
    with mo.settings(device="reference"):
        close(mo.relu(mo.conv2d(x, weight, padding=1)).numpy(), got)


# -- batch norm ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype, eps", [(mo.float64, 1e-12), (mo.float32, 1e-5), (mo.float16, 2e-3),
                                        (mo.bfloat16, 1e-2)], ids=str)
def test_batch_norm(dtype: Any, eps: float, rng: np.random.Generator) -> None:
    x = mo.asarray(rng.normal(1, 2, (3, 4, 5, 2))).astype(dtype)
    mean, variance, gain, shift = (mo.asarray(a).astype(dtype) for a in (
        rng.normal(0, 1, 4), rng.uniform(0.5, 2, 4), rng.normal(0, 1, 4), rng.normal(0, 1, 4)))
    wide = [t.astype(mo.float64).numpy() for t in (x, mean, variance, gain, shift)]
    tall = [a[:, None, None] for a in wide[1:]]
    normal = (wide[0] - tall[0]) / np.sqrt(tall[1] + 1e-3)
    close(mo.batch_norm(x, mean, variance, eps=1e-3).astype(mo.float64).numpy(), normal, eps)
    full = mo.batch_norm(x, mean, variance, weight=gain, bias=shift, eps=1e-3)
    assert full.dtype is dtype
    close(full.astype(mo.float64).numpy(), normal * tall[2] + tall[3], eps)
    close(mo.batch_norm(x, mean, variance, bias=shift, eps=1e-3).astype(mo.float64).numpy(), normal + tall[3], eps)


def test_batch_norm_training(rng: np.random.Generator) -> None:
    x, gain, shift = rng.normal(1, 2, (3, 4, 5)), rng.normal(0, 1, 4), rng.normal(0, 1, 4)
    y, mean, variance = mo.batch_norm_training(x, gain, shift, eps=1e-4)
    close(mean.numpy(), x.mean(axis=(0, 2)), 1e-12)
    close(variance.numpy(), x.var(axis=(0, 2)), 1e-12)
    normal = (x - x.mean(axis=(0, 2), keepdims=True)) / np.sqrt(x.var(axis=(0, 2), keepdims=True) + 1e-4)
    close(y.numpy(), normal * gain[:, None] + shift[:, None], 1e-12)
    factors = mo.asarray(rng.normal(0, 1, x.shape))

    def loss(t: Any) -> mo.Tensor:
        return (mo.batch_norm_training(t, mo.asarray(gain), mo.asarray(shift), eps=1e-4)[0] * factors).sum()

    close(mo.grad(loss)(mo.asarray(x)).numpy(), numeric(loss, [x], 0), 1e-6)


# -- errors ----------------------------------------------------------------------------------------------------------
ZEROS = {"x": (2, 4, 6, 6), "weight": (6, 4, 3, 3)}


@pytest.mark.parametrize("kind, options, words", [
    (ShapeError, {"x": (4, 6)}, "[N, C, H, W]"),
    (ShapeError, {"weight": (6, 4, 3)}, "4 axes"),
    (ShapeError, {"x": (2, 5, 6, 6)}, "5 channels"),
    (ShapeError, {"groups": 3}, "divisible"),
    (ShapeError, {"weight": (6, 2, 3, 3), "groups": 4}, "divisible"),
    (ArgumentError, {"groups": 0}, "groups=0"),
    (ShapeError, {"weight": (6, 4, 7, 3)}, "larger than the padded input"),
    (ShapeError, {"dilation": 3}, "spans 7"),
    (ShapeError, {"weight": (6, 4, 0, 3)}, "empty"),
    (ArgumentError, {"stride": 0}, "stride=0"),
    (ArgumentError, {"stride": (1, 2, 3)}, "stride"),
    (ArgumentError, {"stride": 1.5}, "stride"),
    (ArgumentError, {"dilation": -1}, "dilation"),
    (ArgumentError, {"padding": "full"}, "'full'"),
    (ArgumentError, {"padding": -1}, "padding"),
    (ArgumentError, {"padding": (1, 2, 3)}, "padding"),
    (ArgumentError, {"padding": "same", "stride": 2}, "same"),
    (ShapeError, {"bias": (5,)}, "bias"),
], ids=str)
def test_errors(kind: type[Exception], options: dict[str, Any], words: str) -> None:
    shapes = {**ZEROS, **{k: v for k, v in options.items() if k in ("x", "weight", "bias")}}
    tensors = {name: mo.zeros(shape) for name, shape in shapes.items()}
    rest = {k: v for k, v in options.items() if k not in shapes}
    with pytest.raises(kind) as caught:
        mo.conv2d(**tensors, **rest)
    assert str(caught.value).startswith("[conv2d] ") and words in str(caught.value)


def test_more_errors() -> None:
    integers = mo.zeros((1, 1, 3, 3), dtype=mo.int32)
    with pytest.raises(DTypeError, match=r"\[conv2d\].*int32"):
        mo.conv2d(integers, integers)
    with pytest.raises(ArgumentError, match=r"\[conv_transpose2d\].*output_padding"):
        mo.conv_transpose2d(mo.zeros((1, 1, 3, 3)), mo.zeros((1, 1, 3, 3)), output_padding=1)
    with pytest.raises(ShapeError, match=r"\[conv_transpose1d\].*size"):
        mo.conv_transpose1d(mo.zeros((1, 1, 3)), mo.zeros((1, 1, 3)), padding=3)
    with pytest.raises(ShapeError, match=r"\[conv_transpose2d\].*channels"):
        mo.conv_transpose2d(mo.zeros((1, 2, 3, 3)), mo.zeros((3, 1, 3, 3)))
    with pytest.raises(ArgumentError, match=r"\[conv_transpose2d\].*same"):
        mo.conv_transpose2d(mo.zeros((1, 1, 3, 3)), mo.zeros((1, 1, 3, 3)), padding="same")
    strided = mo.compile(lambda x: mo.conv1d(x, mo.ones((1, 1, 2)), stride=2), dynamic={"x": {2: mo.Dim("l", 4, 9)}})
    with pytest.raises(ShapeError, match=r"\[conv1d\].*dynamic"):
        strided(mo.zeros((1, 1, 6)))
    with pytest.raises(ShapeError, match=r"\[batch_norm\].*3 channels"):
        mo.batch_norm(mo.zeros((2, 3, 4)), mo.zeros(4), mo.ones(3))
    with pytest.raises(ShapeError, match=r"\[batch_norm_training\].*no elements"):
        mo.batch_norm_training(mo.zeros((0, 3, 4)))
    with pytest.raises(DTypeError, match=r"\[batch_norm\]"):
        mo.batch_norm(mo.zeros((2, 3), dtype=mo.int64), mo.zeros(3), mo.ones(3))


@pytest.mark.parametrize("kernel", [(2, 2), (1, 3), (3, 3)], ids=str)
def test_kernels_side_by_side_are_one_product(rng: np.random.Generator, kernel: tuple[int, int]) -> None:
    """A transposed convolution with steps as long as its kernel: pixels become blocks, and no zeros are multiplied, so
    that an infinity stays in its own block."""
    x, w = (mo.asarray(rng.standard_normal(shape).astype(np.float32)) for shape in ((2, 3, 4, 5), (3, 6, *kernel)))
    f = mo.compile(lambda x, w: mo.conv_transpose2d(x, w, stride=kernel))
    expected = np.einsum("nchw,coij->nohiwj", x.numpy().astype(np.float64), w.numpy()).reshape(
        2, 6, 4 * kernel[0], 5 * kernel[1])
    np.testing.assert_allclose(f(x, w).numpy(), expected, rtol=1e-5, atol=1e-5)
    assert not any("conv" in step.label for step in f.current.plan.program.steps)
    spread = x.numpy().copy()
    spread[0, 0, 1, 1] = np.inf
    found = f(mo.asarray(spread), w).numpy()
    assert np.isfinite(found).sum() == found.size - 6 * kernel[0] * kernel[1] and not np.isnan(found).any()
    total = mo.grad(lambda x: mo.sum(mo.conv_transpose2d(x, w, stride=kernel)))(x)
    np.testing.assert_allclose(total.numpy(), np.broadcast_to(w.numpy().sum((1, 2, 3))[:, None, None], x.shape),
                               rtol=1e-4, atol=1e-4)


def test_depthwise_gradient_is_one_sum() -> None:
    """The gradient for the input is a convolution again: it reads each element of the cotangent where it lies."""
    x, w = mo.ones((2, 4, 20, 20)), mo.ones((4, 1, 5, 5))
    slope = mo.compile(mo.grad(lambda x, w: mo.sum(mo.conv2d(x, w, groups=4, padding=2))))
    found = slope(x, w).numpy()
    assert found[0, 0, 10, 10] == 25 and found[0, 0, 0, 0] == 9 and found[1, 3, 0, 10] == 15
    assert slope.stats["kernels"] <= 6  # borders, one sum: none for each of 25 places
