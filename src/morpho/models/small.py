"""Two small models to begin with: layers of products, and convolutions before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import morpho as mo
from morpho.models.base import Model
from morpho.models.config import Config
from morpho.models.family import Family
from morpho.nn.containers import ModuleList
from morpho.nn.layers.convolution import Conv2d
from morpho.nn.layers.dropout import Dropout
from morpho.nn.layers.linear import Linear
from morpho.nn.transformer.blocks import ACTIVATIONS, activation
from morpho.weights.keys import Kind, one_of


@dataclass
class MLPConfig(Config):
    """The settings of an MLP: its widths from input to output."""

    inputs: int = 64
    hidden: list[int] = field(default_factory=lambda: [64, 64])
    outputs: int = 10
    activation: str = "relu"
    dropout: float = 0.0
    kinds: ClassVar[Mapping[str, Kind]] = {"activation": one_of(*ACTIVATIONS)}


class MLP(Model):
    """Products with a function between: (batch, inputs) -> (batch, outputs); further axes of x are flattened.

    >>> mo.models.create("mlp", inputs=4, hidden=[8])(mo.zeros((3, 2, 2))).shape
    (3, 10)
    """

    model_type = "mlp"
    config_class = MLPConfig

    def __init__(self, config: MLPConfig, dtype: Any = mo.float32) -> None:
        self._configure(config)
        self._function = activation(config.activation)
        widths = [config.inputs, *config.hidden, config.outputs]
        self.layers = ModuleList(Linear(a, b, True, dtype) for a, b in pairwise(widths))
        self.dropout = Dropout(config.dropout)

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        x = x if x.ndim == 2 else mo.reshape(x, (x.shape[0], self.config["inputs"]))
        *first, last = self.layers
        for layer in first:
            x = self.dropout(self._function(layer(x)))
        return last(x)  # type: ignore[no-any-return]


@dataclass
class CNNConfig(Config):
    """The settings of a small convolutional net for square images."""

    channels: int = 1
    size: int = 28
    widths: list[int] = field(default_factory=lambda: [16, 32])
    hidden: int = 64
    outputs: int = 10
    dropout: float = 0.0


class CNN(Model):
    """Convolutions of size 3, each halving the image, then two products: (batch, channels, size, size) -> (batch,
    outputs).

    >>> mo.models.create("cnn", size=8, widths=[4], hidden=8)(mo.zeros((3, 1, 8, 8))).shape
    (3, 10)
    """

    model_type = "cnn"
    config_class = CNNConfig

    def __init__(self, config: CNNConfig, dtype: Any = mo.float32) -> None:
        self._configure(config)
        widths = [config.channels, *config.widths]
        self.convolutions = ModuleList(Conv2d(a, b, 3, padding=1, dtype=dtype)
                                       for a, b in pairwise(widths))
        left = config.size >> len(config.widths)
        self.hidden = Linear(widths[-1] * left * left, config.hidden, True, dtype)
        self.output = Linear(config.hidden, config.outputs, True, dtype)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        for convolution in self.convolutions:
            x = mo.max_pool2d(mo.relu(convolution(x)), 2)
        x = mo.reshape(x, (x.shape[0], self.hidden.in_features))
        return self.output(self.dropout(mo.relu(self.hidden(x))))  # type: ignore[no-any-return]


FAMILIES = (Family("mlp", MLP, {"mlp": {}}), Family("cnn", CNN, {"cnn": {}}))
