"""Rows of layers, norms, pooling and losses."""

# ruff: noqa: B008  (a default binds the function of this turn of the loop)
from __future__ import annotations

from benchmarks.surface.draws import Call
from benchmarks.surface.draws import draw_of as _x


def layers(add: Call) -> None:
    import torch

    import morpho as mo

    f = torch.nn.functional
    low = ("float32", "bfloat16")
    for label, x, w, options in (
        ("8x64x56x56, 3x3", (8, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
        ("1x64x56x56, 3x3", (1, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
        ("8x64x56x56, 1x1", (8, 64, 56, 56), (256, 64, 1, 1), {}),
        ("8x3x224x224, 7x7/2", (8, 3, 224, 224), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
        ("8x128x28x28 depthwise", (8, 128, 28, 28), (128, 1, 3, 3), {"padding": 1, "groups": 128}),
        ("8x64x56x56 dilated", (8, 64, 56, 56), (64, 64, 3, 3), {"padding": 2, "dilation": 2}),
        ("8x64x28x28, 4 groups", (8, 64, 28, 28), (64, 16, 3, 3), {"padding": 1, "groups": 4}),
    ):
        add(
            "conv2d",
            label,
            [_x(*x, special="normal"), _x(*w, special="normal")],
            lambda a, b, o=options: mo.conv2d(a, b, **o),
            lambda a, b, o=options: f.conv2d(a, b, **o),
            dtypes=low if label.startswith("8x64x56x56, 3") else ("float32",),
            slopes=(0, 1) if label.startswith(("1x", "8x128")) else (),
            family="convolution",
            quick=label.startswith(("1x", "8x128")),
        )
    add(
        "conv1d",
        "8x64x1024, 5",
        [_x(8, 64, 1024), _x(64, 64, 5)],
        lambda a, b: mo.conv1d(a, b, padding=2),
        lambda a, b: f.conv1d(a, b, padding=2),
        slopes=(0, 1),
        family="convolution",
    )
    add(
        "conv3d",
        "2x16x16x32x32",
        [_x(2, 16, 16, 32, 32), _x(16, 16, 3, 3, 3)],
        lambda a, b: mo.conv3d(a, b, padding=1),
        lambda a, b: f.conv3d(a, b, padding=1),
        family="convolution",
    )
    for n, x, w in (
        ("1d", (8, 64, 512), (64, 32, 4)),
        ("2d", (4, 64, 28, 28), (64, 32, 4, 4)),
        ("3d", (1, 16, 8, 16, 16), (16, 8, 4, 4, 4)),
    ):
        own, theirs = getattr(mo, f"conv_transpose{n}"), getattr(f, f"conv_transpose{n}")
        add(
            f"conv_transpose{n}",
            "x".join(map(str, x)),
            [_x(*x), _x(*w)],
            lambda a, b, g=own: g(a, b, stride=2, padding=1),
            lambda a, b, g=theirs: g(a, b, stride=2, padding=1),
            family="convolution",
            quick=n == "2d",
        )
    for kind in ("max", "avg"):
        for dims, x in (("1d", (8, 64, 4096)), ("2d", (8, 64, 56, 56)), ("3d", (2, 16, 16, 32, 32))):
            name = f"{kind}_pool{dims}"
            own, theirs = getattr(mo, name), getattr(f, name)
            for size, stride, pad in ((2, 2, 0), (3, 2, 1)):
                add(
                    name,
                    "x".join(map(str, x)) + f", {size}/{stride}",
                    [_x(*x)],
                    lambda a, g=own, s=size, t=stride, p=pad: g(a, s, stride=t, padding=p),
                    lambda a, g=theirs, s=size, t=stride, p=pad: g(a, s, stride=t, padding=p),
                    slopes=(0,),
                    dtypes=low if dims == "2d" else ("float32",),
                    family="pooling",
                    quick=dims == "2d",
                )
            if dims != "3d":
                name = f"adaptive_{kind}_pool{dims}"
                own, theirs = getattr(mo, name), getattr(f, name)
                add(
                    name,
                    "x".join(map(str, x)) + ", 7",
                    [_x(*x)],
                    lambda a, g=own: g(a, 7),
                    lambda a, g=theirs: g(a, 7),
                    family="pooling",
                    slopes=(0,),
                )
    add(
        "global_avg_pool",
        "8x64x56x56",
        [_x(8, 64, 56, 56)],
        mo.global_avg_pool,
        lambda x: x.mean((-1, -2)),
        slopes=(0,),
        family="pooling",
    )
    add(
        "global_max_pool",
        "8x64x56x56",
        [_x(8, 64, 56, 56)],
        mo.global_max_pool,
        lambda x: x.amax((-1, -2)),
        slopes=(0,),
        family="pooling",
    )
    for rows, columns in ((1, 768), (128, 768), (4096, 1024), (16384, 64)):
        label, draws = f"{rows}x{columns}", [_x(rows, columns), _x(columns), _x(columns)]
        add(
            "layer_norm",
            label,
            draws,
            mo.layer_norm,
            lambda x, w, b, n=columns: f.layer_norm(x, (n,), w, b),
            dtypes=low,
            slopes=(0, 1, 2) if rows > 1 else (),
            family="norms",
            quick=rows == 4096,
        )
        add(
            "rms_norm",
            label,
            draws[:2],
            mo.rms_norm,
            lambda x, w, n=columns: f.rms_norm(x, (n,), w, 1e-5),
            dtypes=low,
            slopes=(0, 1) if rows > 1 else (),
            family="norms",
            quick=rows == 4096,
        )
    image = [_x(8, 64, 56, 56), _x(64), _x(64, low=0.5, high=2), _x(64), _x(64)]
    add(
        "batch_norm",
        "8x64x56x56",
        image,
        lambda x, m, v, w, b: mo.batch_norm(x, m, v, w, b),
        lambda x, m, v, w, b: f.batch_norm(x, m, v, w, b),
        slopes=(0, 3, 4),
        family="norms",
    )
    add(
        "batch_norm_training",
        "8x64x56x56",
        [image[0], *image[3:]],
        lambda x, w, b: mo.batch_norm_training(x, w, b)[0],
        lambda x, w, b: f.batch_norm(x, None, None, w, b, True),
        slopes=(0, 1, 2),
        family="norms",
    )
    own_group, own_instance = mo.nn.GroupNorm(8, 64), mo.nn.InstanceNorm2d(64)
    add(
        "nn.GroupNorm",
        "8x64x56x56, 8",
        image[:1],
        own_group,
        lambda x, w=torch.ones(64), b=torch.zeros(64): f.group_norm(x, 8, w, b),
        slopes=(0,),
        family="norms",
    )
    add("nn.InstanceNorm2d", "8x64x56x56", image[:1], own_instance, f.instance_norm, slopes=(0,), family="norms")
    for label, shape, causal in (
        ("4x8x256x64", (4, 8, 256, 64), False),
        ("1x12x1024x64 causal", (1, 12, 1024, 64), True),
    ):
        add(
            "attention",
            label,
            [_x(*shape)] * 3,
            lambda q, k, v, c=causal: mo.attention(q, k, v, causal=c),
            lambda q, k, v, c=causal: f.scaled_dot_product_attention(q, k, v, is_causal=c),
            dtypes=low,
            slopes=(0, 1, 2),
            family="attention",
        )
    add(
        "embedding",
        "50257x768, 1024",
        [_x(50257, 768), _x(1024, kind="index", high=50257)],
        mo.embedding,
        lambda w, i: f.embedding(i, w),
        dtypes=low,
        slopes=(0,),
        family="gathers",
    )
    add(
        "embedding",
        "1000x64, 65536",
        [_x(1000, 64), _x(65536, kind="index", high=1000)],
        mo.embedding,
        lambda w, i: f.embedding(i, w),
        dtypes=low,
        slopes=(0,),
        family="gathers",
    )
    add(
        "nn.interpolate",
        "8x16x64x64 bilinear x2",
        [_x(8, 16, 64, 64)],
        lambda x: mo.nn.interpolate(x, scale_factor=2, mode="bilinear"),
        lambda x: f.interpolate(x, scale_factor=2, mode="bilinear"),
        slopes=(0,),
        family="images",
    )
    add(
        "nn.interpolate",
        "8x16x64x64 nearest x2",
        [_x(8, 16, 64, 64)],
        lambda x: mo.nn.interpolate(x, scale_factor=2),
        lambda x: f.interpolate(x, scale_factor=2),
        slopes=(0,),
        family="images",
    )
    add(
        "grid_sample",
        "4x16x64x64",
        [_x(4, 16, 64, 64), _x(4, 64, 64, 2, low=-1, high=1)],
        mo.grid_sample,
        lambda x, g: f.grid_sample(x, g, align_corners=False),
        slopes=(0, 1),
        family="images",
    )
    add(
        "unfold",
        "4x16x64x64, 3",
        [_x(4, 16, 64, 64)],
        lambda x: mo.unfold(x, 3),
        lambda x: f.unfold(x, 3),
        slopes=(0,),
        family="images",
    )
    add(
        "fold",
        "4x144x3844",
        [_x(4, 144, 3844)],
        lambda x: mo.fold(x, (64, 64), 3),
        lambda x: f.fold(x, (64, 64), 3),
        family="images",
    )
    add(
        "pixel_shuffle",
        "4x64x64x64, 2",
        [_x(4, 64, 64, 64)],
        lambda x: mo.pixel_shuffle(x, 2),
        lambda x: f.pixel_shuffle(x, 2),
        slopes=(0,),
        family="images",
    )
    add(
        "pixel_unshuffle",
        "4x16x128x128, 2",
        [_x(4, 16, 128, 128)],
        lambda x: mo.pixel_unshuffle(x, 2),
        lambda x: f.pixel_unshuffle(x, 2),
        family="images",
    )
    add(
        "channel_shuffle",
        "8x64x56x56, 8",
        [_x(8, 64, 56, 56)],
        lambda x: mo.channel_shuffle(x, 8),
        lambda x: f.channel_shuffle(x, 8),
        family="images",
    )
    for name in ("LSTM", "GRU", "RNN"):
        theirs = getattr(torch.nn, name)(64, 128)
        own = getattr(mo.nn, name)(64, 128)
        add(
            f"nn.{name}",
            "64x16x64, 128",
            [_x(64, 16, 64)],
            lambda x, m=own: m(x)[0],
            lambda x, m=theirs: m(x)[0],
            rough=True,
            family="recurrent",
        )


def losses(add: Call) -> None:
    import torch

    import morpho as mo

    f = torch.nn.functional
    pair = [_x(4096, 256)] * 2
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        add(f"nn.{name}", "4096x256", pair, getattr(mo.nn, name), getattr(f, name), slopes=(0,), family="losses")
    unit = [_x(4096, 256, low=0.01, high=0.99)] * 2
    add(
        "nn.binary_cross_entropy",
        "4096x256",
        unit,
        mo.nn.binary_cross_entropy,
        f.binary_cross_entropy,
        slopes=(0,),
        family="losses",
    )
    add(
        "nn.binary_cross_entropy_with_logits",
        "4096x256",
        [_x(4096, 256), unit[1]],
        mo.nn.binary_cross_entropy_with_logits,
        f.binary_cross_entropy_with_logits,
        slopes=(0,),
        family="losses",
    )
    add(
        "nn.kl_div",
        "4096x256",
        [_x(4096, 256, low=-3, high=-0.1), unit[1]],
        mo.nn.kl_div,
        f.kl_div,
        slopes=(0,),
        family="losses",
    )
    for rows, columns in ((128, 10), (1024, 1000), (128, 50257)):
        draws = [_x(rows, columns), _x(rows, kind="index", high=columns)]
        add(
            "cross_entropy",
            f"{rows}x{columns}",
            draws,
            mo.cross_entropy,
            f.cross_entropy,
            slopes=(0,),
            family="losses",
            dtypes=("float32", "bfloat16"),
        )
        add(
            "nn.nll_loss",
            f"{rows}x{columns}",
            draws,
            mo.nn.nll_loss,
            f.nll_loss,
            slopes=(0,),
            family="losses",
            quick=False,
        )
        add(
            "nn.multi_margin_loss",
            f"{rows}x{columns}",
            draws,
            mo.nn.multi_margin_loss,
            f.multi_margin_loss,
            family="losses",
            quick=False,
        )
    add(
        "nn.cosine_similarity",
        "4096x256",
        pair,
        lambda a, b: mo.nn.cosine_similarity(a, b, 1),
        lambda a, b: f.cosine_similarity(a, b, 1),
        slopes=(0, 1),
        family="losses",
    )
    add(
        "nn.pairwise_distance",
        "4096x256",
        pair,
        mo.nn.pairwise_distance,
        f.pairwise_distance,
        slopes=(0, 1),
        family="losses",
    )
    add(
        "nn.triplet_margin_loss",
        "4096x256",
        [*pair, pair[0]],
        mo.nn.triplet_margin_loss,
        f.triplet_margin_loss,
        slopes=(0, 1, 2),
        family="losses",
    )
