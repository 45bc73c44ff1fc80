"""`mo.nn.utils`: PyTorch's helpers for gradients, parameters as one vector, and weights given by other parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import morpho as mo
from morpho.nn import sequences as rnn
from morpho.nn.module import Module
from morpho.tensor.state.variable import Buffer, Parameter

__all__ = ["clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "fuse_conv_bn_eval", "get_total_norm",
           "parameters_to_vector", "remove_spectral_norm", "remove_weight_norm", "rnn", "skip_init", "spectral_norm",
           "vector_to_parameters", "weight_norm"]

__path__: list[str] = []  # `import morpho.nn.utils.rnn` finds `rnn` here


def clip_grad_norm_(parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                    foreach: bool | None = None) -> mo.Tensor:
    """Scale all gradients so that their common norm is at most `max_norm`; returns the norm they had.

    >>> w = mo.nn.Parameter([3.0, 4.0])
    >>> (0.5 * w * w).sum().backward()
    >>> mo.nn.utils.clip_grad_norm_([w], 1.0).item()
    5.0
    """
    return mo.optim.clip_grad_norm(parameters, max_norm, norm_type)


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Keep every element of the gradients between -clip_value and clip_value."""
    mo.optim.clip_grad_value(parameters, clip_value)


def get_total_norm(tensors: Iterable[mo.Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> mo.Tensor:
    """The norm of several tensors read as one vector."""
    norms = [mo.linalg.vector_norm(tensor, ord=norm_type) for tensor in tensors]
    return mo.linalg.vector_norm(mo.stack(norms), ord=norm_type) if norms else mo.asarray(0.0)


def clip_grads_with_norm_(parameters: Any, max_norm: float, total_norm: mo.Tensor, foreach: bool | None = None) -> None:
    """Scale gradients by max_norm / total_norm where that is below 1."""
    with mo.no_grad():
        factor = mo.minimum(max_norm / (total_norm + 1e-6), 1.0)
        for parameter in [parameters] if isinstance(parameters, mo.Tensor) else parameters:
            if parameter.grad is not None:
                parameter.grad = parameter.grad * factor.astype(parameter.grad.dtype)


def parameters_to_vector(parameters: Iterable[mo.Tensor]) -> mo.Tensor:
    """All elements of all parameters as one vector.

    >>> mo.nn.utils.parameters_to_vector(mo.nn.Linear(2, 3).parameters()).shape
    (9,)
    """
    return mo.concat([mo.ravel(one) for one in parameters])


def vector_to_parameters(vec: mo.Tensor, parameters: Iterable[Parameter]) -> None:
    """Assign the elements of one vector to parameters, one after another."""
    start = 0
    for one in parameters:
        count = int(one.size)
        one.assign(mo.reshape(vec[start:start + count], one.shape).astype(one.dtype))
        start += count


def _hooked(module: Module, name: str, compute: Any) -> None:
    def before(owner: Module, args: Any) -> None:
        object.__setattr__(owner, name, compute(owner))

    before.weight_name = name  # type: ignore[attr-defined]
    module.register_forward_pre_hook(before)


def _norm_except(v: mo.Tensor, dim: int | None) -> mo.Tensor:
    if dim is None:
        return mo.linalg.vector_norm(v)
    axes = tuple(axis for axis in range(v.ndim) if axis != dim % v.ndim)
    return mo.linalg.vector_norm(v, axis=axes, keepdims=True)


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Replace a weight by a direction `name_v` and a length `name_g` that are trained in its place.

    >>> sorted(dict(mo.nn.utils.weight_norm(mo.nn.Linear(2, 3)).named_parameters()))
    ['bias', 'weight_g', 'weight_v']
    """
    weight = vars(module).pop(name).value
    setattr(module, f"{name}_g", Parameter(_norm_except(weight, dim)))
    setattr(module, f"{name}_v", Parameter(weight))

    def compute(owner: Module) -> mo.Tensor:
        v, g = getattr(owner, f"{name}_v"), getattr(owner, f"{name}_g")
        return v * (g / _norm_except(v, dim))

    _hooked(module, name, compute)
    return module


def _unhooked(module: Module, name: str, parts: Sequence[str]) -> Module:
    for hook in module._pre_hooks:
        if getattr(hook, "weight_name", "") == name:
            hook(module, ())
    value = getattr(module, name)
    module._pre_hooks = tuple(hook for hook in module._pre_hooks if getattr(hook, "weight_name", "") != name)
    for part in (name, *parts):
        vars(module).pop(part, None)
    setattr(module, name, Parameter(value.detach()))
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Put the weight back in place of its direction and length."""
    return _unhooked(module, name, (f"{name}_g", f"{name}_v"))


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: int | None = None) -> Module:
    """Divide a weight by its largest singular value, which power iterations follow while training."""
    weight = vars(module).pop(name).value
    axis = 0 if dim is None else dim
    setattr(module, f"{name}_orig", Parameter(weight))
    start = mo.random.normal(mo.random.key(0), (weight.shape[axis],))
    setattr(module, f"{name}_u", Buffer(start / mo.linalg.vector_norm(start)))

    def compute(owner: Module) -> mo.Tensor:
        held, u = getattr(owner, f"{name}_orig"), getattr(owner, f"{name}_u")
        matrix = mo.reshape(mo.moveaxis(held, axis, 0), (held.shape[axis], -1))
        left: Any = u + 0
        with mo.no_grad():
            for _ in range(n_power_iterations):
                right = matrix.T @ left
                right = right / (mo.linalg.vector_norm(right) + eps)
                left = matrix @ right
                left = left / (mo.linalg.vector_norm(left) + eps)
            left, right = left.detach(), right.detach()
            if owner.training:
                u.defer(left)
        return held / mo.sum(left * (matrix @ right))

    _hooked(module, name, compute)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Put the divided weight back in place of the original one."""
    return _unhooked(module, name, (f"{name}_orig", f"{name}_u"))


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Module:
    """A module whose weights wait for values: see mo.nn.init.undrawn."""
    with mo.nn.init.undrawn():
        return module_cls(*args, **kwargs)


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution with the batch norm after it, in evaluation, as one convolution."""
    import copy

    fused = copy.deepcopy(conv)
    scale = bn.weight / mo.sqrt(bn.running_var + bn.eps)
    shape = (1, -1) if transpose else (-1, 1)
    fused.weight.assign(conv.weight * mo.reshape(scale, (*shape, *[1] * (conv.weight.ndim - 2))))
    bias = mo.zeros_like(bn.running_mean) if conv.bias is None else conv.bias
    value = (bias - bn.running_mean) * scale + bn.bias
    if fused.bias is None:
        fused.bias = Parameter(value)
    else:
        fused.bias.assign(value)
    return fused
