"""`mo.nn`: modules, layers, losses.

>>> model = mo.nn.Sequential(mo.nn.Linear(4, 8), mo.nn.GELU(), mo.nn.Linear(8, 2))
>>> print(model.summary().splitlines()[-1].split())
['total', '58']
"""

from morpho.nn import init, transformer
from morpho.nn.activations import GELU, SELU, Mish, ReLU, Sigmoid, SiLU, Softplus, Tanh
from morpho.nn.attention import KeyValueCache, MultiHeadAttention
from morpho.nn.containers import Lambda, ModuleList, Sequential
from morpho.nn.dropout import Dropout
from morpho.nn.frozen import Frozen
from morpho.nn.linear import Embedding, Linear
from morpho.nn.module import Module
from morpho.nn.norm import LayerNorm, RMSNorm
from morpho.nn.positions import LearnedPositions, RotaryPositions, SinusoidalPositions
from morpho.nn.quantised import QuantisedEmbedding, QuantisedLinear
from morpho.nn.random import seed
from morpho.nn.transformer import FeedForward, TransformerBlock, TransformerDecoderBlock
from morpho.tensor.variable import Buffer, Parameter

__all__ = [
    "Buffer", "Dropout", "Embedding", "FeedForward", "Frozen", "GELU", "KeyValueCache", "Lambda", "LayerNorm",
    "LearnedPositions", "Linear", "Mish", "Module", "ModuleList", "MultiHeadAttention", "Parameter",
    "QuantisedEmbedding", "QuantisedLinear", "RMSNorm", "ReLU", "RotaryPositions", "SELU", "Sequential", "SiLU",
    "Sigmoid", "SinusoidalPositions", "Softplus", "Tanh", "TransformerBlock", "TransformerDecoderBlock", "init",
    "seed", "transformer",
]
