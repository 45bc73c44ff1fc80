"""PyTorch's own database of operations and samples (`op_db`), called as PyTorch spells them.

Every sample is called twice, `torch.f(*args, **kwargs)` and `mo.f(*args, **kwargs)` with the same values. What both
give is compared: structure, shapes, dtypes, values, and with `gradients` the slope of the first tensor.
"""

from __future__ import annotations

import collections
import contextlib
import json
import math
import signal
import time
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.spelling.differences import DIFFERENCES, is_numpys

SAMPLES = 14  # of one operation and dtype, at most
SECONDS = 10  # for one sample
DTYPES = ("float32", "int64", "bool", "complex64")
# Results that are drawn, uninitialised, or addresses: there is nothing to compare.
# Positional calls that NumPy and PyTorch answer differently: NumPy's meaning holds, and the sample is spelled with
# PyTorch's own keywords, which have its meaning here too.
BY_KEYWORD = {
    "split": ("", "split_size_or_sections", "dim"), "squeeze": ("", "dim"), "sort": ("", "dim", "descending"),
    **dict.fromkeys(("max", "min", "median", "nanmedian"), ("", "dim", "keepdim")),
    "logspace": ("", "", "", "base"),
}
# Elements of equal size have no order that PyTorch promises, eigenvectors no sign.
TIES = ("argsort", "sort", "topk", "kthvalue", "mode", "msort", "median", "nanmedian", "linalg.eig", "linalg.eigvals",
        "linalg.eigh")
DRAWN = ("rand", "normal", "bernoulli", "multinomial", "dropout", "empty", "new_empty", "uniform", "exponential",
         "cauchy", "geometric", "log_normal", "rrelu", "fractional_max_pool", "data_ptr", "lobpcg", "as_strided",
         "resize", "jiterator", "svd_lowrank", "pca_lowrank")


@dataclass
class Tally:
    """Counts of samples by outcome, and examples of each kind of refusal and difference."""

    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    absent: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    notes: dict[str, dict[str, str]] = field(default_factory=dict)  # outcome -> name and dtype -> what was said

    def count(self, outcome: str, name: str, note: str = "") -> None:
        self.outcomes[outcome] += 1
        if note:
            self.notes.setdefault(outcome, {}).setdefault(name, note)

    def add(self, other: Tally) -> None:
        self.outcomes.update(other.outcomes)
        self.absent += other.absent
        self.present += other.present
        for outcome, examples in other.notes.items():
            self.notes.setdefault(outcome, {}).update(examples)

    def summary(self) -> dict[str, int]:
        return {"names present": len(self.present), "names absent": len(self.absent),
                **dict(sorted(self.outcomes.items()))}


def namesake(name: str) -> Callable[..., Any] | None:
    """Morpho's function of the same dotted name."""
    place: Any = mo
    for part in name.removeprefix("nn.functional.").split("."):
        if name.startswith("nn.functional.") and place is mo:
            place = getattr(mo.nn, "functional", mo.nn)
        place = getattr(place, part, None) if not isinstance(place, types.FunctionType) else None
        if place is None:
            break
    if callable(place) and not isinstance(place, type(mo.float32)):
        return place
    return method_of(name) if "." not in name and hasattr(mo.ones((1, 1)), name) else None


def to_morpho(value: Any, device: str) -> Any:
    """Arguments as Morpho takes them."""
    import torch

    if isinstance(value, torch.Tensor):
        return mo.asarray(value.detach().resolve_conj().resolve_neg().numpy(), device=device)
    if isinstance(value, torch.dtype):
        return getattr(mo, str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return device
    if isinstance(value, torch.nn.Module):
        return getattr(mo.nn, type(value).__name__)()
    if callable(value) and (own := namesake(f"nn.functional.{getattr(value, '__name__', '')}")) is not None:
        return own
    if type(value) in (list, tuple):
        return type(value)(to_morpho(item, device) for item in value)
    if isinstance(value, dict):
        return {key: to_morpho(item, device) for key, item in value.items()}
    return value


class Spelled:
    """PyTorch's own call below a sample, which may have the arguments in another order than the database has."""

    def __init__(self, op: Any, arguments: list[Any], named: dict[str, Any]) -> None:
        import torch
        from torch.overrides import TorchFunctionMode

        name, spelled = op.name.rpartition(".")[2], self
        self.call: tuple[list[Any], dict[str, Any]] | None = None
        self.is_method = False
        self.inner: Any = None

        class Recorder(TorchFunctionMode):
            def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
                first = False
                if spelled.call is None and getattr(function, "__name__", "") in (name, op.name.replace(".", "_")):
                    spelled.call, first = (list(args), dict(kwargs or {})), True
                    spelled.is_method = not callable(getattr(torch, name, None)) and (
                        getattr(torch.Tensor, name, None) is function)
                result = function(*args, **(kwargs or {}))
                if first:
                    spelled.inner = result
                return result

        with Recorder():
            self.result = op.op(*arguments, **named)
        if self.call is None or getattr(op.op, "__name__", "") == name:  # the function itself, with nothing around it
            self.call = (arguments, named)
        elif isinstance(self.result, tuple):
            self.result = self.inner  # the database keeps a part of the results
        positions = BY_KEYWORD.get(op.name, ())
        args, options = self.call
        for position, keyword in reversed(list(enumerate(positions))):
            if keyword and position < len(args) and not (keyword == "dim" and isinstance(args[position], torch.Tensor)):
                options = {keyword: args[position], **options}
                args = args[:position]
        if op.name.startswith("atleast_") and len(args) == 1 and isinstance(args[0], tuple | list):
            args = list(args[0])
        if op.name == "meshgrid":
            args = list(args[0]) if len(args) == 1 and isinstance(args[0], tuple | list) else args
        if op.name == "einsum" and len(args) == 2 and isinstance(args[1], tuple | list):
            args = [args[0], *args[1]]
        self.args, self.options = args, options


def leaves(value: Any) -> list[Any]:
    """The tensors and numbers of a result, in order."""
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in leaves(item)]
    return [] if value is None else [value]


def array_of(value: Any) -> np.ndarray:
    if hasattr(value, "detach") and not isinstance(value, mo.Tensor):
        value = value.detach().resolve_conj().resolve_neg()
        return np.asarray((value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy())
    if isinstance(value, mo.Tensor) and value.dtype is mo.bfloat16:
        value = value.astype(mo.float32)
    return value.numpy() if isinstance(value, mo.Tensor) else np.asarray(value)


def difference(got: Any, wanted: Any) -> tuple[str, str]:
    """The outcome, and what differs."""
    ours, theirs = [array_of(leaf) for leaf in leaves(got)], [array_of(leaf) for leaf in leaves(wanted)]
    if len(ours) != len(theirs):
        return "other structure", f"{len(ours)} results, PyTorch {len(theirs)}"
    outcome = "equal"
    for one, other in zip(ours, theirs, strict=True):
        if "O" in (one.dtype.kind, other.dtype.kind):
            return "other structure", f"{one!r}, PyTorch {other!r}"
        if one.shape != other.shape:
            return "other shape", f"{one.shape}, PyTorch {other.shape}"
        if one.dtype.kind in "fc" or other.dtype.kind in "fc":
            tolerance = 2e-3 if one.dtype.itemsize == 2 else 2e-4
            same = np.allclose(one, other, rtol=tolerance, atol=tolerance * max(1.0, float(np.max(
                np.abs(np.nan_to_num(other, posinf=0, neginf=0)), initial=0.0)) / 16), equal_nan=True)
        else:
            same = bool(np.array_equal(one, other))
        if not same:
            return "other values", f"{one.ravel()[:4].tolist()}, PyTorch {other.ravel()[:4].tolist()}"
        if one.dtype != other.dtype:
            outcome = "other dtype"
    return outcome, "" if outcome == "equal" else f"{ours[0].dtype}, PyTorch {theirs[0].dtype}"


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in the block after so many seconds."""
    def stop(*_: object) -> None:
        raise TimeoutError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def slope_by_torch(call: Callable[..., Any], first: Any) -> np.ndarray | None:
    import torch

    point = first.detach().clone().requires_grad_()
    results = [leaf for leaf in leaves(call(point)) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not results or results[0].is_complex():
        return None
    (slope,) = torch.autograd.grad((results[0] * 1.5).sum(), point, allow_unused=True)
    return None if slope is None else slope.numpy()


def compare(tally: Tally, op: Any, dtype: str, device: str, gradients: bool, samples: int) -> None:
    """Every sample of one operation and dtype."""
    import torch

    ours, label = namesake(op.name), f"{op.name} {dtype}"
    assert ours is not None
    try:
        drawn = list(zip(range(samples), op.sample_inputs("cpu", getattr(torch, dtype), requires_grad=False)))
    except Exception as error:  # the database's own
        tally.count("no samples", label, str(error)[:80])
        return
    for _, sample in drawn:
        arguments, named = [sample.input, *sample.args], dict(sample.kwargs)
        if named.get("dropout_p") or str(named.get("device", "cpu")) != "cpu":  # drawn; or nowhere to compare
            continue
        try:
            spelled = Spelled(op, arguments, named)
            wanted = spelled.result
        except Exception:
            tally.count("refused by PyTorch", label)
            continue
        function = method_of(op.name) if spelled.is_method else ours
        try:
            with within(SECONDS):
                own, own_named = to_morpho(spelled.args, device), to_morpho(spelled.options, device)
                got = function(*own, **own_named)
                outcome, note = difference(got, wanted)
        except Exception as error:
            outcome, note = "refused", f"{type(error).__name__}: {error}".split("\n")[0]
            if "NumPy" in note and "PyTorch" in note:
                outcome = "refused with both spellings"
            note = note[:160]
        if outcome.startswith("other") and op.name in DIFFERENCES:
            if is_numpys(op.name, spelled_args(own), spelled_args(own_named), got):
                outcome, note = "NumPy's meaning", DIFFERENCES[op.name]
        if outcome == "other values" and op.name in TIES:
            outcome = "another order of ties"
        tally.count(outcome, label, note)
        if gradients and outcome == "equal" and dtype == "float32" and op.supports_autograd and isinstance(
                sample.input, torch.Tensor) and getattr(own[0], "shape", None) == tuple(sample.input.shape):
            compare_slopes(tally, label, op, function, arguments, named, own, own_named)


def method_of(name: str) -> Callable[..., Any]:
    """The method of tensors, or the property."""
    def call(x: Any, *args: Any, **options: Any) -> Any:
        value = getattr(mo.asarray(x), name)
        return value(*args, **options) if callable(value) else value

    return call


def spelled_args(value: Any) -> Any:
    """Arguments as NumPy takes them."""
    if isinstance(value, mo.Tensor):
        return value.numpy()
    if isinstance(value, type(mo.float32)):
        return value.numpy
    if isinstance(value, dict):
        return {key: spelled_args(one) for key, one in value.items()}
    return type(value)(map(spelled_args, value)) if type(value) in (list, tuple) else value


def compare_slopes(tally: Tally, label: str, op: Any, ours: Callable[..., Any], arguments: list[Any],
                   named: dict[str, Any], own: list[Any], own_named: dict[str, Any]) -> None:
    try:
        wanted = slope_by_torch(lambda x: op.op(x, *arguments[1:], **named), arguments[0])
    except Exception:
        return
    if wanted is None:
        return
    try:
        with within(SECONDS):
            got = mo.grad(lambda x: (leaves(ours(x, *own[1:], **own_named))[0] * 1.5).sum())(own[0]).numpy()
    except Exception as error:
        tally.count("slope refused", label, f"{type(error).__name__}: {error}".split("\n")[0][:160])
        return
    outcome, note = difference(got, wanted)
    tally.count("slope equal" if outcome == "equal" else "slope differs", label, note)


def resumed(path: Path | None) -> dict[str, Tally]:
    """Tallies of operations that an earlier run has written, a line of JSON each."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    return {record["op"]: Tally(collections.Counter(record["outcomes"]), record["absent"], record["present"],
                                record["notes"]) for record in map(json.loads, lines)}


def run(names: Sequence[str] = (), device: str = "cpu", gradients: bool = True, samples: int = SAMPLES,
        dtypes: Sequence[str] = DTYPES, tell: Callable[[str], None] = lambda line: None, resume: Path | None = None,
        minutes: float = math.inf) -> tuple[Tally, str]:
    """Walk the database; `names` chooses operations by parts of their names. Returns the operation before which the
    time was over too, "" for none; with `resume` the next run goes on there."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    whole, seen, earlier, end = Tally(), set(), resumed(resume), time.monotonic() + 60 * minutes
    for op in op_db:
        if names and not any(part in op.name for part in names):
            continue
        if any(part in op.name for part in DRAWN) or "." in op.variant_test_name:
            continue
        place = f"{op.name} {op.variant_test_name}".strip()
        if place in earlier:
            seen.add(op.name)
            whole.add(earlier[place])
            continue
        if time.monotonic() > end:
            return whole, op.name
        tally = Tally()
        if op.name not in seen:
            seen.add(op.name)
            (tally.present if namesake(op.name) else tally.absent).append(op.name)
        torch.manual_seed(0)
        for dtype in dtypes if namesake(op.name) is not None else ():
            if getattr(torch, dtype) in op.dtypes:
                compare(tally, op, dtype, device, gradients, samples)
        whole.add(tally)
        if resume is not None:
            with resume.open("a") as file:
                file.write(json.dumps({"op": place, "outcomes": tally.outcomes, "absent": tally.absent,
                                       "present": tally.present, "notes": tally.notes}) + "\n")
        tell(op.name)
    return whole, ""
