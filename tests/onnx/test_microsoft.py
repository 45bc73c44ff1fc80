"""Operators of com.microsoft against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_building import helper, model, onnx, runtime, value

import morpho as mo

RNG = np.random.default_rng(5)
MS = "com.microsoft"


def f(*shape: int) -> Any:
    return (RNG.standard_normal(shape) * 0.5).astype(np.float32)


def q(*shape: int) -> Any:
    return RNG.integers(0, 255, shape).astype(np.uint8)


S, Z = np.float32(0.02), np.uint8(120)
IDS, KINDS = (RNG.integers(0, most, (2, 5)).astype(np.int32) for most in (9, 2))
MASK = np.ones((2, 5), np.int32)
MASK[1, 3:] = 0
# operator: inputs (None: absent), attributes, how many outputs are compared
CASES: dict[str, tuple[list[Any], dict[str, Any], int]] = {
    "FusedMatMul": ([f(2, 3, 4), f(2, 5, 4)], {"transB": 1, "alpha": 0.5}, 1),
    "Gelu": ([f(3, 4)], {}, 1), "BiasGelu": ([f(3, 4), f(4)], {}, 1), "FastGelu": ([f(3, 4), f(4)], {}, 1),
    "QuickGelu": ([f(3, 4)], {"alpha": 1.702}, 1),
    "FusedConv": ([f(1, 2, 5, 5), f(3, 2, 3, 3), f(3)], {"activation": "Relu", "pads": [1, 1, 1, 1]}, 1),
    "FusedGemm": ([f(3, 4), f(4, 5), f(5)], {"activation": "Relu"}, 1),
    "SkipLayerNormalization": ([f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)], {"epsilon": 1e-5}, 1),
    "SkipSimplifiedLayerNormalization": ([f(2, 3, 8), f(2, 3, 8), f(8)], {"epsilon": 1e-5}, 1),
    "EmbedLayerNormalization": ([IDS, KINDS, f(9, 8), f(6, 8), f(2, 8), f(8), f(8), MASK], {"epsilon": 1e-5}, 1),
    "Attention": ([f(2, 5, 8), f(8, 24), f(24), MASK], {"num_heads": 2}, 1),
    "MultiHeadAttention": ([f(2, 5, 8), f(2, 5, 8), f(2, 5, 8), f(24)], {"num_heads": 2}, 1),
    "RotaryEmbedding": ([f(2, 5, 16), np.asarray([0], np.int64), f(8, 4), f(8, 4)], {"num_heads": 2}, 1),
    "QLinearAdd": ([q(3, 4), S, Z, q(3, 4), S, Z, np.float32(0.05), Z], {}, 1),
    "QLinearMul": ([q(3, 4), S, Z, q(3, 4), S, Z, np.float32(0.05), Z], {}, 1),
    "QLinearSigmoid": ([q(3, 4), S, Z, np.float32(1 / 256), np.uint8(0)], {}, 1),
    "QLinearLeakyRelu": ([q(3, 4), S, Z, S, Z], {"alpha": 0.1}, 1),
    "QLinearGlobalAveragePool": ([q(1, 3, 4, 4), S, Z, S, Z], {"channels_last": 0}, 1),
    "QLinearConcat": ([S, Z, q(2, 3), S, Z, q(2, 4), np.float32(0.04), Z], {"axis": 1}, 1),
    "MatMulIntegerToFloat": ([q(3, 4), q(4, 5), S, S, Z, Z], {}, 1),
    "DynamicQuantizeMatMul": ([f(3, 4), q(4, 5), S, Z], {}, 1),
    "MatMulNBits": ([f(3, 32), q(6, 2, 8), f(12)], {"K": 32, "N": 6, "bits": 4, "block_size": 16}, 1),
}


@pytest.mark.parametrize("op", CASES)
def test_equals_the_runtime(op: str) -> None:
    arrays, attributes, count = CASES[op]
    names = [f"x{at}" for at in range(len(arrays))]
    constant = {"MatMulNBits": {1, 2}, "DynamicQuantizeMatMul": {1, 2, 3}}.get(op, set())
    given = {name: np.asarray(array) for at, (name, array) in enumerate(zip(names, arrays)) if at not in constant}
    extra = ["m"] if op == "EmbedLayerNormalization" else []
    node = helper.make_node(op, names, [*(f"y{at}" for at in range(count)), *extra], domain=MS, **attributes)
    inputs = [value(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype)) for name, array in given.items()]
    outputs = [onnx.ValueInfoProto(name=f"y{at}") for at in range(count)]
    data = model([node], inputs, outputs, {names[at]: np.asarray(arrays[at]) for at in constant},
                 opsets=[helper.make_opsetid(MS, 1)])
    expected = runtime(data, given)
    got = [np.asarray(value) for value in mo.onnx.loads(data).run(given).values()]
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == theirs.dtype
        if theirs.dtype == np.uint8:  # a rounding of a half may go either way
            assert np.abs(ours.astype(int) - theirs).max() <= 1
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=2e-3 if "Fast" in op or "Gelu" in op else 1e-4)


def compared(op: str, arrays: list[Any], attributes: dict[str, Any], outputs: int = 1, keep: Any = None,
             weights: tuple[int, ...] = ()) -> None:
    """One node against ONNX Runtime; `keep` picks what is defined of an output, `weights` are constants."""
    names = [f"x{at}" if array is not None else "" for at, array in enumerate(arrays)]
    given = {name: np.asarray(array) for at, (name, array) in enumerate(zip(names, arrays))
             if name and at not in weights}
    results = [f"y{at}" for at in range(outputs)]
    inputs = [value(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype)) for name, array in given.items()]
    data = model([helper.make_node(op, names, results, domain=MS, **attributes)], inputs,
                 [onnx.ValueInfoProto(name=name) for name in results], {names[at]: arrays[at] for at in weights},
                 opsets=[helper.make_opsetid(MS, 1)])
    expected, got = runtime(data, given), mo.onnx.loads(data).run(given).values()
    for at, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        ours = np.asarray(ours)
        assert ours.shape == theirs.shape
        if keep is not None and at == 0:
            ours, theirs = ours[keep], theirs[keep]
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


# new tokens, length of the cache, total, lengths of the rows less one; rows of unequal lengths
CACHES = [(3, None, 3, [2, 1]), (3, 0, 3, [2, 1]), (1, 4, 5, [4, 2]), (1, 6, 5, [4, 2]), (1, 4, 3, [2, 0]),
          (3, 5, 3, [2, 1])]


@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize(("length", "cache", "total", "lengths"), CACHES)
def test_rows_of_a_cache_have_lengths_of_their_own(rotary: int, length: int, cache: int | None, total: int,
                                                   lengths: list[int]) -> None:
    """`seqlens_k` says where a row's new keys stand; what follows them is zeros. Caches grow, or keep one length."""
    past = [None, None] if cache is None else [f(2, 1, cache, 16), f(2, 1, cache, 16)]
    arrays = [f(2, length, 32), f(2, length, 16), f(2, length, 16), *past, np.asarray(lengths, np.int32),
              np.asarray([total], np.int32), *([f(9, 8), f(9, 8)] if rotary else [])]
    real = np.arange(length) < (np.asarray(lengths)[:, None] + 1)  # outputs for padding are anything
    compared("GroupQueryAttention", arrays, {"num_heads": 2, "kv_num_heads": 1, "do_rotary": rotary}, 3, real, (6,))


@pytest.mark.parametrize("window", [1, 2, 3, 9])
@pytest.mark.parametrize("bias", [False, True])
def test_a_query_sees_a_window_of_keys(window: int, bias: bool) -> None:
    """Prompts, a long cache, rows of unequal lengths; a bias of the scores takes the other way of computing them."""
    for length, cache, total, lengths in [CACHES[0], (1, 6, 7, [6, 3])] if bias else [*CACHES, (1, 6, 7, [6, 3])]:
        past = [None, None] if cache is None else [f(2, 1, cache, 16), f(2, 1, cache, 16)]
        added = [None, None, None, f(2, 2, length, total)] if bias else []
        arrays = [f(2, length, 32), f(2, length, 16), f(2, length, 16), *past, np.asarray(lengths, np.int32),
                  np.asarray([total], np.int32), *added]
        real = np.arange(length) < (np.asarray(lengths)[:, None] + 1)
        compared("GroupQueryAttention", arrays, {"num_heads": 2, "kv_num_heads": 1, "local_window_size": window}, 3,
                 real, (6,))


@pytest.mark.parametrize("window", [0, -2])
def test_a_window_of_no_keys_is_refused(window: int) -> None:
    arrays = [f(2, 1, 32), f(2, 1, 16), f(2, 1, 16), None, None, np.zeros(2, np.int32), np.ones(1, np.int32)]
    with pytest.raises(ValueError, match=f"local_window_size is {window}, not a number of keys from 1 on"):
        given_to("GroupQueryAttention", arrays, num_heads=2, kv_num_heads=1, local_window_size=window)


def growing() -> Any:
    """Attention as exporters write it: lengths and total are computed from a mask, and all sizes are symbols."""
    int32 = onnx.TensorProto.INT32
    nodes = [helper.make_node("ReduceSum", ["mask", "axis"], ["counts"], keepdims=0),
             helper.make_node("Sub", ["counts", "one"], ["less"]), helper.make_node("Cast", ["less"], ["s"], to=int32),
             helper.make_node("Shape", ["mask"], ["sizes"]), helper.make_node("Gather", ["sizes", "one"], ["last"]),
             helper.make_node("Cast", ["last"], ["t"], to=int32),
             helper.make_node("GroupQueryAttention", ["q", "k", "v", "pk", "pv", "s", "t"], ["y", "key", "value"],
                              domain=MS, num_heads=2, kv_num_heads=1)]
    shapes = {"q": ["b", "s", 32], "k": ["b", "s", 16], "v": ["b", "s", 16], "pk": ["b", 1, "p", 16],
              "pv": ["b", 1, "p", 16]}
    inputs = [*(value(name, shape) for name, shape in shapes.items()),
              value("mask", ["b", "t"], onnx.TensorProto.INT64)]
    return model(nodes, inputs, [onnx.ValueInfoProto(name=name) for name in ("y", "key", "value")],
                 {"axis": np.asarray([1]), "one": np.asarray(1)}, opsets=[helper.make_opsetid(MS, 1)])


def test_one_network_takes_caches_of_both_kinds() -> None:
    data = growing()
    network = mo.onnx.loads(data)
    for past, total, lengths in [(3, 4, [4, 2]), (4, 5, [5, 3]), (6, 4, [4, 1])]:
        mask = (np.arange(total) < np.asarray(lengths)[:, None]).astype(np.int64)
        feed = {"q": f(2, 1, 32), "k": f(2, 1, 16), "v": f(2, 1, 16), "pk": f(2, 1, past, 16), "pv": f(2, 1, past, 16),
                "mask": mask}
        for ours, theirs in zip(network.run(feed).values(), runtime(data, feed), strict=True):
            np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrong", [9, -3])
def test_a_length_outside_of_the_cache_is_an_error(wrong: int) -> None:
    arrays = [f(2, 1, 32), f(2, 1, 16), f(2, 1, 16), f(2, 1, 4, 16), f(2, 1, 4, 16), np.asarray([wrong, 2], np.int32),
              np.asarray([5], np.int32)]
    with pytest.raises(IndexError, match="out of range for an axis of size 5"):
        given_to("GroupQueryAttention", arrays, num_heads=2, kv_num_heads=1)


def given_to(op: str, arrays: list[Any], **attributes: Any) -> list[Any]:
    """What one node makes of arrays, without a reference."""
    names = [f"x{at}" if array is not None else "" for at, array in enumerate(arrays)]
    given = {name: array for name, array in zip(names, arrays) if name}
    inputs = [value(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype)) for name, array in given.items()]
    data = model([helper.make_node(op, names, ["y"], domain=MS, **attributes)], inputs, [onnx.ValueInfoProto(name="y")],
                 opsets=[helper.make_opsetid(MS, 1)])
    return [np.asarray(item) for item in mo.onnx.loads(data).run(given).values()]


@pytest.mark.parametrize("mask", [[3, 2], [3, 2, 0, 1]])
def test_masks_of_lengths_and_of_ends_and_starts(mask: list[int]) -> None:
    compared("Attention", [f(2, 3, 8), f(8, 24), f(24), np.asarray(mask, np.int32)], {"num_heads": 2})


def test_ends_and_starts_of_one_row_are_no_two_lengths() -> None:
    compared("Attention", [f(1, 3, 8), f(8, 24), f(24), np.asarray([3, 1], np.int32)], {"num_heads": 2})


def test_packed_attention_takes_its_bias() -> None:
    q, k, v, bias = f(2, 3, 8), f(2, 3, 8), f(2, 3, 8), f(24)
    packed = np.stack([part.reshape(2, 3, 2, 4) for part in (q, k, v)], axis=3)
    ours = given_to("MultiHeadAttention", [packed, None, None, bias], num_heads=2)
    np.testing.assert_allclose(ours[0], given_to("MultiHeadAttention", [q, k, v, bias], num_heads=2)[0], atol=1e-6)


REFUSED = [([f(2, 3, 2, 3, 4), f(2, 3, 8)], "a key without value"),
           ([f(2, 3, 8), f(2, 3, 8), f(2, 3, 8), f(8)], "a bias of 8 numbers is none for widths of 8, 8 and 8"),
           ([f(2, 3, 8), f(2, 3, 8), f(2, 3, 8), None, np.ones(8, np.int32)], "a mask of 8 numbers for 2 rows")]


@pytest.mark.parametrize(("arrays", "told"), REFUSED)
def test_inputs_of_attention_that_are_not_computed_are_refused(arrays: list[Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        given_to("MultiHeadAttention", arrays, num_heads=2)
