"""Public keywords are PyTorch's: names, order and defaults, from a table of its signatures.

What differs is listed here, with the reason: a keyword that is neither PyTorch's nor in the list fails.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import morpho as mo

TABLE = json.loads((Path(__file__).parent / "torch_signatures.json").read_text())
ROWS = [(place, name) for place, rows in TABLE.items() for name in rows]

NOT_TAKEN = {  # PyTorch's keywords that are not here
    "device": "tensors have one device so far", "inplace": "tensors are values", "size_average": "deprecated there",
    "reduce": "deprecated there", "padding_mode": "zeros only", "return_indices": "mo.argmax", "ceil_mode": "not yet",
    "divisor_override": "not yet", "max_norm": "not yet", "norm_type": "not yet", "scale_grad_by_freq": "not yet",
    "sparse": "gradients are dense", "_weight": "private", "_freeze": "private", "threshold": "softplus is exact",
    "beta": "not yet", "proj_size": "not yet", "foreach": "one program anyway", "capturable": "always",
    "differentiable": "not yet", "fused": "always", "decoupled_weight_decay": "AdamW",
    "last_epoch": "load_state_dict", "error_if_nonfinite": "returned norm", "pin_memory": "one memory",
    "timeout": "threads", "worker_init_fn": "threads", "multiprocessing_context": "threads",
    "generator": "seed=", "persistent_workers": "threads", "pin_memory_device": "one memory", "in_order": "always",
    "recompute_scale_factor": "give size=", "defaults": "a class attribute", "antialias": "not yet",
    "optimizer": "that of the schedulers", "bias": "norms have both or none", "weight": "not yet", "*": "",
    "x": "", "hx": "", "cls": "",
}
OWN = {  # keywords that PyTorch does not have
    "dtype": "of the weights", "std": "of an embedding's first values", "dim": "the class axis", "seed": "of an order",
    "activation": "GLU of other functions", "settings": "by name, see defaults", "lr": "of every rule",
    "maximize": "of every rule",
}
OWN_OF = {("DataLoader", "device"): "where batches go, copied ahead"}  # of one name only
OTHER_NAMES = {("Module", "*"), ("Buffer", "data"), ("Parameter", "data"), ("ModuleList", "modules"),
               ("ParameterList", "values"), ("GLU", "dim")}
OTHER_DEFAULTS = {  # where a default has another value here, and why that is right
    ("DataLoader", "shuffle"): "None means False there", ("DataLoader", "prefetch_factor"): "2 where there are workers",
    ("Softmax", "dim"): "the last axis; None warns there", ("LogSoftmax", "dim"): "the last axis; None warns there",
    ("cosine_similarity", "dim"): "1, or the only axis of vectors", ("Sequential", "args"): "",
    ("ModuleList", "modules"): "", ("ParameterList", "values"): "", ("Buffer", "data"): "a value is needed",
    ("Parameter", "data"): "a value is needed", ("Optimizer", "lr"): "",
    ("random_split", "generator"): "the seed, where there is none",
}


def parameters(thing: Any) -> list[inspect.Parameter]:
    found = list(inspect.signature(thing).parameters.values())
    return [one for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]


@pytest.mark.parametrize(("place", "name"), ROWS)
def test_keywords_are_those_of_pytorch(place: str, name: str) -> None:
    theirs = {row[0]: row[1:] for row in TABLE[place][name]}
    ours = parameters(getattr(getattr(mo, place), name))
    for one in ours:
        if one.name not in theirs:
            assert one.name in OWN or (name, one.name) in OWN_OF, f"{name} has {one.name}, and PyTorch {list(theirs)}"
            continue
        if theirs[one.name] and (name, one.name) not in OTHER_DEFAULTS and one.name != "dtype":
            wanted = theirs[one.name][0]
            default = list(one.default) if isinstance(one.default, tuple) else one.default
            assert default == wanted, f"{name}({one.name}={default!r}), and PyTorch's is {wanted!r}"
    for key in theirs:
        taken = key in {one.name for one in ours} or (name, key) in OTHER_NAMES
        assert taken or key in NOT_TAKEN, f"{name} lacks {key}"


@pytest.mark.parametrize(("place", "name"), ROWS)
def test_what_is_given_by_place_means_the_same(place: str, name: str) -> None:
    """Arguments that both take by place stand in the same places; what stands elsewhere is taken by name only."""
    theirs = [row[0] for row in TABLE[place][name] if row[0] not in ("device", "dtype")]
    ours = [one.name for one in parameters(getattr(getattr(mo, place), name))
            if one.kind is not one.KEYWORD_ONLY and one.name != "dtype"]
    common = [key for key in ours if key in theirs]
    for key in common:
        assert ours.index(key) == theirs.index(key), f"{name}: {ours} and PyTorch's {theirs}"


OLD = {"Linear": ("inputs", "in_features"), "Embedding": ("count", "num_embeddings"), "LSTM": ("hidden", "hidden_size"),
       "LayerNorm": ("width", "normalized_shape"), "MultiHeadAttention": ("heads", "num_heads"),
       "Flatten": ("start", "start_dim"), "Softmax": ("axis", "dim"), "Conv2d": ("outputs", "out_channels")}


@pytest.mark.parametrize("name", OLD)
def test_other_names_are_refused_with_a_hint(name: str) -> None:
    old, new = OLD[name]
    with pytest.raises(mo.errors.ArgumentError, match=rf"^\[{name}\] .*'{old}'.*Hint: write .*{new}=\.\.\."):
        getattr(mo.nn, name)(**{old: 1})


def test_attributes_have_the_names_of_the_keywords() -> None:
    """`layer.in_features`, `opt.param_groups`: what a layer was made with can be asked for."""
    made = {"Linear": (2, 3), "Conv2d": (2, 3, 1), "Conv3d": (2, 3, 1), "BatchNorm2d": (2,), "InstanceNorm1d": (2,),
            "Embedding": (4, 2), "EmbeddingBag": (4, 2), "LayerNorm": (4,), "RMSNorm": (4,), "GroupNorm": (2, 4),
            "LSTM": (2, 3), "GRUCell": (2, 3), "PReLU": (), "Upsample": (4,), "CrossEntropyLoss": (), "CTCLoss": (),
            "Flatten": (), "Softmax": (), "LeakyReLU": (), "MaxPool2d": (2,), "Dropout": ()}
    for name, arguments in made.items():
        layer = getattr(mo.nn, name)(*arguments)
        for one in parameters(getattr(mo.nn, name)):
            if one.name not in ("dtype", "std"):
                assert hasattr(layer, one.name), f"{name}.{one.name}"
