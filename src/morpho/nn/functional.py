"""`mo.nn.functional`: PyTorch's functions of layers, with PyTorch's arguments.

Where `mo` or `mo.nn` has the function it is the same object. Written here are those whose arguments PyTorch orders in
another way (`embedding`, `layer_norm`, `pad`, `batch_norm`), and those that are layers elsewhere.

>>> import morpho.nn.functional as F
>>> F.softmax(mo.zeros((1, 2)), dim=1).tolist(), F.relu is mo.relu
([[0.5, 0.5]], True)
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn.losses.reduction import alike, reduced
from morpho.tensor.tools.foreign_calls import hint_calls
from morpho.tensor.tools.foreign_names import missing

_SAME = """
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool1d adaptive_max_pool2d avg_pool1d avg_pool2d avg_pool3d
channel_shuffle conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d elu fold gelu grid_sample
leaky_relu log_softmax max_pool1d max_pool2d max_pool3d mish pdist pixel_shuffle pixel_unshuffle relu selu sigmoid
silu softmax softplus tanh unfold binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss
cosine_similarity cross_entropy ctc_loss hinge_embedding_loss huber_loss interpolate kl_div l1_loss linear
margin_ranking_loss mse_loss multi_margin_loss nll_loss pairwise_distance smooth_l1_loss triplet_margin_loss
"""
SAME = frozenset(_SAME.split())
_FROM_TORCH = """
alpha_dropout celu conv_tbc dropout hardshrink prelu rrelu threshold
"""
FROM_TORCH = frozenset(_FROM_TORCH.split())
UPSAMPLED = {"upsample_nearest": "nearest", "upsample_bilinear": "bilinear"}


def _as(value: Any) -> mo.Tensor:
    return value if isinstance(value, mo.Tensor) else mo.asarray(value)


def _set(input: mo.Tensor, result: mo.Tensor, inplace: bool) -> mo.Tensor:
    if inplace:
        input[...] = result
        return input
    return result


# -- activations ---------------------------------------------------------------------------------------------------
def relu6(input: Any, inplace: bool = False) -> mo.Tensor:
    input = _as(input)
    return _set(input, mo.clip(input, 0, 6), inplace)


def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> mo.Tensor:
    input = _as(input)
    return _set(input, mo.clip(input, min_val, max_val), inplace)


def hardsigmoid(input: Any, inplace: bool = False) -> mo.Tensor:
    input = _as(input)
    return _set(input, mo.clip(input / 6 + 0.5, 0, 1), inplace)


def hardswish(input: Any, inplace: bool = False) -> mo.Tensor:
    input = _as(input)
    return _set(input, input * mo.clip(input + 3, 0, 6) / 6, inplace)


def logsigmoid(input: Any) -> mo.Tensor:
    return -mo.softplus(-_as(input))


def glu(input: Any, dim: int = -1) -> mo.Tensor:
    first, second = mo.split(input, 2, axis=dim)
    return first * mo.sigmoid(second)


def softmin(input: Any, dim: int = -1, dtype: Any = None) -> mo.Tensor:
    input = _as(input) if dtype is None else _as(input).astype(dtype)
    return mo.softmax(-input, axis=dim)


def softsign(input: Any) -> mo.Tensor:
    input = _as(input)
    return input / (1 + mo.abs(input))


def softshrink(input: Any, lambd: float = 0.5) -> mo.Tensor:
    input = _as(input)
    return mo.where(input > lambd, input - lambd, mo.where(input < -lambd, input + lambd, input * 0))


def tanhshrink(input: Any) -> mo.Tensor:
    input = _as(input)
    return input - mo.tanh(input)


def gumbel_softmax(logits: Any, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> mo.Tensor:
    """A draw from a softmax; `hard` gives one-hot rows whose gradient is that of the soft ones."""
    from morpho.nn.random import next_key

    logits = _as(logits)
    noise = mo.random.gumbel(next_key(), logits.shape).astype(logits.dtype)
    soft = mo.softmax((logits + noise) / tau, axis=dim)
    if not hard:
        return soft
    best = mo.equal(soft, mo.max(soft, axis=dim, keepdims=True)).astype(soft.dtype)
    return best - mo.stop_gradient(soft) + soft


def dropout1d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> mo.Tensor:
    return _channels_dropped(input, p, training, inplace, 1)


def dropout2d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> mo.Tensor:
    return _channels_dropped(input, p, training, inplace, 2)


def dropout3d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> mo.Tensor:
    return _channels_dropped(input, p, training, inplace, 3)


def _channels_dropped(input: Any, p: float, training: bool, inplace: bool, rank: int) -> mo.Tensor:
    from morpho.nn.random import next_key

    input = _as(input)
    if not training or p == 0:
        return input
    shape = (*input.shape[:input.ndim - rank], *[1] * rank)
    keep = mo.random.bernoulli(next_key(), 1 - p, shape)
    return _set(input, input * (keep.astype(input.dtype) / (1 - p if p < 1 else 1)), inplace)


def feature_alpha_dropout(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> mo.Tensor:
    from morpho.nn.random import next_key

    input = _as(input)
    if not training or p == 0:
        return input
    low = -1.7580993408473766
    scale = (1 - p + p * (1 - p) * low * low) ** -0.5
    keep = mo.random.bernoulli(next_key(), 1 - p, (*input.shape[:2], *[1] * (input.ndim - 2)))
    return _set(input, mo.where(keep, input, low) * scale - scale * p * low, inplace)


# -- norms ---------------------------------------------------------------------------------------------------------
def normalize(input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> mo.Tensor:
    input = _as(input)
    return input / mo.maximum(mo.linalg.vector_norm(input, ord=p, axis=dim, keepdims=True), eps)


def layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> mo.Tensor:
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    _check_last("layer_norm", _as(input), shape)
    return mo.layer_norm(input, weight, bias, eps=eps, axis=tuple(range(-len(shape), 0)))


def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> mo.Tensor:
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    input = _as(input)
    _check_last("rms_norm", input, shape)
    small = mo.finfo(input.dtype).eps if eps is None else eps
    return mo.rms_norm(input, weight, eps=small, axis=tuple(range(-len(shape), 0)))


def _check_last(name: str, x: mo.Tensor, shape: tuple[int, ...]) -> None:
    if tuple(x.shape[x.ndim - len(shape):]) != tuple(shape):
        raise fail(ShapeError, name, f"shape {tuple(x.shape)} does not end in {tuple(shape)}")


def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> mo.Tensor:
    input = _as(input)
    batch, channels = input.shape[:2]
    if channels % num_groups:
        raise fail(ShapeError, "group_norm", f"{channels} channels are not divisible into {num_groups} groups")
    parts = mo.reshape(input, (batch, num_groups, -1))
    made = mo.reshape(mo.layer_norm(parts, eps=eps), input.shape)
    return _per_channel(made, weight, bias)


def _per_channel(x: mo.Tensor, weight: Any, bias: Any) -> mo.Tensor:
    shape = (-1, *[1] * (x.ndim - 2))
    x = x if weight is None else x * mo.reshape(weight, shape)
    return x if bias is None else x + mo.reshape(bias, shape)


def instance_norm(input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
                  use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5) -> mo.Tensor:
    input = _as(input)
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    made = mo.layer_norm(input, eps=eps, axis=tuple(range(2, input.ndim)))
    return _per_channel(made, weight, bias)


def batch_norm(input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
               training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> mo.Tensor:
    """Normed by the batch while training, which also assigns the running values; else by those."""
    input = _as(input)
    if not training:
        return mo.batch_norm(input, running_mean, running_var, weight, bias, eps=eps)
    axes = (0, *range(2, input.ndim))
    mean, variance = mo.mean(input, axis=axes), mo.var(input, axis=axes)
    if running_mean is not None:
        count = input.size // input.shape[1]
        with mo.no_grad():
            running_mean[...] = running_mean * (1 - momentum) + mean * momentum
            running_var[...] = running_var * (1 - momentum) + variance * (momentum * count / max(count - 1, 1))
    return mo.batch_norm(input, mean, variance, weight, bias, eps=eps)


def local_response_norm(input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> mo.Tensor:
    input = _as(input)
    squares = mo.moveaxis(input * input, 1, -1)
    padded = mo.pad(squares, [(0, 0)] * (input.ndim - 1) + [(size // 2, (size - 1) // 2)])
    total: Any = 0
    channels = input.shape[1]
    for start in range(size):
        total = total + padded[..., start:start + channels]
    return input / (k + alpha * mo.moveaxis(total / size, -1, 1)) ** beta


# -- lookups -------------------------------------------------------------------------------------------------------
def embedding(input: Any, weight: Any, padding_idx: int | None = None, max_norm: Any = None, norm_type: float = 2.0,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> mo.Tensor:
    """Rows of `weight` by the ids in `input`; mo.embedding takes them in the other order."""
    rows = mo.embedding(weight, input)
    if max_norm is not None:
        size = mo.linalg.vector_norm(rows, ord=norm_type, axis=-1, keepdims=True)
        rows = rows * mo.where(size > max_norm, max_norm / (size + 1e-7), 1.0)
    if scale_grad_by_freq:
        ids = _as(input)
        share = 1 / mo.bincount(mo.ravel(ids), minlength=weight.shape[0])[ids].astype(rows.dtype)
        fixed = mo.stop_gradient(rows)
        rows = fixed + (rows - fixed) * share[..., None]
    if padding_idx is None:
        return rows
    padding = mo.expand_dims(_as(input) == _padding(padding_idx, weight), axis=-1)
    return mo.where(padding, mo.stop_gradient(rows), rows)


def _padding(padding_idx: int, weight: Any) -> int:
    count = int(weight.shape[0])
    if not -count <= padding_idx < count:
        raise fail(ArgumentError, "embedding", f"padding_idx {padding_idx} is none of the {count} rows")
    return padding_idx % count


def embedding_bag(input: Any, weight: Any, offsets: Any = None, max_norm: Any = None, norm_type: float = 2,
                  scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                  per_sample_weights: Any = None, include_last_offset: bool = False,
                  padding_idx: int | None = None) -> mo.Tensor:
    """Rows of each bag together; those of `padding_idx` are not among them. A bag without rows is zeros."""
    input, weight = _as(input), _as(weight)
    rows = embedding(input, weight, None, max_norm, norm_type, scale_grad_by_freq)
    counts = mo.ones(input.shape, dtype=rows.dtype) if padding_idx is None else \
        (input != _padding(padding_idx, weight)).astype(rows.dtype)
    factor = counts if per_sample_weights is None else counts * _as(per_sample_weights)
    if input.ndim == 2:
        if mode == "max":
            most = mo.max(mo.where(counts[..., None] > 0, rows, -mo.inf), axis=1)
            return mo.where(mo.sum(counts, axis=1)[:, None] > 0, most, 0.0)
        total, size = mo.sum(rows * factor[..., None], axis=1), mo.sum(counts, axis=1)
    else:
        offsets = _as(offsets)
        bags = offsets.shape[0] - bool(include_last_offset)
        ids = mo.searchsorted(offsets[:bags], mo.arange(input.shape[0]), side="right") - 1
        size = mo.segment_sum(counts, ids, bags)
        if mode == "max":
            most = mo.segment_max(mo.where(counts[:, None] > 0, rows, -mo.inf), ids, bags)
            return mo.where(size[:, None] > 0, most, 0.0)
        total = mo.segment_sum(rows if factor is counts and padding_idx is None else rows * factor[:, None], ids, bags)
    return total if mode == "sum" else total / mo.maximum(size, 1.0)[:, None]


def one_hot(tensor: Any, num_classes: int = -1) -> mo.Tensor:
    tensor = _as(tensor)
    return mo.one_hot(tensor, int(mo.max(tensor).item()) + 1 if num_classes == -1 else num_classes, dtype=mo.int64)


def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> mo.Tensor:
    made = mo.einsum("...i,oij,...j->...o", _as(input1), _as(weight), _as(input2))
    return made if bias is None else made + bias


# -- attention -----------------------------------------------------------------------------------------------------
def scaled_dot_product_attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: float | None = None,
                                 enable_gqa: bool = False) -> mo.Tensor:
    """mo.attention with PyTorch's arguments: a boolean mask is True where a query may look, in both."""
    if dropout_p:
        query, key, value = _as(query), _as(key), _as(value)
        factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        scores = mo.matmul(query, mo.matrix_transpose(key)) * factor
        if is_causal:
            attn_mask = mo.tril(mo.ones(scores.shape[-2:])) > 0
        if attn_mask is not None:
            attn_mask = _as(attn_mask)
            scores = mo.where(attn_mask, scores, -mo.inf) if attn_mask.dtype is mo.bool else scores + attn_mask
        return mo.matmul(mo.dropout(mo.softmax(scores, axis=-1), dropout_p), value)
    query, key, value = _as(query), _as(key), _as(value)
    if query.ndim != 4:
        lead = query.shape[:-2]
        parts = [mo.reshape(part, (1, -1, *part.shape[-2:])) if query.ndim < 4 else
                 mo.reshape(part, (-1, *part.shape[-3:])) for part in (query, key, value)]
        mask = None if attn_mask is None else mo.broadcast_to(_as(attn_mask), (*lead, query.shape[-2], key.shape[-2]))
        mask = None if mask is None else mo.reshape(mask, (*parts[0].shape[:2], *mask.shape[-2:]))
        made = mo.attention(*parts, mask=mask, causal=is_causal, scale=scale)
        return mo.reshape(made, (*lead, *made.shape[-2:]))
    return mo.attention(query, key, value, mask=attn_mask, causal=is_causal, scale=scale)


# -- borders, windows ----------------------------------------------------------------------------------------------
def pad(input: Any, pad: Any, mode: str = "constant", value: float | None = None) -> mo.Tensor:
    """A border whose widths are (before, after) of the last axis, then of the one before it, and so on."""
    input = _as(input)
    pairs = [(int(pad[i]), int(pad[i + 1])) for i in range(0, len(pad), 2)][::-1]
    widths = [(0, 0)] * (input.ndim - len(pairs)) + pairs
    if any(number < 0 for pair in widths for number in pair):  # negative widths cut off
        key = tuple(slice(max(-before, 0), size - max(-after, 0))
                    for (before, after), size in zip(widths, input.shape, strict=True))
        input, widths = input[key], [(max(before, 0), max(after, 0)) for before, after in widths]
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in modes:
        raise fail(ArgumentError, "pad", f"mode {mode!r} is unknown", "one of " + ", ".join(modes))
    if mode == "constant":
        return mo.pad(input, widths, value=0 if value is None else value)
    return mo.pad(input, widths, mode=modes[mode])


def _windows_covered(rank: int, pool: str, input: Any, output_size: Any) -> mo.Tensor:
    sizes = [output_size] * rank if isinstance(output_size, int) else list(output_size)
    x = _as(input)
    for place, size in enumerate(sizes):
        axis = x.ndim - rank + place
        length = x.shape[axis]
        if size is None:
            continue
        parts = []
        for i in range(size):
            key = (slice(None),) * axis + (slice(i * length // size, -(-(i + 1) * length // size)),)
            parts.append(getattr(mo, pool)(x[key], axis=axis, keepdims=True))
        x = mo.concat(parts, axis=axis)
    return x


def adaptive_avg_pool3d(input: Any, output_size: Any) -> mo.Tensor:
    return _windows_covered(3, "mean", input, output_size)


def adaptive_max_pool3d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    return _largest_covered(3, input, output_size) if return_indices else _windows_covered(3, "max", input, output_size)


def _largest_covered(rank: int, input: Any, output_size: Any) -> tuple[mo.Tensor, mo.Tensor]:
    """The largest elements of windows that cover the input, and their places in each channel read as a vector."""
    import itertools

    x = _as(input)
    sizes = [output_size] * rank if isinstance(output_size, int) else list(output_size)
    lengths = x.shape[x.ndim - rank:]
    sizes = [length if size is None else size for size, length in zip(sizes, lengths, strict=True)]
    places = mo.reshape(mo.arange(math.prod(lengths)), tuple(lengths))
    values, indices = [], []
    for cell in itertools.product(*[range(size) for size in sizes]):
        key = tuple(slice(i * length // size, -(-(i + 1) * length // size))
                    for i, size, length in zip(cell, sizes, lengths, strict=True))
        part = mo.reshape(x[(..., *key)], (*x.shape[:x.ndim - rank], -1))
        best = mo.argmax(part, axis=-1)
        values.append(mo.max(part, axis=-1))
        indices.append(mo.take(mo.ravel(places[key]), best))
    shape = (*x.shape[:x.ndim - rank], *sizes)
    return (mo.reshape(mo.stack(values, axis=-1), shape), mo.reshape(mo.stack(indices, axis=-1), shape))


def adaptive_max_pool1d_with_indices(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    return _largest_covered(1, input, output_size)


def adaptive_max_pool2d_with_indices(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    return _largest_covered(2, input, output_size)


def adaptive_max_pool3d_with_indices(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    return _largest_covered(3, input, output_size)


def _with_indices(rank: int) -> Callable[..., Any]:
    def function(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
                 ceil_mode: bool = False, return_indices: bool = True) -> Any:
        return getattr(mo, f"max_pool{rank}d")(input, kernel_size, stride=stride, padding=padding, dilation=dilation,
                                               ceil_mode=ceil_mode, return_indices=True)

    function.__name__ = f"max_pool{rank}d_with_indices"
    return function


max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = (_with_indices(n) for n in (1, 2, 3))


def _per_axis(value: Any, rank: int) -> list[int]:
    return [int(value)] * rank if isinstance(value, int) else [int(one) for one in value]


def _power_pool(rank: int, input: Any, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> mo.Tensor:
    """The root of the sum of powers in each window; PyTorch's, which takes the sign of the sum along."""
    input = _as(input)
    count = math.prod(_per_axis(kernel_size, rank))
    mean = getattr(mo, f"avg_pool{rank}d")(input ** norm_type, kernel_size, stride=stride, ceil_mode=ceil_mode)
    return (mo.sign(mean) * mo.relu(mo.abs(mean)) * count) ** (1.0 / norm_type)


def lp_pool1d(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> mo.Tensor:
    return _power_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> mo.Tensor:
    return _power_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> mo.Tensor:
    return _power_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


def _unpool(rank: int, input: Any, indices: Any, kernel_size: Any, stride: Any, padding: Any,
            output_size: Any) -> mo.Tensor:
    input, indices = _as(input), _as(indices)
    kernels, pads = _per_axis(kernel_size, rank), _per_axis(padding, rank)
    steps = kernels if stride is None else _per_axis(stride, rank)
    lengths = [(size - 1) * step + kernel - 2 * width for size, step, kernel, width in
               zip(input.shape[input.ndim - rank:], steps, kernels, pads, strict=True)]
    if output_size is not None:
        lengths = [int(size) for size in tuple(output_size)[-rank:]]
    lead = input.shape[:input.ndim - rank]
    flat = mo.zeros((*lead, math.prod(lengths)), dtype=input.dtype)
    made = mo.scatter(flat, mo.reshape(indices, (*lead, -1)), mo.reshape(input, (*lead, -1)), axis=-1)
    return mo.reshape(made, (*lead, *lengths))


def max_unpool1d(input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
                 output_size: Any = None) -> mo.Tensor:
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
                 output_size: Any = None) -> mo.Tensor:
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
                 output_size: Any = None) -> mo.Tensor:
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)


def upsample(input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
             align_corners: bool | None = None) -> mo.Tensor:
    return mo.nn.interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> mo.Tensor:
    return mo.nn.interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> mo.Tensor:
    return mo.nn.interpolate(input, size, scale_factor, "bilinear", True)


def affine_grid(theta: Any, size: Any, align_corners: bool = False) -> mo.Tensor:
    """The places that `grid_sample` reads for a stack of affine maps."""
    theta = _as(theta)
    lines = []
    for length in size[2:]:
        line = mo.linspace(-1.0, 1.0, int(length)) if length > 1 else mo.zeros(1)
        lines.append(line if align_corners or length == 1 else line * ((length - 1) / length))
    grids = mo.meshgrid(*lines, indexing="ij")
    points = mo.stack([*reversed(grids), mo.ones_like(grids[0])], axis=-1)
    flat = mo.reshape(points, (1, -1, points.shape[-1])).astype(theta.dtype)
    made = mo.matmul(flat, mo.matrix_transpose(theta))
    return mo.reshape(made, (theta.shape[0], *[int(one) for one in size[2:]], theta.shape[1]))


def grid_sample_by_number(input: Any, grid: Any, interpolation_mode: int, padding_mode: int,
                          align_corners: bool) -> mo.Tensor:
    return mo.grid_sample(input, grid, mode=("bilinear", "nearest", "bicubic")[interpolation_mode],
                          padding_mode=("zeros", "border", "reflection")[padding_mode], align_corners=align_corners)


# -- losses --------------------------------------------------------------------------------------------------------
def gaussian_nll_loss(input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6,
                      reduction: str = "mean") -> mo.Tensor:
    one, other = alike("gaussian_nll_loss", input, target)
    var = mo.asarray(var).astype(one.dtype) if not isinstance(var, mo.Tensor) else var
    if var.ndim == one.ndim - 1:
        var = var[..., None]
    var = var + mo.stop_gradient(mo.maximum(eps - var, 0.0))
    loss = 0.5 * (mo.log(var) + mo.square(one - other) / var)
    return reduced("gaussian_nll_loss", loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def poisson_nll_loss(input: Any, target: Any, log_input: bool = True, full: bool = False, size_average: Any = None,
                     eps: float = 1e-8, reduce: Any = None, reduction: str = "mean") -> mo.Tensor:
    one, other = alike("poisson_nll_loss", input, target)
    loss = mo.exp(one) - other * one if log_input else one - other * mo.log(one + eps)
    if full:
        rest = other * mo.log(mo.where(other > 1, other, 1.0)) - other + 0.5 * mo.log(
            2 * math.pi * mo.where(other > 1, other, 1.0))
        loss = loss + mo.where(other > 1, rest, 0.0)
    return reduced("poisson_nll_loss", loss, reduction)


def soft_margin_loss(input: Any, target: Any, size_average: Any = None, reduce: Any = None,
                     reduction: str = "mean") -> mo.Tensor:
    one, other = alike("soft_margin_loss", input, target)
    return reduced("soft_margin_loss", mo.softplus(-other * one), reduction)


def multilabel_soft_margin_loss(input: Any, target: Any, weight: Any = None, size_average: Any = None,
                                reduce: Any = None,
                                reduction: str = "mean") -> mo.Tensor:
    one, other = alike("multilabel_soft_margin_loss", input, target)
    loss = mo.softplus(one) - other * one
    loss = loss if weight is None else loss * weight
    return reduced("multilabel_soft_margin_loss", mo.mean(loss, axis=-1), reduction)


def multilabel_margin_loss(input: Any, target: Any, size_average: Any = None, reduce: Any = None,
                           reduction: str = "mean") -> mo.Tensor:
    """Margins between the classes named in each row of `target`, up to the first -1, and all others."""
    input, target = mo.atleast_1d(_as(input)), mo.atleast_1d(_as(target))
    count = input.shape[-1]
    named = mo.cumulative_prod((target >= 0).astype(mo.int64), axis=-1) > 0
    ids = mo.where(named, target, 0)
    is_target = mo.any(mo.logical_and(mo.one_hot(ids, count) > 0, named[..., None]), axis=-2)
    wanted = mo.take_along_axis(input, ids, axis=-1)
    gap = mo.relu(1 - (wanted[..., :, None] - input[..., None, :]))
    counted = mo.logical_and(named[..., :, None], mo.logical_not(is_target)[..., None, :])
    loss = mo.sum(mo.where(counted, gap, 0.0), axis=(-2, -1)) / count
    return reduced("multilabel_margin_loss", loss, reduction)


def triplet_margin_with_distance_loss(anchor: Any, positive: Any, negative: Any, *,
                                      distance_function: Callable[..., Any] | None = None, margin: float = 1.0,
                                      swap: bool = False, reduction: str = "mean") -> mo.Tensor:
    distance = mo.nn.pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    far = mo.minimum(far, distance(positive, negative)) if swap else far
    return reduced("triplet_margin_with_distance_loss", mo.relu(near - far + margin), reduction)


def linear_cross_entropy(input: Any, linear_weight: Any, target: Any, linear_bias: Any = None,
                         **settings: Any) -> mo.Tensor:
    return mo.nn.cross_entropy(mo.nn.linear(input, linear_weight, linear_bias), target, **settings)


def multi_head_attention_forward(query: Any, key: Any, value: Any, embed_dim_to_check: int, num_heads: int,
                                 in_proj_weight: Any, in_proj_bias: Any, bias_k: Any, bias_v: Any, add_zero_attn: bool,
                                 dropout_p: float, out_proj_weight: Any, out_proj_bias: Any, training: bool = True,
                                 key_padding_mask: Any = None, need_weights: bool = True, attn_mask: Any = None,
                                 use_separate_proj_weight: bool = False, q_proj_weight: Any = None,
                                 k_proj_weight: Any = None, v_proj_weight: Any = None, static_k: Any = None,
                                 static_v: Any = None, average_attn_weights: bool = True,
                                 is_causal: bool = False) -> tuple[mo.Tensor, mo.Tensor | None]:
    """Attention of (length, batch, width) with joined weights. Masks are PyTorch's: True is where nobody looks."""
    if bias_k is not None or bias_v is not None or add_zero_attn or static_k is not None or static_v is not None:
        raise fail(ArgumentError, "multi_head_attention_forward", "added keys and values are not taken")
    query, key, value = _as(query), _as(key), _as(value)
    width = embed_dim_to_check
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else \
        mo.split(in_proj_weight, 3, axis=0)
    biases = (None,) * 3 if in_proj_bias is None else mo.split(in_proj_bias, 3, axis=0)
    q, k, v = (_heads(mo.nn.linear(x, weight, bias), num_heads)
               for x, weight, bias in zip((query, key, value), weights, biases, strict=True))
    mask = _added_mask(attn_mask, key_padding_mask, q, k, num_heads)
    scores = mo.matmul(q, mo.matrix_transpose(k)) / math.sqrt(width // num_heads)
    shares = mo.softmax(scores if mask is None else scores + mask, axis=-1)
    if dropout_p and training:
        shares = mo.dropout(shares, dropout_p)
    joined = mo.permute_dims(mo.matmul(shares, v), (2, 0, 1, 3))
    output = mo.nn.linear(mo.reshape(joined, (*joined.shape[:2], -1)), out_proj_weight, out_proj_bias)
    if not need_weights:
        return output, None
    return output, mo.mean(shares, axis=1) if average_attn_weights else shares


def _heads(x: mo.Tensor, count: int) -> mo.Tensor:
    """(length, batch, width) -> (batch, heads, length, depth)."""
    return mo.permute_dims(mo.reshape(x, (*x.shape[:2], count, -1)), (1, 2, 0, 3))


def _added_mask(attn_mask: Any, key_padding_mask: Any, q: mo.Tensor, k: mo.Tensor, heads: int) -> Any:
    total: Any = None
    if attn_mask is not None:
        attn_mask = _as(attn_mask)
        total = mo.where(attn_mask, -mo.inf, 0.0) if attn_mask.dtype is mo.bool else attn_mask
        if total.ndim == 3:
            total = mo.reshape(total, (-1, heads, *total.shape[1:]))
    if key_padding_mask is not None:
        key_padding_mask = _as(key_padding_mask)
        hidden = mo.where(key_padding_mask, -mo.inf, 0.0) if key_padding_mask.dtype is mo.bool else key_padding_mask
        hidden = hidden[:, None, None, :]
        total = hidden if total is None else total + hidden
    return total


def _in_place(name: str) -> Callable[..., mo.Tensor]:
    function = getattr(sys.modules[__name__], name)

    def assign_(input: mo.Tensor, *args: Any, **options: Any) -> mo.Tensor:
        input[...] = function(input, *args, **options)
        return input

    return assign_


hint_calls(globals(), [name for name, value in list(globals().items())
                       if not name.startswith("_") and getattr(value, "__module__", "") == __name__])


def __getattr__(name: str) -> Any:
    if name in SAME:
        return getattr(mo.nn, name) if name in mo.nn.__all__ else getattr(mo, name)
    if name in FROM_TORCH:
        return getattr(mo, name)
    if name == "native_channel_shuffle":
        return mo.channel_shuffle
    if name in ("celu_", "elu_", "hardtanh_", "leaky_relu_", "relu_", "rrelu_", "selu_", "threshold_"):
        return _in_place(name.removesuffix("_"))
    raise missing("nn", name, sys.modules[__name__], f"module '{__name__}'")


def __dir__() -> list[str]:
    return sorted([*SAME, *FROM_TORCH, *[name for name in globals() if not name.startswith("_")]])
