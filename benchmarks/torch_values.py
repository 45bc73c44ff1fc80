"""What PyTorch gives for small inputs, and its signatures, as tables for the tests, which run without it.

    pip install torch==2.13.0
    python -m benchmarks.torch_values     # writes tests/nn/torch_values.json and tests/nn/torch_signatures.json

A row of the first names a class of `nn` or `optim`, its arguments, its inputs and weights, and what came out:
outputs, and gradients of a weighted sum of them. All in float64.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "nn"
RNG = np.random.default_rng(20)


def floats(*shape: int) -> torch.Tensor:
    return torch.tensor(RNG.normal(0, 1, shape).round(3))


def signs(*shape: int) -> torch.Tensor:
    return torch.tensor(RNG.choice([-1, 1], shape))


def classes(below: int, *shape: int) -> torch.Tensor:
    return torch.tensor(RNG.integers(0, below, shape))


Row = tuple[str, list[Any], dict[str, Any], list[Any]]  # class, arguments, settings, inputs

LAYERS: list[Row] = [
    ("Conv3d", [2, 3, 2], {}, [floats(1, 2, 3, 3, 3)]),
    ("Conv3d", [4, 2, [2, 1, 2]], {"stride": [2, 1, 1], "padding": [1, 0, 1], "groups": 2, "bias": False},
     [floats(2, 4, 3, 2, 3)]),
    ("Conv3d", [1, 2, 2], {"dilation": 2, "padding": 1}, [floats(1, 1, 3, 3, 3)]),
    ("Conv3d", [1, 1, [3, 2, 1]], {"padding": "same"}, [floats(1, 1, 3, 3, 2)]),
    ("InstanceNorm1d", [2], {"affine": True}, [floats(2, 2, 4)]),
    ("InstanceNorm2d", [3], {"eps": 0.1}, [floats(2, 3, 2, 2)]),
    ("InstanceNorm2d", [2], {"track_running_stats": True, "momentum": 0.3}, [floats(2, 2, 2, 3)]),
    ("InstanceNorm3d", [2], {"affine": True}, [floats(2, 2, 2, 2)]),
    ("LayerNorm", [[2, 3]], {}, [floats(2, 2, 3)]),
    ("LayerNorm", [3], {"elementwise_affine": False}, [floats(2, 3)]),
    ("LayerNorm", [3], {"bias": False}, [floats(2, 3)]),
    ("RMSNorm", [[2, 3]], {}, [floats(2, 2, 3)]),
    ("PReLU", [], {}, [floats(5)]),
    ("PReLU", [3], {"init": 0.1}, [floats(2, 3, 2)]),
    ("Upsample", [], {"scale_factor": 2}, [floats(1, 2, 3)]),
    ("Upsample", [], {"size": [5, 2]}, [floats(1, 1, 3, 4)]),
    ("Upsample", [], {"scale_factor": 1.7, "mode": "nearest"}, [floats(1, 1, 5)]),
    ("Upsample", [], {"scale_factor": 2.0, "mode": "bilinear"}, [floats(1, 2, 2, 3)]),
    ("Upsample", [], {"scale_factor": [1.5, 2.5], "mode": "bilinear"}, [floats(1, 1, 3, 2)]),
    ("Upsample", [], {"size": [4, 5], "mode": "bilinear", "align_corners": True}, [floats(1, 1, 2, 3)]),
    ("Upsample", [], {"size": 3, "mode": "linear"}, [floats(1, 1, 5)]),
    ("Upsample", [], {"size": [3, 1, 4], "mode": "trilinear"}, [floats(1, 1, 2, 2, 2)]),
    ("EmbeddingBag", [5, 2], {}, [classes(5, 3, 4)]),
    ("EmbeddingBag", [5, 2], {"mode": "sum"}, [classes(5, 4), torch.tensor([0, 3]), floats(4)]),
    ("EmbeddingBag", [5, 2], {"mode": "mean", "padding_idx": 1},
     [torch.tensor([1, 2, 1, 3, 1]), torch.tensor([0, 1, 1, 4])]),
    ("EmbeddingBag", [5, 2], {"mode": "max"}, [classes(5, 6), torch.tensor([0, 2, 2])]),
    ("EmbeddingBag", [5, 2], {"mode": "max"}, [torch.tensor([[0, 2], [4, 1]])]),
    ("EmbeddingBag", [5, 2], {"mode": "sum", "include_last_offset": True},
     [classes(5, 5), torch.tensor([0, 2, 5])]),
    ("RNNCell", [2, 3], {}, [floats(2, 2), floats(2, 3)]),
    ("RNNCell", [2, 3], {"nonlinearity": "relu", "bias": False}, [floats(2)]),
    ("LSTMCell", [2, 3], {}, [floats(2, 2)]),
    ("GRUCell", [2, 3], {}, [floats(2, 2), floats(2, 3)]),
    ("GRUCell", [2, 3], {"bias": False}, [floats(2, 2)]),
]
LOSSES: list[Row] = [row for reduction in ("mean", "sum", "none") for row in (
    ("CrossEntropyLoss", [], {"reduction": reduction}, [floats(2, 3, 3), torch.tensor([[0, 1, 2], [2, -100, 1]])]),
    ("CrossEntropyLoss", [], {"reduction": reduction, "label_smoothing": 0.2}, [floats(3), torch.tensor(1)]),
    ("CrossEntropyLoss", [[0.5, 1.0, 2.0]], {"reduction": reduction, "label_smoothing": 0.2, "ignore_index": 1},
     [floats(4, 3), torch.tensor([0, 1, 2, 2])]),
    ("CrossEntropyLoss", [[0.5, 1.0, 2.0]], {"reduction": reduction, "label_smoothing": 0.1},
     [floats(2, 3), functional.softmax(floats(2, 3), 1)]),
    ("NLLLoss", [[0.5, 1.0, 2.0]], {"reduction": reduction}, [floats(3, 3, 3), classes(3, 3, 3)]),
    ("CTCLoss", [], {"reduction": reduction},
     [floats(5, 2, 4), torch.tensor([[1, 1], [3, 2]]), torch.tensor([5, 4]), torch.tensor([2, 1])]),
    ("CTCLoss", [2], {"reduction": reduction, "zero_infinity": True},
     [floats(3, 2, 4), torch.tensor([1, 1, 3, 0]), torch.tensor([2, 3]), torch.tensor([2, 2])]),
    ("MarginRankingLoss", [0.5], {"reduction": reduction}, [floats(4), floats(4), signs(4)]),
    ("TripletMarginLoss", [1.5], {"reduction": reduction, "p": 3.0, "swap": True},
     [floats(3, 4), floats(3, 4), floats(3, 4)]),
    ("CosineEmbeddingLoss", [0.1], {"reduction": reduction}, [floats(4, 3), floats(4, 3), signs(4)]),
    ("HingeEmbeddingLoss", [0.7], {"reduction": reduction}, [floats(5), signs(5)]),
    ("MultiMarginLoss", [], {"reduction": reduction}, [floats(3, 4), classes(4, 3)]),
    ("MultiMarginLoss", [2, 0.5, [0.5, 1.0, 2.0, 1.5]], {"reduction": reduction}, [floats(3, 4), classes(4, 3)]),
    ("MultiMarginLoss", [], {"reduction": reduction}, [floats(4), torch.tensor(2)]),
)]
OPTIMISERS: list[tuple[str, dict[str, Any]]] = [
    ("RMSprop", {}), ("RMSprop", {"lr": 0.05, "alpha": 0.9, "centered": True, "momentum": 0.8, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.2}),
    ("Adagrad", {"lr": 0.2, "lr_decay": 0.1, "initial_accumulator_value": 0.5, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.1}), ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("LBFGS", {"lr": 0.3, "max_iter": 4}), ("LBFGS", {"lr": 0.5, "max_iter": 7, "history_size": 2}),
    ("SGD", {"lr": 0.1, "maximize": True}),
]
SCHEDULES: list[tuple[str, dict[str, Any], int]] = [
    ("CosineAnnealingWarmRestarts", {"T_0": 3}, 10),
    ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 3, "eta_min": 0.1}, 20),
    ("OneCycleLR", {"max_lr": 2.0, "total_steps": 10}, 9),
    ("OneCycleLR", {"max_lr": 2.0, "epochs": 3, "steps_per_epoch": 4, "three_phase": True, "pct_start": 0.25,
                    "anneal_strategy": "linear", "base_momentum": 0.8, "div_factor": 10.0}, 11),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": 5, "cycle_momentum": False, "final_div_factor": 50.0}, 4),
]


def plain(value: Any) -> Any:
    """As JSON holds it: floats in 13 digits, infinities as words."""
    if isinstance(value, torch.Tensor):
        return plain(value.detach().tolist())
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return float(f"{value:.13g}") if isinstance(value, float) and np.isfinite(value) else \
        str(value) if isinstance(value, float) else value


def module_row(name: str, arguments: list[Any], settings: dict[str, Any], inputs: list[Any]) -> dict[str, Any]:
    taken = [torch.tensor(one) if isinstance(one, list) and isinstance(one[0], float) else
             tuple(one) if isinstance(one, list) else one for one in arguments]
    module = getattr(nn, name)(*taken, **{key: tuple(one) if isinstance(one, list) else one
                                          for key, one in settings.items()}).double()
    for parameter in module.parameters():
        parameter.data = floats(*parameter.shape)
    state = {key: plain(one) for key, one in module.state_dict().items() if not key.endswith("tracked")}
    given = [one.clone().requires_grad_() if one.is_floating_point() else one for one in inputs]
    # Its gradient is that of what comes before a log_softmax: PyTorch takes both steps at once.
    results = module(given[0].log_softmax(-1), *given[1:]) if name == "CTCLoss" else module(*given)
    results = results if isinstance(results, tuple) else (results,)
    weights = [floats(*one.shape) for one in results]
    sum((one * weight).sum() for one, weight in zip(results, weights, strict=True)).backward()  # type: ignore
    return {"name": name, "arguments": arguments, "settings": settings, "inputs": [plain(one) for one in inputs],
            "state": state, "outputs": [plain(one) for one in results], "weights": [plain(one) for one in weights],
            "input_gradients": [plain(one.grad) if one.requires_grad else None for one in given],
            "gradients": {key: plain(one.grad) for key, one in module.named_parameters()},
            "buffers": {key: plain(one) for key, one in module.named_buffers() if not key.endswith("tracked")}}


def optimiser_row(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    matrix, wanted = np.linspace(-1, 1, 12).reshape(4, 3), np.array([0.5, -1.0, 0.25, 1.0])
    weights = torch.tensor([1.0, -0.5, 0.25], dtype=torch.float64, requires_grad=True)
    optimiser = getattr(torch.optim, name)([weights], **settings)

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = ((torch.tensor(matrix) @ weights - torch.tensor(wanted)) ** 2).sum() + (weights ** 4).sum()
        loss.backward()
        return loss

    seen = []
    for _ in range(4):
        optimiser.step(closure)
        seen.append(plain(weights))
    return {"name": name, "settings": settings, "weights": seen}


def schedule_row(name: str, settings: dict[str, Any], steps: int) -> dict[str, Any]:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5, momentum=0.9)
    schedule = getattr(torch.optim.lr_scheduler, name)(optimiser, **settings)
    rates = []
    for _ in range(steps):
        rates.append([plain(optimiser.param_groups[0][key]) for key in ("lr", "momentum")])
        optimiser.step()
        schedule.step()
    return {"name": name, "settings": settings, "rates": rates}


# -- signatures --------------------------------------------------------------------------------------------------------
RECURRENT = [["input_size"], ["hidden_size"], ["num_layers", 1], ["bias", True], ["batch_first", False],
             ["dropout", 0.0], ["bidirectional", False]]
WITHOUT = {  # of classes and functions that Python cannot ask
    "LSTM": RECURRENT, "GRU": RECURRENT, "RNN": [*RECURRENT[:3], ["nonlinearity", "tanh"], *RECURRENT[3:]],
    "linear": [["input"], ["weight"], ["bias", None]],
    "cosine_similarity": [["x1"], ["x2"], ["dim", 1], ["eps", 1e-8]],
    "pairwise_distance": [["x1"], ["x2"], ["p", 2.0], ["eps", 1e-6], ["keepdim", False]],
}


def signature(thing: Any) -> list[Any] | None:
    name = getattr(thing, "__name__", "")
    if name in WITHOUT:
        return WITHOUT[name]
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return None
    rows = []
    for one in parameters:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            rows.append(["*"])
        elif one.default is one.empty:
            rows.append([one.name])
        else:
            default = one.default if isinstance(one.default, int | float | str | None) else \
                list(one.default) if isinstance(one.default, tuple) else "?"
            rows.append([one.name, default])
    return rows


def signatures() -> dict[str, dict[str, Any]]:
    import torch.utils.data as data

    places = {"nn": (nn, functional), "optim": (torch.optim, torch.optim.lr_scheduler, nn.utils), "data": (data,)}
    found: dict[str, dict[str, Any]] = {}
    for place, modules in places.items():
        names = sorted({name for module in modules for name in dir(module) if name[0] != "_"})
        rows = {name: signature(next(getattr(module, name) for module in modules if hasattr(module, name)))
                for name in names if callable(next(getattr(m, name) for m in modules if hasattr(m, name)))}
        found[place] = {name: row for name, row in rows.items() if row is not None}
    return found


def main() -> None:
    torch.manual_seed(0)
    found = {"layers": [module_row(*row) for row in LAYERS], "losses": [module_row(*row) for row in LOSSES],
             "optimisers": [optimiser_row(*row) for row in OPTIMISERS],
             "schedules": [schedule_row(*row) for row in SCHEDULES], "torch": torch.__version__.split("+")[0]}
    lines = [f'"torch": {json.dumps(found.pop("torch"))}']
    lines += [f'"{key}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]"  # type: ignore[attr-defined]
              for key, rows in found.items()]
    (FOLDER / "torch_values.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    import morpho as mo

    ours = {place: set(getattr(mo, place).__all__) for place in ("nn", "optim", "data")}
    table = {place: {name: row for name, row in rows.items() if name in ours[place]}
             for place, rows in signatures().items()}
    places = [f'"{place}": {{\n' + ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
              + "\n}" for place, rows in table.items()]
    (FOLDER / "torch_signatures.json").write_text("{\n" + ",\n".join(places) + "\n}\n")


if __name__ == "__main__":
    main()
