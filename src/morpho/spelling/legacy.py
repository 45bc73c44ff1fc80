"""NumPy's `np.random.normal(0, 1, size)` and its like: draws without a key, all from the stream of `mo.manual_seed`.

Floats are float32, Morpho's default; `mo.random.default_rng(seed)` draws float64 from a stream of its own.

>>> mo.random.seed(3)
>>> first = mo.random.normal(0.0, 2.0, size=(2, 3))
>>> mo.random.seed(3)
>>> bool((mo.random.normal(0.0, 2.0, (2, 3)) == first).all()), mo.random.randint(0, 5, 4).shape
(True, (4,))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import morpho as mo
from morpho.nn.random import next_key
from morpho.spelling import torch_process
from morpho.spelling.generators import Generator


class RandomState(Generator):
    """NumPy's older generator: the methods of `Generator` under their older names too, with its own stream."""

    def rand(self, *sizes: int) -> mo.Tensor:
        return self.random(sizes)

    def randn(self, *sizes: int) -> mo.Tensor:
        return self.standard_normal(sizes)

    def randint(self, low: Any, high: Any = None, size: Any = None, dtype: Any = mo.int64) -> mo.Tensor:
        return self.integers(low, high, size, dtype)

    def random_sample(self, size: Any = None) -> mo.Tensor:
        return self.random(size)

    def seed(self, seed: Any = None) -> None:
        self._key = Generator(seed)._key

    def get_state(self, legacy: bool = True) -> Any:
        return self._key.numpy(copy=True)

    def set_state(self, state: Any) -> None:
        self._key = mo.asarray(state, dtype=mo.uint32)

    sample = ranf = random_sample

    def multivariate_normal(self, mean: Any, cov: Any, size: Any = None, **checks: Any) -> mo.Tensor:
        return super().multivariate_normal(mean, cov, size)


class _Shared(RandomState):
    """The draws of the process: keys come from `mo.nn.seed`'s stream, and floats are float32."""

    def __init__(self) -> None:
        pass

    def next_key(self) -> mo.Tensor:
        return next_key()


SHARED = _Shared()
_STATE = {"get_state": torch_process.get_rng_state, "set_state": torch_process.set_rng_state}


def _narrow(value: Any) -> Any:
    return value.astype(mo.float32) if isinstance(value, mo.Tensor) and value.dtype is mo.float64 else value


def keyless(name: str, function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """NumPy's call of a function that takes a key here; one that is not NumPy's either is refused by the function."""
    method = getattr(SHARED, name)
    try:
        inspect.signature(method).bind(*args, **options)
    except TypeError:
        return function(*args, **options)
    return _narrow(method(*args, **options))


def __getattr__(name: str) -> Any:
    if name in _STATE:
        return _STATE[name]
    if name.startswith("_") or not hasattr(RandomState, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    method = getattr(SHARED, name)

    def draw(*args: Any, **options: Any) -> Any:
        return _narrow(method(*args, **options))

    draw.__name__ = draw.__qualname__ = name
    draw.__doc__ = method.__doc__
    return draw
