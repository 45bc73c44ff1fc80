"""Mixed precision: what is cast and what is not, half the bytes, overflow that is survived, the same bits compiled."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, MorphoError
from morpho.tensor.autodiff import precision

F32, BF16 = mo.float32, mo.bfloat16


def x(*shape: int, dtype: Any = F32) -> mo.Tensor:
    return mo.ones(shape, dtype=dtype)


LOW: dict[str, Any] = {
    "matmul": lambda d: x(2, 3, dtype=d) @ x(3, 2),
    "einsum": lambda d: mo.einsum("ab,bc->ca", x(2, 3, dtype=d), x(3, 2)),
    "tensordot": lambda d: mo.tensordot(x(2, 3, dtype=d), x(3, 2), axes=1),
    "attention": lambda d: mo.attention(x(1, 4, 8, dtype=d), x(1, 4, 8), x(1, 4, 8)),
    "conv2d": lambda d: mo.conv2d(x(1, 1, 4, 4, dtype=d), x(1, 1, 3, 3), x(1)),
    "conv_transpose1d": lambda d: mo.conv_transpose1d(x(1, 1, 4, dtype=d), x(1, 1, 2)),
    "linear": lambda d: mo.nn.Linear(3, 2)(x(2, 3, dtype=d)),
}
FULL: dict[str, Any] = {
    "softmax": lambda d: mo.softmax(x(2, 3, dtype=d)),
    "log_softmax": lambda d: mo.log_softmax(x(2, 3, dtype=d)),
    "logsumexp": lambda d: mo.logsumexp(x(2, 3, dtype=d)),
    "layer_norm": lambda d: mo.layer_norm(x(2, 3, dtype=d), x(3)),
    "rms_norm": lambda d: mo.rms_norm(x(2, 3, dtype=d)),
    "cross_entropy": lambda d: mo.cross_entropy(x(2, 3, dtype=d), mo.asarray([0, 1])),
    "sum": lambda d: x(3, dtype=d).sum(),
    "mean": lambda d: x(3, dtype=d).mean(),
    "var": lambda d: mo.var(x(3, dtype=d)),
    "cumulative_sum": lambda d: mo.cumulative_sum(x(3, dtype=d)),
    "exp": lambda d: mo.exp(x(3, dtype=d)),
    "log1p": lambda d: mo.log1p(x(3, dtype=d)),
    "pow": lambda d: x(3, dtype=d) ** 1.5,
    "softplus": lambda d: mo.softplus(x(3, dtype=d)),
    **{name: lambda d, name=name: getattr(mo.nn, name)(x(2, 3, dtype=d) / 2, x(2, 3)) for name in (
        "mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "binary_cross_entropy", "focal_loss",
        "binary_cross_entropy_with_logits", "kl_div", "cosine_similarity", "pairwise_distance")},
    "triplet_margin_loss": lambda d: mo.nn.triplet_margin_loss(*[x(2, 3, dtype=d)] * 3),
    "cosine_embedding_loss": lambda d: mo.nn.cosine_embedding_loss(*[x(2, 3, dtype=d)] * 2, mo.asarray([1, -1])),
    "nll_loss": lambda d: mo.nn.nll_loss(x(2, 3, dtype=d), mo.asarray([0, 1])),
}
FOLLOW: dict[str, Any] = {
    "add": lambda d: x(3, dtype=d) + 1,
    "gelu": lambda d: mo.gelu(x(3, dtype=d)),
    "max": lambda d: x(3, dtype=d).max(),
    "square": lambda d: x(3, dtype=d) ** 2,
    "named sum": lambda d: mo.sum(x(3, dtype=d), dtype=d),
    "named product": lambda d: mo.matmul(x(3, 3, dtype=d), x(3, 3, dtype=d), dtype=d),
}


@pytest.mark.parametrize("low", ["bfloat16", "float16"])
def test_the_policy(low: str) -> None:
    """Every row of the table in tensor/autodiff/precision.py, for operands of both precisions."""
    with mo.amp.autocast(low):
        for name, make in LOW.items():
            for dtype in (F32, mo.float16, BF16):
                assert str(make(dtype).dtype) == low, name
        for name, make in FULL.items():
            for dtype in (F32, mo.float16, BF16):
                assert make(dtype).dtype is F32, name
        for name, make in FOLLOW.items():
            for dtype in (F32, mo.float16, BF16):
                assert make(dtype).dtype is dtype, name
        assert (x(2, 2, dtype=mo.float64) @ x(2, 2)).dtype is mo.float64  # who asks for 64 bits gets them
        assert (mo.ones((2, 2), dtype=mo.int32) @ mo.ones((2, 2), dtype=mo.int32)).dtype is mo.int32
    for name, make in {**LOW, **FULL, **FOLLOW}.items():  # and nothing is left of it outside
        assert make(F32).dtype is F32, name


def test_a_difference_is_not_rounded_to_half_floats() -> None:
    """A loss sees the halves its model made and the targets as they are; outside autocast halves stay halves."""
    prediction, target = mo.ones(1, dtype=BF16), mo.asarray([1.001])
    with mo.amp.autocast("bfloat16"):
        assert abs(mo.nn.l1_loss(prediction, target).item() - 0.001) < 1e-6
    assert mo.nn.l1_loss(prediction, target).dtype is BF16
    assert mo.nn.l1_loss(prediction, target).item() == 0.0  # 1.001 rounds to 1


def test_blocks_nest_decorate_and_belong_to_their_thread() -> None:
    """Also through an error, and in functions that call themselves."""
    product = lambda: (x(2, 2) @ x(2, 2)).dtype
    seen = []
    with mo.amp.autocast("bfloat16"):
        thread = threading.Thread(target=lambda: seen.append(product()))
        thread.start()
        thread.join()
        with mo.amp.autocast("float16"):
            assert product() is mo.float16
        with mo.amp.autocast(enabled=False):
            assert product() is F32
        with pytest.raises(ZeroDivisionError), mo.amp.autocast("float16"):
            _ = 1 / 0
        assert product() is BF16
    assert seen == [F32] and product() is F32

    @mo.amp.autocast("bfloat16")
    def recursive(depth: int) -> list[Any]:
        return [product(), *(recursive(depth - 1) if depth else [])]

    assert recursive(2) == [BF16] * 3 and product() is F32
    with pytest.raises(ArgumentError, match="not a half float"):
        mo.amp.autocast("float64")


def test_compiled_functions_follow_the_block_they_are_called_in() -> None:
    """One program for each precision, found again; a block inside the function is part of it."""
    f = mo.compile(lambda a: a @ a)
    for _ in range(3):
        assert f(x(4, 4)).dtype is F32
        with mo.amp.autocast("bfloat16"):
            assert f(x(4, 4)).dtype is BF16
    assert f.stats["specialisations"] == 2

    @mo.compile
    def inside(a: mo.Tensor) -> mo.Tensor:
        with mo.amp.autocast("bfloat16"):
            return a @ a

    assert inside(x(4, 4)).dtype is BF16 and inside(x(4, 4)).dtype is BF16
    assert inside.stats["specialisations"] == 1


def test_gradients_and_parameters_stay_float32() -> None:
    """And a weight used twice is cast once."""
    w = mo.nn.Parameter(np.full((4, 4), 0.1, np.float32))
    with mo.amp.autocast("bfloat16"):
        y = (x(2, 4) @ w @ w).sum()
    y.backward()
    assert w.dtype is F32 and w.grad.dtype is F32
    casts = [node for node in mo_nodes(y) if node.op.name == "cast" and node.inputs[0].op.name == "data"]
    assert len({node.serial for node in casts if node.shape == (4, 4)}) == 1
    wide = mo.grad(lambda m: (x(2, 4) @ m @ m).sum())(w.value)
    np.testing.assert_allclose(w.grad.numpy(), wide.numpy(), rtol=2e-2)


def mo_nodes(tensor: mo.Tensor) -> list[Any]:
    from morpho.ir.node import toposort

    return toposort([tensor.program()])


def test_half_the_bytes() -> None:
    """Intermediates of a chain of products take half the arena under explicit bfloat16."""
    weights = [mo.asarray(np.full((64, 64), 0.01, np.float32), copy=True) for _ in range(3)]

    @mo.compile
    def forward(a: mo.Tensor) -> mo.Tensor:
        for w in weights:
            a = mo.gelu(a @ w)
        return a

    a = x(128, 64)
    forward(a)
    full = forward.stats["arena_bytes"]
    with mo.amp.autocast("bfloat16"):
        forward(a)
    assert forward.stats["arena_bytes"] <= 0.51 * full, (forward.stats["arena_bytes"], full)


def test_auto_is_never_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lowers exactly what was measured to be no slower; the choice is kept, and said in explain()."""
    fake = {"product": (1.0, 2.0), "attention": (2.0, 1.0), "convolution": (1.0, 1.0)}
    monkeypatch.setattr(precision, "measured", lambda family: fake[family])
    assert mo.amp.policy() == {"product": "bfloat16", "attention": "float32", "convolution": "bfloat16"}
    f = mo.compile(lambda a: mo.attention(a @ a, a, a))
    with mo.amp.autocast():
        assert LOW["matmul"](F32).dtype is BF16 and LOW["attention"](F32).dtype is F32
        f(x(4, 4))
    assert "product in bfloat16 (bfloat16 took 0.50x" in f.explain() and "attention in float32" in f.explain()


def test_the_measurement_is_made_once_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two positive figures, in the machine's profile; also from inside a function being traced."""
    from morpho.runtime import thresholds

    monkeypatch.setattr(precision, "_known", {})
    made: list[str] = []
    seconds = precision._seconds
    monkeypatch.setattr(precision, "_seconds", lambda family, dtype: made.append(f"{family} {dtype}")
                        or seconds(family, dtype))

    @mo.compile
    def inside(a: mo.Tensor) -> mo.Tensor:
        with mo.amp.autocast():
            return a @ a

    with mo.settings(cache_dir=str(tmp_path)):  # a profile of its own, in which nothing stands yet
        inside(x(4, 4))
        assert made == ["product bfloat16", "product float32"]
        found = thresholds.stored_row(thresholds.profile_key(), "bfloat16 product")
        assert found is not None and tuple(found) == precision.measured("product")
        precision._known.clear()
        assert precision.measured("product") == tuple(found) and len(made) == 2  # from disk
        thresholds.store_row(thresholds.profile_key(), "", [1e9, 1e9])
        assert thresholds.stored_row(thresholds.profile_key(), "bfloat16 product") == found  # rows are apart
        (tmp_path / "profile.json").write_text("{")
        assert thresholds.stored_row(thresholds.profile_key()) is None  # a damaged file is measured anew


# -- GradScaler --------------------------------------------------------------------------------------------------------
def run(compiled: bool, steps: int, scale: float = 2.0**15,
        clip: bool = False) -> tuple[list[Any], Any, list[float], Any]:
    """Train a little in float16 with inputs of which one overflows."""
    mo.nn.seed(5)
    model = mo.nn.Sequential(mo.nn.Linear(8, 16), mo.nn.ReLU(), mo.nn.Linear(16, 4))
    opt = mo.optim.AdamW(model.parameters(), lr=0.01)
    scaler = mo.amp.GradScaler(init_scale=scale, growth_interval=3)

    def step(a: mo.Tensor) -> mo.Tensor:
        with mo.amp.autocast("float16"):
            loss = mo.mean(mo.square(model(a)).astype(F32))
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(opt)
            mo.optim.clip_grad_norm(model.parameters(), 0.5)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        return loss

    function = mo.compile(step) if compiled else step
    scales, losses = [], []
    for number in range(steps):
        size = 500.0 if number == 2 else 1.0  # its gradient times the scale is no float16
        losses.append(function(mo.full((4, 8), size)).item())
        scales.append(scaler.get_scale())
    if compiled:
        assert function.stats["recompiles"] == 0 and function.stats["specialisations"] == 1
    return [p.numpy(copy=True) for p in model.parameters()], scales, losses, (opt, scaler)


@pytest.mark.parametrize("clip", [False, True])
def test_overflow_is_survived_with_the_same_bits_compiled(clip: bool) -> None:
    """The step is skipped, slots and counts too; the scale halves; training goes on; three good steps double it."""
    weights, scales, losses, (opt, scaler) = run(False, 6, clip=clip)
    assert scales == [2.0**15, 2.0**15, 2.0**14, 2.0**14, 2.0**14, 2.0**15]
    assert opt.state_dict()["count"] == 5
    assert np.isfinite(weights[0]).all() and losses[5] < losses[0]
    assert json.loads(json.dumps(scaler.state_dict())) == scaler.state_dict()
    other, other_scales, other_losses, _ = run(True, 6, clip=clip)
    assert other_scales == scales and other_losses == losses
    for a, b in zip(weights, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_scale_of_a_power_of_two_changes_nothing_in_float32() -> None:
    """Scaled and unscaled training have the same bits while nothing overflows."""
    results = []
    for scaler in (mo.amp.GradScaler(1024.0), mo.amp.GradScaler(enabled=False)):
        w = mo.nn.Parameter([1.0, 2.0, 3.0])
        opt = mo.optim.Adam([w], lr=0.1)
        for _ in range(3):
            scaler.scale(mo.sin(w).sum()).backward()
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
        results.append(w.numpy(copy=True))
    np.testing.assert_array_equal(*results)


def test_a_saved_scaler_goes_on() -> None:
    """Scale and count of good steps."""
    _, _, _, (_, scaler) = run(False, 2)
    other = mo.amp.GradScaler()
    other.load_state_dict(json.loads(json.dumps(scaler.state_dict())))
    assert other.state_dict() == scaler.state_dict() and other.get_scale() == 2.0**15
    assert mo.amp.GradScaler(enabled=False).state_dict() == {}


def test_wrong_order_is_an_error() -> None:
    """Unscaled twice, stepped twice, updated before a step."""
    w = mo.nn.Parameter([1.0])
    opt, scaler = mo.optim.SGD([w], lr=0.1), mo.amp.GradScaler()
    with pytest.raises(MorphoError, match="call step"):
        scaler.update()
    with pytest.raises(MorphoError, match="no parameter has a gradient"):
        scaler.step(opt)
    scaler.scale((w * w).sum()).backward()
    scaler.unscale_(opt)
    with pytest.raises(MorphoError, match="were unscaled"):
        scaler.unscale_(opt)
    scaler.step(opt)
    with pytest.raises(MorphoError, match="before"):
        scaler.step(opt)
    with pytest.raises(MorphoError, match="were stepped"):
        scaler.unscale_(opt)
    scaler.update()
    for wrong in ({"init_scale": 0.0}, {"growth_factor": 1.0}, {"backoff_factor": 2.0}, {"growth_interval": 0}):
        with pytest.raises(MorphoError, match="GradScaler"):
            mo.amp.GradScaler(**wrong)
