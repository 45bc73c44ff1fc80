"""`shard(model)` (ZeRO-3, as FSDP does it): each rank keeps a part of every layer's parameters. A layer's are gathered
when it is called, and dropped; its gradients come back as each rank's part of the average. The optimiser sees the
parts, so its state is shared out with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.base.trees import flatten
from morpho.cluster import world
from morpho.cluster.collectives import Across, gathered_late, run_now
from morpho.cluster.parallel.replicas import broadcast_states, states_of
from morpho.cluster.parallel.tensor_parallel import own_part
from morpho.nn.module import IncompatibleKeys, Module
from morpho.runtime.groups.group import Group
from morpho.tensor.state.state import assign


def shard(model: mo.nn.Module, group: Group | None = None, reshard: bool = True) -> ShardedModule:
    """The model with its parameters shared out among the ranks; train `parameters()` of what it returns. `reshard`
    drops a layer's gathered parameters after its forward pass and gathers them again, with the layer computed again,
    for its gradient; without it they stay until then. All ranks' batches have one shape.

    >>> model = mo.cluster.shard(mo.nn.Sequential(mo.nn.Linear(4, 8), mo.nn.ReLU(), mo.nn.Linear(8, 2)))
    >>> model(mo.ones((3, 4))).shape
    (3, 2)
    """
    return ShardedModule(model, world.init() if group is None else group, reshard)


class _Unit:
    """The parameters of one layer, as one flat array of which each rank has a part."""

    def __init__(self, names: list[str], parameters: list[Any], group: Group, across: Across) -> None:
        self.names, self.group = names, group
        self.shapes = [tuple(p.shape) for p in parameters]
        self.sizes = [int(p.size) for p in parameters]
        flat = np.concatenate([p.astype(mo.float32 if p.dtype is mo.bfloat16 else p.dtype).numpy().ravel()
                               for p in parameters])
        self.length = flat.size
        padded = np.zeros(-(-self.length // group.size) * group.size, flat.dtype)
        padded[:self.length] = flat
        part = np.split(padded, group.size)[group.rank]
        self.part = mo.nn.Parameter(mo.asarray(part.copy()).astype(parameters[0].dtype))
        self.part.across = across
        if group.size > 1:
            self.part.register_hook(lambda gradient: gradient * (1 / group.size))

    def tensors(self, flat: mo.Tensor) -> list[mo.Tensor]:
        """The parameters from the gathered array."""
        found, place = [], 0
        for shape, size in zip(self.shapes, self.sizes, strict=True):
            found.append(flat[place:place + size].reshape(shape))
            place += size
        return found

    def whole(self, part: mo.Tensor | None = None) -> list[mo.Tensor]:
        """The parameters, gathered from all ranks; or another array that is shared out as they are."""
        return self.tensors(gathered_late(self.part if part is None else part, self.group))


class ShardedModule(Module):
    """A model whose parameters are shared out; made by `shard`.

    >>> model = mo.cluster.shard(mo.nn.Linear(4, 2))
    >>> type(model).__name__, model.group.size
    ('ShardedModule', 1)
    """

    def __init__(self, model: mo.nn.Module, group: Group, reshard: bool) -> None:
        broadcast_states(group, states_of(model))
        self.group, self.reshard, self._across = group, reshard, Across(group)
        self.parts: list[Any] = []
        self._units: list[_Unit] = []
        self._model = (model,)  # not a part of the tree: its parameters are here
        known: dict[int, tuple[_Unit, int]] = {}
        for path, layer in list(model.named_modules()):
            self._take(path, layer, known)

    @property
    def module(self) -> mo.nn.Module:
        """The model itself, whose layers gather their parameters when they are called."""
        return self._model[0]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def train(self, mode: bool = True) -> Any:
        self.module.train(mode)
        return super().train(mode)

    def _take(self, path: str, layer: mo.nn.Module, known: dict[int, tuple[_Unit, int]]) -> None:
        """A layer's own parameters, out of it."""
        own = {name: value for name, value in vars(layer).items() if isinstance(value, mo.nn.Parameter)}
        inside = [key for key, value in vars(layer).items() if isinstance(value, list | tuple | dict)
                  and any(isinstance(each, mo.nn.Parameter)
                          for each in (value.values() if isinstance(value, dict) else value))]
        if inside:
            raise fail(ArgumentError, "shard", f"parameters of {path or 'the model'} are in the container {inside[0]}",
                       "make each an attribute of its own")
        fresh = {name: p for name, p in own.items() if id(p) not in known}
        for dtype in dict.fromkeys(p.dtype for p in fresh.values()):
            names = [name for name, p in fresh.items() if p.dtype is dtype]
            unit = _Unit([f"{path}.{name}" if path else name for name in names], [fresh[name] for name in names],
                         self.group, self._across)
            known |= {id(fresh[name]): (unit, number) for number, name in enumerate(names)}
            self._units.append(unit)
            self.parts.append(unit.part)
        if own:
            self._wrap(layer, {name: known[id(p)] for name, p in own.items()})

    def _wrap(self, layer: mo.nn.Module, places: dict[str, tuple[_Unit, int]]) -> None:
        """Have a layer gather its parameters whenever it is called."""
        forward = type(layer).forward
        units = list(dict.fromkeys(unit for unit, _ in places.values()))
        for name in places:
            object.__setattr__(layer, name, None)

        def called(*args: Any, **kwargs: Any) -> Any:
            gathered = {unit: unit.whole() for unit in units}
            try:
                for name, (unit, number) in places.items():
                    object.__setattr__(layer, name, gathered[unit][number])
                return forward(layer, *args, **kwargs)
            finally:
                for name in places:
                    object.__setattr__(layer, name, None)

        def run(*args: Any, **kwargs: Any) -> Any:
            result = mo.checkpoint(called, *args, **kwargs) if self.reshard else called(*args, **kwargs)
            results: list[Any] = []
            flatten(result, results)
            run_now(*[each for each in results if isinstance(each, mo.Tensor)])
            return result

        object.__setattr__(layer, "forward", run)

    # -- norms and files -----------------------------------------------------------------------------------------------
    def clip_grad_norm(self, max_norm: float) -> mo.Tensor:
        """The same as `mo.optim.clip_grad_norm(model.parameters(), max_norm)`, which knows that they are shared out."""
        norm: mo.Tensor = mo.optim.clip_grad_norm(self.parts, max_norm)
        return norm

    def state_dict(self) -> dict[str, mo.Tensor]:
        """The values of the model as if it were whole, on every rank; all ranks must ask."""
        found = {name: tensor for unit in self._units for name, tensor in zip(unit.names, unit.whole(unit.part.value))}
        return {**found, **self.module.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Take values by the model's own names, on every rank its part; return the names that did not match."""
        missing = [name for unit in self._units for name in unit.names if name not in state_dict]
        if missing and strict:
            raise fail(ArgumentError, "load_state_dict", f"{len(missing)} missing: {', '.join(missing[:10])}")
        new = []
        for unit in self._units:
            if all(name in state_dict for name in unit.names):
                flat = mo.concat([mo.asarray(state_dict[name]).astype(unit.part.dtype).reshape((-1,))
                                  for name in unit.names])
                new.append((unit.part.state, self._part_of(unit, flat)))
        if new:
            assign(new)
        shared = {name for unit in self._units for name in unit.names}
        rest = self.module.load_state_dict({k: v for k, v in state_dict.items() if k not in shared}, strict)
        return IncompatibleKeys([*missing, *rest.missing_keys], rest.unexpected_keys)

    def _part_of(self, unit: _Unit, flat: mo.Tensor) -> mo.Tensor:
        whole = int(unit.part.size) * self.group.size
        if whole > unit.length:
            flat = mo.concat([flat, mo.zeros((whole - unit.length,), dtype=flat.dtype)])
        return own_part(flat, 0, self.group)

    def optimizer_state_dict(self, optimizer: mo.optim.Optimizer) -> dict[str, Any]:
        """The state of an optimiser of `parameters()`, whole: "slots" by the model's own names."""
        saved = optimizer.state_dict()
        slots: dict[str, mo.Tensor] = {}
        for number, unit in enumerate(self._units):
            for key in [name.partition(".")[2] for name in saved["slots"] if name.partition(".")[0] == str(number)]:
                tensor = saved["slots"][f"{number}.{key}"]
                values = unit.whole(tensor) if tensor.shape == unit.part.shape else [tensor] * len(unit.names)
                slots |= {f"{name}:{key}": value for name, value in zip(unit.names, values)}
        return {**saved, "slots": slots}

    def load_optimizer_state_dict(self, optimizer: mo.optim.Optimizer, saved: Mapping[str, Any]) -> None:
        """Go on from what `optimizer_state_dict` gave, on any number of ranks."""
        slots = {}
        for name, tensor in optimizer.state_dict()["slots"].items():
            number, _, key = name.partition(".")
            unit = self._units[int(number)]
            found = [mo.asarray(saved["slots"][f"{each}:{key}"]) for each in unit.names]
            slots[name] = (self._part_of(unit, mo.concat([each.reshape((-1,)) for each in found]))
                           if tensor.shape == unit.part.shape else found[0])
        optimizer.load_state_dict({**saved, "slots": slots})
