"""Morpho: a whole step is one compiled function; text comes from `mo.models`."""

from __future__ import annotations

from typing import Any

import numpy as np

import morpho as mo
from benchmarks.peers import self_timed
from benchmarks.peers.morpho import gpt as gpt_morpho
from benchmarks.peers.morpho import kernels as morpho_peer
from benchmarks.peers.morpho import resnet as resnet_morpho
from benchmarks.peers.morpho import text as text_morpho
from benchmarks.peers.prepared import Prepared
from benchmarks.peers.two_steps import TwoSteps
from benchmarks.train import mlp
from morpho.ops.algebra import constant_like
from morpho.tensor.autodiff.gradient import pull_back

CASES_MODULE = "benchmarks.train.cases"
load = morpho_peer.load
STEPS = TwoSteps()


def gradients(loss: mo.Tensor, values: list[mo.Tensor]) -> list[mo.Tensor]:
    """Of a loss, with respect to each value."""
    nodes = pull_back([loss.node], [constant_like(loss.node, 1)], [value.node for value in values])
    return [mo.Tensor.of_node(node) for node in nodes]


def mlp_step(weights: dict[str, np.ndarray]) -> Any:
    """Forward, cross entropy, backward and SGD of two layers as one function."""
    states = {name: mo.State(array) for name, array in weights.items()}

    @mo.compile
    def step(x: mo.Tensor, classes: mo.Tensor) -> mo.Tensor:
        values = {name: state.value for name, state in states.items()}
        hidden = mo.relu(x @ values["weight1"] + values["bias1"])
        loss = mo.cross_entropy(hidden @ values["weight2"] + values["bias2"], classes)
        for (name, value), gradient in zip(values.items(), gradients(loss, list(values.values())), strict=True):
            states[name].value = value - mlp.LEARNING_RATE * gradient
        return loss

    return step


def prepare(name: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """The first call compiles; of a step of a large model it is made here, and both losses are checked."""
    if name.startswith("gpt_step"):
        return STEPS.prepared(*gpt_morpho.prepare(name, inputs))
    if name.startswith("resnet_step"):
        return STEPS.prepared(*resnet_morpho.prepare(name, inputs))
    if name.startswith("generate"):
        return Prepared(text_morpho.generation(name, inputs), ())
    if name.startswith("smollm2"):
        return self_timed.SelfTimed(text_morpho.smollm2(name, inputs), ())
    if name != "mlp_step":
        raise KeyError(name)
    arguments = tuple(mo.asarray(inputs[key], copy=True).realise() for key in ("x", "classes"))
    weights = {key: array for key, array in inputs.items() if key not in ("x", "classes")}
    return Prepared(mlp_step(weights), arguments)


def to_numpy(result: Any) -> tuple[Any, ...]:
    """Losses, tokens, or what a self-timed call made."""
    if isinstance(result, self_timed.Made):
        return self_timed.to_numpy(result)
    if isinstance(result, list):
        return (np.asarray(result),)
    return tuple(loss.numpy() for loss in STEPS.losses(result))
