"""Rows of products, matrices and transforms."""

from __future__ import annotations

import numpy as np

from benchmarks.surface.draws import FLOATS, NUMBERS, REAL, Call
from benchmarks.surface.draws import draw_of as _x


def products(add: Call) -> None:
    import torch

    import morpho as mo

    every = ("float32", "float64", "bfloat16", "int32", "int64", "complex64", "complex128")
    for n in (1, 8, 32, 64, 128, 256, 512, 1024, 2048):
        dtypes = every if n in (64, 512) else FLOATS if n < 2048 else ("float32",)
        add(
            "matmul",
            f"{n}x{n}",
            [_x(n, n), _x(n, n)],
            mo.matmul,
            torch.matmul,
            np.matmul,
            dtypes=dtypes,
            slopes=(0, 1) if n in (64, 512) else (),
            quick=n in (64, 512),
            family="products",
        )
    for label, first, second in (
        ("4096x4096 @ 4096", (4096, 4096), (4096,)),
        ("4096 @ 4096x4096", (4096,), (4096, 4096)),
        ("1x768 @ 768x3072", (1, 768), (768, 3072)),
        ("8x768 @ 768x3072", (8, 768), (768, 3072)),
        ("128x768 @ 768x3072", (128, 768), (768, 3072)),
        ("16384x32 @ 32x32", (16384, 32), (32, 32)),
        ("64x64x64 batched", (64, 64, 64), (64, 64, 64)),
        ("512x16x16 batched", (512, 16, 16), (512, 16, 16)),
        ("32x8x128x64 batched", (32, 8, 128, 64), (32, 8, 64, 128)),
        ("1024x4 @ 4x1024", (1024, 4), (4, 1024)),
        ("8x65536 @ 65536x8", (8, 65536), (65536, 8)),
    ):
        add(
            "matmul",
            label,
            [_x(*first), _x(*second)],
            mo.matmul,
            torch.matmul,
            np.matmul,
            dtypes=REAL if len(first) == 2 else FLOATS,
            family="products",
            quick=label.startswith(("4096", "64x", "128")),
        )
    add(
        "matmul",
        "512x512 @ (512x512).T",
        [_x(512, 512), _x(512, 512)],
        lambda a, b: mo.matmul(a, b.T),
        lambda a, b: a @ b.T,
        lambda a, b: a @ b.T,
        dtypes=FLOATS,
        family="products",
    )
    add("outer", "1024, 1024", [_x(1024), _x(1024)], mo.outer, torch.outer, np.outer, dtypes=FLOATS, slopes=(0, 1))
    add(
        "vecdot",
        "1024x1024",
        [_x(1024, 1024)] * 2,
        mo.vecdot,
        torch.linalg.vecdot,
        np.vecdot,
        dtypes=FLOATS,
        slopes=(0, 1),
    )
    add("vecdot", "1M", [_x(1 << 20)] * 2, mo.vecdot, torch.dot, np.dot, dtypes=FLOATS)
    add(
        "tensordot",
        "64x32x32, axes 2",
        [_x(64, 32, 32), _x(32, 32, 64)],
        lambda a, b: mo.tensordot(a, b, axes=2),
        lambda a, b: torch.tensordot(a, b, 2),
        lambda a, b: np.tensordot(a, b, 2),
        dtypes=FLOATS,
        slopes=(0, 1),
    )
    add(
        "einsum",
        "bij,bjk->bik",
        [_x(32, 64, 64)] * 2,
        lambda a, b: mo.einsum("bij,bjk->bik", a, b),
        lambda a, b: torch.einsum("bij,bjk->bik", a, b),
        lambda a, b: np.einsum("bij,bjk->bik", a, b, optimize=True),
        slopes=(0, 1),
    )
    add(
        "einsum",
        "bhid,bhjd->bhij",
        [_x(4, 8, 128, 64)] * 2,
        lambda a, b: mo.einsum("bhid,bhjd->bhij", a, b),
        lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b),
    )
    add("linalg.kron", "32x32", [_x(32, 32)] * 2, mo.linalg.kron, torch.kron, np.kron, dtypes=FLOATS, slopes=(0, 1))
    add(
        "linalg.multi_dot",
        "256",
        [_x(256, 256)] * 3,
        lambda *a: mo.linalg.multi_dot(a),
        lambda *a: torch.linalg.multi_dot(a),
        lambda *a: np.linalg.multi_dot(a),
    )
    add(
        "nn.linear",
        "128x768x3072",
        [_x(128, 768), _x(3072, 768), _x(3072)],
        mo.nn.linear,
        torch.nn.functional.linear,
        dtypes=("float32", "bfloat16"),
        slopes=(0, 1, 2),
    )
    add(
        "nn.linear",
        "1x768x3072",
        [_x(1, 768), _x(3072, 768), _x(3072)],
        mo.nn.linear,
        torch.nn.functional.linear,
        dtypes=("float32", "bfloat16"),
    )


def matrices(add: Call) -> None:
    import scipy.linalg
    import torch

    import morpho as mo

    alone = (
        ("inv", "square"),
        ("det", "square"),
        ("slogdet", "square"),
        ("qr", "square"),
        ("cholesky", "spd"),
        ("eigh", "spd"),
        ("eigvalsh", "spd"),
        ("svd", "square"),
        ("svdvals", "square"),
        ("pinv", "square"),
        ("eig", "square"),
        ("eigvals", "square"),
        ("matrix_rank", "square"),
    )
    rough = {"qr", "eigh", "svd", "eig", "eigvals"}
    for name, special in alone:
        own, theirs, numpys = (getattr(place.linalg, name, None) for place in (mo, torch, np))
        for shape in (
            (1, 1),
            (4, 4),
            (16, 16),
            (64, 64),
            (128, 128),
            (256, 256),
            (512, 512),
            (64, 16, 16),
            (16, 128, 128),
            (1024, 4, 4),
        ):
            if name in ("eig", "eigvals", "eigh", "svd", "pinv", "eigvalsh", "svdvals", "matrix_rank") and (
                shape[-1] == 512 or shape == (16, 128, 128)
            ):
                continue
            add(
                f"linalg.{name}",
                "x".join(map(str, shape)),
                [_x(*shape, special=special)],
                own,
                theirs,
                numpys,
                dtypes=FLOATS if shape in ((16, 16), (256, 256), (64, 16, 16)) else ("float32",),
                rough=name in rough,
                slopes=(0,)
                if shape in ((64, 64), (64, 16, 16)) and name not in ("eig", "eigvals", "matrix_rank", "svd")
                else (),
                quick=shape in ((16, 16), (256, 256), (16, 128, 128)),
                family="matrices",
            )
    for n, k in ((16, 1), (128, 8), (512, 1), (512, 512)):
        add(
            "linalg.solve",
            f"{n}x{n}, {k} columns",
            [_x(n, n, special="square"), _x(n, k)],
            mo.linalg.solve,
            torch.linalg.solve,
            np.linalg.solve,
            dtypes=FLOATS,
            slopes=(0, 1) if n == 128 else (),
            family="matrices",
        )
        add(
            "linalg.solve_triangular",
            f"{n}x{n}, {k} columns",
            [_x(n, n, special="square"), _x(n, k)],
            lambda a, b: mo.linalg.solve_triangular(a, b, upper=True),
            lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
            None,
            lambda a, b: scipy.linalg.solve_triangular(a, b, check_finite=False),
            dtypes=FLOATS,
            slopes=(0, 1) if n == 128 else (),
            family="matrices",
        )
    for shape in ((64, 128, 128), (256, 32, 32), (4096, 3, 3)):
        add(
            "linalg.solve",
            "x".join(map(str, shape)) + ", 1 column",
            [_x(*shape, special="square"), _x(*shape[:-1], 1)],
            mo.linalg.solve,
            torch.linalg.solve,
            np.linalg.solve,
            slopes=(0, 1),
            family="matrices",
        )
    for m, n in ((64, 8), (1000, 50), (2000, 200)):
        add(
            "linalg.lstsq",
            f"{m}x{n}",
            [_x(m, n), _x(m, 1)],
            lambda a, b: mo.linalg.lstsq(a, b)[0],
            lambda a, b: torch.linalg.lstsq(a, b).solution,
            lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0],
            dtypes=FLOATS,
            family="matrices",
        )
        add(
            "linalg.qr",
            f"{m}x{n}",
            [_x(m, n)],
            mo.linalg.qr,
            torch.linalg.qr,
            np.linalg.qr,
            rough=True,
            family="matrices",
        )
        add(
            "linalg.svd",
            f"{m}x{n}",
            [_x(m, n)],
            lambda a: mo.linalg.svd(a, full_matrices=False),
            lambda a: torch.linalg.svd(a, full_matrices=False),
            lambda a: np.linalg.svd(a, full_matrices=False),
            rough=True,
            family="matrices",
        )
    add(
        "linalg.lu",
        "256x256",
        [_x(256, 256, special="square")],
        mo.linalg.lu,
        torch.linalg.lu_factor,
        rough=True,
        family="matrices",
    )
    for name in ("expm", "sqrtm", "logm", "schur"):
        peer = getattr(scipy.linalg, name)
        add(
            f"linalg.{name}",
            "64x64",
            [_x(64, 64, low=0, high=0.1, special="spd" if name != "expm" else "")],
            getattr(mo.linalg, name),
            torch.linalg.matrix_exp if name == "expm" else None,
            None,
            peer,
            dtypes=FLOATS,
            rough=name == "schur",
            family="matrices",
        )
    add(
        "linalg.matrix_power",
        "128x128, 5",
        [_x(128, 128, low=-0.1, high=0.1)],
        lambda x: mo.linalg.matrix_power(x, 5),
        lambda x: torch.linalg.matrix_power(x, 5),
        lambda x: np.linalg.matrix_power(x, 5),
        family="matrices",
    )
    add(
        "linalg.cond",
        "64x64",
        [_x(64, 64, special="square")],
        mo.linalg.cond,
        torch.linalg.cond,
        np.linalg.cond,
        family="matrices",
    )
    for order in ("fro", "nuc", 2, 1):
        add(
            "linalg.matrix_norm",
            f"256x256, {order}",
            [_x(256, 256)],
            lambda x, order=order: mo.linalg.matrix_norm(x, ord=order),
            lambda x, order=order: torch.linalg.matrix_norm(x, ord=order),
            lambda x, order=order: np.linalg.norm(x, order),
            slopes=(0,),
            family="matrices",
        )
    for order in (1, 2, 3):
        add(
            "linalg.vector_norm",
            f"1M, {order}",
            [_x(1 << 20)],
            lambda x, order=order: mo.linalg.vector_norm(x, ord=order),
            lambda x, order=order: torch.linalg.vector_norm(x, ord=order),
            lambda x, order=order: np.linalg.norm(x, order),
            dtypes=FLOATS,
            slopes=(0,),
        )
    add("linalg.norm", "1024x1024", [_x(1024, 1024)], mo.linalg.norm, torch.linalg.norm, np.linalg.norm)
    add(
        "linalg.trace",
        "1024x1024",
        [_x(1024, 1024)],
        mo.linalg.trace,
        torch.trace,
        np.trace,
        dtypes=NUMBERS,
        slopes=(0,),
    )
    add(
        "linalg.cross",
        "65536x3",
        [_x(65536, 3)] * 2,
        mo.linalg.cross,
        torch.linalg.cross,
        np.cross,
        dtypes=FLOATS,
        slopes=(0, 1),
    )
    add("linalg.toeplitz", "512", [_x(512)], mo.linalg.toeplitz, None, None, scipy.linalg.toeplitz)
    add("linalg.circulant", "512", [_x(512)], mo.linalg.circulant, None, None, scipy.linalg.circulant)
    add(
        "linalg.solve_toeplitz",
        "512",
        [_x(512, low=1, high=2), _x(512)],
        mo.linalg.solve_toeplitz,
        None,
        None,
        scipy.linalg.solve_toeplitz,
        rough=True,
    )
    add(
        "linalg.block_diag",
        "4 of 64x64",
        [_x(64, 64)] * 4,
        mo.linalg.block_diag,
        torch.block_diag,
        None,
        scipy.linalg.block_diag,
    )
    add(
        "linalg.ldl",
        "64x64",
        [_x(64, 64, special="spd")],
        mo.linalg.ldl,
        None,
        None,
        scipy.linalg.ldl,
        rough=True,
        family="matrices",
    )


def transforms(add: Call) -> None:
    import scipy.fft
    import torch

    import morpho as mo

    for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
        dtypes = ("complex64", "complex128") if name in ("fft", "ifft", "irfft", "hfft") else FLOATS
        own, theirs, scipys = (getattr(place.fft, name) for place in (mo, torch, scipy))
        for shape in ((16,), (1000,), (1024,), (65536,), (1 << 20,), (1009,), (1024, 1024), (4096, 64)):
            if shape not in ((1024,), (1 << 20,), (1024, 1024)) and name not in ("fft", "rfft"):
                continue
            add(
                f"fft.{name}",
                "x".join(map(str, shape)),
                [_x(*shape)],
                own,
                theirs,
                getattr(np.fft, name),
                scipys,
                dtypes=dtypes,
                slopes=(0,) if shape == (1024, 1024) else (),
                quick=shape in ((1024,), (1 << 20,)),
                family="fft",
            )
        if name in ("fft", "rfft"):
            add(
                f"fft.{name}",
                "1024x1024, axis 0",
                [_x(1024, 1024)],
                lambda x, own=own: own(x, axis=0),
                lambda x, theirs=theirs: theirs(x, dim=0),
                None,
                lambda x, scipys=scipys: scipys(x, axis=0),
                dtypes=dtypes[:1],
                family="fft",
            )
    for name in ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"):
        own, theirs, scipys = (getattr(place.fft, name) for place in (mo, torch, scipy))
        shape = (64, 64, 64) if name.endswith("n") else (512, 512)
        add(
            f"fft.{name}",
            "x".join(map(str, shape)),
            [_x(*shape)],
            own,
            theirs,
            getattr(np.fft, name),
            scipys,
            dtypes=FLOATS[:1] if name.startswith("rfft") else ("complex64",),
            family="fft",
            quick=False,
        )
    for name in ("fftshift", "ifftshift"):
        add(
            f"fft.{name}",
            "1024x1024",
            [_x(1024, 1024)],
            getattr(mo.fft, name),
            getattr(torch.fft, name),
            getattr(np.fft, name),
        )
    window = np.hanning(513)[:-1].astype(np.float32)
    add(
        "stft",
        "1M, 512",
        [_x(1 << 20)],
        lambda x: mo.stft(x, 512, 128, window=mo.asarray(window)),
        lambda x: torch.stft(x, 512, 128, window=torch.from_numpy(window), return_complex=True),
        family="fft",
    )
    add("convolve", "4096, 64", [_x(4096), _x(64)], mo.convolve, None, np.convolve)
    add("correlate", "4096, 64", [_x(4096), _x(64)], mo.correlate, None, np.correlate)
