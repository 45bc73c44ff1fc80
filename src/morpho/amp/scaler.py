"""`GradScaler`: losses scaled up so that small gradients do not vanish in float16, and steps that overflow skipped."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import morpho as mo
from morpho.base.checks import as_whole
from morpho.base.errors import ArgumentError, fail
from morpho.tensor.autodiff.autograd import take_pending
from morpho.tensor.jit.native.entries import entries
from morpho.tensor.state.state import assign
from morpho.tensor.state.trace import Trace, current_trace
from morpho.tensor.tools.foreign_calls import hinted


@dataclass
class _Stage:
    """How far an optimiser has come since the last `update`."""

    finite: mo.Tensor
    unscaled: bool
    stepped: bool = False


Stages = dict[int, _Stage]


class GradScaler:
    """Scales losses for float16 training, and finds the scale by itself.

    Gradients are divided by the scale again before the optimiser uses them. If one is infinite or NaN the step is
    skipped, every slot included, and the scale backs off; after `growth_interval` good steps in a row it grows. The
    scale is a state: all of this works inside a compiled function, which is not compiled again when it changes.

    >>> w = mo.nn.Parameter([1.0])
    >>> opt, scaler = mo.optim.SGD([w], lr=0.5), mo.amp.GradScaler()
    >>> scaler.scale((w * w).sum()).backward()
    >>> scaler.step(opt); scaler.update(); opt.zero_grad()
    >>> w.item(), scaler.get_scale()
    (0.0, 65536.0)
    """

    @hinted
    def __init__(self, init_scale: float | str = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True) -> None:
        if isinstance(init_scale, str):  # PyTorch's device, which the tensors say here
            init_scale = 65536.0
            if growth_factor >= 64:
                raise fail(ArgumentError, "GradScaler", f"growth_factor={growth_factor} is as large as a scale",
                           f"write init_scale={growth_factor} by name after a device")
        self.enabled = enabled
        self._set(float(init_scale), growth_factor, backoff_factor, growth_interval)
        self._scale = mo.State(mo.asarray(float(init_scale), dtype=mo.float32))
        self._good = mo.State(mo.asarray(0, dtype=mo.int64))  # steps in a row without overflow
        self._eager: Stages = {}
        self._traced: weakref.WeakKeyDictionary[Trace, Stages] = weakref.WeakKeyDictionary()

    def _set(self, scale: float, growth: float, backoff: float, interval: int) -> None:
        if not scale > 0:
            raise fail(ArgumentError, "GradScaler", f"a scale of {scale} is not positive")
        if not growth > 1 or not 0 < backoff < 1:
            raise fail(ArgumentError, "GradScaler", f"growth_factor={growth} and backoff_factor={backoff} do not stand "
                                                    "on both sides of 1")
        steps = as_whole(interval)
        if steps is None or steps < 1:
            raise fail(ArgumentError, "GradScaler", f"growth_interval={interval!r} is not a positive integer")
        self.growth_factor, self.backoff_factor, self.growth_interval = float(growth), float(backoff), steps

    @property
    def _stages(self) -> Stages:
        trace = current_trace()
        if trace is None:
            return self._eager
        trace.assume(self)
        return self._traced.setdefault(trace, {})

    def scale(self, loss: Any) -> Any:
        """The loss, or each of a list or tuple of losses, times the scale; half floats in float32."""
        if not self.enabled:
            return loss
        if isinstance(loss, list | tuple):
            return type(loss)(self.scale(one) for one in loss)
        wide = mo.asarray(loss)
        wide = wide.astype(wide.dtype.compute)
        for state in (self._scale, self._good):  # they lie where the loss does
            state.follow(wide.device)
        return wide * self._scale.value.astype(wide.dtype)

    def unscale_(self, optimizer: Any) -> None:
        """Divide the optimiser's gradients by the scale now, for instance to clip them before `step`; once a step."""
        if not self.enabled:
            return
        stages = self._stages
        if id(optimizer) in stages:
            done = "stepped" if stages[id(optimizer)].stepped else "unscaled"
            raise fail(ArgumentError, "GradScaler", f"gradients of this optimiser were {done} since the last update",
                       "call update() after step(), and unscale_() at most once before it")
        finite = self._look(optimizer)
        with mo.no_grad():
            for parameter in _with_gradients(optimizer):
                parameter.grad = parameter.grad * self._inverse().astype(parameter.dtype)
        stages[id(optimizer)] = _Stage(finite, unscaled=True)

    def step(self, optimizer: Any) -> None:
        """`optimizer.step()` with the gradients as they were without scaling, or nothing if one is not finite."""
        if not self.enabled:
            optimizer.step()
            return
        stages = self._stages
        stage = stages.get(id(optimizer))
        if stage is None:
            stage = stages[id(optimizer)] = _Stage(self._look(optimizer), unscaled=False)
        if stage.stepped:
            raise fail(ArgumentError, "GradScaler", "step() was called before for this optimiser",
                       "call update() after every step()")
        optimizer.step(scale=None if stage.unscaled else self._inverse(), apply=stage.finite)
        stage.stepped = True

    def update(self, new_scale: float | None = None) -> None:
        """After the steps: back off if one was skipped, grow after enough good ones; or take a new scale."""
        if not self.enabled:
            return
        stages = self._stages
        if new_scale is None and not stages:
            raise fail(ArgumentError, "GradScaler", "nothing was unscaled since the last update", "call step() first")
        with mo.no_grad():
            scale, good = self._scale.value, self._good.value
            if new_scale is not None:
                assign([(self._scale, mo.asarray(float(new_scale), dtype=mo.float32)), (self._good, good * 0)])
            else:
                finite = _all([stage.finite for stage in stages.values()])
                full = good + 1 == self.growth_interval
                larger = scale * self.growth_factor
                grown = mo.where(mo.logical_and(full, mo.isfinite(larger)), larger, scale)
                assign([(self._scale, mo.where(finite, grown, scale * self.backoff_factor)),
                        (self._good, mo.where(mo.logical_and(finite, mo.logical_not(full)), good + 1, 0))])
        stages.clear()

    def _inverse(self) -> mo.Tensor:
        return mo.reciprocal(self._scale.value)

    def _look(self, optimizer: Any) -> mo.Tensor:
        """Whether all gradients are finite; of parameters that are shared out, on all ranks."""
        parameters = _with_gradients(optimizer)
        gradients = [parameter.grad for parameter in parameters]
        with mo.no_grad():
            parts: dict[Any, list[mo.Tensor]] = {}
            for parameter in parameters:
                parts.setdefault(parameter.across, []).append(mo.all(mo.isfinite(parameter.grad)))
            finite = _all([_all(own) if across is None else _everywhere(_all(own), across)
                           for across, own in parts.items()])
        if current_trace() is None:  # what comes next asks for these more than once
            mo.realise(finite, *gradients, *take_pending())
        return finite

    def get_scale(self) -> float:
        """The scale now; 1 where scaling is not enabled."""
        return float(self._scale.value.item()) if self.enabled else 1.0

    def static_key(self) -> Any:
        return (id(self), self.enabled, self.growth_factor, self.backoff_factor, self.growth_interval)

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers from which `load_state_dict` goes on; empty where scaling is not enabled."""
        if not self.enabled:
            return {}
        return {"scale": self.get_scale(), "growth_factor": self.growth_factor, "backoff_factor": self.backoff_factor,
                "growth_interval": self.growth_interval, "growth_tracker": int(self._good.value.item())}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a state that `state_dict` gave."""
        if not self.enabled:
            return
        if not saved:
            raise fail(ArgumentError, "GradScaler", "the saved state is empty: it is that of a scaler not enabled")
        self._set(saved["scale"], saved["growth_factor"], saved["backoff_factor"], saved["growth_interval"])
        self._scale.value = mo.asarray(float(saved["scale"]), dtype=mo.float32)
        self._good.value = mo.asarray(int(saved["growth_tracker"]), dtype=mo.int64)
        entries.forget()


def _everywhere(condition: mo.Tensor, across: Any) -> mo.Tensor:
    """Whether a condition is true on all ranks."""
    fails: mo.Tensor = across.max(mo.logical_not(condition).astype(mo.float32))
    return fails == 0


def _with_gradients(optimizer: Any) -> list[Any]:
    if not hasattr(optimizer, "parameters") or not hasattr(optimizer, "step"):
        raise fail(ArgumentError, "GradScaler", f"{type(optimizer).__name__} is not an optimiser")
    found = [parameter for parameter in optimizer.parameters() if parameter.grad is not None]
    if not found:
        raise fail(ArgumentError, "GradScaler", "no parameter has a gradient",
                   "call scaler.scale(loss).backward() first")
    return found


def _all(parts: list[mo.Tensor]) -> mo.Tensor:
    """Whether all are true: neighbours first, nothing copied together."""
    while len(parts) > 1:
        pairs = [mo.logical_and(parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[len(parts) // 2 * 2:]
    return parts[0]
