"""Matrix products, convolutions, attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import morpho as mo
from morpho.tensor.core import Tensor
from morpho.torch.aten.promotion import cast
from morpho.torch.aten.table import Context, Meta, op


@op("mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default")
def matmul(x: Tensor, y: Tensor) -> Tensor:
    return mo.matmul(x, y)


def _blend(x: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    if alpha != 1:
        product = product * cast(alpha, product.dtype)
    if beta == 0:
        return product
    return product + (x if beta == 1 else x * cast(beta, x.dtype))


@op("addmm.default", "addmv.default", "baddbmm.default")
def addmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _blend(x, mo.matmul(a, b), beta, alpha)


@op("_cdist_forward.default")
def cdist(x: Tensor, y: Tensor, p: float, mode: int | None = None) -> Tensor:
    return mo.cdist(x, y, p=float(p))


@op("_pdist_forward.default")
def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    return mo.pdist(x, p=float(p))


# -- convolution -------------------------------------------------------------------------------------------------------
def _conv(x: Tensor, weight: Tensor, bias: Any, stride: Sequence[int], padding: Sequence[int],
          dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int) -> Tensor:
    rank = x.ndim - 2
    wide = [tuple(p) * rank if len(p) == 1 else tuple(p) for p in (stride, padding, dilation)]
    options: dict[str, Any] = dict(zip(("stride", "padding", "dilation"), wide, strict=True), groups=groups)
    if transposed:
        more = tuple(output_padding)
        options["output_padding"] = more * rank if len(more) == 1 else more
        return {1: mo.conv_transpose1d, 2: mo.conv_transpose2d, 3: mo.conv_transpose3d}[rank](
            x, weight, bias, **options)
    return {1: mo.conv1d, 2: mo.conv2d, 3: mo.conv3d}[rank](x, weight, bias, **options)


def _odd_convolution(x: Meta, weight: Meta, *_: Any) -> str | None:
    if x.dtype.is_complex or not x.dtype.is_float:
        return f"a convolution of {x.dtype}"
    return "a convolution of an empty tensor" if 0 in x.shape or 0 in weight.shape else None


@op("convolution.default", refuse=_odd_convolution)
def convolution(x: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
                output_padding: Any, groups: int) -> Tensor:
    return _conv(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


@op("convolution_backward.default", refuse=lambda grad, x, weight, *_: _odd_convolution(x, weight))
def convolution_backward(grad: Tensor, x: Tensor, weight: Tensor, bias_sizes: Any, stride: Any, padding: Any,
                         dilation: Any, transposed: bool, output_padding: Any, groups: int,
                         output_mask: Sequence[bool]) -> tuple[Tensor | None, ...]:
    def again(x: Tensor, weight: Tensor) -> Tensor:
        return _conv(x, weight, None, stride, padding, dilation, transposed, output_padding, groups)

    found: list[Tensor | None] = [None, None, None]
    if output_mask[0] and output_mask[1]:
        found[:2] = mo.vjp(again, x, weight)[1](grad)
    elif output_mask[0]:
        found[0] = mo.vjp(lambda x: again(x, weight), x)[1](grad)[0]
    elif output_mask[1]:
        found[1] = mo.vjp(lambda weight: again(x, weight), weight)[1](grad)[0]
    if output_mask[2]:
        found[2] = mo.sum(grad, axis=(0, *range(2, grad.ndim)))
    return tuple(found)


# -- attention ---------------------------------------------------------------------------------------------------------
def _attend(q: Tensor, k: Tensor, v: Tensor, causal: bool, mask: Any, scale: Any) -> Tensor:
    return mo.attention(q, k, v, mask=mask, causal=causal, scale=None if scale is None else float(scale))


def _odd_attention(q: Meta, k: Meta, v: Meta, dropout: float = 0.0, causal: bool = False, *,
                   attn_mask: Any = None, scale: Any = None) -> str | None:
    if dropout:
        return "dropout inside attention"
    return None if q.ndim == 4 and not q.dtype.is_complex else "attention that is not of four axes"


@op("_scaled_dot_product_flash_attention_for_cpu.default", context=True, refuse=_odd_attention)
def flash_attention(context: Context, q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0, causal: bool = False, *,
                    attn_mask: Any = None, scale: Any = None) -> tuple[Tensor, Tensor]:
    """The result and the logarithms of the softmax's sums; those are computed only where somebody looks at them."""
    out = _attend(q, k, v, causal, attn_mask, scale)
    factor = float(scale) if scale is not None else int(q.shape[-1]) ** -0.5
    groups = q.shape[1] // k.shape[1]
    keys = k if groups == 1 else mo.repeat(k, groups, axis=1)
    scores = mo.astype(mo.matmul(q, mo.matrix_transpose(keys)) * factor, mo.float32)
    if causal:
        seen = mo.tril(mo.ones((q.shape[2], k.shape[2]), dtype=mo.bool))
        scores = mo.where(seen, scores, -mo.inf)
    if attn_mask is not None:
        scores = mo.where(attn_mask, scores, -mo.inf) if attn_mask.dtype is mo.bool else scores + attn_mask
    return out, mo.logsumexp(scores, axis=-1)


def _odd_backward(grad: Meta, q: Meta, k: Meta, v: Meta, out: Meta, lse: Meta, dropout: float, causal: bool, *,
                  attn_mask: Any = None, scale: Any = None) -> str | None:
    return _odd_attention(q, k, v, dropout, causal)


@op("_scaled_dot_product_flash_attention_for_cpu_backward.default", refuse=_odd_backward)
def flash_attention_backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, logsumexp: Tensor,
                             dropout: float, causal: bool, *, attn_mask: Any = None,
                             scale: Any = None) -> tuple[Tensor, ...]:
    """Morpho's attention computes its scores again, block by block: neither `out` nor `logsumexp` is read."""
    return tuple(mo.vjp(lambda q, k, v: _attend(q, k, v, causal, attn_mask, scale), q, k, v)[1](grad))


@op("scaled_dot_product_attention.default",
    refuse=lambda q, k, v, mask=None, dropout=0.0, causal=False, **_: _odd_attention(q, k, v, dropout, causal))
def scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Any = None, dropout: float = 0.0,
                                 causal: bool = False, *, scale: Any = None, enable_gqa: bool = False) -> Tensor:
    return _attend(q, k, v, causal, attn_mask, scale)
