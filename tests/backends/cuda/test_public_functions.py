"""The example of every public function, and its gradient, with operands that lie on the (emulated) GPU.

The emulator reports accesses outside of memory, and an operation that makes constants of its own on the CPU fails here.
"""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.ir.op import REGISTRY

MODULES = ("", "linalg", "fft", "nn", "random", "special")
# Transformations take functions, and `asarray` and its kind decide themselves where their result lies.
UNMOVED = {"arange", "asarray", "associative_scan", "certify", "checkpoint", "compile", "cond", "custom_jvp",
           "custom_vjp", "device", "empty", "empty_like", "fori_loop", "grad",
           "hessian", "hvp", "jacfwd", "jacrev", "jvp", "linearize", "map", "no_grad", "profile",
           "scan", "settings", "stop_gradient", "switch", "to_device", "value_and_grad", "vjp", "vmap", "while_loop"}


def functions() -> list[str]:
    """Dotted names of the public functions that have an example, each once."""
    names: dict[int, str] = {}
    for module in MODULES:
        space = getattr(mo, module) if module else mo
        for name in space.__all__ if hasattr(space, "__all__") else dir(space):
            value = getattr(space, name)
            covered = name in REGISTRY and REGISTRY[name].kind == "elementwise"  # by the table of op cases
            if inspect.isroutine(value) and name not in UNMOVED and not covered and ">>>" in (value.__doc__ or ""):
                names.setdefault(id(value), f"{module}.{name}".lstrip("."))
    return sorted(names.values())


def moved(value: Any, device: str, first: bool = False) -> Any:
    """Tensors on the device, and the lists that stand for tensors in the examples."""
    if isinstance(value, mo.Tensor):
        return value.to(device)
    if first and isinstance(value, list) and value:
        with contextlib.suppress(ValueError):
            return mo.asarray(value, device=device) if np.asarray(value).dtype.kind in "biufc" else value
    if type(value) in (list, tuple):
        return type(value)(moved(item, device) for item in value)
    return value


def host_values(value: Any) -> list[np.ndarray]:
    if isinstance(value, mo.Tensor):
        return [value.to("cpu").numpy()]
    return [leaf for item in value for leaf in host_values(item)] if isinstance(value, list | tuple) else []


def gradient(function: Callable[..., Any], arguments: list[Any], named: dict[str, Any]) -> np.ndarray:
    first, *rest = arguments
    return mo.grad(lambda x: (function(x, *rest, **named) * 1.5).sum())(first).to("cpu").numpy()  # type: ignore


class OnDevice:
    """`mo`, whose functions move their operands to a device and compare with what the host computes."""

    def __init__(self, module: Any, device: str, calls: list[str]) -> None:
        self._module, self._device, self._calls = module, device, calls

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if isinstance(value, types.ModuleType):
            return OnDevice(value, self._device, self._calls)
        if not inspect.isroutine(value) or name in UNMOVED:
            return value
        return lambda *arguments, **named: self._call(value, name, arguments, named)

    def _call(self, function: Callable[..., Any], name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        here = ([moved(x, "cpu", i < 2) for i, x in enumerate(arguments)], moved_values(named, "cpu"))
        there = ([moved(x, self._device, i < 2) for i, x in enumerate(arguments)], moved_values(named, self._device))
        try:
            expected = function(*here[0], **here[1])
        except mo.errors.MorphoError:
            return function(*arguments, **named)  # the example's own
        result = function(*there[0], **there[1])
        self._calls.append(name)
        for got, wanted in zip(host_values(result), host_values(expected), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
        if here[0] and all(isinstance(x, mo.Tensor) and x.dtype.is_float for x in (here[0][0], expected)):
            try:
                wanted = gradient(function, *here)
            except mo.errors.MorphoError:
                return expected  # it has none
            np.testing.assert_allclose(gradient(function, *there), wanted, rtol=1e-5, atol=1e-6)
        return expected


def moved_values(named: dict[str, Any], device: str) -> dict[str, Any]:
    return {key: moved(value, device) for key, value in named.items()}


@pytest.mark.sampled
@pytest.mark.parametrize("name", functions())
def test_the_example_runs_with_operands_on_the_gpu(gpu: str, name: str) -> None:
    function: Any = mo
    for part in name.split("."):
        function = getattr(function, part)
    calls: list[str] = []
    space = {"mo": OnDevice(mo, gpu, calls), "np": np, "nn": OnDevice(mo.nn, gpu, calls)}
    for example in doctest.DocTestParser().get_examples(function.__doc__):
        if example.exc_msg is None:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(example.source, name, "single"), space)


@pytest.mark.sampled
@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0, np.inf])
@pytest.mark.parametrize("shape", [(7, 5), (33, 3)], ids=str)
def test_gradients_of_distances_stay_inside_their_operands(gpu: str, rng: np.random.Generator, p: float,
                                                          shape: tuple[int, int]) -> None:
    x = rng.standard_normal(shape).astype("f")
    weights = rng.standard_normal(shape[0] * (shape[0] - 1) // 2).astype("f")

    def gradient_on(device: str) -> np.ndarray:
        point = mo.asarray(x, device=device)
        return mo.grad(lambda v: (mo.pdist(v, p=p) * weights).sum())(point).numpy()

    assert gradient_on(gpu).tobytes() == gradient_on("cpu").tobytes()


def test_constants_of_an_operation_lie_with_its_operands(gpu: str, rng: np.random.Generator) -> None:
    """Also inside a compiled function, where arrays of the surroundings are read at every call."""
    image = mo.asarray(rng.standard_normal((1, 2, 5, 6)).astype("f"))
    frames = mo.asarray(rng.standard_normal((6, 2, 4)).astype("f"))
    calls: list[tuple[Callable[..., mo.Tensor], mo.Tensor]] = [
        (lambda x: mo.nn.interpolate(x, size=(8, 7), mode="bilinear"), image),
        (lambda x: mo.nn.ctc_loss(mo.log_softmax(x, axis=-1), [1, 2, 3, 1], [6, 6], [2, 2]), frames),
        (mo.linalg.expm, frames[0, :, :2])]
    for function, x in calls:
        expected = function(x).numpy().tobytes()
        assert function(x.to(gpu)).numpy().tobytes() == expected
        assert mo.compile(function)(x.to(gpu)).numpy().tobytes() == expected
