"""What the gate counts: the cases of the suites at their sizes, and small models of every family.

A case is a call that would compile a function; the gate stops it there (`capture.trace`), so that inputs are zeros and
models have two layers of the bench's width: every further layer has the same kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.core import cases as core_cases
from benchmarks.core import fourier, functions, fusion, gelu, small_calls
from benchmarks.harness.compare import label
from benchmarks.kernels import attention, layers, matmul, mlp
from benchmarks.kernels import cases as kernel_cases
from benchmarks.kernels import gpt2 as gpt2_theme
from benchmarks.models import gpt2
from benchmarks.peers.morpho import core as core_peer
from benchmarks.peers.morpho import gpt as gpt_peer
from benchmarks.peers.morpho import kernels as kernel_peer
from benchmarks.peers.morpho import resnet as resnet_peer
from benchmarks.peers.morpho import train as train_peer
from benchmarks.train import gpt, mlp_step, resnet_cases
from benchmarks.train import mlp as mlp_cases
from morpho.nn.frozen import Frozen

Call = Callable[[], Any]
Shape = tuple[int, ...]
LOW_PRECISION = ("_bf16", "_f16", "_int8")
GPT2_LAYERS, GPT_LAYERS = 2, 2
BUDGET_SIZE = (4, 48, 3, 64, 8, 64)  # few weights beside the activations: these are what a budget can save
SMALL_MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"vocab_size": 97, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4},
    "llama": {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64},
    "bert-base": {"vocab_size": 97, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                  "intermediate_size": 128, "max_position_embeddings": 64},
    "vit-b16": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
                "image_size": 32, "patch_size": 8},
    "resnet18": {"width": 8, "num_classes": 10},
}
TEXT_MODELS = ("gpt2", "llama")


class Zeros:
    """Draws nothing: arrays of zeros where a generator of NumPy's would draw, without touching their memory."""

    def standard_normal(self, shape: Any = (), dtype: Any = np.float64) -> np.ndarray:
        return np.zeros(shape, dtype)

    def random(self, shape: Any = (), dtype: Any = np.float64) -> np.ndarray:
        return np.zeros(shape, dtype)

    def integers(self, low: int, high: int, shape: Any = (), dtype: Any = np.int64) -> np.ndarray:
        return np.zeros(shape, dtype)


@lru_cache(maxsize=8)
def zeros(shape: Shape, dtype: Any) -> mo.Tensor:
    """A tensor that owns its memory: captured ones are constants, which are packed once."""
    return mo.zeros(shape, dtype=dtype).realise()


def all_cases() -> dict[str, Call]:
    """Every case by name, in order."""
    return dict((*core(), *kernels(), *train(), *small_models()))


# ---------------------------------------------------------------------------------------------------------------- core
def core() -> Iterator[tuple[str, Call]]:
    """The themes of `morpho bench core` that call compiled functions."""
    sizes: list[tuple[str, Shape]] = [("add", (n,)) for n in sorted({*small_calls.COST_LIMITS, *small_calls.LARGE})]
    sizes += [("triad", (small_calls.LARGE[-1],)), ("chain20", (1024,))]
    sizes += [("gelu", shape) for shape in gelu.SHAPES]
    sizes += [(name, shape) for shape in fusion.SIZES.values() for name in fusion.NAMES]
    sizes += [(f"function {name}", (functions.ELEMENTS,)) for name in core_cases.FUNCTIONS]
    sizes += [(f"fourier {name}", shape) for name, shape in fourier.TRANSFORMS]
    for case, shape in sizes:
        yield f"core/{case} {label(shape)}", lambda case=case, shape=shape: core_call(case, shape)


def core_call(case: str, shape: Shape) -> Any:
    prepared = core_peer.prepare(case, core_cases.CASES[case].inputs(Zeros(), shape))  # type: ignore[arg-type]
    return prepared.function(*prepared.arguments, **prepared.keywords)


# ------------------------------------------------------------------------------------------------------------- kernels
def kernels() -> Iterator[tuple[str, Call]]:
    """The themes of `morpho bench kernels`."""
    sizes: list[tuple[str, Shape]] = []
    for kind in ("", *LOW_PRECISION):
        sizes += [(f"matmul{kind}", (n, n, n)) for n in matmul.SQUARES]
        sizes += [(f"linear{kind}", shape) for shape in sorted(matmul.shapes(quick=False), key=math.prod)]
    sizes += [(case, shape) for case in layers.TITLES for shape in layers.SHAPES]
    sizes += [("norm_linear", shape) for shape in layers.HEADS]
    sizes += [("conv_bn_relu", shape) for shape in layers.CONVOLUTIONS]
    sizes += [*attention.CASES, ("attention", attention.LONG), ("mlp", mlp.SHAPE)]
    for case, shape in sizes:
        yield f"kernels/{case} {label(shape)}", lambda case=case, shape=shape: kernel_call(case, shape)
    for case, shapes in gpt2_theme.CASES.items():
        for shape in shapes:
            yield f"kernels/{case} {label(shape)}", lambda case=case, shape=shape: gpt2_call(case, shape)


def kernel_call(name: str, shape: Shape) -> Any:
    case = kernel_cases.of(name)
    kind = getattr(mo, case.dtype)
    arrays = case.inputs(Zeros(), shape)  # type: ignore[arg-type]
    function, arguments = kernel_peer.compiled(name, {key: zeros(array.shape, kind) for key, array in arrays.items()})
    return function(*arguments)


@lru_cache(maxsize=1)
def small_gpt2(dtype: str) -> gpt_peer.Inference:
    """GPT-2's width, head and vocabulary, with fewer layers."""
    size = gpt2.SMALL._replace(layers=GPT2_LAYERS)
    weights = {name: np.zeros(shape, np.float32) for name, shape in gpt2.shapes(size).items()}
    return gpt_peer.Inference(weights, dtype, size.heads)


def gpt2_call(case: str, shape: Shape) -> Any:
    model = small_gpt2(kernel_cases.of(case).dtype)
    if "decode" not in case:
        return model.forward(zeros(shape, mo.int64))
    batch, past = shape
    size = gpt2.SMALL
    cache = np.zeros((GPT2_LAYERS, 2, batch, size.heads, past + 1, size.head_width), np.float32)
    return model.decoder(cache)(zeros((batch, 1), mo.int64), mo.asarray(past))


# --------------------------------------------------------------------------------------------------------------- train
def train() -> Iterator[tuple[str, Call]]:
    """The steps of `morpho bench train`."""
    for shape in mlp_step.SHAPES:
        yield f"train/mlp_step {label(shape)}", lambda shape=shape: mlp_step_call(shape)
    for case in ("gpt_step", "gpt_step_bf16", "gpt_step_checkpoint"):
        yield f"train/{case}", lambda case=case: gpt_step_call(case)
    yield "train/gpt_step memory_budget=0.8", lambda: gpt_step_call("gpt_step", 0.8, BUDGET_SIZE)
    yield "train/resnet_step", lambda: run(*resnet_peer.prepare("resnet_step", resnet_cases.make_inputs(
        "resnet_step", resnet_cases.SIZE)))


def run(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return function(*arguments)


def mlp_step_call(shape: Shape) -> Any:
    prepared = train_peer.prepare("mlp_step", mlp_cases.make_inputs("mlp_step", shape))
    return prepared.function(*prepared.arguments)


def gpt_step_call(case: str, memory_budget: float | None = None, size: Shape = (GPT_LAYERS, *gpt.SIZE[1:])) -> Any:
    step, arguments = gpt_peer.prepare(case, gpt.make_inputs(case, size))
    return (gpt_peer.compile_step(case, memory_budget) if memory_budget else step)(*arguments)


# -------------------------------------------------------------------------------------------------------- small models
def small_models() -> Iterator[tuple[str, Call]]:
    """A forward pass of every family; of those that make text, a prompt of any length and a token."""
    for name in SMALL_MODELS:
        yield f"models/{name} forward", lambda name=name: forward(name)(*model_inputs(name))
    for name in TEXT_MODELS:
        yield f"models/{name} prefill", lambda name=name: generator(name).start([1, 2, 3])
        yield f"models/{name} decode", lambda name=name: generator(name).step(1)


def model_inputs(name: str) -> tuple[mo.Tensor, ...]:
    """A batch of images or of tokens."""
    if name in ("vit-b16", "resnet18"):
        return (zeros((2, 3, 32, 32), mo.float32),)
    return (zeros((2, 16), mo.int64),)


def forward(name: str) -> Any:
    """The compiled forward pass of a small model, its weights constants."""
    model = mo.models.create(name, **SMALL_MODELS[name]).eval()
    frozen = Frozen(model)

    @mo.compile
    def call(x: mo.Tensor) -> Any:
        frozen.use()
        with mo.no_grad():
            return model(x)

    return call


def generator(name: str) -> mo.models.Generator:
    """Text from a small model."""
    return mo.models.Generator(mo.models.create(name, **SMALL_MODELS[name]).eval())
