"""Checkpoints: gradients with the bits of the plain run, and memory that does not grow with what lies between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.ir.node import build
from morpho.ops.algebra import constant_like
from morpho.ops.sources import pick
from morpho.tensor.autodiff.gradient import pull_back
from morpho.tensor.core import Tensor

ROWS, WIDTH, HEADS = 24, 16, 2
Params = dict[str, Any]


def bits(*tensors: Tensor) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in tensors]


def draw(rng: np.random.Generator, *shape: int) -> Tensor:
    return mo.asarray(rng.normal(0, 0.4, shape).astype(np.float32), copy=True)


def block_weights(rng: np.random.Generator) -> Params:
    return {"qkv": draw(rng, WIDTH, 3 * WIDTH), "out": draw(rng, WIDTH, WIDTH), "up": draw(rng, WIDTH, 4 * WIDTH),
            "bias": draw(rng, 4 * WIDTH), "down": draw(rng, 4 * WIDTH, WIDTH), "gain": draw(rng, WIDTH)}


def dropout(x: Tensor, key: Tensor) -> Tensor:
    return mo.where(mo.random.bernoulli(key, 0.9, x.shape), x * (1 / 0.9), 0.0)


def block(p: Params, x: Tensor, key: Tensor) -> Tensor:
    """A transformer's block: norm, attention, dropout, norm, two products with gelu, dropout."""
    keys = mo.random.split(key, 2)
    heads = mo.permute_dims(mo.reshape(mo.rms_norm(x, p["gain"]) @ p["qkv"], (ROWS, 3, HEADS, -1)), (1, 2, 0, 3))
    seen = mo.attention(heads[0], heads[1], heads[2], causal=True)
    x = x + dropout(mo.reshape(mo.permute_dims(seen, (1, 0, 2)), (ROWS, WIDTH)) @ p["out"], keys[0])
    return x + dropout(mo.gelu(mo.layer_norm(x) @ p["up"] + p["bias"]) @ p["down"], keys[1])


def loss(weights: list[Params], x: Tensor, key: Tensor, run: Callable[..., Any]) -> Tensor:
    keys = mo.random.split(key, len(weights))
    for number, p in enumerate(weights):
        x = run(block, p, x, keys[number])
    return mo.mean(mo.square(x))


def plainly(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    return function(*args, **named)


def gradients(value: Tensor, *leaves: Tensor) -> list[Tensor]:
    found = pull_back([value.node], [constant_like(value.node, 1)], [leaf.node for leaf in leaves])
    return [Tensor.of_node(node) for node in found]


def stepped(run: Callable[..., Any]) -> Any:
    def step(weights: list[Params], x: Tensor, key: Tensor) -> list[Tensor]:
        value = loss(weights, x, key, run)
        return [value, *gradients(value, x, *[leaf for p in weights for leaf in p.values()])]

    return mo.compile(step)


# -- the same bits -----------------------------------------------------------------------------------------------------
def test_a_transformer_with_dropout(rng: np.random.Generator) -> None:
    """The bits of the plain run, and what lies between is not kept."""
    weights, x, key = [block_weights(rng) for _ in range(4)], draw(rng, ROWS, WIDTH), mo.random.key(7)
    plain, thrifty = stepped(plainly), stepped(mo.checkpoint)
    wanted = bits(*plain(weights, x, key))
    assert bits(*thrifty(weights, x, key)) == wanted
    assert thrifty.stats["arena_bytes"] <= 0.5 * plain.stats["arena_bytes"], thrifty.stats["arena_bytes"]
    assert plain.stats["flops"] < thrifty.stats["flops"] < 1.5 * plain.stats["flops"]
    with mo.settings(device="reference"):
        assert bits(*thrifty(weights, x, key)) == bits(*plain(weights, x, key))


def test_levels_and_eager_evaluation(rng: np.random.Generator) -> None:
    x, w, key = draw(rng, 8, 8), draw(rng, 8, 8), mo.random.key(1)

    def value(x: Tensor, run: Callable[..., Any]) -> Tensor:
        return run(lambda x: dropout(mo.tanh(mo.layer_norm(x) @ w), key) * x, x).sum()

    wanted = bits(*gradients(value(x, plainly), x, w))
    for level in (0, 1, 2, 3):
        with mo.settings(level=level):
            assert bits(*gradients(value(x, mo.checkpoint), x, w)) == wanted


def test_several_inputs_and_outputs_in_trees(rng: np.random.Generator) -> None:
    """Also captured tensors, a state, named arguments, numbers among the results, and an argument handed through."""
    w, state = draw(rng, 5, 5), mo.State(draw(rng, 5))

    def region(pair: tuple[Tensor, Tensor], scale: float = 1.0) -> dict[str, Any]:
        a, b = pair
        h = mo.tanh(a @ w + state.value)
        return {"h": [h, mo.exp(h * scale) * b], "n": 3, "same": a}

    def value(a: Tensor, b: Tensor, run: Callable[..., Any]) -> Tensor:
        found = run(region, (a, b), scale=0.5)
        assert found["n"] == 3
        return (found["h"][1] * a).sum() + mo.sin(found["h"][0]).sum() + (found["same"] * b).sum()

    def step(a: Tensor, b: Tensor, run: Callable[..., Any]) -> list[Tensor]:
        return gradients(value(a, b, run), a, b, w, state.value)

    a, b = draw(rng, 4, 5), draw(rng, 4, 5)
    assert bits(*mo.compile(lambda a, b: step(a, b, plainly))(a, b)) == \
        bits(*mo.compile(lambda a, b: step(a, b, mo.checkpoint))(a, b))


def test_sums_of_many_parts_keep_their_order(rng: np.random.Generator) -> None:
    """x is read inside and outside, so that its gradient is a sum of many parts, whose order shows in the bits."""
    a, b = draw(rng, 64), draw(rng, 64)

    def value(x: Tensor, run: Callable[..., Any]) -> Tensor:
        y, z = run(lambda x: (mo.exp(x) * x + mo.sin(x) * b, mo.cos(x) / (x * x + 1)), x)
        first = z * x + mo.tanh(x)
        second = run(lambda x, y: mo.exp(x * y) + x * b, x, y)
        return (first * second * x + y).sum()

    found = [bits(mo.grad(lambda x, run=run: value(x, run))(a)) for run in (plainly, mo.checkpoint)]
    assert found[0] == found[1]


def test_nested(rng: np.random.Generator) -> None:
    x, w = draw(rng, 8, 8), draw(rng, 8, 8)

    def inner(x: Tensor) -> Tensor:
        return mo.gelu(x @ w) + x

    def value(x: Tensor, run: Callable[..., Any]) -> Tensor:
        def outer(x: Tensor) -> Tensor:
            return mo.tanh(run(inner, run(inner, mo.exp(x)))) * x

        return run(outer, run(outer, x)).sum()

    found = [bits(*gradients(value(x, run), x, w)) for run in (plainly, mo.checkpoint)]
    assert found[0] == found[1]


def test_gradients_of_gradients(rng: np.random.Generator) -> None:
    x = draw(rng, 16)

    def value(x: Tensor, run: Callable[..., Any]) -> Tensor:
        slope = mo.grad(lambda x: run(lambda x: mo.exp(mo.sin(x)) * x, x).sum())(x)
        return (slope * slope).sum()

    def twice(run: Callable[..., Any]) -> Any:
        return mo.compile(lambda x: mo.grad(lambda x: value(x, run))(x))

    assert bits(twice(plainly)(x)) == bits(twice(mo.checkpoint)(x))
    outside = mo.compile(lambda x: mo.grad(lambda y: mo.checkpoint(lambda z: value(z, plainly), y))(x))
    assert bits(outside(x)) == bits(twice(plainly)(x))


def test_a_leaf_inside_a_region(rng: np.random.Generator) -> None:
    """Gradients with respect to a value that the region computes."""
    x, held = draw(rng, 6), []

    def region(x: Tensor) -> Tensor:
        held.append(mo.exp(x))
        return mo.sin(held[-1]) * held[-1]

    found = []
    for run in (plainly, mo.checkpoint):
        value = run(region, x).sum()
        found.append(bits(*gradients(value, held[-1])))
    assert found[0] == found[1]
    assert any(np.frombuffer(found[0][0], np.float32))


def test_dynamic_sizes(rng: np.random.Generator) -> None:
    w, n = draw(rng, 6, 6), mo.Dim("n", 1, 64)

    def step(x: Tensor) -> Tensor:
        return mo.grad(lambda x: mo.checkpoint(lambda x: mo.softmax(mo.gelu(x @ w), axis=-1), x).max(axis=-1).sum())(x)

    compiled = mo.compile(step, dynamic={"x": {0: n}})
    for rows in (1, 7, 64):
        x = draw(rng, rows, 6)
        assert bits(compiled(x)) == bits(mo.compile(step)(x))
    assert compiled.stats["recompiles"] == 0


def test_nothing_changes_without_a_gradient(rng: np.random.Generator) -> None:
    x = draw(rng, 8)
    plain, marked = mo.compile(lambda x: mo.exp(x) * 2), mo.compile(lambda x: mo.checkpoint(lambda x: mo.exp(x) * 2, x))
    assert bits(plain(x)) == bits(marked(x))
    assert plain.stats["kernels"] == marked.stats["kernels"] == 1
    assert mo.checkpoint(lambda: 3) == 3 and mo.checkpoint(mo.ones, 2).numpy().tolist() == [1.0, 1.0]


# -- memory ------------------------------------------------------------------------------------------------------------
def deep(segments: int, rng: np.random.Generator) -> tuple[list[bytes], int]:
    """Gradients of 16 layers of 64 x 64, in so many segments, and the bytes of their arena."""
    weights = [draw(rng, 64, 64) for _ in range(16)]

    def step(weights: list[Tensor], x: Tensor) -> list[Tensor]:
        layers = [lambda x, w=w: mo.tanh(x @ w) for w in weights]
        value = mo.checkpoint_sequential(layers, segments, x).sum()
        return gradients(value, *weights)

    compiled = mo.compile(step)
    return bits(*compiled(weights, draw(rng, 64, 64))), compiled.stats["arena_bytes"]


def test_a_deep_chain_keeps_the_root_of_its_length() -> None:
    """One segment keeps 16 results of 16 kB; four keep 3 and what one segment needs, its packed operands included."""
    found = {segments: deep(segments, np.random.default_rng(3)) for segments in (1, 4)}
    assert found[1][0] == found[4][0]
    assert found[1][1] >= 16 * 64 * 64 * 4
    assert found[4][1] <= 0.4 * found[1][1] and found[4][1] <= 12 * 64 * 64 * 4, found[4][1]


def test_a_value_picked_inside_from_a_node_outside() -> None:
    """A node of several outputs outside the region, of which the region is the first to take one."""
    made = build("eigh", mo.asarray([[2.0, 1.0], [1.0, 3.0]]).program())
    found = []
    for call in (mo.checkpoint, lambda function, x: function(x)):
        x = mo.asarray([0.5, 1.5]).requires_grad_()
        mo.sum(call(lambda x: mo.exp(x) * Tensor.of_node(pick(made, 0)), x)).backward()
        found.append(x.grad.numpy().tolist())
    assert found[0] == found[1]


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="not a function"):
        mo.checkpoint(mo.ones(3), mo.ones(3))  # type: ignore[arg-type]
    for segments in (0, 3, True, 1.5):
        with pytest.raises(ArgumentError, match="segments"):
            mo.checkpoint_sequential([mo.exp, mo.sin], segments, mo.ones(3))  # type: ignore[arg-type]


def test_hooks_see_gradients_at_a_checkpoint() -> None:
    seen: list[tuple[int, ...]] = []
    w = mo.ones(3).requires_grad_()
    result = mo.nn.checkpoint(lambda x: mo.exp(x) * 2, w)
    result.register_hook(lambda gradient: seen.append(gradient.shape))
    (result * result).sum().backward()
    assert seen == [(3,)] and w.grad is not None
