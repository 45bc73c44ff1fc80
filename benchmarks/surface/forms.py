"""Calls of functions whose arguments a signature does not tell: one row each, with the same call of every peer.

A row is a name, the arguments, and the call of each library. Arguments are made by `Draw`s of a shape, which the sizes
of `SIZES` scale; `peers` maps a library to its call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Call = Callable[..., Any]


@dataclass(frozen=True)
class Draw:
    """An array of a case: its shape, and how its values are drawn. `kind` is "same" for the case's dtype, "index" for
    whole numbers below `high`, "bool", or "float" for the dtype of its results."""

    shape: tuple[int, ...]
    kind: str = "same"
    low: float = -3.0
    high: float = 3.0
    special: str = ""  # "sorted", "spd", "square", "normal", "half": half of them true

    def array(self, rng: np.random.Generator, dtype: str) -> np.ndarray:
        base = {"bfloat16": "float32"}.get(dtype, dtype)
        if self.kind == "index":
            values: np.ndarray = rng.integers(0, int(self.high), self.shape)
            return np.sort(values) if self.special == "sorted" else values
        if self.kind == "bool" or base == "bool":
            return rng.random(self.shape) < 0.5
        if base.startswith(("int", "uint")):
            low, high = (0, 100) if base.startswith("u") else (-100, 100)
            if (self.low, self.high) != (-3.0, 3.0):
                low, high = max(1, int(np.ceil(self.low))), max(3, int(self.high))
            values = rng.integers(low, high, self.shape).astype(base)
            return np.sort(values) if self.special == "sorted" else values
        if self.special == "normal":
            drawn = rng.standard_normal(self.shape)
        else:
            drawn = rng.uniform(self.low, self.high, self.shape) if self.shape else rng.uniform(self.low, self.high)
        if base.startswith("complex"):
            drawn = drawn + 1j * rng.uniform(self.low, self.high, self.shape)
        drawn = np.asarray(drawn)
        if self.special == "sorted":
            drawn = np.sort(drawn)
        if self.special in ("spd", "square"):
            size = self.shape[-1]
            if self.special == "spd":
                drawn = drawn @ np.conj(np.swapaxes(drawn, -1, -2)) / size
            drawn = drawn + np.eye(size) * (4.0 if self.special == "spd" else np.sqrt(size))
        return np.asarray(drawn, base)


@dataclass(frozen=True)
class Form:
    """A call of a function at one shape, by every library that has it."""

    name: str
    label: str
    draws: Sequence[Draw]
    own: Call
    peers: Mapping[str, Call]
    dtypes: tuple[str, ...] = ("float32",)
    slopes: tuple[int, ...] = ()  # arguments with a gradient
    quick: bool = True
    rough: bool = False  # results are not unique: signs of vectors, order of equal elements
    family: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def _x(*shape: int, **named: Any) -> Draw:
    return Draw(shape, **named)


FLOATS = ("float32", "float64")
REAL = ("float32", "float64", "bfloat16")
NUMBERS = ("float32", "float64", "int32", "int64")


def forms() -> list[Form]:
    """All rows."""
    rows: list[Form] = []

    def add(name: str, label: str, draws: Sequence[Draw], own: Call, torch: Call | None = None,
            numpy: Call | None = None, scipy: Call | None = None, **options: Any) -> None:
        peers = {library: call for library, call in (("torch", torch), ("numpy", numpy), ("scipy", scipy)) if call}
        rows.append(Form(name, label, tuple(draws), own, peers, **options))

    for table in (_products, _matrices, _transforms, _layers, _losses, _moves, _orders, _counts, _calculus):
        table(add)
    return rows


def _products(add: Call) -> None:
    import morpho as mo
    import torch

    every = ("float32", "float64", "bfloat16", "int32", "int64", "complex64", "complex128")
    for n in (1, 8, 32, 64, 128, 256, 512, 1024, 2048):
        dtypes = every if n in (64, 512) else FLOATS if n < 2048 else ("float32",)
        add("matmul", f"{n}x{n}", [_x(n, n), _x(n, n)], mo.matmul, torch.matmul, np.matmul, dtypes=dtypes,
            slopes=(0, 1) if n in (64, 512) else (), quick=n in (64, 512), family="products")
    for label, first, second in (("4096x4096 @ 4096", (4096, 4096), (4096,)), ("4096 @ 4096x4096", (4096,), (4096, 4096)),
                                 ("1x768 @ 768x3072", (1, 768), (768, 3072)), ("8x768 @ 768x3072", (8, 768), (768, 3072)),
                                 ("128x768 @ 768x3072", (128, 768), (768, 3072)), ("16384x32 @ 32x32", (16384, 32), (32, 32)),
                                 ("64x64x64 batched", (64, 64, 64), (64, 64, 64)), ("512x16x16 batched", (512, 16, 16), (512, 16, 16)),
                                 ("32x8x128x64 batched", (32, 8, 128, 64), (32, 8, 64, 128)),
                                 ("1024x4 @ 4x1024", (1024, 4), (4, 1024)), ("8x65536 @ 65536x8", (8, 65536), (65536, 8))):
        add("matmul", label, [_x(*first), _x(*second)], mo.matmul, torch.matmul, np.matmul,
            dtypes=REAL if len(first) == 2 else FLOATS, family="products", quick=label.startswith(("4096", "64x", "128"))
            )
    add("matmul", "512x512 @ (512x512).T", [_x(512, 512), _x(512, 512)], lambda a, b: mo.matmul(a, b.T),
        lambda a, b: a @ b.T, lambda a, b: a @ b.T, dtypes=FLOATS, family="products")
    add("outer", "1024, 1024", [_x(1024), _x(1024)], mo.outer, torch.outer, np.outer, dtypes=FLOATS, slopes=(0, 1))
    add("vecdot", "1024x1024", [_x(1024, 1024)] * 2, mo.vecdot, torch.linalg.vecdot, np.vecdot, dtypes=FLOATS,
        slopes=(0, 1))
    add("vecdot", "1M", [_x(1 << 20)] * 2, mo.vecdot, torch.dot, np.dot, dtypes=FLOATS)
    add("tensordot", "64x32x32, axes 2", [_x(64, 32, 32), _x(32, 32, 64)], lambda a, b: mo.tensordot(a, b, axes=2),
        lambda a, b: torch.tensordot(a, b, 2), lambda a, b: np.tensordot(a, b, 2), dtypes=FLOATS, slopes=(0, 1))
    add("einsum", "bij,bjk->bik", [_x(32, 64, 64)] * 2, lambda a, b: mo.einsum("bij,bjk->bik", a, b),
        lambda a, b: torch.einsum("bij,bjk->bik", a, b), lambda a, b: np.einsum("bij,bjk->bik", a, b, optimize=True), slopes=(0, 1))
    add("einsum", "bhid,bhjd->bhij", [_x(4, 8, 128, 64)] * 2, lambda a, b: mo.einsum("bhid,bhjd->bhij", a, b),
        lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b))
    add("linalg.kron", "32x32", [_x(32, 32)] * 2, mo.linalg.kron, torch.kron, np.kron, dtypes=FLOATS, slopes=(0, 1))
    add("linalg.multi_dot", "256", [_x(256, 256)] * 3, lambda *a: mo.linalg.multi_dot(a), lambda *a: torch.linalg.multi_dot(a),
        lambda *a: np.linalg.multi_dot(a))
    add("nn.linear", "128x768x3072", [_x(128, 768), _x(3072, 768), _x(3072)], mo.nn.linear, torch.nn.functional.linear,
        dtypes=("float32", "bfloat16"), slopes=(0, 1, 2))
    add("nn.linear", "1x768x3072", [_x(1, 768), _x(3072, 768), _x(3072)], mo.nn.linear, torch.nn.functional.linear,
        dtypes=("float32", "bfloat16"))


def _matrices(add: Call) -> None:
    import morpho as mo
    import scipy.linalg
    import torch

    alone = (("inv", "square"), ("det", "square"), ("slogdet", "square"), ("qr", "square"), ("cholesky", "spd"),
             ("eigh", "spd"), ("eigvalsh", "spd"), ("svd", "square"), ("svdvals", "square"), ("pinv", "square"),
             ("eig", "square"), ("eigvals", "square"), ("matrix_rank", "square"))
    rough = {"qr", "eigh", "svd", "eig", "eigvals"}
    for name, special in alone:
        own, theirs, numpys = (getattr(place.linalg, name, None) for place in (mo, torch, np))
        for shape in ((1, 1), (4, 4), (16, 16), (64, 64), (128, 128), (256, 256), (512, 512), (64, 16, 16), (16, 128, 128), (1024, 4, 4)):
            if name in ("eig", "eigvals", "eigh", "svd", "pinv", "eigvalsh", "svdvals", "matrix_rank") and (shape[-1] == 512 or shape == (16, 128, 128)):
                continue
            add(f"linalg.{name}", "x".join(map(str, shape)), [_x(*shape, special=special)], own, theirs, numpys,
                dtypes=FLOATS if shape in ((16, 16), (256, 256), (64, 16, 16)) else ("float32",), rough=name in rough,
                slopes=(0,) if shape in ((64, 64), (64, 16, 16)) and name not in ("eig", "eigvals", "matrix_rank", "svd") else (),
                quick=shape in ((16, 16), (256, 256), (16, 128, 128)), family="matrices")
    for n, k in ((16, 1), (128, 8), (512, 1), (512, 512)):
        add("linalg.solve", f"{n}x{n}, {k} columns", [_x(n, n, special="square"), _x(n, k)], mo.linalg.solve, torch.linalg.solve,
            np.linalg.solve, dtypes=FLOATS, slopes=(0, 1) if n == 128 else (), family="matrices")
        add("linalg.solve_triangular", f"{n}x{n}, {k} columns", [_x(n, n, special="square"), _x(n, k)],
            lambda a, b: mo.linalg.solve_triangular(a, b, upper=True),
            lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), None,
            lambda a, b: scipy.linalg.solve_triangular(a, b, check_finite=False), dtypes=FLOATS,
            slopes=(0, 1) if n == 128 else (), family="matrices")
    for shape in ((64, 128, 128), (256, 32, 32), (4096, 3, 3)):
        add("linalg.solve", "x".join(map(str, shape)) + ", 1 column", [_x(*shape, special="square"), _x(*shape[:-1], 1)],
            mo.linalg.solve, torch.linalg.solve, np.linalg.solve, slopes=(0, 1), family="matrices")
    for m, n in ((64, 8), (1000, 50), (2000, 200)):
        add("linalg.lstsq", f"{m}x{n}", [_x(m, n), _x(m, 1)], lambda a, b: mo.linalg.lstsq(a, b)[0],
            lambda a, b: torch.linalg.lstsq(a, b).solution, lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0], dtypes=FLOATS, family="matrices")
        add("linalg.qr", f"{m}x{n}", [_x(m, n)], mo.linalg.qr, torch.linalg.qr, np.linalg.qr, rough=True, family="matrices")
        add("linalg.svd", f"{m}x{n}", [_x(m, n)], lambda a: mo.linalg.svd(a, full_matrices=False),
            lambda a: torch.linalg.svd(a, full_matrices=False), lambda a: np.linalg.svd(a, full_matrices=False), rough=True, family="matrices")
    add("linalg.lu", "256x256", [_x(256, 256, special="square")], mo.linalg.lu, torch.linalg.lu_factor, rough=True, family="matrices")
    for name in ("expm", "sqrtm", "logm", "schur"):
        peer = getattr(scipy.linalg, name)
        add(f"linalg.{name}", "64x64", [_x(64, 64, low=0, high=0.1, special="spd" if name != "expm" else "")], getattr(mo.linalg, name),
            torch.linalg.matrix_exp if name == "expm" else None, None, peer, dtypes=FLOATS, rough=name == "schur", family="matrices")
    add("linalg.matrix_power", "128x128, 5", [_x(128, 128, low=-.1, high=.1)], lambda x: mo.linalg.matrix_power(x, 5),
        lambda x: torch.linalg.matrix_power(x, 5), lambda x: np.linalg.matrix_power(x, 5), family="matrices")
    add("linalg.cond", "64x64", [_x(64, 64, special="square")], mo.linalg.cond, torch.linalg.cond, np.linalg.cond, family="matrices")
    for order in ("fro", "nuc", 2, 1):
        add("linalg.matrix_norm", f"256x256, {order}", [_x(256, 256)], lambda x, order=order: mo.linalg.matrix_norm(x, ord=order),
            lambda x, order=order: torch.linalg.matrix_norm(x, ord=order), lambda x, order=order: np.linalg.norm(x, order), slopes=(0,), family="matrices")
    for order in (1, 2, 3):
        add("linalg.vector_norm", f"1M, {order}", [_x(1 << 20)], lambda x, order=order: mo.linalg.vector_norm(x, ord=order),
            lambda x, order=order: torch.linalg.vector_norm(x, ord=order), lambda x, order=order: np.linalg.norm(x, order), dtypes=FLOATS, slopes=(0,))
    add("linalg.norm", "1024x1024", [_x(1024, 1024)], mo.linalg.norm, torch.linalg.norm, np.linalg.norm)
    add("linalg.trace", "1024x1024", [_x(1024, 1024)], mo.linalg.trace, torch.trace, np.trace, dtypes=NUMBERS, slopes=(0,))
    add("linalg.cross", "65536x3", [_x(65536, 3)] * 2, mo.linalg.cross, torch.linalg.cross, np.cross, dtypes=FLOATS, slopes=(0, 1))
    add("linalg.toeplitz", "512", [_x(512)], mo.linalg.toeplitz, None, None, scipy.linalg.toeplitz)
    add("linalg.circulant", "512", [_x(512)], mo.linalg.circulant, None, None, scipy.linalg.circulant)
    add("linalg.solve_toeplitz", "512", [_x(512, low=1, high=2), _x(512)], mo.linalg.solve_toeplitz, None, None, scipy.linalg.solve_toeplitz, rough=True)
    add("linalg.block_diag", "4 of 64x64", [_x(64, 64)] * 4, mo.linalg.block_diag, torch.block_diag, None, scipy.linalg.block_diag)
    add("linalg.ldl", "64x64", [_x(64, 64, special="spd")], mo.linalg.ldl, None, None, scipy.linalg.ldl, rough=True, family="matrices")


def _transforms(add: Call) -> None:
    import morpho as mo
    import scipy.fft
    import torch

    for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
        dtypes = ("complex64", "complex128") if name in ("fft", "ifft", "irfft", "hfft") else FLOATS
        own, theirs, scipys = (getattr(place.fft, name) for place in (mo, torch, scipy))
        for shape in ((16,), (1000,), (1024,), (65536,), (1 << 20,), (1009,), (1024, 1024), (4096, 64)):
            if shape not in ((1024,), (1 << 20,), (1024, 1024)) and name not in ("fft", "rfft"):
                continue
            add(f"fft.{name}", "x".join(map(str, shape)), [_x(*shape)], own, theirs, getattr(np.fft, name), scipys,
                dtypes=dtypes, slopes=(0,) if shape == (1024, 1024) else (), quick=shape in ((1024,), (1 << 20,)), family="fft")
        if name in ("fft", "rfft"):
            add(f"fft.{name}", "1024x1024, axis 0", [_x(1024, 1024)], lambda x, own=own: own(x, axis=0),
                lambda x, theirs=theirs: theirs(x, dim=0), None, lambda x, scipys=scipys: scipys(x, axis=0), dtypes=dtypes[:1], family="fft")
    for name in ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"):
        own, theirs, scipys = (getattr(place.fft, name) for place in (mo, torch, scipy))
        shape = (64, 64, 64) if name.endswith("n") else (512, 512)
        add(f"fft.{name}", "x".join(map(str, shape)), [_x(*shape)], own, theirs, getattr(np.fft, name), scipys,
            dtypes=FLOATS[:1] if name.startswith("rfft") else ("complex64",), family="fft", quick=False)
    for name in ("fftshift", "ifftshift"):
        add(f"fft.{name}", "1024x1024", [_x(1024, 1024)], getattr(mo.fft, name), getattr(torch.fft, name), getattr(np.fft, name))
    window = np.hanning(513)[:-1].astype(np.float32)
    add("stft", "1M, 512", [_x(1 << 20)], lambda x: mo.stft(x, 512, 128, window=mo.asarray(window)),
        lambda x: torch.stft(x, 512, 128, window=torch.from_numpy(window), return_complex=True), family="fft")
    add("convolve", "4096, 64", [_x(4096), _x(64)], mo.convolve, None, np.convolve)
    add("correlate", "4096, 64", [_x(4096), _x(64)], mo.correlate, None, np.correlate)


def _layers(add: Call) -> None:
    import morpho as mo
    import torch

    f = torch.nn.functional
    low = ("float32", "bfloat16")
    for label, x, w, options in (
            ("8x64x56x56, 3x3", (8, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
            ("1x64x56x56, 3x3", (1, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
            ("8x64x56x56, 1x1", (8, 64, 56, 56), (256, 64, 1, 1), {}),
            ("8x3x224x224, 7x7/2", (8, 3, 224, 224), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
            ("8x128x28x28 depthwise", (8, 128, 28, 28), (128, 1, 3, 3), {"padding": 1, "groups": 128}),
            ("8x64x56x56 dilated", (8, 64, 56, 56), (64, 64, 3, 3), {"padding": 2, "dilation": 2}),
            ("8x64x28x28, 4 groups", (8, 64, 28, 28), (64, 16, 3, 3), {"padding": 1, "groups": 4})):
        add("conv2d", label, [_x(*x, special="normal"), _x(*w, special="normal")], lambda a, b, o=options: mo.conv2d(a, b, **o),
            lambda a, b, o=options: f.conv2d(a, b, **o), dtypes=low if label.startswith("8x64x56x56, 3") else ("float32",),
            slopes=(0, 1) if label.startswith(("1x", "8x128")) else (), family="convolution", quick=label.startswith(("1x", "8x128")))
    add("conv1d", "8x64x1024, 5", [_x(8, 64, 1024), _x(64, 64, 5)], lambda a, b: mo.conv1d(a, b, padding=2),
        lambda a, b: f.conv1d(a, b, padding=2), slopes=(0, 1), family="convolution")
    add("conv3d", "2x16x16x32x32", [_x(2, 16, 16, 32, 32), _x(16, 16, 3, 3, 3)], lambda a, b: mo.conv3d(a, b, padding=1),
        lambda a, b: f.conv3d(a, b, padding=1), family="convolution")
    for n, x, w in (("1d", (8, 64, 512), (64, 32, 4)), ("2d", (4, 64, 28, 28), (64, 32, 4, 4)), ("3d", (1, 16, 8, 16, 16), (16, 8, 4, 4, 4))):
        own, theirs = getattr(mo, f"conv_transpose{n}"), getattr(f, f"conv_transpose{n}")
        add(f"conv_transpose{n}", "x".join(map(str, x)), [_x(*x), _x(*w)], lambda a, b, g=own: g(a, b, stride=2, padding=1),
            lambda a, b, g=theirs: g(a, b, stride=2, padding=1), family="convolution", quick=n == "2d")
    for kind in ("max", "avg"):
        for dims, x in (("1d", (8, 64, 4096)), ("2d", (8, 64, 56, 56)), ("3d", (2, 16, 16, 32, 32))):
            name = f"{kind}_pool{dims}"
            own, theirs = getattr(mo, name), getattr(f, name)
            for size, stride, pad in ((2, 2, 0), (3, 2, 1)):
                add(name, "x".join(map(str, x)) + f", {size}/{stride}", [_x(*x)],
                    lambda a, g=own, s=size, t=stride, p=pad: g(a, s, stride=t, padding=p),
                    lambda a, g=theirs, s=size, t=stride, p=pad: g(a, s, stride=t, padding=p), slopes=(0,),
                    dtypes=low if dims == "2d" else ("float32",), family="pooling", quick=dims == "2d")
            if dims != "3d":
                name = f"adaptive_{kind}_pool{dims}"
                own, theirs = getattr(mo, name), getattr(f, name)
                add(name, "x".join(map(str, x)) + ", 7", [_x(*x)], lambda a, g=own: g(a, 7), lambda a, g=theirs: g(a, 7), family="pooling", slopes=(0,))
    add("global_avg_pool", "8x64x56x56", [_x(8, 64, 56, 56)], mo.global_avg_pool, lambda x: x.mean((-1, -2)), slopes=(0,), family="pooling")
    add("global_max_pool", "8x64x56x56", [_x(8, 64, 56, 56)], mo.global_max_pool, lambda x: x.amax((-1, -2)), slopes=(0,), family="pooling")
    for rows, columns in ((1, 768), (128, 768), (4096, 1024), (16384, 64)):
        label, draws = f"{rows}x{columns}", [_x(rows, columns), _x(columns), _x(columns)]
        add("layer_norm", label, draws, mo.layer_norm, lambda x, w, b, n=columns: f.layer_norm(x, (n,), w, b), dtypes=low,
            slopes=(0, 1, 2) if rows > 1 else (), family="norms", quick=rows == 4096)
        add("rms_norm", label, draws[:2], mo.rms_norm, lambda x, w, n=columns: f.rms_norm(x, (n,), w, 1e-5), dtypes=low,
            slopes=(0, 1) if rows > 1 else (), family="norms", quick=rows == 4096)
    image = [_x(8, 64, 56, 56), _x(64), _x(64, low=.5, high=2), _x(64), _x(64)]
    add("batch_norm", "8x64x56x56", image, lambda x, m, v, w, b: mo.batch_norm(x, m, v, w, b), lambda x, m, v, w, b: f.batch_norm(x, m, v, w, b),
        slopes=(0, 3, 4), family="norms")
    add("batch_norm_training", "8x64x56x56", [image[0], *image[3:]], lambda x, w, b: mo.batch_norm_training(x, w, b)[0],
        lambda x, w, b: f.batch_norm(x, None, None, w, b, True), slopes=(0, 1, 2), family="norms")
    own_group, own_instance = mo.nn.GroupNorm(8, 64), mo.nn.InstanceNorm2d(64)
    add("nn.GroupNorm", "8x64x56x56, 8", image[:1], own_group, lambda x, w=torch.ones(64), b=torch.zeros(64): f.group_norm(x, 8, w, b), slopes=(0,), family="norms")
    add("nn.InstanceNorm2d", "8x64x56x56", image[:1], own_instance, f.instance_norm, slopes=(0,), family="norms")
    for label, shape, causal in (("4x8x256x64", (4, 8, 256, 64), False), ("1x12x1024x64 causal", (1, 12, 1024, 64), True)):
        add("attention", label, [_x(*shape)] * 3, lambda q, k, v, c=causal: mo.attention(q, k, v, causal=c),
            lambda q, k, v, c=causal: f.scaled_dot_product_attention(q, k, v, is_causal=c), dtypes=low, slopes=(0, 1, 2), family="attention")
    add("embedding", "50257x768, 1024", [_x(50257, 768), _x(1024, kind="index", high=50257)], mo.embedding, lambda w, i: f.embedding(i, w),
        dtypes=low, slopes=(0,), family="gathers")
    add("embedding", "1000x64, 65536", [_x(1000, 64), _x(65536, kind="index", high=1000)], mo.embedding, lambda w, i: f.embedding(i, w),
        dtypes=low, slopes=(0,), family="gathers")
    add("nn.interpolate", "8x16x64x64 bilinear x2", [_x(8, 16, 64, 64)], lambda x: mo.nn.interpolate(x, scale_factor=2, mode="bilinear"),
        lambda x: f.interpolate(x, scale_factor=2, mode="bilinear"), slopes=(0,), family="images")
    add("nn.interpolate", "8x16x64x64 nearest x2", [_x(8, 16, 64, 64)], lambda x: mo.nn.interpolate(x, scale_factor=2),
        lambda x: f.interpolate(x, scale_factor=2), slopes=(0,), family="images")
    add("grid_sample", "4x16x64x64", [_x(4, 16, 64, 64), _x(4, 64, 64, 2, low=-1, high=1)], mo.grid_sample,
        lambda x, g: f.grid_sample(x, g, align_corners=False), slopes=(0, 1), family="images")
    add("unfold", "4x16x64x64, 3", [_x(4, 16, 64, 64)], lambda x: mo.unfold(x, 3), lambda x: f.unfold(x, 3), slopes=(0,), family="images")
    add("fold", "4x144x3844", [_x(4, 144, 3844)], lambda x: mo.fold(x, (64, 64), 3), lambda x: f.fold(x, (64, 64), 3), family="images")
    add("pixel_shuffle", "4x64x64x64, 2", [_x(4, 64, 64, 64)], lambda x: mo.pixel_shuffle(x, 2), lambda x: f.pixel_shuffle(x, 2), slopes=(0,), family="images")
    add("pixel_unshuffle", "4x16x128x128, 2", [_x(4, 16, 128, 128)], lambda x: mo.pixel_unshuffle(x, 2), lambda x: f.pixel_unshuffle(x, 2), family="images")
    add("channel_shuffle", "8x64x56x56, 8", [_x(8, 64, 56, 56)], lambda x: mo.channel_shuffle(x, 8), lambda x: f.channel_shuffle(x, 8), family="images")
    for name in ("LSTM", "GRU", "RNN"):
        theirs = getattr(torch.nn, name)(64, 128)
        own = getattr(mo.nn, name)(64, 128)
        add(f"nn.{name}", "64x16x64, 128", [_x(64, 16, 64)], lambda x, m=own: m(x)[0], lambda x, m=theirs: m(x)[0], rough=True, family="recurrent")


def _losses(add: Call) -> None:
    import morpho as mo
    import torch

    f = torch.nn.functional
    pair = [_x(4096, 256)] * 2
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        add(f"nn.{name}", "4096x256", pair, getattr(mo.nn, name), getattr(f, name), slopes=(0,), family="losses")
    unit = [_x(4096, 256, low=.01, high=.99)] * 2
    add("nn.binary_cross_entropy", "4096x256", unit, mo.nn.binary_cross_entropy, f.binary_cross_entropy, slopes=(0,), family="losses")
    add("nn.binary_cross_entropy_with_logits", "4096x256", [_x(4096, 256), unit[1]], mo.nn.binary_cross_entropy_with_logits,
        f.binary_cross_entropy_with_logits, slopes=(0,), family="losses")
    add("nn.kl_div", "4096x256", [_x(4096, 256, low=-3, high=-.1), unit[1]], mo.nn.kl_div, f.kl_div, slopes=(0,), family="losses")
    for rows, columns in ((128, 10), (1024, 1000), (128, 50257)):
        draws = [_x(rows, columns), _x(rows, kind="index", high=columns)]
        add("cross_entropy", f"{rows}x{columns}", draws, mo.cross_entropy, f.cross_entropy, slopes=(0,), family="losses", dtypes=("float32", "bfloat16"))
        add("nn.nll_loss", f"{rows}x{columns}", draws, mo.nn.nll_loss, f.nll_loss, slopes=(0,), family="losses", quick=False)
        add("nn.multi_margin_loss", f"{rows}x{columns}", draws, mo.nn.multi_margin_loss, f.multi_margin_loss, family="losses", quick=False)
    add("nn.cosine_similarity", "4096x256", pair, lambda a, b: mo.nn.cosine_similarity(a, b, 1), lambda a, b: f.cosine_similarity(a, b, 1), slopes=(0, 1), family="losses")
    add("nn.pairwise_distance", "4096x256", pair, mo.nn.pairwise_distance, f.pairwise_distance, slopes=(0, 1), family="losses")
    add("nn.triplet_margin_loss", "4096x256", [*pair, pair[0]], mo.nn.triplet_margin_loss, f.triplet_margin_loss, slopes=(0, 1, 2), family="losses")


def _moves(add: Call) -> None:
    import morpho as mo
    import torch

    square = [_x(1024, 1024)]

    def move(name: str, label: str, draws: Sequence[Draw], own: Call, theirs: Call | None, numpys: Call | None, **options: Any) -> None:
        add(name, label, draws, own, theirs, numpys, family="moves",
            **{"dtypes": ("float32", "float64", "bfloat16", "int64", "bool", "complex64"), "slopes": (0,), **options})

    move("matrix_transpose", "1024x1024", square, lambda x: mo.matrix_transpose(x) + 0, lambda x: x.mT.contiguous(), lambda x: np.ascontiguousarray(x.T), dtypes=FLOATS)
    move("permute_dims", "4096x4096", [_x(4096, 4096)], lambda x: mo.permute_dims(x, (1, 0)) * 1, lambda x: x.t().contiguous(), lambda x: np.ascontiguousarray(x.T), dtypes=FLOATS[:1])
    move("permute_dims", "64x128x128, 0 2 1", [_x(64, 128, 128)], lambda x: mo.permute_dims(x, (0, 2, 1)) * 1, lambda x: x.permute(0, 2, 1).contiguous(), lambda x: np.ascontiguousarray(x.transpose(0, 2, 1)), dtypes=FLOATS)
    for axis in (None, 0, 1):
        move("flip", f"1024x1024, axis {axis}", square, lambda x, a=axis: mo.flip(x, axis=a), lambda x, a=axis: torch.flip(x, (0, 1) if a is None else (a,)), None)
        move("roll", f"1024x1024, axis {axis}", square, lambda x, a=axis: mo.roll(x, 7, axis=a), lambda x, a=axis: torch.roll(x, 7, a), lambda x, a=axis: np.roll(x, 7, a))
    for name in ("fliplr", "flipud"):
        move(name, "1024x1024", square, getattr(mo, name), getattr(torch, name), None, quick=False)
    move("rot90", "1024x1024", square, mo.rot90, torch.rot90, lambda x: np.ascontiguousarray(np.rot90(x)))
    for axis in (0, 1):
        move("concat", f"2 of 1024x1024, axis {axis}", square * 2, lambda a, b, axis=axis: mo.concat([a, b], axis=axis), lambda a, b, axis=axis: torch.cat([a, b], axis), lambda a, b, axis=axis: np.concatenate([a, b], axis))
        move("stack", f"2 of 1024x1024, axis {axis}", square * 2, lambda a, b, axis=axis: mo.stack([a, b], axis=axis), lambda a, b, axis=axis: torch.stack([a, b], axis), lambda a, b, axis=axis: np.stack([a, b], axis))
        move("diff", f"1024x1024, axis {axis}", square, lambda x, a=axis: mo.diff(x, axis=a), lambda x, a=axis: torch.diff(x, dim=a), lambda x, a=axis: np.diff(x, axis=a), dtypes=NUMBERS)
        move("repeat", f"1024x256, 4, axis {axis}", [_x(1024, 256)], lambda x, a=axis: mo.repeat(x, 4, axis=a), lambda x, a=axis: torch.repeat_interleave(x, 4, a), lambda x, a=axis: np.repeat(x, 4, a))
    for name in ("hstack", "vstack", "dstack", "column_stack"):
        move(name, "2 of 512x512", [_x(512, 512)] * 2, lambda a, b, g=getattr(mo, name): g([a, b]), lambda a, b, g=getattr(torch, name): g([a, b]), lambda a, b, g=getattr(np, name): g([a, b]), dtypes=FLOATS[:1], quick=False)
    move("tile", "512x512, 2x2", [_x(512, 512)], lambda x: mo.tile(x, (2, 2)), lambda x: torch.tile(x, (2, 2)), lambda x: np.tile(x, (2, 2)))
    for mode, theirs in (("constant", "constant"), ("reflect", "reflect"), ("edge", "replicate"), ("wrap", "circular")):
        move("pad", f"8x64x64x64, 2, {mode}", [_x(8, 64, 64, 64)], lambda x, m=mode: mo.pad(x, [(0, 0), (0, 0), (2, 2), (2, 2)], mode=m),
             lambda x, m=theirs: torch.nn.functional.pad(x, (2, 2, 2, 2), mode=m), lambda x, m=mode: np.pad(x, [(0, 0), (0, 0), (2, 2), (2, 2)], mode=m), dtypes=FLOATS)
    for name in ("tril", "triu"):
        move(name, "1024x1024", square, getattr(mo, name), getattr(torch, name), getattr(np, name))
    move("diag", "1024", [_x(1024)], mo.diag, torch.diag, np.diag)
    move("diag_embed", "64x64", [_x(64, 64)], mo.diag_embed, torch.diag_embed, None)
    move("diagonal", "2048x2048", [_x(2048, 2048)], lambda x: mo.diagonal(x) + 0, lambda x: torch.diagonal(x) + 0, lambda x: np.diagonal(x) + 0, dtypes=FLOATS)
    move("broadcast_to", "1024 to 1024x1024", [_x(1024)], lambda x: mo.broadcast_to(x, (1024, 1024)) + 0, lambda x: x.expand(1024, 1024) + 0, lambda x: np.broadcast_to(x, (1024, 1024)) + 0, dtypes=FLOATS)
    for kind in ("float32", "float64", "bfloat16", "int32", "int64", "bool", "uint8"):
        move("astype", f"1M to {kind}", [_x(1 << 20)], lambda x, k=kind: mo.astype(x, getattr(mo, k)), lambda x, k=kind: x.to(getattr(torch, k), copy=True),
             None if kind == "bfloat16" else lambda x, k=kind: x.astype(k), dtypes=("float32", "float64", "bfloat16", "int32", "int64", "bool"), slopes=())
    for rows, columns, count in ((1000, 1024, 4096), (1 << 20, 1, 1 << 18)):
        draws = [_x(*(rows, columns)[:1 + (columns > 1)]), _x(count, kind="index", high=rows)]
        label = f"{rows}x{columns}, {count}" if columns > 1 else f"{rows}, {count}"
        add(
            "take", label + ", axis 0", draws, lambda x, i: mo.take(x, i, axis=0), lambda x, i: torch.index_select(x, 0, i), lambda x, i: np.take(x, i, 0), dtypes=(*NUMBERS, "bfloat16"), slopes=(0,), family="gathers")
    add("take", "1024x1024, 512, axis 1", [_x(1024, 1024), _x(512, kind="index", high=1024)], lambda x, i: mo.take(x, i, axis=1), lambda x, i: torch.index_select(x, 1, i), lambda x, i: np.take(x, i, 1), slopes=(0,), family="gathers")
    for axis in (0, 1):
        add("take_along_axis", f"1024x1024, axis {axis}", [_x(1024, 1024), _x(1024, 1024, kind="index", high=1024)], lambda x, i, a=axis: mo.take_along_axis(x, i, axis=a),
            lambda x, i, a=axis: torch.take_along_dim(x, i, a), lambda x, i, a=axis: np.take_along_axis(x, i, a), dtypes=FLOATS, slopes=(0,), family="gathers")
    scattered = [_x(1 << 20), _x(1 << 18, kind="index", high=1 << 20), _x(1 << 18)]
    add("scatter_add", "1M, 256k", scattered, lambda x, i, v: mo.scatter_add(x, i, v, axis=0), lambda x, i, v: torch.scatter_add(x, 0, i, v), slopes=(0, 2), family="gathers", dtypes=FLOATS)
    add("scatter", "1M, 256k", scattered, lambda x, i, v: mo.scatter(x, i, v, axis=0), lambda x, i, v: torch.scatter(x, 0, i, v), family="gathers", rough=True)
    for how, theirs in (("max", "amax"), ("mean", "mean"), ("prod", "prod"), ("sum", "sum")):
        add("scatter_reduce", f"1M, 256k, {how}", scattered, lambda x, i, v, h=how: mo.scatter_reduce(x, i, v, reduce=h, axis=0),
            lambda x, i, v, h=theirs: torch.scatter_reduce(x, 0, i, v, h), family="gathers", quick=how == "max")
    add("put_along_axis", "1024x1024, axis 1", [_x(1024, 1024), _x(1024, 16, kind="index", high=1024), _x(1024, 16)], lambda x, i, v: mo.put_along_axis(x, i, v, axis=1),
        lambda x, i, v: torch.scatter(x, 1, i, v), family="gathers", rough=True)
    add("x[i, j]", "1024x1024, 65536", [_x(1024, 1024), *[_x(65536, kind="index", high=1024)] * 2], lambda x, i, j: x[i, j], lambda x, i, j: x[i, j], lambda x, i, j: x[i, j], family="gathers", slopes=(0,))
    add("x[::2, 1:]", "1024x1024", square, lambda x: x[::2, 1:] + 0, lambda x: x[::2, 1:] + 0, lambda x: x[::2, 1:] + 0, family="moves", slopes=(0,))
    add("x[mask]", "1M", [_x(1 << 20), _x(1 << 20, kind="bool")], lambda x, m: x[m], lambda x, m: x[m], lambda x, m: x[m], family="selection", dtypes=NUMBERS, options={"lazy": True})
    add("one_hot", "65536, 32", [_x(65536, kind="index", high=32)], lambda i: mo.one_hot(i, 32, dtype=mo.int64), lambda i: torch.nn.functional.one_hot(i, 32), family="moves")
    add("meshgrid", "1024, 1024", [_x(1024)] * 2, lambda a, b: [x + 0 for x in mo.meshgrid(a, b, indexing="ij")], lambda a, b: [x + 0 for x in torch.meshgrid(a, b, indexing="ij")], None, family="moves")
    add("where", "1M", [_x(1 << 20, kind="bool"), _x(1 << 20), _x(1 << 20)], mo.where, torch.where, np.where, dtypes=("float32", "float64", "bfloat16", "int32", "int64", "complex64"), slopes=(1, 2), family="pointwise")
    add("clip", "1M", [_x(1 << 20)], lambda x: mo.clip(x, -1, 1), lambda x: torch.clip(x, -1, 1), lambda x: np.clip(x, -1, 1), dtypes=(*NUMBERS, "bfloat16"), slopes=(0,), family="pointwise")
    add("select", "1M, 2 of 2", [_x(1 << 20), _x(1 << 20)], lambda a, b: mo.select([a > 0, b > 0], [a, b]), None, lambda a, b: np.select([a > 0, b > 0], [a, b]), family="pointwise", slopes=(0,))
    add("choose", "1M of 2", [_x(1 << 20, kind="index", high=2), _x(1 << 20), _x(1 << 20)], lambda i, a, b: mo.choose(i, [a, b]), None, lambda i, a, b: np.choose(i, [a, b]), family="pointwise")
    for name in ("real", "imag"):
        add(name, "1M, and 0", [_x(1 << 20)], lambda x, g=getattr(mo, name): g(x) + 0, lambda x, g=getattr(torch, name): g(x) + 0, lambda x, g=getattr(np, name): g(x) + 0, dtypes=("complex64", "complex128"), family="pointwise")
    add("conj", "1M", [_x(1 << 20)], mo.conj, torch.conj_physical, np.conj, dtypes=("complex64", "complex128"), slopes=(), family="pointwise")
    add("lerp", "1M", [_x(1 << 20)] * 3, mo.lerp, torch.lerp, dtypes=REAL, slopes=(0, 1, 2), family="pointwise")
    add("astype", "1M strided", [_x(1024, 2048)], lambda x: mo.astype(x[:, ::2], mo.float64), lambda x: x[:, ::2].double(), lambda x: x[:, ::2].astype(np.float64), family="moves")


def _orders(add: Call) -> None:
    import morpho as mo
    import torch

    kinds = ("float32", "float64", "int32", "int64")
    for shape in ((1000,), (65536,), (1 << 20,), (1024, 1024), (65536, 16)):
        label, quick = "x".join(map(str, shape)), shape in ((1 << 20,), (65536, 16))
        add("sort", label, [_x(*shape)], mo.sort, lambda x: torch.sort(x).values, np.sort, dtypes=kinds, slopes=(0,) if len(shape) == 2 else (), quick=quick, family="order")
        add("argsort", label, [_x(*shape)], mo.argsort, torch.argsort, np.argsort, dtypes=kinds[:3], rough=True, quick=quick, family="order")
        if shape[-1] > 16:
            add("topk", label + ", 10", [_x(*shape)], lambda x: mo.topk(x, 10), lambda x: torch.topk(x, 10), dtypes=kinds, rough=True, slopes=(0,), quick=quick, family="order")
            add("topk", label + ", 100", [_x(*shape)], lambda x: mo.topk(x, 100), lambda x: torch.topk(x, 100), rough=True, quick=quick, family="order")
            add("partition", label, [_x(*shape)], lambda x: mo.partition(x, 50), None, lambda x: np.partition(x, 50), rough=True, quick=quick, family="order")
            add("argpartition", label, [_x(*shape)], lambda x: mo.argpartition(x, 50), None, lambda x: np.argpartition(x, 50), rough=True, quick=False, family="order")
    add("sort", "1024x1024, axis 0", [_x(1024, 1024)], lambda x: mo.sort(x, axis=0), lambda x: torch.sort(x, 0).values, lambda x: np.sort(x, 0), family="order")
    for name in ("median", "nanmedian"):
        add(name, "1M", [_x(1 << 20)], getattr(mo, name), None, getattr(np, name), family="order")
        add(name, "1024x1024, axis 1", [_x(1024, 1024)], lambda x, g=getattr(mo, name): g(x, axis=1), None, lambda x, g=getattr(np, name): g(x, 1), family="order", slopes=(0,))
    for name, torchs in (("quantile", torch.quantile), ("nanquantile", torch.nanquantile)):
        add(name, "1024x1024, axis 1", [_x(1024, 1024)], lambda x, g=getattr(mo, name): g(x, 0.3, axis=1), lambda x, g=torchs: g(x, 0.3, 1), lambda x, g=getattr(np, name): g(x, 0.3, 1), family="order")
    for name in ("percentile", "nanpercentile"):
        add(name, "1M", [_x(1 << 20)], lambda x, g=getattr(mo, name): g(x, 30), None, lambda x, g=getattr(np, name): g(x, 30), family="order")
    for name in ("unique", "unique_values", "unique_counts", "unique_inverse", "unique_all"):
        add(name, "1M of 1000", [_x(1 << 20, kind="index", high=1000)], getattr(mo, name),
            (lambda x: torch.unique(x)) if name in ("unique", "unique_values") else None, getattr(np, name), family="selection", options={"lazy": True})
    add("unique", "1M of 1M", [_x(1 << 20, kind="index", high=1 << 20)], mo.unique, torch.unique, np.unique, family="selection", options={"lazy": True})
    add("unique_consecutive", "1M of 1000", [_x(1 << 20, kind="index", high=1000, special="sorted")], mo.unique_consecutive, torch.unique_consecutive, family="selection", options={"lazy": True})
    for name in ("nonzero", "flatnonzero", "argwhere"):
        theirs = {"nonzero": lambda x: torch.nonzero(x, as_tuple=True), "flatnonzero": lambda x: torch.nonzero(x.ravel())[:, 0], "argwhere": torch.argwhere}[name]
        for label, draw in (("1M bool", _x(1 << 20, kind="bool")), ("1024x1024 bool", _x(1024, 1024, kind="bool"))):
            add(name, label, [draw], getattr(mo, name), theirs, getattr(np, name), family="selection", options={"lazy": True})
    for name in ("intersect1d", "union1d", "setdiff1d"):
        add(name, "100k", [_x(100_000, kind="index", high=200_000)] * 2, getattr(mo, name), None, getattr(np, name), family="selection", options={"lazy": True})
    add("isin", "100k, 1000", [_x(100_000, kind="index", high=200_000), _x(1000, kind="index", high=200_000)], mo.isin, torch.isin, np.isin, family="selection")
    for count in (100, 65536):
        draws = [_x(count, special="sorted"), _x(1 << 20)]
        add("searchsorted", f"{count}, 1M", draws, mo.searchsorted, torch.searchsorted, np.searchsorted, dtypes=FLOATS, family="order")
    add("bucketize", "1M, 100", [_x(1 << 20), _x(100, special="sorted")], mo.bucketize, torch.bucketize, None, family="order")
    add("digitize", "1M, 100", [_x(1 << 20), _x(100, special="sorted")], mo.digitize, None, np.digitize, family="order")


def _counts(add: Call) -> None:
    import morpho as mo
    import torch

    for high in (10, 1000, 1 << 18):
        add("bincount", f"1M of {high}", [_x(1 << 20, kind="index", high=high)], lambda x, n=high: mo.bincount(x, minlength=n), lambda x, n=high: torch.bincount(x, minlength=n), lambda x, n=high: np.bincount(x, minlength=n), family="counts", options={"lazy": True})
    add("bincount", "1M of 1000, weights", [_x(1 << 20, kind="index", high=1000), _x(1 << 20)], lambda x, w: mo.bincount(x, w, minlength=1000), lambda x, w: torch.bincount(x, w, minlength=1000), lambda x, w: np.bincount(x, w, 1000), family="counts", options={"lazy": True}, dtypes=FLOATS[1:])
    for bins in (10, 256):
        add("histogram", f"1M, {bins}", [_x(1 << 20)], lambda x, b=bins: mo.histogram(x, b, range=(-3., 3.))[0], lambda x, b=bins: torch.histc(x, b, -3., 3.), lambda x, b=bins: np.histogram(x, b, range=(-3., 3.))[0], family="counts", options={"lazy": True}, rough=True, dtypes=FLOATS)
    add("histogram", "1M, 10, own range", [_x(1 << 20)], lambda x: mo.histogram(x, 10)[0], lambda x: torch.histc(x, 10), lambda x: np.histogram(x, 10)[0], family="counts", options={"lazy": True}, rough=True)
    add("histogram2d", "100k, 32", [_x(100_000)] * 2, lambda x, y: mo.histogram2d(x, y, 32)[0], None, lambda x, y: np.histogram2d(x, y, 32)[0], family="counts", options={"lazy": True}, rough=True)
    for name, how in (("segment_sum", "sum"), ("segment_max", "amax"), ("segment_mean", "mean"), ("segment_prod", "prod"), ("segment_min", "amin")):
        add(name, "65536x16, 1000", [_x(65536, 16), _x(65536, kind="index", high=1000, special="sorted")], lambda x, s, g=getattr(mo, name): g(x, s, 1000),
            lambda x, s, h=how: torch.zeros(1000, 16, dtype=x.dtype).index_reduce(0, s, x, {"sum": "prod"}.get(h, h), include_self=False) if h != "sum" else torch.zeros(1000, 16, dtype=x.dtype).index_add(0, s, x),
            family="counts", quick=how in ("sum", "amax"), slopes=(0,) if how == "sum" else ())


def _calculus(add: Call) -> None:
    import morpho as mo
    import scipy.spatial.distance as distance
    import torch

    for label, m, n, d in (("1000x1000x16", 1000, 1000, 16), ("500x500x3", 500, 500, 3), ("512x512x256", 512, 512, 256)):
        for p in (2.0, 1.0):
            add("cdist", f"{label}, p={p:.0f}", [_x(m, d), _x(n, d)], lambda a, b, p=p: mo.cdist(a, b, p=p), lambda a, b, p=p: torch.cdist(a, b, p=p), None,
                lambda a, b, p=p: distance.cdist(a, b, "euclidean" if p == 2 else "cityblock"), family="distances", slopes=(0, 1) if d == 16 else (), rough=True, dtypes=FLOATS)
    add("pdist", "1000x16", [_x(1000, 16)], mo.pdist, torch.pdist, None, distance.pdist, family="distances", rough=True, slopes=(0,))
    add("interp", "1M, 100", [_x(1 << 20), _x(100, special="sorted"), _x(100)], mo.interp, None, np.interp, family="calculus")
    add("trapezoid", "1024x1024", [_x(1024, 1024)], mo.trapezoid, torch.trapezoid, np.trapezoid, family="calculus", slopes=(0,))
    add("cumulative_trapezoid", "1024x1024", [_x(1024, 1024)], mo.cumulative_trapezoid, torch.cumulative_trapezoid, None, family="calculus")
    add("gradient", "1M", [_x(1 << 20)], mo.gradient, lambda x: torch.gradient(x)[0], np.gradient, family="calculus")
    add("cov", "64x4096", [_x(64, 4096)], mo.cov, torch.cov, np.cov, family="calculus", slopes=(0,))
    add("corrcoef", "64x4096", [_x(64, 4096)], mo.corrcoef, torch.corrcoef, np.corrcoef, family="calculus")
    add("average", "1024x1024, weights", [_x(1024, 1024), _x(1024, low=.1, high=1)], lambda x, w: mo.average(x, axis=1, weights=w), None, lambda x, w: np.average(x, 1, w), family="calculus")
    add("vander", "1024, 16", [_x(1024, low=-1, high=1)], lambda x: mo.vander(x, 16), lambda x: torch.vander(x, 16), lambda x: np.vander(x, 16), family="calculus")
    add("polyval", "4, 1M", [_x(4), _x(1 << 20)], mo.polyval, None, np.polyval, family="calculus")
    add("unwrap", "1M", [_x(1 << 20)], mo.unwrap, None, np.unwrap, family="calculus", rough=True)
    add("polygamma", "1, 64k", [_x(65536, low=.5, high=5)], lambda x: mo.polygamma(1, x), lambda x: torch.polygamma(1, x), family="special", dtypes=FLOATS)
    add("isclose", "1M", [_x(1 << 20)] * 2, mo.isclose, torch.isclose, np.isclose, family="pointwise")
    add("allclose", "1M", [_x(1 << 20)], lambda x: mo.all(mo.isclose(x, x)), lambda x: torch.all(torch.isclose(x, x)), lambda x: np.asarray(np.allclose(x, x)), family="pointwise")
    for name in ("arange", "zeros", "ones", "eye", "linspace"):
        sizes = {"arange": (1 << 20,), "zeros": (1 << 20,), "ones": (1 << 20,), "eye": (1024,), "linspace": (0.0, 1.0, 1 << 20)}[name]
        dtype = "float32"
        add(name, "1M", [], lambda g=getattr(mo, name), s=sizes: g(*s, dtype=mo.float32), lambda g=getattr(torch, name), s=sizes: g(*s, dtype=torch.float32), lambda g=getattr(np, name), s=sizes: g(*s, dtype=np.float32), dtypes=(dtype,), family="sources", rough=name == "linspace")
