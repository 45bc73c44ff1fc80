# ruff: noqa: E501
"""Random small PyTorch functions, continued: layers, losses, padding, interpolation, modules in training; with gradients."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.pytorch.adversary_cases import Case, family, shape_of, tensor_of


def trained(tensors: list[Any]) -> list[Any]:
    """The same in float64 where floating, with gradients asked for."""
    return [t.double().requires_grad_() if t.dtype.is_floating_point else t for t in tensors]


@family
def convolution(draw: random.Random) -> Case:
    """One to three dimensions, groups, dilations, transposed, padding by name."""
    spatial, groups = draw.choice((1, 2, 2, 3)), draw.choice((1, 1, 2, 3))
    cin, cout = groups * draw.randint(1, 2), groups * draw.randint(1, 2)
    kernel = [draw.randint(1, 3) for _ in range(spatial)]
    stride, dilation = [draw.randint(1, 3) for _ in range(spatial)], [draw.randint(1, 2) for _ in range(spatial)]
    x = tensor_of(draw, (draw.randint(1, 2), cin, *shape_of(draw, spatial, 6, 8)))
    pads: Any = [draw.randint(0, k - 1) for k in kernel]
    bias = tensor_of(draw, (cout,)) if draw.random() < 0.5 else None
    if draw.random() < 0.4:
        w = tensor_of(draw, (cin, cout // groups, *kernel))
        extra = [draw.randint(0, max(s, d) - 1) for s, d in zip(stride, dilation, strict=True)]
        f: Any = getattr(F, f"conv_transpose{spatial}d")
        return (lambda x, w, *b: f(x, w, b[0] if b else None, stride, pads, extra, groups, dilation)), trained(
            [x, w, *([] if bias is None else [bias])]), f"transposed {spatial} {stride} {pads} {extra} {groups} {dilation}"
    w = tensor_of(draw, (cout, cin // groups, *kernel))
    f = getattr(F, f"conv{spatial}d")
    if draw.random() < 0.2:
        pads, stride = "same", [1] * spatial
    return (lambda x, w, *b: f(x, w, b[0] if b else None, stride, pads, dilation, groups)), trained(
        [x, w, *([] if bias is None else [bias])]), f"conv {spatial} {stride} {pads} {groups} {dilation}"


@family
def windows(draw: random.Random) -> Case:
    """Pooling, padding and interpolation."""
    spatial = draw.choice((1, 2, 2, 3))
    x = tensor_of(draw, (2, 2, *shape_of(draw, spatial, 5, 8)))
    kernel, stride = [draw.randint(1, 3) for _ in range(spatial)], [draw.randint(1, 3) for _ in range(spatial)]
    half = [draw.randint(0, k // 2) for k in kernel]
    ceil, count = draw.random() < 0.5, draw.random() < 0.5
    sides = [draw.randint(-1, 2) for _ in range(2 * spatial)]
    mode = draw.choice(("constant", "reflect", "replicate", "circular"))
    how = draw.choice({1: ("nearest", "linear", "nearest-exact"), 2: ("nearest", "bilinear", "bicubic", "nearest-exact", "area"),
                       3: ("nearest", "trilinear", "nearest-exact")}[spatial])
    corners = draw.choice((True, False)) if "linear" in how or how == "bicubic" else None
    scale = draw.choice((None, 0.6, 1.7, 2.0))
    size = [draw.randint(1, 11) for _ in range(spatial)]
    divisor = draw.choice((None, 3)) if spatial > 1 else None
    antialias = how in ("bilinear", "bicubic") and draw.random() < 0.3
    calls: tuple[tuple[str, Any], ...] = (
        ("max", lambda x: getattr(F, f"max_pool{spatial}d")(x, kernel, stride, half, 1, ceil)),
        ("max_indices", lambda x: getattr(F, f"max_pool{spatial}d")(x, kernel, stride, half, 2 if min(kernel) > 1 else 1, ceil, return_indices=True)),
        ("avg", lambda x: getattr(F, f"avg_pool{spatial}d")(x, kernel, stride, half, ceil, count, **({} if divisor is None else {"divisor_override": divisor}))),
        ("adaptive_avg", lambda x: getattr(F, f"adaptive_avg_pool{spatial}d")(x, size)), ("adaptive_max", lambda x: getattr(F, f"adaptive_max_pool{spatial}d")(x, size)),
        ("pad", lambda x: F.pad(x, sides, mode, **({"value": 1.5} if mode == "constant" else {}))),
        ("pad", lambda x: F.pad(x, sides, mode)),
        ("interpolate", lambda x: F.interpolate(x, size=None if scale else size, scale_factor=scale, mode=how, align_corners=corners, antialias=antialias)),
        ("interpolate_recompute", lambda x: F.interpolate(x, scale_factor=1.3, mode=how, align_corners=corners, recompute_scale_factor=True)),
        ("lp", lambda x: F.lp_pool2d(x, 2, 2, 1, ceil) if spatial == 2 else x),
        ("unfold", lambda x: F.fold(F.unfold(x, kernel, 1, half, stride), x.shape[2:], kernel, 1, half, stride) if spatial == 2 else x),
        ("grid", lambda x: F.grid_sample(x, x[:, :1, :3, :3].tanh().permute(0, 2, 3, 1).expand(-1, -1, -1, 2) * 1.3, draw_mode, draw_pad, bool(corners))
         if spatial == 2 else x),
        ("shuffle", lambda x: F.pixel_shuffle(x.repeat(1, 2, *[1] * spatial), 2) if spatial == 2 else x))
    draw_mode, draw_pad = draw.choice(("bilinear", "nearest", "bicubic")), draw.choice(("zeros", "border", "reflection"))
    name, function = draw.choice(calls)
    return function, trained([x]), f"{name} {kernel} {stride} {half} {ceil} {count} {sides} {mode} {how} {corners} {scale} {size} {divisor} {antialias} {draw_mode} {draw_pad}"


@family
def losses(draw: random.Random) -> Case:
    """Losses with weights, ignored labels, smoothing and reductions."""
    n, c = draw.randint(1, 4), draw.randint(2, 5)
    more = shape_of(draw, draw.choice((0, 0, 1, 2)), 1, 3)
    x, y = tensor_of(draw, (n, c, *more)), tensor_of(draw, (n, c, *more))
    labels = torch.tensor([draw.randrange(c) for _ in range(max(n * int(torch.tensor(more).prod()) if more else n, 1))]).reshape(n, *more)
    weight = tensor_of(draw, (c,)).abs() + 0.5
    ignored = draw.choice((-100, 0, 1))
    reduction, smooth = draw.choice(("mean", "sum", "none")), draw.choice((0.0, 0.1))
    if draw.random() < 0.3:
        labels[0] = -100 if ignored == -100 else labels[0]
    target = (y > 0).double()
    calls: tuple[tuple[str, Any, list[Any]], ...] = (
        ("cross_entropy", lambda x, t, w: F.cross_entropy(x, t, w, ignore_index=ignored, reduction=reduction, label_smoothing=smooth), [x, labels, weight]),
        ("cross_entropy", lambda x, t: F.cross_entropy(x, t, ignore_index=ignored, reduction=reduction, label_smoothing=smooth), [x, labels]),
        ("soft", lambda x, y, w: F.cross_entropy(x, y.softmax(1), w, reduction=reduction, label_smoothing=smooth), [x, y, weight]),
        ("nll", lambda x, t, w: F.nll_loss(x.log_softmax(1), t, w, ignore_index=ignored, reduction=reduction), [x, labels, weight]),
        ("bce", lambda x, t: F.binary_cross_entropy(x.sigmoid(), t, reduction=reduction), [x, target.detach()]),
        ("bce_logits", lambda x, t, w: F.binary_cross_entropy_with_logits(x, t, pos_weight=w.view(-1, *[1] * len(more)), reduction=reduction), [x, target, weight]),
        ("huber", lambda x, y: F.huber_loss(x, y, reduction, 0.7), [x, y]), ("smooth_l1", lambda x, y: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.4), [x, y]),
        ("kl", lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction=reduction), [x, y]), ("mse", lambda x, y: F.mse_loss(x, y, reduction=reduction), [x, y]),
        ("poisson", lambda x, y: F.poisson_nll_loss(x, y.abs(), full=True, reduction=reduction), [x, y]),
        ("gaussian", lambda x, y: F.gaussian_nll_loss(x, y, x * x + 1, reduction=reduction), [x, y]),
        ("margin", lambda x, y: F.margin_ranking_loss(x, y, y.sign().detach(), 0.3, reduction=reduction), [x, y]),
        ("multi", lambda x, t: F.multi_margin_loss(x, t, reduction=reduction) if x.dim() == 2 else x, [x, labels.clamp(min=0)]),
        ("cosine", lambda x, y: F.cosine_embedding_loss(x.flatten(1), y.flatten(1), torch.ones(n, dtype=x.dtype), 0.2, reduction=reduction), [x, y]),
        ("triplet", lambda x, y: F.triplet_margin_loss(x, y, y.roll(1, 0), reduction=reduction), [x, y]),
        ("hinge", lambda x, y: F.hinge_embedding_loss(x, y.sign().detach() + (y == 0), reduction=reduction), [x, y]),
        ("soft_margin", lambda x, y: F.multilabel_soft_margin_loss(x.flatten(1), (y.flatten(1) > 0).to(x.dtype), reduction=reduction), [x, y]))
    name, function, tensors = draw.choice(calls)
    return function, trained(tensors), f"{name} {reduction} {smooth} {ignored}"


@family
def gradients(draw: random.Random) -> Case:
    """Gradients of pointwise functions, reductions, views and products, in float64."""
    x = tensor_of(draw, (3, 4, 5))
    y = tensor_of(draw, (4, 5)) if draw.random() < 0.5 else tensor_of(draw, (3, 1, 5))
    i = torch.tensor([draw.randrange(-3, 3) for _ in range(4)])
    calls: tuple[tuple[str, Any], ...] = (
        ("max", lambda x, y, i: (x.max(1)[0], x.amax((0, 2)), x.max(), x.min(-1)[0])), ("sort", lambda x, y, i: (x.sort(1)[0], x.topk(2, 2)[0])),
        ("cum", lambda x, y, i: (x.cumsum(1), x.cumprod(2), x.logcumsumexp(0))), ("norm", lambda x, y, i: (x.norm(), x.norm(1, 2), x.norm(float("inf"), 0), x.norm(3, 1))),
        ("var", lambda x, y, i: (x.var(1), x.std((0, 2), correction=0), *torch.var_mean(x, 0))), ("prod", lambda x, y, i: (x.prod(1), (x * 0).prod(2), x.prod())),
        ("index", lambda x, y, i: (x[i], x[i, :, i.abs()], x.index_select(1, i.abs()), x[x > 0].sum())), ("div", lambda x, y, i: (x / (y + 0.3), x % 2.5, x.abs().pow(y.abs()))),
        ("where", lambda x, y, i: (torch.where(x > y, x, y), x.clamp(-1, 1), torch.maximum(x, y), torch.minimum(x, y.round()))),
        ("fold", lambda x, y, i: (x.unfold(2, 3, 1), x.expand(2, 3, 4, 5), x.repeat(1, 2, 1), x.roll(1, 1), x.flip(2))),
        ("einsum", lambda x, y, i: (torch.einsum("abc,adc->bd", x, x), x @ x.mT, torch.baddbmm(x @ x.mT, x, x.mT, beta=0.5, alpha=2))),
        ("scatter", lambda x, y, i: (x.scatter_add(0, i.abs()[:1].view(1, 1, 1).expand(1, 4, 5), x[:1]), x.scatter(1, i.abs().view(1, 4, 1).expand(3, 4, 5) * 0 + i.abs().argsort().view(1, 4, 1), x))),
        ("norms", lambda x, y, i: (F.layer_norm(x, (4, 5)), F.group_norm(x, 2), F.rms_norm(x, (5,)), F.instance_norm(x), F.local_response_norm(x, 2))),
        ("soft", lambda x, y, i: (x.softmax(1), x.log_softmax(0), x.logsumexp((1, 2)), F.softplus(x), F.mish(x), F.gelu(x), F.glu(x[:, :, :4], 2))),
        ("trig", lambda x, y, i: (x.sin(), torch.atan2(x, y + 0.1), torch.hypot(x, y), x.tanh().atanh(), x.sinc(), torch.xlogy(x, y.abs() + 1), x.erf())),
        ("inplace", lambda x, y, i: _inplace(x)), ("sdpa", lambda x, y, i: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True, scale=0.3)),
        ("cdist", lambda x, y, i: (torch.cdist(x, x + 1), F.cosine_similarity(x, y, 2), F.pairwise_distance(x, y))), ("lerp", lambda x, y, i: torch.lerp(x, y, 0.7)),
        ("masks", lambda x, y, i: (x.masked_fill(x > 1, 2.0), x.tril(), x.triu(1), x.diagonal(0, 1, 2), torch.diag_embed(x[0]))), ("kron", lambda x, y, i: torch.kron(x[0], x[1])),
        ("median", lambda x, y, i: (x.median(1)[0], x.mean(0), x.nansum(2), x.aminmax(dim=1)[0], x.diff(dim=2), x.trapezoid(dim=1) if hasattr(x, "trapezoid") else x)))
    name, function = draw.choice(calls)
    return function, [*trained([x, y]), i], name


def _inplace(x: Any) -> Any:
    y = x * 1
    y[:, 1:3].mul_(2)
    y[0] = y[1] * y[2]
    y.relu_().add_(x)
    y.transpose(0, 1)[1].sub_(3)
    return y, y[..., 0]


class Block(nn.Module):
    """Layers drawn once, in training."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
            x = x[0] if isinstance(x, tuple) else x
        return x


@family
def modules(draw: random.Random) -> Case:
    """Modules in training and evaluation: buffers, embeddings, recurrence, transformers."""
    torch.manual_seed(draw.randrange(1 << 30))
    features = draw.choice((4, 6))
    kind = draw.choice(("norm1", "norm2", "embedding", "bag", "lstm", "transformer", "autocast", "eval", "weight", "mha", "batch_one"))
    x = tensor_of(draw, (5, features))
    if kind in ("norm2", "eval"):
        layers = [nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4, momentum=draw.choice((None, 0.3)), affine=draw.random() < 0.7), nn.PReLU(4), nn.InstanceNorm2d(4, track_running_stats=True)]
        block = Block(layers).double()
        return (block.eval() if kind == "eval" else block), trained([tensor_of(draw, (3, 2, 5, 4))]), kind
    if kind in ("embedding", "bag"):
        padding = draw.choice((None, 0, 2))
        layer = nn.Embedding(7, features, padding_idx=padding, scale_grad_by_freq=draw.random() < 0.3, max_norm=None) if kind == "embedding" else nn.EmbeddingBag(
            7, features, mode=draw.choice(("sum", "mean", "max")), padding_idx=padding)
        return Block([layer, nn.LayerNorm(features)]).double(), [torch.tensor([[draw.randrange(7) for _ in range(3)] for _ in range(4)])], f"{kind} {padding}"
    if kind == "lstm":
        layer = draw.choice((nn.LSTM, nn.GRU, nn.RNN))(features, 3, draw.choice((1, 2)), batch_first=draw.random() < 0.5, bidirectional=draw.random() < 0.5)
        return Block([layer]).double(), trained([tensor_of(draw, (2, 3, features))]), kind
    if kind == "transformer":
        layer = nn.TransformerEncoderLayer(features, 2, 8, dropout=0.0, batch_first=True, norm_first=draw.random() < 0.5, activation=draw.choice(("relu", "gelu")))
        return Block([layer]).double(), trained([tensor_of(draw, (2, 3, features))]), kind
    if kind == "autocast":
        layer = Block([nn.Linear(features, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)])

        class Cast(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = layer

            def forward(self, x: Any) -> Any:
                with torch.autocast("cpu", torch.bfloat16):
                    return self.inner(x), (x @ x.mT).softmax(-1), (x @ x.mT).sum()

        return Cast(), [x.requires_grad_()], kind
    if kind == "mha":
        class Attention(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = nn.MultiheadAttention(features, 2, batch_first=True, add_bias_kv=True)

            def forward(self, x: Any) -> Any:
                mask = torch.zeros(2, 3, dtype=torch.bool)
                mask[0, 2] = True
                return self.inner(x, x, x, key_padding_mask=mask)

        return Attention().double(), trained([tensor_of(draw, (2, 3, features))]), kind
    layers = [nn.Linear(features, 6, bias=draw.random() < 0.5), nn.BatchNorm1d(6, momentum=draw.choice((None, 0.3))), nn.SiLU(), nn.Bilinear(6, 6, 2) if False else nn.Linear(6, 2)]
    if kind == "weight":
        layers[0] = nn.utils.parametrizations.weight_norm(nn.Linear(features, 6))
    return Block(layers).double(), trained([x]), kind
