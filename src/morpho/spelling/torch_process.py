"""PyTorch's draws from one stream and its settings of the process, with PyTorch's argument order.

Draws without a key come from the stream that `mo.manual_seed` (`mo.nn.seed`) starts: the one that layers draw from.
Keys (`mo.random.key`) remain the form for programs that must repeat a part of their draws.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.dtypes import as_dtype
from morpho.base.errors import ArgumentError, fail
from morpho.nn.random import get_state, next_key, set_state


def _as(value: Any) -> mo.Tensor:
    return value if isinstance(value, mo.Tensor) else mo.asarray(value)


# -- draws from the one stream that manual_seed starts -----------------------------------------------------------------
def sizes_of(size: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(one) for one in (size[0] if len(size) == 1 and isinstance(size[0], tuple | list) else size))


def _finished(made: mo.Tensor, device: Any, requires_grad: bool) -> mo.Tensor:
    made = made if device is None else made.to(device)
    return made.requires_grad_() if requires_grad else made


def rand(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, generator: Any = None,
         **layout: Any) -> mo.Tensor:
    key = next_key() if generator is None else generator.next_key()
    return _finished(mo.random.uniform(key, sizes_of(size), dtype=dtype or mo.float32), device, requires_grad)


def randn(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, generator: Any = None,
          **layout: Any) -> mo.Tensor:
    key = next_key() if generator is None else generator.next_key()
    return _finished(mo.random.normal(key, sizes_of(size), dtype=dtype or mo.float32), device, requires_grad)


def randint(low: Any, high: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None,
            generator: Any = None, requires_grad: bool = False) -> mo.Tensor:
    if size is None:  # randint(high, size)
        low, high, size = 0, low, high
    key = next_key() if generator is None else generator.next_key()
    return _finished(mo.random.randint(key, tuple(size), int(low), int(high), dtype=dtype or mo.int64), device, False)


def randperm(n: int, *, dtype: Any = None, device: Any = None, generator: Any = None) -> mo.Tensor:
    key = next_key() if generator is None else generator.next_key()
    return _finished(mo.random.permutation(key, mo.arange(n, dtype=dtype or mo.int64)), device, False)


def _like(x: mo.Tensor, dtype: Any) -> Any:
    return dtype or (x.dtype if x.dtype.is_float else mo.float32)


def rand_like(input: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
              memory_format: Any = None) -> mo.Tensor:
    return rand(*input.shape or ((),), dtype=_like(input, dtype), device=device, requires_grad=requires_grad)


def randn_like(input: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
               memory_format: Any = None) -> mo.Tensor:
    return randn(*input.shape or ((),), dtype=_like(input, dtype), device=device, requires_grad=requires_grad)


def randint_like(input: Any, low: int, high: int | None = None, *, dtype: Any = None) -> mo.Tensor:
    low, high = (0, low) if high is None else (low, high)
    return randint(low, high, input.shape, dtype=dtype or mo.int64).astype(dtype or input.dtype)


def normal(mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None) -> mo.Tensor:
    mean, std = _as(mean), _as(std)
    shape = tuple(size) if size is not None else np.broadcast_shapes(mean.shape, std.shape)
    return randn(*shape or ((),), generator=generator) * std + mean


def bernoulli(input: Any, p: Any = None, *, generator: Any = None) -> mo.Tensor:
    share = _as(input if p is None else p)
    shape = input.shape
    return (rand(*shape or ((),), generator=generator) < share).astype(_like(_as(input), None))


def poisson(input: Any, generator: Any = None) -> mo.Tensor:
    return mo.random.poisson(next_key(), _as(input)).astype(_as(input).dtype)


def binomial(count: Any, prob: Any, generator: Any = None) -> mo.Tensor:
    count = _as(count)
    return mo.random.binomial(next_key(), count.astype(mo.int64), _as(prob)).astype(_as(prob).dtype)


def multinomial(input: Any, num_samples: int, replacement: bool = False, *, generator: Any = None) -> mo.Tensor:
    """Indices drawn with the weights of each row."""
    weights = _as(input)
    key = next_key() if generator is None else generator.next_key()
    logits = mo.log(weights)
    if replacement:
        rows = logits.shape[:-1]
        noise = mo.random.gumbel(key, (*rows, num_samples, logits.shape[-1]))
        return mo.argmax(noise + mo.expand_dims(logits, -2), axis=-1)
    noise = mo.random.gumbel(key, logits.shape)
    return mo.topk(noise + logits, num_samples).indices


# -- settings of the process ---------------------------------------------------------------------------------------
def manual_seed(seed: int) -> Any:
    """Start the stream from which layers and draws without a key come; see mo.random.key for keys of your own."""
    mo.nn.seed(int(seed))
    return default_generator


def initial_seed() -> int:
    return Generator.last_seed


def seed() -> int:
    made = int(np.random.SeedSequence().generate_state(1)[0])
    manual_seed(made)
    return made


def get_rng_state() -> mo.Tensor:
    return get_state()


def set_rng_state(new_state: mo.Tensor) -> None:
    set_state(new_state)


class Generator:
    """A stream of draws with a seed of its own.

    >>> first = mo.rand(2, generator=mo.Generator().manual_seed(3))
    >>> bool((first == mo.rand(2, generator=mo.Generator().manual_seed(3))).all())
    True
    """

    last_seed = 0

    def __init__(self, device: Any = "cpu") -> None:
        self._seed, self._key, self.device = 0, mo.random.key(0), device

    def manual_seed(self, seed: int) -> Generator:
        self._seed, self._key = int(seed), mo.random.key(int(seed))
        return self

    def initial_seed(self) -> int:
        return self._seed

    def seed(self) -> int:
        return self.manual_seed(int(np.random.SeedSequence().generate_state(1)[0]))._seed

    def get_state(self) -> mo.Tensor:
        return self._key

    def set_state(self, new_state: mo.Tensor) -> None:
        self._key = new_state

    def next_key(self) -> mo.Tensor:
        pair = mo.random.split(self._key)
        self._key = pair[0]
        return pair[1]


class _DefaultGenerator(Generator):
    def next_key(self) -> mo.Tensor:
        return next_key()

    def manual_seed(self, seed: int) -> Generator:
        mo.nn.seed(int(seed))
        return self


default_generator = _DefaultGenerator()


def is_tensor(obj: Any) -> bool:
    return isinstance(obj, mo.Tensor)


def is_storage(obj: Any) -> bool:
    return False


def get_default_dtype() -> Any:
    return mo.float32


def set_default_dtype(d: Any) -> None:
    """float32 is the default and stays it; another one is an error that says what to write."""
    if as_dtype(d) is not mo.float32:
        raise fail(ArgumentError, "set_default_dtype", f"the default dtype is float32, and {as_dtype(d)} is asked for",
                   "give dtype= where a tensor is made, or model.to(dtype)")


def get_default_device() -> Any:
    from morpho.base import settings

    return mo.device(settings.get().device)


def set_default_device(device: Any) -> None:
    from morpho.backends.registry import canonical
    from morpho.base import settings

    settings.current.set(settings.settings(device=canonical(device, "set_default_device")).__enter__())


def get_num_threads() -> int:
    from morpho.base import settings

    chosen = getattr(settings.get(), "threads", 0)
    return int(chosen) if chosen else builtins.max(1, len(__import__("os").sched_getaffinity(0)))


def set_grad_enabled(mode: bool) -> Any:
    return mo.enable_grad() if mode else mo.no_grad()


def get_device(input: Any) -> int:
    return -1 if input.device == "cpu" else int(input.device.partition(":")[2] or 0)


def numel(input: Any) -> int:
    return int(_as(input).size)


def is_floating_point(input: Any) -> bool:
    return _as(input).dtype.is_float


def is_complex(input: Any) -> bool:
    return _as(input).dtype.is_complex


def is_signed(input: Any) -> bool:
    return _as(input).dtype.kind in "ifc"


def is_nonzero(input: Any) -> bool:
    return bool(_as(input).item() != 0)


def is_same_size(input: Any, other: Any) -> bool:
    return tuple(input.shape) == tuple(other.shape)


def is_conj(input: Any) -> bool:
    return False


is_neg = is_inference = is_conj


def typename(obj: Any) -> str:
    return f"{type(obj).__module__}.{type(obj).__name__}"


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Every result is the same for every run and every number of threads; there is nothing to switch."""


def are_deterministic_algorithms_enabled() -> bool:
    return True


def set_float32_matmul_precision(precision: str) -> None:
    """Products of float32 are float32's; lower precisions are chosen by dtype."""
    if precision not in ("highest", "high", "medium"):
        raise fail(ArgumentError, "set_float32_matmul_precision", f"{precision!r} is unknown",
                   "write 'highest', 'high' or 'medium'")


def get_float32_matmul_precision() -> str:
    return "highest"
