"""Convolutions and long sorts on a GPU: values against the CPU's, and times beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.gpu.everything import Absent, numbers, part, real
from benchmarks.gpu.timing import morpho_seconds, torch_seconds
from morpho.ir.node import build
from morpho.tensor.core import Tensor

LAYERS = ((64, 64, 56, 64, 3, 1), (64, 256, 14, 256, 3, 1), (64, 128, 28, 256, 3, 2), (64, 3, 224, 64, 7, 2),
          (64, 256, 56, 64, 1, 1))  # of ResNet: images, channels, side, kernels, side of a kernel, stride


def parameters(tensors: Sequence[Any]) -> list[Any]:
    """Tensors that stand for operands of a program."""
    return [Tensor.of_node(build("parameter", index=n, shape=t.shape, dtype=t.dtype)) for n, t in enumerate(tensors)]


def ours(device: str, work: Callable[..., Any], tensors: Sequence[Any]) -> float:
    """Seconds of a program over tensors that lie there."""
    return morpho_seconds(device, [work(*parameters(tensors))], [t.elements() for t in tensors], 5)


@part
def convolution_bits(device: str) -> str:
    """float32 has the CPU's bits, forward and in both gradients; bfloat16 lies near."""
    n = 16 if not device.startswith("cuda_emulated") else 2
    for shape, kernels, options in (((n, 16, 20, 20), (32, 16, 3, 3), {"padding": 1}),
                                    ((n, 3, 33, 31), (24, 3, 5, 5), {"stride": 2, "padding": 2}),
                                    ((n, 32, 12, 12), (64, 16, 3, 3), {"groups": 2, "dilation": 2})):
        x, w = (mo.asarray(numbers(*s)) for s in (shape, kernels))
        of = mo.grad(lambda x, w, options=options: mo.sum(mo.conv2d(x, w, **options) ** 2), argnums=(0, 1))
        pairs = [(mo.conv2d(x.to(device), w.to(device), **options), mo.conv2d(x, w, **options)),
                 *zip(of(x.to(device), w.to(device)), of(x, w), strict=True)]
        for name, (got, want) in zip(("forward", "input", "weight"), pairs, strict=True):
            assert got.numpy().tobytes() == want.numpy().tobytes(), f"{shape} {name}"
        half = [mo.astype(t, mo.bfloat16).realise() for t in (x, w)]
        got = mo.astype(mo.conv2d(*(t.to(device) for t in half), **options), mo.float32).numpy()
        want = mo.conv2d(*(mo.astype(t, mo.float32) for t in half), **options).numpy()
        assert np.abs(got - want).max() <= 1e-2 * np.abs(want).max(), f"{shape} bfloat16"
    return "3 layers"


@part
def convolution_times(device: str) -> str:
    """Layers of ResNet in bfloat16 and float32, forward and gradients."""
    real(device)
    try:
        import torch
        import torch.nn.functional as F
    except ImportError as error:
        raise Absent("no PyTorch") from error
    torch.backends.cudnn.allow_tf32 = False
    for images, channels, side, kernels, length, stride in LAYERS:
        for dtype in (mo.bfloat16, mo.float32):
            x, w = (mo.astype(mo.asarray(numbers(*s), device=device), dtype).realise()
                    for s in ((images, channels, side, side), (kernels, channels, length, length)))
            pad = length // 2
            out = (side + 2 * pad - length) // stride + 1
            flops = 2 * images * kernels * out * out * channels * length * length
            taken = ours(device, lambda x, w, s=stride, p=pad: mo.conv2d(x, w, stride=s, padding=p), [x, w])
            a, b = (torch.from_dlpack(t) for t in (x, w))
            other = torch_seconds(lambda a=a, b=b, s=stride, p=pad: F.conv2d(a, b, stride=s, padding=p), 5)
            print(f"conv {images}x{channels}x{side}^2 {kernels}x{length}^2/{stride} {dtype}: {1e6 * taken:.0f} us "
                  f"{flops / taken / 1e12:.0f} TFLOP/s, PyTorch {1e6 * other:.0f} us {flops / other / 1e12:.0f}",
                  flush=True)
    x, w = (mo.astype(mo.asarray(numbers(*s), device=device), mo.bfloat16).realise()
            for s in ((64, 64, 56, 56), (64, 64, 3, 3)))
    g = mo.astype(mo.asarray(numbers(64, 64, 56, 56), device=device), mo.bfloat16).realise()
    for name, number in (("input", 0), ("weight", 1)):
        def gradient(x: Any, w: Any, g: Any, number: int = number) -> Any:
            _, pull = mo.vjp(lambda x, w: mo.conv2d(x, w, padding=1), x, w)
            return pull(g)[number]

        taken = ours(device, gradient, [x, w, g])
        print(f"conv gradient by {name} 64x64x56^2 64x3^2 bfloat16: {1e6 * taken:.0f} us", flush=True)
    return f"{len(LAYERS)} layers"


@part
def sorted_lines(device: str) -> str:
    """Sorts and orders of long lines: the CPU's bits, and times."""
    length = 1_000_003 if not device.startswith("cuda_emulated") else 5000
    line = np.round(numbers(length) * 50)
    line[::1000], line[7::999] = np.nan, -0.0
    for dtype in (mo.float32, mo.int32, mo.float16, mo.int64):
        x = mo.astype(mo.asarray(np.nan_to_num(line) if "int" in str(dtype) else line), dtype).realise()
        for how in (mo.sort, mo.argsort):
            for descending in (False, True):
                got, want = (how(t, descending=descending).numpy() for t in (x.to(device), x))
                assert got.tobytes() == want.tobytes(), f"{how.__name__} {dtype} {descending}"
    if device.startswith("cuda_emulated"):
        return "4 dtypes"
    found = []
    for count in (1 << 20, 1 << 24):
        x = mo.asarray(numbers(count), device=device).realise()
        for how in (mo.sort, mo.argsort):
            found.append(f"{how.__name__} of {count}: {1e6 * ours(device, how, [x]):.0f} us")
    try:
        import torch
    except ImportError:
        return "; ".join(found)
    for count in (1 << 20, 1 << 24):
        theirs = torch.randn(count, device="cuda")
        found.append(f"PyTorch's sort of {count}: {1e6 * torch_seconds(theirs.sort, 5):.0f} us")
    return "; ".join(found)


@part
def tuned(device: str) -> str:
    """`mo.tune`: tiles of products and teams of sparse rows race by the GPU's clock; results keep their bits."""
    small = device.startswith("cuda_emulated")
    n = 64 if small else 1000
    x = mo.asarray(numbers(n, n), device=device)
    half = mo.astype(x, mo.bfloat16).realise()
    a = mo.sparse.random(10 * n, n, density=0.01, key=mo.random.key(0)).to(device)
    f = mo.compile(lambda x, half, a: (x @ x, half @ half, a @ x))
    before = [t.numpy() for t in f(x, half, a)]
    report = mo.tune(f, x, half, a, budget_s=1.0 if small else 8.0)
    print(report, flush=True)
    after = [t.numpy() for t in f(x, half, a)]
    assert all(np.array_equal(p, q) for p, q in zip(before, after, strict=True))
    return report.summary()
