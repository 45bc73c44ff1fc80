"""Functions of images, volumes and signals against PyTorch's values, which are stored (`python -m
benchmarks.image_values` makes them); gradients, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from benchmarks.image_values import CASES, inputs
from morpho.base.errors import ArgumentError, DTypeError, ShapeError

STORED = json.loads((Path(__file__).parent / "image_values.json").read_text())
PLACED = ("upscale_factor", "downscale_factor", "groups", "output_size", "kernel_size", "length", "n_fft")


def by_morpho(number: int) -> list[np.ndarray]:
    name, _, given = CASES[number]
    arrays, keywords = [mo.asarray(a) for a in inputs(number)], dict(given)
    if name == "stft":
        keywords["window"] = mo.hann_window(keywords.get("win_length", keywords["n_fft"]))
    placed = [] if name.startswith("conv") else [keywords.pop(key) for key in PLACED if key in keywords]
    made = getattr(mo.nn if name == "interpolate" else mo, name)(*arrays, *placed, **keywords)
    return [part.numpy() for part in (made if isinstance(made, tuple) else (made,))]


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: f"{n}-{CASES[n][0]}")
def test_as_pytorch(number: int) -> None:
    found = by_morpho(number)
    assert len(found) == len(STORED[number])
    for one, stored in zip(found, STORED[number], strict=True):
        assert list(one.shape) == stored["shape"]
        flat = np.stack([one.real, one.imag], -1) if np.iscomplexobj(one) else one
        np.testing.assert_allclose(flat.reshape(-1), stored["values"], rtol=2e-5, atol=2e-5)


X = np.random.default_rng(3).normal(0, 1, (1, 2, 4, 4))
GRID = np.random.default_rng(4).uniform(-0.9, 0.9, (1, 3, 3, 2))
GRID3 = np.random.default_rng(5).uniform(-0.9, 0.9, (1, 2, 1, 2, 3))
SLOPES: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "max_pool2d": (lambda x: mo.max_pool2d(x, 3, stride=2, ceil_mode=True), X),
    "avg_pool2d": (lambda x: mo.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True), X),
    "unfold": (lambda x: mo.unfold(x, 2, padding=1), X),
    "fold": (lambda x: mo.fold(x.reshape(1, 4, 8)[:, :, :4], 3, 2), X),
    "grid_sample of images": (lambda x: mo.grid_sample(x, GRID), X),
    "of places": (lambda g: mo.grid_sample(X, g), GRID),
    "border": (lambda g: mo.grid_sample(X, g * 1.5, padding_mode="border"), GRID),
    "bicubic": (lambda x: mo.grid_sample(x, GRID * 1.4, mode="bicubic", padding_mode="reflection"), X),
    "places of a volume": (lambda g: mo.grid_sample(X[:, :, None] * np.ones((1, 1, 3, 1, 1)), g), GRID3),
    "interpolate": (lambda x: mo.nn.interpolate(x, (3, 2), mode="bicubic", antialias=True), X),
    "area": (lambda x: mo.nn.interpolate(x, (3, 5), mode="area"), X),
    "conv3d": (lambda x: mo.conv3d(x[:, :, None], np.ones((1, 2, 1, 2, 2))), X),
    "conv_transpose3d": (lambda x: mo.conv_transpose3d(x[:, :, None], np.arange(8.0).reshape(2, 1, 1, 2, 2),
                                                       stride=2), X),
    "pixel_shuffle": (lambda x: mo.pixel_shuffle(mo.concat([x, x * 2], axis=1), 2), X),
}


@pytest.mark.parametrize("name", SLOPES)
def test_slopes(name: str) -> None:
    function, x = SLOPES[name]
    weights = mo.asarray(np.random.default_rng(1).normal(0, 1, tuple(function(mo.asarray(x)).shape)))

    def loss(value: Any) -> Any:
        return (function(value) * weights).sum()

    compiled = mo.compile(loss)
    found = mo.grad(loss)(mo.asarray(x)).numpy()
    for place in list(np.ndindex(*x.shape))[::5]:
        step = np.zeros_like(x)
        step[place] = 1e-6
        wanted = (compiled(mo.asarray(x + step)).item() - compiled(mo.asarray(x - step)).item()) / 2e-6
        np.testing.assert_allclose(found[place], wanted, rtol=1e-5, atol=1e-6)


def test_back_and_forth() -> None:
    x = np.random.default_rng(9).normal(0, 1, (2, 100))
    for center in (True, False):
        for onesided in (True, False):
            window = mo.hamming_window(16, dtype="float64")
            spectrum = mo.stft(x, 16, 4, window=window, center=center, onesided=onesided)
            again = mo.istft(spectrum, 16, 4, window=window, center=center, onesided=onesided, length=100).numpy()
            np.testing.assert_allclose(again, x, atol=1e-12)
    np.testing.assert_array_equal(mo.pixel_unshuffle(mo.pixel_shuffle(mo.asarray(X), 1), 1).numpy(), X)
    whole = mo.pixel_unshuffle(mo.asarray(X), 2)
    np.testing.assert_array_equal(mo.pixel_shuffle(whole, 2).numpy(), X)


@pytest.mark.parametrize(("call", "error", "said"), [
    (lambda: mo.max_pool3d(X[0], 2), ShapeError, "is not \\[N, C, D, H, W\\]"),
    (lambda: mo.max_pool2d(X, 9, stride=1, ceil_mode=True), ShapeError, "larger than the padded input"),
    (lambda: mo.avg_pool3d(np.ones((1, 1, 2, 2, 2), int), 2), DTypeError, "not taken"),
    (lambda: mo.max_pool2d(X, 2, padding=2, return_indices=True), ArgumentError, "more than half"),
    (lambda: mo.pixel_shuffle(X, 2), ShapeError, "not a multiple"),
    (lambda: mo.pixel_unshuffle(X, 3), ShapeError, "not a multiple"),
    (lambda: mo.unfold(X[0], 2), ShapeError, "not \\[N, C, H, W\\]"),
    (lambda: mo.unfold(X, 9), ShapeError, "does not fit"),
    (lambda: mo.fold(np.ones((1, 4, 5)), 3, 2), ShapeError, "5 columns are not the 2 x 2 windows"),
    (lambda: mo.grid_sample(X, GRID, mode="cubic"), ArgumentError, "mode 'cubic'"),
    (lambda: mo.grid_sample(X[:, :, None], np.zeros((1, 1, 1, 1, 3)), mode="bicubic"), ArgumentError, "not of volumes"),
    (lambda: mo.nn.interpolate(X, 3, mode="area", align_corners=True), ArgumentError, "no meaning for mode 'area'"),
    (lambda: mo.nn.interpolate(X, 3, antialias=True), ArgumentError, "antialias has no meaning"),
    (lambda: mo.nn.interpolate(X, 3, recompute_scale_factor=True), ArgumentError, "beside size"),
    (lambda: mo.nn.interpolate(X[0], 3, mode="bicubic"), ShapeError, "'bicubic' takes"),
    (lambda: mo.grid_sample(X, X), ShapeError, "grid_sample"),
    (lambda: mo.conv3d(X, X), ShapeError, "is not \\[O, C, KD, KH, KW\\]"),
    (lambda: mo.conv_transpose3d(X, X), ShapeError, "are not"),
    (lambda: mo.hann_window(-1), ArgumentError, "-1 elements"),
    (lambda: mo.hann_window(3, dtype="int32"), DTypeError, "not floating"),
    (lambda: mo.stft(np.ones(4), 16, center=False), ShapeError, "no piece of 16"),
    (lambda: mo.stft(np.ones(40), 16, win_length=20), ArgumentError, "20"),
    (lambda: mo.istft(np.ones((9, 3)), 16), DTypeError, "not complex"),
    (lambda: mo.channel_shuffle(X, 3), ShapeError, "3 groups"),
])
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call()
