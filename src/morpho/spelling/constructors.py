"""Layers, losses, loaders and schedules made with PyTorch's arguments: `nn.Linear(2, 3, device="cpu")`,
`DataLoader(data, pin_memory=True)`, `nn.MSELoss(size_average=False)`.

A constructor of Morpho that refuses a call hands it here, as functions hand theirs to `calls`. What changes no value is
left out, PyTorch's names become Morpho's, and what has no meaning here stays refused.

>>> mo.nn.Linear(2, 3, device="cpu").weight.shape
(3, 2)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import morpho as mo

ANY: Any = object()
LEFT_OUT: dict[str, tuple[Any, ...]] = {  # argument -> the values that change nothing; ANY: none does
    "pin_memory": (ANY,), "persistent_workers": (ANY,), "timeout": (ANY,), "multiprocessing_context": (ANY,),
    "pin_memory_device": (ANY,), "in_order": (True,), "worker_init_fn": (None,), "prefetch_factor": (None,),
    "batch_size": (None,), "generator": (None,), "last_epoch": (-1,), "verbose": (ANY,), "validate_args": (ANY,),
    "enable_nested_tensor": (ANY,), "mask_check": (ANY,), "process_group": (None,), "sparse": (False,),
    "scale_grad_by_freq": (False,), "max_norm": (None,), "norm_type": (2.0,), "_weight": (None,), "_freeze": (False,),
    "size_average": (None,), "reduce": (None,), "device": (None,), "bias": (True,), "dtype": (None,),
    "inplace": (ANY,), "divisor_override": (None,), "ceil_mode": (False,), "return_indices": (False,),
    "padding_mode": ("zeros",), "use_deterministic_algorithms": (ANY,), "cuda_graph_compatible": (ANY,),
}
RENAMED = {"encoder_layer": "layer", "decoder_layer": "layer", "generator": "seed"}
# Arguments that PyTorch takes by place where Morpho takes them by name, or not at all.
ORDERS = {
    "DataLoader": "dataset batch_size shuffle sampler batch_sampler num_workers collate_fn pin_memory drop_last "
                  "timeout worker_init_fn",
    **dict.fromkeys(("AvgPool1d", "AvgPool2d"), "kernel_size stride padding ceil_mode count_include_pad"),
    **dict.fromkeys(("MaxPool1d", "MaxPool2d"), "kernel_size stride padding dilation return_indices ceil_mode"),
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"),
                    "in_channels out_channels kernel_size stride padding dilation groups bias padding_mode device "
                    "dtype"),
}


class Construction:
    """A constructor's call in Morpho's words."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any],
                 device: Any) -> None:
        self.function, self.args, self.options, self.device = function, args, options, device

    def run(self) -> Any:
        place: AbstractContextManager[Any] = nullcontext() if self.device is None else mo.device(str(self.device))
        with place:
            return self.function(*self.args, **self.options)


def respelled(function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> Construction | None:
    """The call in Morpho's words, or None where some argument has no meaning here."""
    owner, parameters = args[0], inspect.signature(function).parameters
    names = [name for name in parameters if name != "self"]
    given = dict(options)
    places = list(args[1:])
    by_place = [name for name in names if parameters[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    order = next((ORDERS[kind.__name__].split() for kind in type(owner).__mro__ if kind.__name__ in ORDERS), by_place)
    if len(places) > len(by_place) or order is not by_place:
        if len(places) > len(order):
            return None
        repeated = [name for name in order[:len(places)] if name in given]
        if repeated:
            return None
        given, places = {**dict(zip(order, places, strict=False)), **given}, []
    device, kept = None, {}
    for name, value in given.items():
        if name == "device" and name not in names:
            device = value
        elif name in ("size_average", "reduce") and value is not None:
            kept["reduction"] = _reduction(given)
        elif name in names:
            kept[name] = value
        elif (own := RENAMED.get(name)) in names and value is not None:
            kept[str(own)] = value.initial_seed() if name == "generator" else value
        elif not any(plain is ANY or _same(value, plain) for plain in LEFT_OUT.get(name, ())):
            return None
    for name in ("batch_size", "prefetch_factor"):
        if kept.get(name, 0) is None:
            del kept[name]
    try:
        inspect.signature(function).bind(owner, *places, **kept)
    except TypeError:
        return None
    return Construction(function, (owner, *places), kept, device)


def _same(value: Any, plain: Any) -> bool:
    return value is plain or (type(value) in (int, float, str) and value == plain)


def _reduction(given: Mapping[str, Any]) -> str:
    """PyTorch's two truth values of old as the word that took their place."""
    if given.get("reduce") is False:
        return "none"
    return "sum" if given.get("size_average") is False else "mean"
