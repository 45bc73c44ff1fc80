"""Dropout: while training, elements are zeroed at random and the rest scaled up."""

from __future__ import annotations

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.nn.module import Module
from morpho.nn.random import next_key


class Dropout(Module):
    """Each element is zeroed with probability p and the others divided by 1 - p; after training nothing changes.

    >>> mo.nn.Dropout(0.5).eval()(mo.ones(3)).numpy()
    array([1., 1., 1.], dtype=float32)
    """

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p < 1:
            raise fail(ArgumentError, "Dropout", f"p={p} does not lie in [0, 1)")
        self.p = p

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        if not self.p or not self.training:
            return x
        kept = mo.random.bernoulli(next_key(), 1 - self.p, x.shape)
        return mo.where(kept, x * (1 / (1 - self.p)), mo.zeros((), dtype=x.dtype))

    def describe(self) -> str:
        return f"p={self.p}"
