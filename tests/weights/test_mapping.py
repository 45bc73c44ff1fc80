"""Rules from names to names: every transform, and one error that lists all that does not fit."""

from __future__ import annotations

import numpy as np
import pytest

import morpho as mo
from morpho.weights import Rule, concat, match, reshape, split, transpose, unpermute


def numbers(*shape: int) -> mo.Tensor:
    return mo.reshape(mo.arange(int(np.prod(shape)), dtype="float32"), shape)


def test_names_as_they_are() -> None:
    """Without rules, in the order of the model, shapes given as shapes or as tensors."""
    found = match({"b": numbers(2), "a": numbers(3)}, {"a": (3,), "b": numbers(2)})
    assert list(found) == ["a", "b"] and found["a"].tolist() == [0, 1, 2]


def test_places_and_optional_parts() -> None:
    """Parts of names, anything, and prefixes that some files have."""
    table = [Rule("(model.)layers.{i}.{part}.weight", "blocks.{i}.{part}"), Rule("{rest:*}.inv_freq", None),
             Rule("(model.)embed.weight", "embed")]
    wanted = {"blocks.0.up": (2,), "blocks.11.up": (2,), "embed": (3,)}
    for prefix in ("", "model."):
        file = {f"{prefix}layers.0.up.weight": numbers(2), f"{prefix}layers.11.up.weight": numbers(2) + 5,
                f"{prefix}embed.weight": numbers(3), "layers.0.rotary.inv_freq": numbers(1)}
        found = match(file, wanted, table)
        assert list(found) == list(wanted) and found["blocks.11.up"].tolist() == [5, 6]


def test_the_first_rule_counts() -> None:
    table = [Rule("a.{x}", "first.{x}"), Rule("{x}.b", "second.{x}")]
    assert list(match({"a.b": numbers(1)}, {"first.b": (1,)}, table)) == ["first.b"]


def test_transforms() -> None:
    """Split, concat, transpose, reshape: the values, one after another."""
    joined = numbers(6, 2)
    found = match({"qkv": joined}, {"q": (2, 2), "k": (2, 2), "v": (2, 2)}, [Rule("qkv", ["q", "k", "v"], split(0))])
    assert [found[name].tolist() for name in "qkv"] == [joined.numpy()[k:k + 2].tolist() for k in (0, 2, 4)]
    found = match({"l.0.q": numbers(2, 3), "l.0.k": numbers(1, 3)}, {"0.qk": (3, 3)},
                  [Rule(["l.{i}.k", "l.{i}.q"], "{i}.qk", concat(0))])
    assert found["0.qk"].tolist() == [[0, 1, 2], [0, 1, 2], [3, 4, 5]]
    found = match({"w": numbers(2, 6)}, {"a": (2, 2), "b": (4, 2)},
                  [Rule("w", ["a", "b"], transpose, split(0, sizes=[2, 4]))])
    assert found["a"].tolist() == [[0, 6], [1, 7]] and found["b"].shape == (4, 2)
    assert match({"w": numbers(1, 4)}, {"w": (4,)}, [Rule("w", "w", reshape(-1))])["w"].tolist() == [0, 1, 2, 3]


def test_unpermute_undoes_the_order_of_gguf() -> None:
    """Heads of six rows: 0 3 1 4 2 5 in the file, as its converter writes them."""
    wanted = numbers(12, 2).numpy()
    stored = wanted.reshape(2, 2, 3, 2).swapaxes(1, 2).reshape(12, 2)
    assert np.array_equal(unpermute(2)([mo.asarray(stored)], 1)[0].numpy(), wanted)
    assert np.array_equal(unpermute(2)([mo.asarray(stored[:, 0].copy())], 1)[0].numpy(), wanted[:, 0])


@pytest.mark.parametrize("kind", ["q8_0", "q4_1"])
def test_quantised_rows(kind: str, rng: np.random.Generator) -> None:
    """Rows are cut, joined and reordered as bytes: the values are those of the dequantised matrix."""
    weight = mo.quantise(rng.standard_normal((8, 64)).astype(np.float32), kind)
    values = weight.dequantise()
    for transform in (split(0, sizes=[3, 5]), split(0), unpermute(2), concat(0)):
        ours = transform([weight], 2)
        theirs = transform([values], 2)
        assert all(isinstance(part, mo.Quantised) and part.kind == kind for part in ours)
        for part, expected in zip(ours, theirs):
            assert part.shape == expected.shape and np.array_equal(part.dequantise().numpy(), expected.numpy())
    both = concat(0)([weight, weight], 1)[0]
    assert both.shape == (16, 64) and np.array_equal(both.dequantise().numpy()[8:], values.numpy())
    for transform in (transpose, split(1), concat(1), reshape(-1)):
        with pytest.raises(mo.errors.ValueFault, match=r"dequantise\(\)"):
            transform([weight, weight], 2)


def test_one_error_lists_everything() -> None:
    """Missing, left over, twice and mis-shaped, ten of each with the count."""
    file = {f"x{k}": numbers(1) for k in range(12)} | {"w": numbers(2, 3), "a": numbers(1), "b": numbers(1)}
    wanted = {"w": (3, 2), "one": (1,), **{f"m{k:02}": (1,) for k in range(25)}}
    with pytest.raises(mo.weights.NameFault) as caught:
        match(file, wanted, [Rule("a", "one"), Rule("b", "one")])
    text = str(caught.value)
    assert "25 missing (m00, m01, " in text and "m09, and 15 more)" in text and "m10" not in text
    assert "12 left over (x0, " in text and "and 2 more)" in text
    assert "1 there twice (one from b)" in text and "1 of another shape (w is (2, 3), not (3, 2))" in text
    assert "\n" not in text and isinstance(caught.value, KeyError)


def test_a_part_of_a_group_is_missing() -> None:
    """The error names the file's tensor too."""
    with pytest.raises(mo.weights.NameFault, match=r"1 missing \(0\.qk, for which the file has no l\.0\.k\)"):
        match({"l.0.q": numbers(2)}, {"0.qk": (4,)}, [Rule(["l.{i}.q", "l.{i}.k"], "{i}.qk", concat(0))])


def test_optional_names() -> None:
    """A tied matrix may be missing; where it is there, it is taken."""
    wanted = {"embed": (2,), "head.weight": (2,)}
    assert list(match({"embed": numbers(2)}, wanted, optional=["head.{x}"])) == ["embed"]
    assert list(match({"embed": numbers(2), "head.weight": numbers(2)}, wanted, optional=["head.{x}"])) == list(wanted)
    with pytest.raises(mo.weights.NameFault, match="1 missing"):
        match({"head.weight": numbers(2)}, wanted, optional=["head.{x}"])


def test_wrong_rules() -> None:
    for pattern, replacement in [("a.{i}", "b"), ("a", "b.{i}"), ([], "b"), (["a.{i}", "b"], "c.{i}")]:
        with pytest.raises(mo.errors.ArgumentError, match="same places"):
            Rule(pattern, replacement)
    with pytest.raises(mo.errors.ArgumentError, match="not a pattern"):
        match({"a": numbers(1)}, {"a": (1,)}, [Rule("a(b", "a")])
    with pytest.raises(mo.weights.NameFault, match="lacks a split"):
        match({"a": numbers(2)}, {"b": (1,), "c": (1,)}, [Rule("a", ["b", "c"])])
    with pytest.raises(mo.weights.NameFault, match="3 along axis 0"):
        match({"a": numbers(3)}, {"b": (1,), "c": (1,)}, [Rule("a", ["b", "c"], split(0))])
    with pytest.raises(mo.weights.NameFault, match="not 2 heads"):
        match({"a": numbers(6, 2)}, {"a": (6, 2)}, [Rule("a", "a", unpermute(2))])
