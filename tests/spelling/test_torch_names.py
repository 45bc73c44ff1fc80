"""PyTorch's names with PyTorch's arguments: each call is made of PyTorch too, and results are compared."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
import morpho.nn.functional as mF
from morpho.spelling.differences import DIFFERENCES
from morpho.spelling.linear_algebra import POLYNOMIALS

torch = pytest.importorskip("torch")
tF = torch.nn.functional
RNG = np.random.default_rng(0)
A = RNG.normal(size=(3, 4)).astype(np.float32)
B = RNG.normal(size=(3, 4)).astype(np.float32)
S = A[:, :3] @ A[:, :3].T + np.eye(3, dtype=np.float32)
X = RNG.normal(size=(2, 4, 6)).astype(np.float32)
P = RNG.normal(size=(2, 4, 6, 6)).astype(np.float32)
Q = RNG.normal(size=(1, 2, 4, 4, 4)).astype(np.float32)
K = np.array([[2, 0, 1], [1, 1, 3]])
M = A > 0
POSITIVE = np.abs(A) + 0.5

# The same text is run with (torch, F, torch.tensor) and with (mo, mo.nn.functional, mo.tensor).
UNARY = """abs acos acosh angle asinh atan ceil conj_physical cos cosh deg2rad digamma erf erfc exp exp2 expm1 floor
frac isfinite isneginf lgamma log log10 log1p log2 logit neg rad2deg reciprocal relu round rsqrt sgn sigmoid
sign sin sinc sinh sqrt square tan tanh trunc positive"""
BINARY = """add sub mul div maximum minimum pow atan2 fmod remainder hypot logaddexp logaddexp2 copysign eq ne gt lt ge
le floor_divide true_divide fmax fmin xlogy dist"""
ACTIVATIONS = """celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6 selu silu
softplus softshrink softsign tanhshrink rrelu"""


def domain(name: str) -> Any:
    if name in ("acos", "logit", "erfinv"):
        return np.abs(A) / 4 + 0.1
    return POSITIVE + (1 if name == "acosh" else 0) if name[:3] in ("log", "sqr", "rsq", "lga", "dig", "aco") else A


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: lambda xp, F, t, name=name: getattr(xp, name)(t(domain(name))) for name in UNARY.split()},
    **{f"x.{name}": lambda xp, F, t, name=name: getattr(t(domain(name)), name)() for name in UNARY.split()
       if name not in ("isneginf",)},
    **{name: lambda xp, F, t, name=name: getattr(xp, name)(t(POSITIVE), t(B)) for name in BINARY.split()},
    **{f"F.{name}": lambda xp, F, t, name=name: getattr(F, name)(t(A * 2)) for name in ACTIVATIONS.split()},
    "sum": lambda xp, F, t: xp.sum(t(A), dim=1, keepdim=True), "x.sum": lambda xp, F, t: t(A).sum(0, True),
    "mean": lambda xp, F, t: xp.mean(t(A), 0), "max": lambda xp, F, t: xp.max(t(A), dim=1),
    "x.min": lambda xp, F, t: t(A).min(dim=0, keepdim=True), "sort": lambda xp, F, t: xp.sort(t(A), dim=1,
        descending=True),
    "median": lambda xp, F, t: xp.median(t(A), dim=1), "kthvalue": lambda xp, F, t: xp.kthvalue(t(A), 2, dim=1),
    "mode": lambda xp, F, t: xp.mode(t(K), 1).values, "topk": lambda xp, F, t: xp.topk(t(A), 2, 1),
    "cummax": lambda xp, F, t: xp.cummax(t(A), dim=1), "amax": lambda xp, F, t: xp.amax(t(A), (0, 1)),
    "aminmax": lambda xp, F, t: tuple(xp.aminmax(t(A), dim=0)), "std": lambda xp, F, t: xp.std(t(A), dim=1,
        correction=1),
    "var unbiased": lambda xp, F, t: t(A).var(dim=1, unbiased=False), "std_mean": lambda xp, F, t: xp.std_mean(t(A), 0),
    "var_mean": lambda xp, F, t: xp.var_mean(t(A), dim=1), "logsumexp": lambda xp, F, t: xp.logsumexp(t(A), dim=1),
    "cumsum": lambda xp, F, t: xp.cumsum(t(A), dim=0), "norm": lambda xp, F, t: xp.norm(t(A)), "prod": lambda xp, F,
    t: xp.prod(
        t(A), 1), "argmax": lambda xp, F, t: xp.argmax(t(A), 1), "all": lambda xp, F, t: xp.all(t(M), dim=1),
    "histc": lambda xp, F, t: xp.histc(t(A), 5, -1.0, 1.0), "cat": lambda xp, F, t: xp.cat([t(A), t(B)], dim=1),
    "stack": lambda xp, F, t: xp.stack([t(A), t(B)], 1), "split": lambda xp, F, t: xp.split(t(A), 3, dim=1),
    "x.split": lambda xp, F, t: t(A).split([1, 3], dim=1), "chunk": lambda xp, F, t: xp.chunk(t(A), 2, 1),
    "unbind": lambda xp, F, t: xp.unbind(t(A), 1), "tensor_split": lambda xp, F, t: xp.tensor_split(t(A), 3, dim=1),
    "split_with_sizes": lambda xp, F, t: t(A).split_with_sizes([2, 2], 1), "view": lambda xp, F, t: t(A).view(2, -1),
    "permute": lambda xp, F, t: t(X).permute(2, 0, 1), "transpose": lambda xp, F, t: t(X).transpose(1, 2),
    "unsqueeze": lambda xp, F, t: t(A).unsqueeze(1), "squeeze": lambda xp, F, t: t(A[None]).squeeze(0),
    "flatten": lambda xp, F, t: t(X).flatten(1), "expand": lambda xp, F, t: t(A[:, None]).expand(-1, 2, 4),
    "tile": lambda xp, F, t: t(A).tile(2, 1), "flip": lambda xp, F, t: t(A).flip(0, 1), "roll": lambda xp, F,
    t: t(A).roll(1, 0),
    "t": lambda xp, F, t: t(A).t(), "mT": lambda xp, F, t: t(X).mT, "narrow": lambda xp, F, t: t(A).narrow(1, 1, 2),
    "select": lambda xp, F, t: t(X).select(1, 2), "unfold": lambda xp, F, t: t(A).unfold(1, 2, 1),
    "movedim": lambda xp, F, t: xp.movedim(t(X), 0, 2), "swapaxes": lambda xp, F, t: xp.swapaxes(t(A), 0, 1),
    "repeat_interleave": lambda xp, F, t: xp.repeat_interleave(t(A), 2, dim=1), "gather": lambda xp, F, t: xp.gather(
        t(A), 1, t(K)), "index_select": lambda xp, F, t: xp.index_select(t(A), 1, t(np.array([2, 0]))),
    "take_along_dim": lambda xp, F, t: xp.take_along_dim(t(A), t(A.argsort(1)), dim=1),
    "masked_fill": lambda xp, F, t: t(A).masked_fill(t(M), -5.0), "masked_select": lambda xp, F, t: xp.masked_select(
        t(A), t(M)), "masked_scatter": lambda xp, F, t: t(A).masked_scatter(t(M), t(B)),
    "scatter": lambda xp, F, t: t(A).scatter(1, t(K), t(B)), "scatter value": lambda xp, F, t: xp.scatter(t(A), 1,
        t(K), 7.0),
    "scatter_add": lambda xp, F, t: t(A).scatter_add(1, t(K), t(B)), "scatter_reduce": lambda xp, F,
    t: t(A).scatter_reduce(
        1, t(np.array([[0, 1, 1, 3]] * 3)), t(B), "amax"), "index_add": lambda xp, F, t: t(A).index_add(
        0, t(np.array([2, 0])), t(B[:2]), alpha=2), "index_copy": lambda xp, F, t: t(A).index_copy(0, t(np.array([1])),
            t(B[:1])),
    "index_fill": lambda xp, F, t: t(A).index_fill(1, t(np.array([0, 3])), 9.0), "index_put": lambda xp, F,
    t: t(A).index_put(
        (t(np.array([0, 2])), t(np.array([1, 1]))), t(np.float32(4.0))), "diagonal_scatter": lambda xp, F,
        t: xp.diagonal_scatter(
        t(A), t(B[0, :3]), 1), "select_scatter": lambda xp, F, t: xp.select_scatter(t(A), t(B[0]), 0, 1),
    "slice_scatter": lambda xp, F, t: xp.slice_scatter(t(A), t(B[:, :2]), 1, 1, 3), "where": lambda xp, F, t: xp.where(
        t(M), t(A), t(B)), "where one": lambda xp, F, t: xp.where(t(M)), "nonzero": lambda xp, F,
        t: t(M).nonzero(as_tuple=True),
    "clamp": lambda xp, F, t: t(A).clamp(min=-0.5, max=0.5), "clamp_min": lambda xp, F, t: t(A).clamp_min(0.0),
    "lerp": lambda xp, F, t: xp.lerp(t(A), t(B), 0.3), "addcmul": lambda xp, F, t: xp.addcmul(t(A), t(A), t(B),
        value=0.5),
    "addcdiv": lambda xp, F, t: xp.addcdiv(t(A), t(A), t(POSITIVE), value=2), "addmm": lambda xp, F, t: xp.addmm(
        t(S), t(A), t(B.T), beta=0.5, alpha=2), "addmv": lambda xp, F, t: xp.addmv(t(A[:, 0]), t(A), t(B[0])),
    "addr": lambda xp, F, t: xp.addr(t(A), t(A[:, 0]), t(B[0])), "bmm": lambda xp, F, t: xp.bmm(t(X), t(X).transpose(1,
        2)),
    "baddbmm": lambda xp, F, t: xp.baddbmm(t(X[..., :4]), t(X), t(X).transpose(1, 2)), "mm": lambda xp, F,
    t: xp.mm(t(A), t(B.T)),
    "mv": lambda xp, F, t: xp.mv(t(A), t(B[0])), "outer": lambda xp, F, t: xp.outer(t(A[0]), t(B[0])),
    "dot": lambda xp, F, t: xp.dot(t(A[0]), t(B[0])), "einsum": lambda xp, F, t: xp.einsum("ij,kj->ik", t(A), t(B)),
    "chain_matmul": lambda xp, F, t: xp.chain_matmul(t(A), t(B.T), t(S)), "block_diag": lambda xp, F,
    t: xp.block_diag(t(A), t(S)),
    "cartesian_prod": lambda xp, F, t: xp.cartesian_prod(t(A[0]), t(B[0])), "combinations": lambda xp, F,
    t: xp.combinations(
        t(A[0]), 2), "renorm": lambda xp, F, t: xp.renorm(t(A), 2, 0, 0.7), "cdist": lambda xp, F, t: xp.cdist(t(A),
            t(B)),
    "div mode": lambda xp, F, t: xp.div(t(A), t(B), rounding_mode="trunc"), "add alpha": lambda xp, F, t: xp.add(
        t(A), t(B), alpha=3), "rsub": lambda xp, F, t: xp.rsub(t(A), 2), "bucketize": lambda xp, F, t: xp.bucketize(
        t(A), t(np.array([-0.5, 0.0, 0.5], np.float32)), right=True), "polar": lambda xp, F, t: xp.polar(t(POSITIVE),
            t(B)),
    "view_as_real": lambda xp, F, t: xp.view_as_real(xp.complex(t(A), t(B))), "trapz": lambda xp, F, t: xp.trapz(t(A),
        dim=0),
    "det": lambda xp, F, t: xp.det(t(S)), "logdet": lambda xp, F, t: xp.logdet(t(S)), "inverse": lambda xp, F,
    t: xp.inverse(t(S)),
    "cholesky_solve": lambda xp, F, t: xp.cholesky_solve(t(B), t(np.linalg.cholesky(S).astype(np.float32))),
    "tril": lambda xp, F, t: xp.tril(t(A), diagonal=1), "diff": lambda xp, F, t: xp.diff(t(A), dim=0),
    "new": lambda xp, F, t: (t(A).new_zeros(2, 3), t(A).new_full((2,), 3.0), t(A).new_ones((1, 2))),
    "sizes": lambda xp, F, t: (t(A).size(0), tuple(t(A).size()), t(A).dim(), t(A).numel(), t(A).nelement()),
    "to": lambda xp, F, t: (t(A).double(), t(A).long(), t(A).bool(), t(K).float(), t(A).type_as(t(K)), t(K).half()),
    "full_like": lambda xp, F, t: xp.full_like(t(A), 3.0), "linspace": lambda xp, F, t: xp.linspace(0, 1, steps=5),
    "logspace": lambda xp, F, t: xp.logspace(0, 2, 5), "range": lambda xp, F, t: xp.range(0, 1, 0.25),
    "arange": lambda xp, F, t: xp.arange(0, 6, 2), "eye": lambda xp, F, t: xp.eye(2, 3), "meshgrid": lambda xp, F,
    t: xp.meshgrid(
        t(A[0]), t(B[0]), indexing="ij"), "multi": lambda xp, F, t: xp.zeros(2, 3, dtype=xp.float64),
    "equal method": lambda xp, F, t: t(A).equal(t(A)), "is": lambda xp, F, t: (xp.is_tensor(t(A)),
                                                                               xp.is_floating_point(t(A))),
    "F.softmax": lambda xp, F, t: F.softmax(t(A), dim=0), "F.log_softmax": lambda xp, F, t: F.log_softmax(t(A), -1),
    "F.softmin": lambda xp, F, t: F.softmin(t(A), dim=1), "F.glu": lambda xp, F, t: F.glu(t(A)),
    "F.normalize": lambda xp, F, t: F.normalize(t(A), dim=1), "F.layer_norm": lambda xp, F, t: F.layer_norm(
        t(A), (4,), t(B[0]), t(A[0])), "F.rms_norm": lambda xp, F, t: F.rms_norm(t(A), (4,), t(B[0])),
    "F.group_norm": lambda xp, F, t: F.group_norm(t(P), 2, t(A[0]), t(B[0])), "F.instance_norm": lambda xp, F,
    t: F.instance_norm(
        t(P)), "F.batch_norm": lambda xp, F, t: F.batch_norm(t(P), t(A[0]), t(POSITIVE[0])),
    "F.local_response_norm": lambda xp, F, t: F.local_response_norm(t(P), 3), "F.embedding": lambda xp, F,
    t: F.embedding(
        t(K), t(np.tile(A, (2, 1)))), "F.one_hot": lambda xp, F, t: F.one_hot(t(K)), "F.embedding_bag": lambda xp, F, t:
    F.embedding_bag(t(K.ravel() % 3), t(A), t(np.array([0, 2]))), "F.bilinear": lambda xp, F, t: F.bilinear(
        t(A), t(B), t(X[:, :, :4]), t(A[0, :2])), "F.linear": lambda xp, F, t: F.linear(t(A), t(B)),
    "F.pad": lambda xp, F, t: F.pad(t(P), (1, 2, 0, 1), value=3.0), "F.pad reflect": lambda xp, F, t: F.pad(
        t(P), (1, 1, 2, 2), mode="reflect"), "F.conv2d": lambda xp, F, t: F.conv2d(t(P), t(P[:1, :, :3, :3]), None, 2,
            1),
    "F.conv1d one": lambda xp, F, t: F.conv1d(t(X[0]), t(X[:1, :, :3])), "F.max_pool2d": lambda xp, F,
    t: F.max_pool2d(t(P), 2, 2),
    "F.max_pool2d one": lambda xp, F, t: F.max_pool2d(t(P[0]), 2), "F.avg_pool2d": lambda xp, F, t: F.avg_pool2d(t(P),
        3, 1, 1),
    "F.lp_pool2d": lambda xp, F, t: F.lp_pool2d(t(np.abs(P)), 2.0, 2), "F.max_pool3d": lambda xp, F,
    t: F.max_pool3d(t(Q), 2),
    "F.adaptive_avg_pool3d": lambda xp, F, t: F.adaptive_avg_pool3d(t(Q), (2, 3, 1)),
    "F.adaptive_max_pool2d": lambda xp, F, t: F.adaptive_max_pool2d_with_indices(t(P), (2, 4)),
    "F.max_unpool2d": lambda xp, F, t: F.max_unpool2d(*F.max_pool2d(t(P), 2, return_indices=True), 2),
    "F.interpolate": lambda xp, F, t: F.interpolate(t(P), scale_factor=2, mode="nearest"),
    "F.upsample_bilinear": lambda xp, F, t: F.upsample_bilinear(t(P), (8, 8)), "F.pixel_shuffle": lambda xp, F,
    t: F.pixel_shuffle(
        t(P), 2), "F.affine_grid": lambda xp, F, t: F.affine_grid(t(X[:, :2, :3]), [2, 1, 3, 4], align_corners=False),
    "F.unfold": lambda xp, F, t: F.unfold(t(P), 2, stride=2), "F.cosine_similarity": lambda xp, F,
    t: F.cosine_similarity(
        t(A), t(B), dim=1), "F.cross_entropy": lambda xp, F, t: F.cross_entropy(t(A), t(np.array([0, 3, 1]))),
    "F.nll_loss": lambda xp, F, t: F.nll_loss(F.log_softmax(t(A), dim=1), t(np.array([0, 3, 1]))),
    "F.mse_loss": lambda xp, F, t: F.mse_loss(t(A), t(B), reduction="sum"), "F.gaussian_nll_loss": lambda xp, F, t:
    F.gaussian_nll_loss(t(A), t(B), t(POSITIVE), full=True), "F.poisson_nll_loss": lambda xp, F, t: F.poisson_nll_loss(
        t(A), t(POSITIVE), full=True), "F.soft_margin_loss": lambda xp, F, t: F.soft_margin_loss(t(A), t(np.sign(B))),
    "F.multilabel_soft_margin_loss": lambda xp, F, t: F.multilabel_soft_margin_loss(t(A), t(M.astype(np.float32))),
    "F.multilabel_margin_loss": lambda xp, F, t: F.multilabel_margin_loss(t(A), t(np.array([[3, 0, -1, 1]] * 3))),
    "F.triplet": lambda xp, F, t: F.triplet_margin_with_distance_loss(t(A), t(B), t(A[::-1].copy()), swap=True),
    "F.bce": lambda xp, F, t: F.binary_cross_entropy_with_logits(t(A), t(M.astype(np.float32))),
    "F.attention": lambda xp, F, t: F.scaled_dot_product_attention(t(P), t(P), t(P), is_causal=True),
    "F.attention 3": lambda xp, F, t: F.scaled_dot_product_attention(t(X), t(X), t(X), attn_mask=t(np.tri(4) > 0)),
    "F.gelu tanh": lambda xp, F, t: F.gelu(t(A), approximate="tanh"), "F.softplus": lambda xp, F, t: F.softplus(t(A),
        2.0, 5.0),
    "F.dropout": lambda xp, F, t: F.dropout(t(A), 0.5, training=False), "F.threshold": lambda xp, F,
    t: F.threshold(t(A), 0.1, 7.0),
    "F.prelu": lambda xp, F, t: F.prelu(t(P), t(A[0])), "inplace": lambda xp, F, t: (lambda x: (F.relu(x,
        inplace=True), x))(t(A)),
    "add_": lambda xp, F, t: t(A).add_(1).mul_(2).sub_(t(B)).clamp_(min=0).sqrt_(), "fill_": lambda xp, F,
    t: t(A).fill_(3.0),
    "zero_": lambda xp, F, t: t(A).zero_(), "copy_": lambda xp, F, t: t(A).copy_(t(B)), "masked_fill_": lambda xp, F, t:
    t(A).masked_fill_(t(M), 0.0), "scatter_": lambda xp, F, t: t(A).scatter_(1, t(K), 5.0), "index_add_": lambda xp, F,
    t:
    t(A).index_add_(0, t(np.array([1, 1])), t(B[:2])), "fill_diagonal_": lambda xp, F, t: t(A).fill_diagonal_(8.0),
    "relu_": lambda xp, F, t: xp.relu_(t(A)), "out": lambda xp, F, t: xp.add(t(A), t(B), out=t(A)),
    "functional_call": lambda xp, F, t: xp.func.functional_call(
        xp.nn.Linear(4, 3), {"weight": t(B), "bias": t(A[:, 0])}, (t(A),)),
}
LAYERS: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "MultiheadAttention": (lambda nn: nn.MultiheadAttention(4, 2, batch_first=True), (X[..., :4], X[..., :4], X[...,
        :4])),
    "MultiheadAttention kdim": (lambda nn: nn.MultiheadAttention(4, 2, kdim=6, vdim=6), (X[..., :4], X, X)),
    "TransformerEncoderLayer": (lambda nn: nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), (X[..., :4],)),
    "TransformerEncoder": (lambda nn: nn.TransformerEncoder(nn.TransformerEncoderLayer(
        4, 2, 8, dropout=0.0, norm_first=True, activation="gelu"), 2), (X[..., :4],)),
    "TransformerDecoderLayer": (lambda nn: nn.TransformerDecoderLayer(4, 2, 8, 0.0), (X[..., :4], X[..., 2:])),
    "Bilinear": (lambda nn: nn.Bilinear(4, 4, 3), (A, B)), "BatchNorm3d": (lambda nn: nn.BatchNorm3d(2), (Q,)),
    "ConvTranspose3d": (lambda nn: nn.ConvTranspose3d(2, 3, 2), (Q,)), "LazyLinear": (lambda nn: nn.LazyLinear(3),
        (A,)),
    "LazyConv2d": (lambda nn: nn.LazyConv2d(3, 2), (P,)),
    **{name: (lambda nn, name=name: getattr(nn, name)(), (A,)) for name in
       ("CELU", "Hardshrink", "Hardtanh", "Softshrink", "Softsign", "Tanhshrink", "RReLU", "Dropout", "AlphaDropout")},
    "Threshold": (lambda nn: nn.Threshold(0.1, 20.0), (A,)), "Softmin": (lambda nn: nn.Softmin(dim=1), (A,)),
    **{f"{kind}Pad2d": (lambda nn, kind=kind: getattr(nn, f"{kind}Pad2d")((1, 2, 1, 0)), (P,))
       for kind in ("Zero", "Reflection", "Replication", "Circular")}, "ConstantPad1d": (lambda nn: nn.ConstantPad1d(2,
           3.5), (X,)),
    "PixelShuffle": (lambda nn: nn.PixelShuffle(2), (P,)), "Unfold": (lambda nn: nn.Unfold(2), (P,)),
    "Fold": (lambda nn: nn.Fold((3, 3), 2), (RNG.normal(size=(1, 4, 4)).astype(np.float32),)),
    "AvgPool3d": (lambda nn: nn.AvgPool3d(2), (Q,)), "AdaptiveMaxPool3d": (lambda nn: nn.AdaptiveMaxPool3d(2), (Q,)),
    "LPPool2d": (lambda nn: nn.LPPool2d(2, 2), (np.abs(P),)), "LocalResponseNorm": (lambda nn: nn.LocalResponseNorm(3),
        (P,)),
    "Softmax2d": (lambda nn: nn.Softmax2d(), (P,)), "CosineSimilarity": (lambda nn: nn.CosineSimilarity(), (A, B)),
    "PairwiseDistance": (lambda nn: nn.PairwiseDistance(), (A, B)), "ChannelShuffle": (lambda nn: nn.ChannelShuffle(2),
        (P,)),
    "GaussianNLLLoss": (lambda nn: nn.GaussianNLLLoss(), (A, B, POSITIVE)),
    "SoftMarginLoss": (lambda nn: nn.SoftMarginLoss(), (
        A, np.sign(B))), "PoissonNLLLoss": (lambda nn: nn.PoissonNLLLoss(log_input=False), (POSITIVE, POSITIVE)),
}


def plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, torch.Tensor):
        return value.detach().numpy()
    return value.numpy() if isinstance(value, mo.Tensor) else value


def same(result: Any, wanted: Any) -> None:
    if isinstance(wanted, list):
        assert len(result) == len(wanted)
        for one, other in zip(result, wanted, strict=True):
            same(one, other)
    elif wanted is None:
        assert result is None
    else:
        result, wanted = np.asarray(result), np.asarray(wanted)
        assert result.shape == wanted.shape and result.dtype.kind == wanted.dtype.kind, (result.dtype, wanted.dtype)
        np.testing.assert_allclose(result, wanted, rtol=3e-5, atol=2e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_call_gives_what_pytorch_gives(name: str) -> None:
    wanted = plain(FUNCTIONS[name](torch, tF, lambda value: torch.tensor(value)))
    with mo.device("reference"):  # values alone are compared: no kernel is compiled
        same(plain(FUNCTIONS[name](mo, mF, lambda value: mo.tensor(value))), wanted)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_what_pytorch_s_gives(name: str) -> None:
    make, inputs = LAYERS[name]
    theirs = make(torch.nn).eval()
    wanted = theirs(*[torch.tensor(one) for one in inputs])
    with mo.device("reference"):
        ours = make(mo.nn).eval()
        ours(*[mo.tensor(one) for one in inputs])  # a lazy layer has its weights from here on
        state = {key: value.numpy() for key, value in theirs.state_dict().items()}
        assert sorted(state) == sorted(ours.state_dict())
        ours.load_state_dict(state)
        same(plain(ours(*[mo.tensor(one) for one in inputs])), plain(wanted))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 0, -1])
@pytest.mark.parametrize("flat", [True, False])
def test_bags_leave_out_their_padding(mode: str, padding: int | None, flat: bool) -> None:
    rng = np.random.default_rng(2)
    weight, starts = rng.standard_normal((5, 3)).astype(np.float32), np.array([0, 3, 3])
    ids = np.array([1, 4, 2, 4, 0, 0])
    for norm in (None, 1.0):
        named = {"mode": mode, "padding_idx": padding, "max_norm": norm}
        ids, offsets = (ids.ravel(), starts) if flat else (ids.reshape(3, 2), None)
        wanted = torch.nn.functional.embedding_bag(torch.tensor(ids), torch.tensor(weight), None if offsets is None
                                                   else torch.tensor(offsets), **named)
        found = mo.nn.functional.embedding_bag(ids, mo.asarray(weight), offsets, **named)
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=1e-5)


def test_padding_is_a_row() -> None:
    for function in (mo.nn.functional.embedding, mo.nn.functional.embedding_bag):
        with pytest.raises(mo.errors.ArgumentError, match="padding_idx 9 is none of the 3 rows"):
            function(np.array([[0, 1]]), mo.ones((3, 2)), padding_idx=9)


def test_rows_that_come_often_share_their_slope() -> None:
    ids = np.array([0, 1, 1, 2, 2, 2])
    weight = torch.ones(3, 1, requires_grad=True)
    torch.nn.functional.embedding(torch.tensor(ids), weight, scale_grad_by_freq=True).sum().backward()
    found = mo.grad(lambda w: mo.nn.functional.embedding(ids, w, scale_grad_by_freq=True).sum())(mo.ones((3, 1)))
    assert found.tolist() == weight.grad.tolist()


@pytest.mark.parametrize("x", [[2.0, 3.0], [[1, 2], [3, 4]], 5.0])
def test_powers_begin_with_the_first(x: Any) -> None:
    for count in (None, 3) if isinstance(x, list) else (3,):
        wanted, found = torch.linalg.vander(torch.tensor(x), N=count), mo.linalg.vander(mo.asarray(x), N=count)
        assert found.tolist() == wanted.tolist()
    assert mo.searchsorted(mo.asarray([1.0, 2.0]), mo.asarray([1.5]), out_int32=True).dtype is mo.int32


def test_polynomials_and_hermitian_transforms_are_pytorchs() -> None:
    rng = np.random.default_rng(0)
    x, n = rng.uniform(-2, 2, (4, 5)).astype(np.float32), np.asarray([0, 1, 2, 3, -1], np.float32)
    for name in POLYNOMIALS:
        wanted = getattr(torch.special, name)(torch.tensor(x), torch.tensor(n))
        np.testing.assert_allclose(getattr(mo.special, name)(mo.asarray(x), n).numpy(), wanted, rtol=1e-4, atol=1e-4)
    with pytest.raises(mo.errors.ArgumentError, match="degree 2000 is above 1000"):
        mo.special.legendre_polynomial_p(0.5, 2000)  # type: ignore[attr-defined]
    z = (x + 1j * x[::-1]).astype(np.complex64)
    for name in ("hfft2", "hfftn", "ihfft2", "ihfftn"):
        for norm in (None, "ortho", "forward"):
            values = z if name.startswith("h") else x
            wanted = getattr(torch.fft, name)(torch.tensor(values), norm=norm)
            np.testing.assert_allclose(getattr(mo.fft, name)(values, norm=norm).numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_the_page_lists_every_name_with_numpys_meaning() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "from_pytorch.md").read_text()
    part = page.split("## Names with NumPy's meaning")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.+) \|$", part, re.M))
    assert rows == DIFFERENCES
