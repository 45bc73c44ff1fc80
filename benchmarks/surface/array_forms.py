"""Rows of moves, gathers, sorting, counting and calculus on arrays."""

# ruff: noqa: B008  (a default binds the function of this turn of the loop)
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.surface.draws import FLOATS, NUMBERS, REAL, Call, Draw
from benchmarks.surface.draws import draw_of as _x


def moves(add: Call) -> None:
    import torch

    import morpho as mo

    square = [_x(1024, 1024)]

    def move(
        name: str,
        label: str,
        draws: Sequence[Draw],
        own: Call,
        theirs: Call | None,
        numpys: Call | None,
        **options: Any,
    ) -> None:
        add(
            name,
            label,
            draws,
            own,
            theirs,
            numpys,
            family="moves",
            **{"dtypes": ("float32", "float64", "bfloat16", "int64", "bool", "complex64"), "slopes": (0,), **options},
        )

    move(
        "matrix_transpose",
        "1024x1024",
        square,
        lambda x: mo.matrix_transpose(x) + 0,
        lambda x: x.mT.contiguous(),
        lambda x: np.ascontiguousarray(x.T),
        dtypes=FLOATS,
    )
    move(
        "permute_dims",
        "4096x4096",
        [_x(4096, 4096)],
        lambda x: mo.permute_dims(x, (1, 0)) * 1,
        lambda x: x.t().contiguous(),
        lambda x: np.ascontiguousarray(x.T),
        dtypes=FLOATS[:1],
    )
    move(
        "permute_dims",
        "64x128x128, 0 2 1",
        [_x(64, 128, 128)],
        lambda x: mo.permute_dims(x, (0, 2, 1)) * 1,
        lambda x: x.permute(0, 2, 1).contiguous(),
        lambda x: np.ascontiguousarray(x.transpose(0, 2, 1)),
        dtypes=FLOATS,
    )
    for axis in (None, 0, 1):
        move(
            "flip",
            f"1024x1024, axis {axis}",
            square,
            lambda x, a=axis: mo.flip(x, axis=a),
            lambda x, a=axis: torch.flip(x, (0, 1) if a is None else (a,)),
            None,
        )
        move(
            "roll",
            f"1024x1024, axis {axis}",
            square,
            lambda x, a=axis: mo.roll(x, 7, axis=a),
            lambda x, a=axis: torch.roll(x, 7, a),
            lambda x, a=axis: np.roll(x, 7, a),
        )
    for name in ("fliplr", "flipud"):
        move(name, "1024x1024", square, getattr(mo, name), getattr(torch, name), None, quick=False)
    move("rot90", "1024x1024", square, mo.rot90, torch.rot90, lambda x: np.ascontiguousarray(np.rot90(x)))
    for axis in (0, 1):
        move(
            "concat",
            f"2 of 1024x1024, axis {axis}",
            square * 2,
            lambda a, b, axis=axis: mo.concat([a, b], axis=axis),
            lambda a, b, axis=axis: torch.cat([a, b], axis),
            lambda a, b, axis=axis: np.concatenate([a, b], axis),
        )
        move(
            "stack",
            f"2 of 1024x1024, axis {axis}",
            square * 2,
            lambda a, b, axis=axis: mo.stack([a, b], axis=axis),
            lambda a, b, axis=axis: torch.stack([a, b], axis),
            lambda a, b, axis=axis: np.stack([a, b], axis),
        )
        move(
            "diff",
            f"1024x1024, axis {axis}",
            square,
            lambda x, a=axis: mo.diff(x, axis=a),
            lambda x, a=axis: torch.diff(x, dim=a),
            lambda x, a=axis: np.diff(x, axis=a),
            dtypes=NUMBERS,
        )
        move(
            "repeat",
            f"1024x256, 4, axis {axis}",
            [_x(1024, 256)],
            lambda x, a=axis: mo.repeat(x, 4, axis=a),
            lambda x, a=axis: torch.repeat_interleave(x, 4, a),
            lambda x, a=axis: np.repeat(x, 4, a),
        )
    for name in ("hstack", "vstack", "dstack", "column_stack"):
        move(
            name,
            "2 of 512x512",
            [_x(512, 512)] * 2,
            lambda a, b, g=getattr(mo, name): g([a, b]),
            lambda a, b, g=getattr(torch, name): g([a, b]),
            lambda a, b, g=getattr(np, name): g([a, b]),
            dtypes=FLOATS[:1],
            quick=False,
        )
    move(
        "tile",
        "512x512, 2x2",
        [_x(512, 512)],
        lambda x: mo.tile(x, (2, 2)),
        lambda x: torch.tile(x, (2, 2)),
        lambda x: np.tile(x, (2, 2)),
    )
    for mode, theirs in (
        ("constant", "constant"),
        ("reflect", "reflect"),
        ("edge", "replicate"),
        ("wrap", "circular"),
    ):
        move(
            "pad",
            f"8x64x64x64, 2, {mode}",
            [_x(8, 64, 64, 64)],
            lambda x, m=mode: mo.pad(x, [(0, 0), (0, 0), (2, 2), (2, 2)], mode=m),
            lambda x, m=theirs: torch.nn.functional.pad(x, (2, 2, 2, 2), mode=m),
            lambda x, m=mode: np.pad(x, [(0, 0), (0, 0), (2, 2), (2, 2)], mode=m),
            dtypes=FLOATS,
        )
    for name in ("tril", "triu"):
        move(name, "1024x1024", square, getattr(mo, name), getattr(torch, name), getattr(np, name))
    move("diag", "1024", [_x(1024)], mo.diag, torch.diag, np.diag)
    move("diag_embed", "64x64", [_x(64, 64)], mo.diag_embed, torch.diag_embed, None)
    move(
        "diagonal",
        "2048x2048",
        [_x(2048, 2048)],
        lambda x: mo.diagonal(x) + 0,
        lambda x: torch.diagonal(x) + 0,
        lambda x: np.diagonal(x) + 0,
        dtypes=FLOATS,
    )
    move(
        "broadcast_to",
        "1024 to 1024x1024",
        [_x(1024)],
        lambda x: mo.broadcast_to(x, (1024, 1024)) + 0,
        lambda x: x.expand(1024, 1024) + 0,
        lambda x: np.broadcast_to(x, (1024, 1024)) + 0,
        dtypes=FLOATS,
    )
    for kind in ("float32", "float64", "bfloat16", "int32", "int64", "bool", "uint8"):
        move(
            "astype",
            f"1M to {kind}",
            [_x(1 << 20)],
            lambda x, k=kind: mo.astype(x, getattr(mo, k)),
            lambda x, k=kind: x.to(getattr(torch, k), copy=True),
            None if kind == "bfloat16" else lambda x, k=kind: x.astype(k),
            dtypes=("float32", "float64", "bfloat16", "int32", "int64", "bool"),
            slopes=(),
        )
    for rows, columns, count in ((1000, 1024, 4096), (1 << 20, 1, 1 << 18)):
        draws = [_x(*(rows, columns)[: 1 + (columns > 1)]), _x(count, kind="index", high=rows)]
        label = f"{rows}x{columns}, {count}" if columns > 1 else f"{rows}, {count}"
        add(
            "take",
            label + ", axis 0",
            draws,
            lambda x, i: mo.take(x, i, axis=0),
            lambda x, i: torch.index_select(x, 0, i),
            lambda x, i: np.take(x, i, 0),
            dtypes=(*NUMBERS, "bfloat16"),
            slopes=(0,),
            family="gathers",
        )
    add(
        "take",
        "1024x1024, 512, axis 1",
        [_x(1024, 1024), _x(512, kind="index", high=1024)],
        lambda x, i: mo.take(x, i, axis=1),
        lambda x, i: torch.index_select(x, 1, i),
        lambda x, i: np.take(x, i, 1),
        slopes=(0,),
        family="gathers",
    )
    for axis in (0, 1):
        add(
            "take_along_axis",
            f"1024x1024, axis {axis}",
            [_x(1024, 1024), _x(1024, 1024, kind="index", high=1024)],
            lambda x, i, a=axis: mo.take_along_axis(x, i, axis=a),
            lambda x, i, a=axis: torch.take_along_dim(x, i, a),
            lambda x, i, a=axis: np.take_along_axis(x, i, a),
            dtypes=FLOATS,
            slopes=(0,),
            family="gathers",
        )
    scattered = [_x(1 << 20), _x(1 << 18, kind="index", high=1 << 20), _x(1 << 18)]
    add(
        "scatter_add",
        "1M, 256k",
        scattered,
        lambda x, i, v: mo.scatter_add(x, i, v, axis=0),
        lambda x, i, v: torch.scatter_add(x, 0, i, v),
        slopes=(0, 2),
        family="gathers",
        dtypes=FLOATS,
    )
    add(
        "scatter",
        "1M, 256k",
        scattered,
        lambda x, i, v: mo.scatter(x, i, v, axis=0),
        lambda x, i, v: torch.scatter(x, 0, i, v),
        family="gathers",
        rough=True,
    )
    for how, theirs in (("max", "amax"), ("mean", "mean"), ("prod", "prod"), ("sum", "sum")):
        add(
            "scatter_reduce",
            f"1M, 256k, {how}",
            scattered,
            lambda x, i, v, h=how: mo.scatter_reduce(x, i, v, reduce=h, axis=0),
            lambda x, i, v, h=theirs: torch.scatter_reduce(x, 0, i, v, h),
            family="gathers",
            quick=how == "max",
        )
    add(
        "put_along_axis",
        "1024x1024, axis 1",
        [_x(1024, 1024), _x(1024, 16, kind="index", high=1024), _x(1024, 16)],
        lambda x, i, v: mo.put_along_axis(x, i, v, axis=1),
        lambda x, i, v: torch.scatter(x, 1, i, v),
        family="gathers",
        rough=True,
    )
    add(
        "x[i, j]",
        "1024x1024, 65536",
        [_x(1024, 1024), *[_x(65536, kind="index", high=1024)] * 2],
        lambda x, i, j: x[i, j],
        lambda x, i, j: x[i, j],
        lambda x, i, j: x[i, j],
        family="gathers",
        slopes=(0,),
    )
    add(
        "x[::2, 1:]",
        "1024x1024",
        square,
        lambda x: x[::2, 1:] + 0,
        lambda x: x[::2, 1:] + 0,
        lambda x: x[::2, 1:] + 0,
        family="moves",
        slopes=(0,),
    )
    add(
        "x[mask]",
        "1M",
        [_x(1 << 20), _x(1 << 20, kind="bool")],
        lambda x, m: x[m],
        lambda x, m: x[m],
        lambda x, m: x[m],
        family="selection",
        dtypes=NUMBERS,
        options={"lazy": True},
    )
    add(
        "one_hot",
        "65536, 32",
        [_x(65536, kind="index", high=32)],
        lambda i: mo.one_hot(i, 32, dtype=mo.int64),
        lambda i: torch.nn.functional.one_hot(i, 32),
        family="moves",
    )
    add(
        "meshgrid",
        "1024, 1024",
        [_x(1024)] * 2,
        lambda a, b: [x + 0 for x in mo.meshgrid(a, b, indexing="ij")],
        lambda a, b: [x + 0 for x in torch.meshgrid(a, b, indexing="ij")],
        None,
        family="moves",
    )
    add(
        "where",
        "1M",
        [_x(1 << 20, kind="bool"), _x(1 << 20), _x(1 << 20)],
        mo.where,
        torch.where,
        np.where,
        dtypes=("float32", "float64", "bfloat16", "int32", "int64", "complex64"),
        slopes=(1, 2),
        family="pointwise",
    )
    add(
        "clip",
        "1M",
        [_x(1 << 20)],
        lambda x: mo.clip(x, -1, 1),
        lambda x: torch.clip(x, -1, 1),
        lambda x: np.clip(x, -1, 1),
        dtypes=(*NUMBERS, "bfloat16"),
        slopes=(0,),
        family="pointwise",
    )
    add(
        "select",
        "1M, 2 of 2",
        [_x(1 << 20), _x(1 << 20)],
        lambda a, b: mo.select([a > 0, b > 0], [a, b]),
        None,
        lambda a, b: np.select([a > 0, b > 0], [a, b]),
        family="pointwise",
        slopes=(0,),
    )
    add(
        "choose",
        "1M of 2",
        [_x(1 << 20, kind="index", high=2), _x(1 << 20), _x(1 << 20)],
        lambda i, a, b: mo.choose(i, [a, b]),
        None,
        lambda i, a, b: np.choose(i, [a, b]),
        family="pointwise",
    )
    for name in ("real", "imag"):
        add(
            name,
            "1M, and 0",
            [_x(1 << 20)],
            lambda x, g=getattr(mo, name): g(x) + 0,
            lambda x, g=getattr(torch, name): g(x) + 0,
            lambda x, g=getattr(np, name): g(x) + 0,
            dtypes=("complex64", "complex128"),
            family="pointwise",
        )
    add(
        "conj",
        "1M",
        [_x(1 << 20)],
        mo.conj,
        torch.conj_physical,
        np.conj,
        dtypes=("complex64", "complex128"),
        slopes=(),
        family="pointwise",
    )
    add("lerp", "1M", [_x(1 << 20)] * 3, mo.lerp, torch.lerp, dtypes=REAL, slopes=(0, 1, 2), family="pointwise")
    add(
        "astype",
        "1M strided",
        [_x(1024, 2048)],
        lambda x: mo.astype(x[:, ::2], mo.float64),
        lambda x: x[:, ::2].double(),
        lambda x: x[:, ::2].astype(np.float64),
        family="moves",
    )


def orders(add: Call) -> None:
    import torch

    import morpho as mo

    kinds = ("float32", "float64", "int32", "int64")
    for shape in ((1000,), (65536,), (1 << 20,), (1024, 1024), (65536, 16)):
        label, quick = "x".join(map(str, shape)), shape in ((1 << 20,), (65536, 16))
        add(
            "sort",
            label,
            [_x(*shape)],
            mo.sort,
            lambda x: torch.sort(x).values,
            np.sort,
            dtypes=kinds,
            slopes=(0,) if len(shape) == 2 else (),
            quick=quick,
            family="order",
        )
        add(
            "argsort",
            label,
            [_x(*shape)],
            mo.argsort,
            torch.argsort,
            np.argsort,
            dtypes=kinds[:3],
            rough=True,
            quick=quick,
            family="order",
        )
        if shape[-1] > 16:
            add(
                "topk",
                label + ", 10",
                [_x(*shape)],
                lambda x: mo.topk(x, 10),
                lambda x: torch.topk(x, 10),
                dtypes=kinds,
                rough=True,
                slopes=(0,),
                quick=quick,
                family="order",
            )
            add(
                "topk",
                label + ", 100",
                [_x(*shape)],
                lambda x: mo.topk(x, 100),
                lambda x: torch.topk(x, 100),
                rough=True,
                quick=quick,
                family="order",
            )
            add(
                "partition",
                label,
                [_x(*shape)],
                lambda x: mo.partition(x, 50),
                None,
                lambda x: np.partition(x, 50),
                rough=True,
                quick=quick,
                family="order",
            )
            add(
                "argpartition",
                label,
                [_x(*shape)],
                lambda x: mo.argpartition(x, 50),
                None,
                lambda x: np.argpartition(x, 50),
                rough=True,
                quick=False,
                family="order",
            )
    add(
        "sort",
        "1024x1024, axis 0",
        [_x(1024, 1024)],
        lambda x: mo.sort(x, axis=0),
        lambda x: torch.sort(x, 0).values,
        lambda x: np.sort(x, 0),
        family="order",
    )
    for name in ("median", "nanmedian"):
        add(name, "1M", [_x(1 << 20)], getattr(mo, name), None, getattr(np, name), family="order")
        add(
            name,
            "1024x1024, axis 1",
            [_x(1024, 1024)],
            lambda x, g=getattr(mo, name): g(x, axis=1),
            None,
            lambda x, g=getattr(np, name): g(x, 1),
            family="order",
            slopes=(0,),
        )
    for name, torchs in (("quantile", torch.quantile), ("nanquantile", torch.nanquantile)):
        add(
            name,
            "1024x1024, axis 1",
            [_x(1024, 1024)],
            lambda x, g=getattr(mo, name): g(x, 0.3, axis=1),
            lambda x, g=torchs: g(x, 0.3, 1),
            lambda x, g=getattr(np, name): g(x, 0.3, 1),
            family="order",
        )
    for name in ("percentile", "nanpercentile"):
        add(
            name,
            "1M",
            [_x(1 << 20)],
            lambda x, g=getattr(mo, name): g(x, 30),
            None,
            lambda x, g=getattr(np, name): g(x, 30),
            family="order",
        )
    for name in ("unique", "unique_values", "unique_counts", "unique_inverse", "unique_all"):
        add(
            name,
            "1M of 1000",
            [_x(1 << 20, kind="index", high=1000)],
            getattr(mo, name),
            (lambda x: torch.unique(x)) if name in ("unique", "unique_values") else None,
            getattr(np, name),
            family="selection",
            options={"lazy": True},
        )
    add(
        "unique",
        "1M of 1M",
        [_x(1 << 20, kind="index", high=1 << 20)],
        mo.unique,
        torch.unique,
        np.unique,
        family="selection",
        options={"lazy": True},
    )
    add(
        "unique_consecutive",
        "1M of 1000",
        [_x(1 << 20, kind="index", high=1000, special="sorted")],
        mo.unique_consecutive,
        torch.unique_consecutive,
        family="selection",
        options={"lazy": True},
    )
    for name in ("nonzero", "flatnonzero", "argwhere"):
        theirs = {
            "nonzero": lambda x: torch.nonzero(x, as_tuple=True),
            "flatnonzero": lambda x: torch.nonzero(x.ravel())[:, 0],
            "argwhere": torch.argwhere,
        }[name]
        for label, draw in (("1M bool", _x(1 << 20, kind="bool")), ("1024x1024 bool", _x(1024, 1024, kind="bool"))):
            add(
                name,
                label,
                [draw],
                getattr(mo, name),
                theirs,
                getattr(np, name),
                family="selection",
                options={"lazy": True},
            )
    for name in ("intersect1d", "union1d", "setdiff1d"):
        add(
            name,
            "100k",
            [_x(100_000, kind="index", high=200_000)] * 2,
            getattr(mo, name),
            None,
            getattr(np, name),
            family="selection",
            options={"lazy": True},
        )
    add(
        "isin",
        "100k, 1000",
        [_x(100_000, kind="index", high=200_000), _x(1000, kind="index", high=200_000)],
        mo.isin,
        torch.isin,
        np.isin,
        family="selection",
    )
    for count in (100, 65536):
        draws = [_x(count, special="sorted"), _x(1 << 20)]
        add(
            "searchsorted",
            f"{count}, 1M",
            draws,
            mo.searchsorted,
            torch.searchsorted,
            np.searchsorted,
            dtypes=FLOATS,
            family="order",
        )
    add(
        "bucketize",
        "1M, 100",
        [_x(1 << 20), _x(100, special="sorted")],
        mo.bucketize,
        torch.bucketize,
        None,
        family="order",
    )
    add(
        "digitize",
        "1M, 100",
        [_x(1 << 20), _x(100, special="sorted")],
        mo.digitize,
        None,
        np.digitize,
        family="order",
    )


def counts(add: Call) -> None:
    import torch

    import morpho as mo

    for high in (10, 1000, 1 << 18):
        add(
            "bincount",
            f"1M of {high}",
            [_x(1 << 20, kind="index", high=high)],
            lambda x, n=high: mo.bincount(x, minlength=n),
            lambda x, n=high: torch.bincount(x, minlength=n),
            lambda x, n=high: np.bincount(x, minlength=n),
            family="counts",
            options={"lazy": True},
        )
    add(
        "bincount",
        "1M of 1000, weights",
        [_x(1 << 20, kind="index", high=1000), _x(1 << 20)],
        lambda x, w: mo.bincount(x, w, minlength=1000),
        lambda x, w: torch.bincount(x, w, minlength=1000),
        lambda x, w: np.bincount(x, w, 1000),
        family="counts",
        options={"lazy": True},
        dtypes=FLOATS[1:],
    )
    for bins in (10, 256):
        add(
            "histogram",
            f"1M, {bins}",
            [_x(1 << 20)],
            lambda x, b=bins: mo.histogram(x, b, range=(-3.0, 3.0))[0],
            lambda x, b=bins: torch.histc(x, b, -3.0, 3.0),
            lambda x, b=bins: np.histogram(x, b, range=(-3.0, 3.0))[0],
            family="counts",
            options={"lazy": True},
            rough=True,
            dtypes=FLOATS,
        )
    add(
        "histogram",
        "1M, 10, own range",
        [_x(1 << 20)],
        lambda x: mo.histogram(x, 10)[0],
        lambda x: torch.histc(x, 10),
        lambda x: np.histogram(x, 10)[0],
        family="counts",
        options={"lazy": True},
        rough=True,
    )
    add(
        "histogram2d",
        "100k, 32",
        [_x(100_000)] * 2,
        lambda x, y: mo.histogram2d(x, y, 32)[0],
        None,
        lambda x, y: np.histogram2d(x, y, 32)[0],
        family="counts",
        options={"lazy": True},
        rough=True,
    )
    for name, how in (
        ("segment_sum", "sum"),
        ("segment_max", "amax"),
        ("segment_mean", "mean"),
        ("segment_prod", "prod"),
        ("segment_min", "amin"),
    ):
        add(
            name,
            "65536x16, 1000",
            [_x(65536, 16), _x(65536, kind="index", high=1000, special="sorted")],
            lambda x, s, g=getattr(mo, name): g(x, s, 1000),
            lambda x, s, h=how: (
                torch.zeros(1000, 16, dtype=x.dtype).index_reduce(
                    0, s, x, {"sum": "prod"}.get(h, h), include_self=False
                )
                if h != "sum"
                else torch.zeros(1000, 16, dtype=x.dtype).index_add(0, s, x)
            ),
            family="counts",
            quick=how in ("sum", "amax"),
            slopes=(0,) if how == "sum" else (),
        )


def calculus(add: Call) -> None:
    import scipy.spatial.distance as distance
    import torch

    import morpho as mo

    for label, m, n, d in (
        ("1000x1000x16", 1000, 1000, 16),
        ("500x500x3", 500, 500, 3),
        ("512x512x256", 512, 512, 256),
    ):
        for p in (2.0, 1.0):
            add(
                "cdist",
                f"{label}, p={p:.0f}",
                [_x(m, d), _x(n, d)],
                lambda a, b, p=p: mo.cdist(a, b, p=p),
                lambda a, b, p=p: torch.cdist(a, b, p=p),
                None,
                lambda a, b, p=p: distance.cdist(a, b, "euclidean" if p == 2 else "cityblock"),
                family="distances",
                slopes=(0, 1) if d == 16 else (),
                rough=True,
                dtypes=FLOATS,
            )
    add(
        "pdist",
        "1000x16",
        [_x(1000, 16)],
        mo.pdist,
        torch.pdist,
        None,
        distance.pdist,
        family="distances",
        rough=True,
        slopes=(0,),
    )
    add(
        "interp",
        "1M, 100",
        [_x(1 << 20), _x(100, special="sorted"), _x(100)],
        mo.interp,
        None,
        np.interp,
        family="calculus",
    )
    add(
        "trapezoid",
        "1024x1024",
        [_x(1024, 1024)],
        mo.trapezoid,
        torch.trapezoid,
        np.trapezoid,
        family="calculus",
        slopes=(0,),
    )
    add(
        "cumulative_trapezoid",
        "1024x1024",
        [_x(1024, 1024)],
        mo.cumulative_trapezoid,
        torch.cumulative_trapezoid,
        None,
        family="calculus",
    )
    add("gradient", "1M", [_x(1 << 20)], mo.gradient, lambda x: torch.gradient(x)[0], np.gradient, family="calculus")
    add("cov", "64x4096", [_x(64, 4096)], mo.cov, torch.cov, np.cov, family="calculus", slopes=(0,))
    add("corrcoef", "64x4096", [_x(64, 4096)], mo.corrcoef, torch.corrcoef, np.corrcoef, family="calculus")
    add(
        "average",
        "1024x1024, weights",
        [_x(1024, 1024), _x(1024, low=0.1, high=1)],
        lambda x, w: mo.average(x, axis=1, weights=w),
        None,
        lambda x, w: np.average(x, 1, w),
        family="calculus",
    )
    add(
        "vander",
        "1024, 16",
        [_x(1024, low=-1, high=1)],
        lambda x: mo.vander(x, 16),
        lambda x: torch.vander(x, 16),
        lambda x: np.vander(x, 16),
        family="calculus",
    )
    add("polyval", "4, 1M", [_x(4), _x(1 << 20)], mo.polyval, None, np.polyval, family="calculus")
    add("unwrap", "1M", [_x(1 << 20)], mo.unwrap, None, np.unwrap, family="calculus", rough=True)
    add(
        "polygamma",
        "1, 64k",
        [_x(65536, low=0.5, high=5)],
        lambda x: mo.polygamma(1, x),
        lambda x: torch.polygamma(1, x),
        family="special",
        dtypes=FLOATS,
    )
    add("isclose", "1M", [_x(1 << 20)] * 2, mo.isclose, torch.isclose, np.isclose, family="pointwise")
    add(
        "allclose",
        "1M",
        [_x(1 << 20)],
        lambda x: mo.all(mo.isclose(x, x)),
        lambda x: torch.all(torch.isclose(x, x)),
        lambda x: np.asarray(np.allclose(x, x)),
        family="pointwise",
    )
    for name in ("arange", "zeros", "ones", "eye", "linspace"):
        sizes = {
            "arange": (1 << 20,),
            "zeros": (1 << 20,),
            "ones": (1 << 20,),
            "eye": (1024,),
            "linspace": (0.0, 1.0, 1 << 20),
        }[name]
        dtype = "float32"
        add(
            name,
            "1M",
            [],
            lambda g=getattr(mo, name), s=sizes: g(*s, dtype=mo.float32),
            lambda g=getattr(torch, name), s=sizes: g(*s, dtype=torch.float32),
            lambda g=getattr(np, name), s=sizes: g(*s, dtype=np.float32),
            dtypes=(dtype,),
            family="sources",
            rough=name == "linspace",
        )
