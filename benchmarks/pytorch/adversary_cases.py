# ruff: noqa: E501
"""Random small PyTorch functions, drawn from a seeded `random.Random`; `adversary` compiles and compares them.

A generator returns a function of tensors and its tensors. Everything it draws is drawn before the function runs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

Case = tuple[Callable[..., Any], list[Any], str]
FAMILIES: dict[str, Callable[[random.Random], Case]] = {}
FLOATS = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8, torch.int16)


def family(function: Callable[[random.Random], Case]) -> Callable[[random.Random], Case]:
    """Enter a generator under its name."""
    FAMILIES[function.__name__] = function
    return function


def shape_of(draw: random.Random, rank: int | None = None, least: int = 1, most: int = 5) -> tuple[int, ...]:
    """A random shape."""
    return tuple(draw.randint(least, most) for _ in range(draw.randint(0, 4) if rank is None else rank))


def tensor_of(draw: random.Random, shape: Any, dtype: Any = torch.float32, special: bool = False) -> Any:
    """Values with ties and signs; NaN and infinities where `special`; strides that are not plain, now and then."""
    generator = torch.Generator().manual_seed(draw.randrange(1 << 30))
    if dtype == torch.bool:
        made = torch.randint(0, 2, shape, generator=generator).bool()
    elif not dtype.is_floating_point:
        made = torch.randint(0 if dtype == torch.uint8 else -9, 10, shape, generator=generator).to(dtype)
    else:
        made = (torch.randn(shape, generator=generator, dtype=torch.float64) * 3).round(decimals=draw.choice((0, 2, 9))).to(dtype)
        if special and made.numel():
            for value in (float("nan"), float("inf"), -float("inf"), -0.0, 0.5, 2.5):
                if draw.random() < 0.4:
                    made.view(-1)[draw.randrange(made.numel())] = value
    if made.dim() > 1 and draw.random() < 0.3:
        order = draw.sample(range(made.dim()), made.dim())
        made = made.permute(order).contiguous().permute([order.index(axis) for axis in range(made.dim())])
    return made


@family
def binary(draw: random.Random) -> Case:
    """Arithmetic of two dtypes, tensors of no dimension and numbers; signs of division and remainder."""
    name = draw.choice(("add", "sub", "mul", "true_divide", "floor_divide", "remainder", "fmod", "pow", "maximum", "minimum", "fmax", "fmin",
                        "eq", "lt", "ge", "ne", "atan2", "bitwise_and", "bitwise_xor", "logical_xor", "trunc", "copysign",
                        "nextafter" if False else "hypot", "where", "rsub", "addcmul", "lerp", "xlogy"))
    full = shape_of(draw, None, 0 if draw.random() < 0.1 else 1, 4)
    kinds = (*FLOATS, *INTEGERS, torch.bool)
    a, b = draw.choice(kinds), draw.choice(kinds)
    if name.startswith("bitwise"):
        a, b = draw.choice((*INTEGERS, torch.bool)), draw.choice((*INTEGERS, torch.bool))
    if name in ("atan2", "copysign", "hypot", "lerp", "xlogy", "addcmul"):
        a = b = draw.choice(FLOATS)
    if name in ("sub", "rsub"):
        a, b = (torch.int32 if k == torch.bool else k for k in (a, b))

    def part() -> tuple[int, ...]:
        return tuple(1 if draw.random() < 0.25 else n for n in full[draw.choice((0, 0, len(full))):])

    x, y = tensor_of(draw, part(), a, draw.random() < 0.3), tensor_of(draw, part(), b, draw.random() < 0.2)
    if name in ("floor_divide", "remainder", "fmod"):
        y = torch.where(y == 0, torch.ones_like(y), y)
    scalar = draw.choice((2, -3, 2.5, -0.5, True)) if draw.random() < 0.3 and name not in (
        "maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "where", "addcmul", "lerp", "bitwise_and", "bitwise_xor", "logical_xor") else None
    if name in ("sub", "rsub") and scalar is True:
        scalar = 2
    if name == "pow":
        y = y.abs()
        scalar = abs(scalar) if scalar is not None else None
    if name == "trunc":
        mode = draw.choice(("trunc", "floor", None))
        y = torch.where(y == 0, torch.ones_like(y), y)
        return (lambda x, y: torch.div(x, y if scalar is None else scalar, rounding_mode=mode)), [x, y], f"div {mode} {a} {b} {scalar}"
    if name == "where":
        mask = tensor_of(draw, x.shape, torch.bool)
        return (lambda m, x, y: torch.where(m, x, y)), [mask, x, y], f"where {a} {b}"
    if name == "addcmul":
        return (lambda x, y: torch.addcmul(x, x, y, value=0.5) + torch.addcdiv(x, y, y * y + 1, value=2)), [x, y], "addcmul"
    if name == "lerp":
        return (lambda x, y: torch.lerp(x, y, 0.75)), [x, y], "lerp"
    function = getattr(torch, name)
    if scalar is not None:
        return (lambda x: function(x, scalar)), [x], f"{name} {a} {scalar!r}"
    return (lambda x, y: function(x, y)), [x, y], f"{name} {a} {b}"


@family
def unary(draw: random.Random) -> Case:
    """Pointwise functions with special values."""
    name = draw.choice(("abs", "neg", "sign", "ceil", "floor", "round", "trunc", "frac", "sqrt", "rsqrt", "exp", "expm1", "log", "log1p", "log2", "sin",
                        "cos", "tan", "tanh", "sigmoid", "erf", "erfc", "reciprocal", "square", "isnan", "isinf", "isfinite", "nan_to_num", "signbit",
                        "logical_not", "bitwise_not", "digamma", "lgamma", "sinc", "relu", "asinh", "atanh", "acos", "exp2", "angle", "logit",
                        "sgn", "positive", "erfinv", "i0", "deg2rad"))
    dtype = draw.choice(FLOATS if draw.random() < 0.7 else INTEGERS)
    if name in ("bitwise_not",):
        dtype = draw.choice((*INTEGERS, torch.bool))
    if name in ("ceil", "frac", "erfinv") and not dtype.is_floating_point:
        dtype = torch.float32
    x = tensor_of(draw, shape_of(draw, None, 0 if draw.random() < 0.1 else 1), dtype, draw.random() < 0.5)
    function = getattr(torch, name)
    if name == "round" and dtype in (torch.float32, torch.float64) and draw.random() < 0.5:
        digits = draw.choice((1, -1, 2))
        return (lambda x: torch.round(x, decimals=digits)), [x], f"round {digits}"
    return (lambda x: function(x)), [x], f"{name} {dtype}"


@family
def activations(draw: random.Random) -> Case:
    """torch.nn.functional's activations, with their parameters."""
    x = tensor_of(draw, shape_of(draw, draw.randint(1, 4)), draw.choice(FLOATS), draw.random() < 0.2)
    axis = draw.randrange(-x.dim(), x.dim())
    calls = (("softplus", lambda x: F.softplus(x, 2.0, 1.5)), ("hardtanh", lambda x: F.hardtanh(x, -0.5, 2.0)),
             ("elu", lambda x: F.elu(x, 0.3)), ("celu", lambda x: F.celu(x, 0.7)), ("selu", F.selu), ("hardshrink", lambda x: F.hardshrink(x, 0.8)),
             ("softshrink", lambda x: F.softshrink(x, 0.8)), ("leaky", lambda x: F.leaky_relu(x, -0.2)), ("hardswish", F.hardswish),
             ("hardsigmoid", F.hardsigmoid), ("logsigmoid", F.logsigmoid), ("threshold", lambda x: F.threshold(x, 0.5, 9.0)),
             ("softmax", lambda x: F.softmax(x, axis)), ("log_softmax", lambda x: F.log_softmax(x, axis, dtype=torch.float32)),
             ("softmin", lambda x: F.softmin(x, axis)), ("relu6", F.relu6), ("softsign", F.softsign), ("tanhshrink", F.tanhshrink),
             ("normalize", lambda x: F.normalize(x, 1.0, axis)), ("gelu", lambda x: F.gelu(x, approximate="tanh")), ("mish", F.mish), ("silu", F.silu),
             ("clamp", lambda x: x.clamp(min=1.0, max=-1.0)), ("clamp_none", lambda x: x.clamp(max=0.5)),
             ("clamp_tensor", lambda x: torch.clamp(x, x.mean(), None)))
    name, function = draw.choice(calls)
    if name in ("gelu", "mish", "silu"):
        x = torch.nan_to_num(x, 0.0, 3.0, -3.0)
    return function, [x], f"{name} {x.dtype}"


@family
def reductions(draw: random.Random) -> Case:
    """Sums and friends over none, some and all axes, with NaN, empty sizes, dtype, keepdim."""
    name = draw.choice(("sum", "mean", "prod", "amax", "amin", "max", "min", "std", "var", "any", "all", "logsumexp", "norm", "argmax", "argmin",
                        "nansum", "nanmean", "median", "var_mean", "aminmax", "count_nonzero", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp",
                        "sort", "topk", "kthvalue", "mode", "diff", "quantile", "vector_norm", "msort", "argsort", "unbiased", "sum_dtype", "max_all"))
    dtype = draw.choice(FLOATS[:3] if draw.random() < 0.7 else (*INTEGERS, torch.bool))
    rank = draw.randint(1, 4)
    x = tensor_of(draw, shape_of(draw, rank), dtype, draw.random() < 0.4)
    axis, keep = draw.randrange(-rank, rank), draw.random() < 0.5
    axes = draw.sample(range(rank), draw.randint(1, rank))
    axes = [a - rank if draw.random() < 0.5 else a for a in axes]
    if name in ("mean", "std", "var", "logsumexp", "norm", "nanmean", "median", "var_mean", "logcumsumexp", "quantile", "vector_norm", "unbiased",
                "kthvalue", "mode", "cummax", "cummin", "aminmax", "nansum", "diff"):
        x = tensor_of(draw, x.shape, draw.choice((torch.float32, torch.float64)), draw.random() < 0.4 and name not in ("mode", "quantile"))
    if name in ("argmax", "argmin", "sort", "topk", "argsort", "max", "min", "cummax", "cummin", "msort", "kthvalue"):
        x = x.round() if x.dtype.is_floating_point else x.to(torch.int64) if x.dtype == torch.bool else x
    stable, k = draw.random() < 0.5, draw.randint(1, max(x.shape[axis], 1))
    down = draw.random() < 0.5
    order = draw.choice((0, 1, 2, 3, float("inf"), -float("inf"), 0.5))
    kind = draw.choice((torch.float64, torch.int32, torch.int64))
    calls: dict[str, Callable[..., Any]] = {
        "prod": lambda x: x.prod(axis, keepdim=keep), "max": lambda x: x.max(axis, keepdim=keep), "min": lambda x: x.min(axis, keepdim=keep),
        "any": lambda x: x.any(axis, keepdim=keep), "all": lambda x: x.all(axis, keepdim=keep), "norm": lambda x: x.norm(order, axes, keepdim=keep),
        "argmax": lambda x: (x.argmax(axis, keepdim=keep), x.argmax()), "argmin": lambda x: (x.argmin(axis, keepdim=keep), x.argmin()),
        "median": lambda x: x.median(axis, keepdim=keep)[0], "var_mean": lambda x: torch.var_mean(x, axes, correction=0, keepdim=keep),
        "aminmax": lambda x: torch.aminmax(x, dim=axis, keepdim=keep), "count_nonzero": lambda x: torch.count_nonzero(x, axes),
        "cumsum": lambda x: x.cumsum(axis), "cumprod": lambda x: x.cumprod(axis), "cummax": lambda x: x.cummax(axis), "cummin": lambda x: x.cummin(axis),
        "logcumsumexp": lambda x: x.logcumsumexp(axis), "sort": lambda x: torch.sort(x, dim=axis, descending=down, stable=True),
        "topk": lambda x: torch.topk(x, k, axis, largest=down)[0], "kthvalue": lambda x: x.kthvalue(k, axis)[0], "mode": lambda x: x.mode(axis)[0],
        "diff": lambda x: x.diff(dim=axis), "quantile": lambda x: x.quantile(0.3, axis, keepdim=keep),
        "vector_norm": lambda x: torch.linalg.vector_norm(x, order, axes, keepdim=keep), "msort": lambda x: torch.msort(x),
        "argsort": lambda x: torch.argsort(x, dim=axis, descending=down, stable=True), "unbiased": lambda x: x.std(axes, correction=2, keepdim=keep),
        "sum_dtype": lambda x: x.sum(axes, dtype=kind), "max_all": lambda x: (x.max(), x.sum())}
    function = calls.get(name) or (lambda x: getattr(torch, name)(x, axes, keepdim=keep))
    return function, [x], f"{name} axis={axis} axes={axes} keep={keep} k={k} order={order} stable={stable} {x.dtype} {kind}"


@family
def views(draw: random.Random) -> Case:
    """Views, writes in place through them, and indexing of all kinds."""
    a, b, c = draw.randint(2, 5), draw.randint(2, 5), draw.randint(2, 5)
    x = tensor_of(draw, (a, b, c), draw.choice((torch.float32, torch.int64, torch.float64)))
    i, j = torch.tensor([draw.randrange(-a, a) for _ in range(3)]), torch.tensor([draw.randrange(-b, b) for _ in range(3)])
    m2 = tensor_of(draw, (a, b), torch.bool)
    u = tensor_of(draw, (3, c), x.dtype)
    start, stop, step = draw.randint(-6, 5), draw.randint(-6, 6), draw.randint(1, 3)

    def slice_write(x: Any) -> Any:
        y = x.clone()
        y[:, start:stop:step] *= 2
        y[..., -1] = 7
        y.transpose(0, 1)[0].add_(1)
        return y, x

    def input_write(x: Any) -> Any:
        x.view(-1)[::2].mul_(3)
        x[0].zero_()
        return x.sum(0), x.t() if x.dim() == 2 else x.mT

    def index_write(x: Any, i: Any, j: Any, u: Any) -> Any:
        y = x.clone()
        y[i[:1], j[:1]] = u[:1]
        y.index_put_((i, j), u, accumulate=True)
        return y

    def masked(x: Any, m2: Any) -> Any:
        y = x.masked_fill(m2[..., None], 5)
        y[m2] = 2
        return y, x.masked_fill(~m2[..., None], -1)

    calls: tuple[tuple[str, Callable[..., Any], list[Any]], ...] = (
        ("slice_write", slice_write, [x]), ("input_write", input_write, [x.contiguous()]), ("index_write", index_write, [x, i, j, u]),
        ("masked", masked, [x, m2]), ("gather_none", lambda x, i, j: (x[i, j], x[:, None, j], x[i, :, 0], x[i, ..., j % c]), [x, i, j]),
        ("index_mixed", lambda x, i, j: (x[i][:, j], x[i, 1:, None], x[None, i, ::step]), [x, i, j]),
        ("slice", lambda x: (x[start:stop:step], x[..., start:], x[:, :stop]), [x]),
        ("flip_roll", lambda x: (x.flip(0, -1), x.roll((1, -2), (0, 2)), x.roll(3), x.rot90(3, (1, 2))), [x]),
        ("unfold", lambda x: (x.unfold(1, 2, step), x.as_strided((2, 2), (1, 2), 1) if x.is_contiguous() else x), [x]),
        ("select", lambda x: (x.select(1, -1), x.narrow(2, 1, c - 1), x.unbind(0)[-1], x.diagonal(1, 0, 2), x.tril(1), x.triu(-1)), [x]),
        ("split", lambda x: (*x.split(2, 1), *x.chunk(3, 0), *x.tensor_split((1, 3), 2)), [x]),
        ("repeat", lambda x: (x.repeat(2, 1, 2), x.repeat_interleave(2, 1), x.expand(2, -1, -1, c), torch.tile(x, (2,))), [x]),
        ("movedim", lambda x: (x.movedim(0, -1).reshape(-1, a), x.permute(2, 0, 1).flatten(1), x.unflatten(0, (a, 1)), x.view(a, -1)
                               if x.is_contiguous() else x), [x]),
        ("take", lambda x, i: (x.index_select(0, i % a), x.take(i % a), torch.take_along_dim(x, i.argsort()[:, None, None] % a, 0)), [x, i]),
        ("index_add", lambda x, i, u: (x[:, 0].index_add(0, i % a, u), x[:, 0].index_copy(0, torch.unique(i % a), u[:1].expand(len(torch.unique(i % a)), c))
                                       if False else x), [x, i, u]),
        ("scatter", lambda x, i: (x.scatter(0, (i % a).view(3, 1, 1), 9), x.scatter_add(0, (i % a).view(3, 1, 1).expand(3, b, c), x[:1].expand(3, b, c))), [x, i]),
        ("scatter_reduce", lambda x, i: [x.scatter_reduce(0, (i % a).view(3, 1, 1).expand(3, b, c), x[:1].expand(3, b, c).contiguous(), how,
                                                          include_self=step > 1) for how in ("sum", "amax", "amin", "prod")], [x, i]),
        ("stack", lambda x: (torch.stack((x, x), -1), torch.cat((x, x[:0], x[:1])), torch.hstack((x, x)), torch.dstack((x, x))), [x]),
        ("types", lambda x: (x.to(torch.int8), x.bool(), x.double(), x.half(), (x > 0).float(), x.to(torch.uint8).to(torch.int32) if x.dtype == torch.int64 else x), [x]),
        ("detach", lambda x: (x.detach().add_(1), x), [x.clone()]),
        ("tri", lambda x: (torch.tril_indices(a, b, 1) if False else torch.arange(a, 0, -1), torch.linspace(0, 1, b), torch.eye(a, b), torch.full((2,), 3),
                           torch.ones_like(x, dtype=torch.int32), torch.zeros(())), [x]),
        ("bucket", lambda x: torch.bucketize(x.float(), torch.tensor([-1.0, 0.0, 0.0, 2.0]), right=step == 2), [x]),
        ("outer", lambda x: (torch.outer(x[0, 0], x[0, 0]), torch.einsum("abc,abd->cd", x, x), torch.cross(x[..., :2].repeat(1, 1, 2)[..., :3], x[..., :2].repeat(1, 1, 2)[..., 1:], dim=-1)), [x]),
    )
    name, function, tensors = draw.choice(calls)
    return function, [t.clone() if t.dim() < 3 else t for t in tensors], f"{name} {x.dtype} {start}:{stop}:{step} {tuple(x.shape)}"
