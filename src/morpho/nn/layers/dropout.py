"""Dropout: while training, elements or whole channels are zeroed at random and the rest scaled up."""

from __future__ import annotations

from numbers import Real
from typing import Any

import morpho as mo
from morpho.base.checks import shown
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn.module import Module
from morpho.nn.random import next_key


def check_share(name: str, /, **shares: object) -> None:
    """Refuse what is not a number between 0 and 1."""
    for key, share in shares.items():
        if not isinstance(share, Real) or not 0 <= float(share) <= 1:
            raise fail(ArgumentError, name, f"{key}={shown(share)} is not a number between 0 and 1")


def dropped(x: mo.Tensor, p: float, shape: Any) -> mo.Tensor:
    """Zeroes with probability p, drawn in a shape that broadcasts to x, and the rest scaled up."""
    if p == 1:
        return x * 0
    kept = mo.random.bernoulli(next_key(x.device), 1 - p, shape)
    return mo.where(kept, x * (1 / (1 - p)), mo.zeros((), dtype=x.dtype))


class Dropout(Module):
    """Each element is zeroed with probability p and the others divided by 1 - p; after training nothing changes.

    >>> mo.nn.Dropout(0.5).eval()(mo.ones(3)).numpy()
    array([1., 1., 1.], dtype=float32)
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        check_share(type(self).__name__, p=p)
        self.p, self.inplace = p, inplace  # the input keeps its value all the same

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        if not self.p or not self.training:
            return x
        return dropped(x, self.p, self.drawn(x))

    def drawn(self, x: mo.Tensor) -> tuple[int, ...]:
        """The shape in which is drawn: one number for every element."""
        return x.shape  # type: ignore[return-value]

    def describe(self) -> str:
        return f"p={self.p}"


class Dropout2d(Dropout):
    """Each channel of each example x[N, C, ...] is zeroed as a whole with probability p.

    >>> mo.nn.Dropout2d(0.5).eval()(mo.ones((1, 2, 3, 3))).shape
    (1, 2, 3, 3)
    """

    def drawn(self, x: mo.Tensor) -> tuple[int, ...]:
        if x.ndim < 3:
            raise fail(ShapeError, type(self).__name__, f"shape {tuple(x.shape)} is not [N, C, ...]", "use Dropout")
        return (*x.shape[:2], *(1 for _ in x.shape[2:]))  # type: ignore[arg-type]
