"""Files that others wrote, damaged in one place: each is read, or is one sentence of Morpho's own."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import plan
from morpho.base.errors import MorphoError
from morpho.cli.guard import sentence_of
from morpho.runtime.code_cache.cache import BoundedCache

Rng = np.random.Generator
# What may stand where a number or a text belongs.
ODD: list[Any] = [None, True, -1, 0, 2**70, float("nan"), float("inf"), "", "x", "\ud800", [], [[]], {}, {"a": [None]},
                  [float("nan")], 1.5]


def check(act: Callable[[], object]) -> bool:
    """Whether it was refused, in one sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            act()
    except MorphoError as error:
        text = sentence_of(error)
        assert text.startswith("[") and "\n" not in text and len(text) < 700, text
        text.encode()
        return True
    return False


def bytes_changed(raw: bytes, rng: Rng) -> bytes:
    """Some bytes overwritten, left out or doubled, mostly among the first ones, where headers stand."""
    data = bytearray(raw)
    for _ in range(int(rng.integers(1, 4))):
        if len(data) < 8:
            break
        at = int(rng.integers(0, len(data) if rng.random() < 0.3 else min(len(data), 140)))
        match int(rng.integers(0, 4)):
            case 0:
                data[at] = int(rng.integers(0, 256))
            case 1:
                data[at] = int(rng.choice(list(b"([{'\"9\\,L-")))
            case 2:
                del data[at:at + int(rng.integers(1, 8))]
            case _:
                data = data[:max(at, 1)]
    return bytes(data) or b"\x93"


def value_changed(document: Any, rng: Rng) -> Any:
    """The document with one of its values, of any depth, replaced or removed."""
    copy = json.loads(json.dumps(document))
    part, trail = copy, []
    while isinstance(part, dict | list) and len(part) and (not trail or rng.random() < 0.8):
        key = list(part)[int(rng.integers(0, len(part)))] if isinstance(part, dict) else int(rng.integers(0, len(part)))
        trail.append((part, key))
        part = part[key]
    branch, key = trail[-1]
    if rng.random() < 0.15:
        del branch[key]
    else:
        branch[key] = ODD[int(rng.integers(0, len(ODD)))]
    return copy


@pytest.mark.parametrize("kind", ["npy", "npz", "compressed npz"])
def test_arrays(kind: str, tmp_path: Path, rng: Rng) -> None:
    path = tmp_path / f"x.{kind[-3:]}"
    write = {"npy": lambda: np.save(path, np.arange(12.0).reshape(3, 4)),
             "npz": lambda: np.savez(path, a=np.ones(3), b=np.arange(4)),
             "compressed npz": lambda: np.savez_compressed(path, a=np.ones(30), b=np.arange(4))}[kind]
    write()
    raw, refused = path.read_bytes(), 0
    for _ in range(120):
        path.write_bytes(bytes_changed(raw, rng))
        refused += check(lambda: mo.load(path))
    assert refused > 30


BAD_ARRAYS = {"junk.npz": b"PK\x03\x04junk", "open.npy": b"\x93NUMPY\x01\x00\x10\x00{'descr': (((((\n",
              "empty.npy": b"", "short.npy": b"\x93NUMPY", "large.npy": b"\x93NUMPY\x01\x00v\x00"
              + b"{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606, 9), }".ljust(117) + b"\n"}


@pytest.mark.parametrize("name", BAD_ARRAYS)
def test_inputs_of_onnx_models(name: str, tmp_path: Path) -> None:
    """As `morpho run model.onnx --input x=FILE` reads them."""
    from morpho.cli.program.onnx import run

    model = tmp_path / "model.onnx"
    mo.onnx.save(lambda x: x + 1, model, mo.ones(3))
    (tmp_path / name).write_bytes(BAD_ARRAYS[name])
    with pytest.raises(MorphoError, match=rf"^\[run\] {name} is no \.npy or \.npz file of numbers"):
        run([str(model)], [str(tmp_path / name)], None)


def test_run_json_of_checkpoints(tmp_path: Path, rng: Rng) -> None:
    """What can be read is taken by the optimiser or refused, and a refusal leaves the optimiser as it was."""
    weights = mo.nn.Linear(2, 2)
    rule = mo.optim.AdamW(weights.parameters(), lr=0.1)
    checkpoints = mo.models.Checkpoints(tmp_path)
    path = checkpoints.write(1, weights, rule, {"step": 1, "losses": [1.0]}) / "run.json"
    document = {key: value for key, value in json.loads(path.read_text()).items() if key not in ("sha256", "self")}
    before = rule.state_dict()
    plain = {key: before[key] for key in ("count", "param_groups")}
    refused = 0
    for _ in range(60):
        path.write_text(json.dumps(value_changed(document, rng)))
        if check(checkpoints.read):
            refused += 1
        elif check(partial(rule.load_state_dict, checkpoints.read().optimiser)):
            refused += 1
            assert {key: rule.state_dict()[key] for key in plain} == plain
        rule.load_state_dict(before)
    assert refused > 15
    path.write_text("[" * 100_000)
    with pytest.raises(MorphoError, match=r"step-00000001 cannot be read: run\.json is nested too deeply"):
        checkpoints.read()


@pytest.mark.parametrize(("key", "value", "text"), [
    ("count", float("nan"), r"run\.json has count = nan"), ("count", "3", r"run\.json has count = '3'"),
    ("count", [1, -1], r"run\.json has count = \[1, -1\]"), ("groups", {}, r"run\.json has groups = \{\}"),
    ("groups", [{"lr": float("nan")}], r"run\.json has groups = \[\{'lr': nan\}\]"),
    ("numbers", [1], r"run\.json has numbers = \[1\]"), ("format", "1", r"run\.json has format = '1'")])
def test_parts_of_run_json_are_named(key: str, value: Any, text: str, tmp_path: Path) -> None:
    weights = mo.nn.Linear(2, 2)
    checkpoints = mo.models.Checkpoints(tmp_path)
    path = checkpoints.write(1, weights, mo.optim.SGD(weights.parameters(), lr=0.1), {}) / "run.json"
    document = {name: part for name, part in json.loads(path.read_text()).items() if name not in ("sha256", "self")}
    path.write_text(json.dumps({**document, key: value}))
    with pytest.raises(MorphoError, match=r"step-00000001 cannot be read: " + text):
        checkpoints.read()


@pytest.mark.parametrize(("change", "text"), [
    ({"count": 2.5}, "count of the saved state is 2.5"), ({"count": "1"}, "count of the saved state is '1'"),
    ({"param_groups": [3]}, "param_groups of the saved state has 3"),
    ({"slots": None}, "slots of the saved state is None"),
    ({"param_groups": [{"lr": "fast"}]}, "lr in param_groups of the saved state is 'fast'"),
    ({"param_groups": [{"betas": [0.9]}]}, r"betas in param_groups of the saved state is \[0\.9\]"),
    ({"param_groups": [{"lr": -1.0}]}, "lr=-1.0")])
def test_a_state_that_is_refused_changes_nothing(change: dict[str, Any], text: str) -> None:
    rule = mo.optim.AdamW([mo.nn.Parameter(mo.ones(2))], lr=0.1)
    before = rule.state_dict()
    with pytest.raises(MorphoError, match=text):
        rule.load_state_dict({**before, **change})
    assert rule.state_dict()["param_groups"] == before["param_groups"] and rule.state_dict()["count"] == 0


CLUSTER = {"name": "office", "network": {"bandwidth": "1Gbit/s", "latency": "0.2ms"},
           "node": [{"name": "desk", "count": 2, "memory": "32GB", "memory_bandwidth": "40GB/s", "efficiency": 0.5,
                     "flops": {"f32": "1TFLOP/s"}, "measured": {"layer": ["12ms", "0.8ms"]}}],
           "link": [{"between": ["desk-1", "desk-2"], "bandwidth": "10Gbit/s", "latency": "50us"}]}
QUANTITIES = ["1e999999999GB", "1e400s", "9" * 400, "²", "1..2GB/s", "1e-999999999ms", "0x10", "-1GB"]


def test_cluster_files(tmp_path: Path, rng: Rng, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "office.json"
    monkeypatch.setattr(f"{__name__}.ODD", ODD + QUANTITIES)
    refused = 0
    for _ in range(150):
        path.write_text(json.dumps(value_changed(CLUSTER, rng)))
        refused += check(lambda: plan.Cluster.load(path))
    assert refused > 40


@pytest.mark.parametrize("value", ["1" + "0" * 400, "0x" + "f" * 5000, "1e400", "nan"])
def test_numbers_beyond_floats_in_cluster_files(value: str, tmp_path: Path) -> None:
    path = tmp_path / "office.toml"
    path.write_text(f'[[node]]\nname = "a"\nmemory = "1GB"\nmemory_bandwidth = "1GB/s"\nflops = "1GFLOP/s"\n'
                    f"efficiency = {value}\n")
    with pytest.raises(MorphoError, match=r"office\.toml: node 1 \('a'\) has efficiency = "):
        plan.Cluster.load(path)
    with pytest.raises(MorphoError, match="has efficiency = 1000"):
        plan.Node("a", 1, 1.0, {"f32": 1.0}, efficiency=10**400)


def test_tokenizers(tmp_path: Path, rng: Rng) -> None:
    mo.weights.save_tokenizer(tmp_path, mo.weights.train_bpe("one and one", vocab_size=258))
    path = tmp_path / "tokenizer.json"
    document = {**json.loads(path.read_text()), "truncation": {"max_length": 8}}
    refused = 0
    for _ in range(60):
        path.write_text(json.dumps(value_changed(document, rng)))
        refused += check(lambda: mo.weights.load_tokenizer(path))
    assert refused > 20
    path.write_text(json.dumps({**document, "normalizer": {"type": "Prepend", "prepend": "\ud800"}}))
    with pytest.raises(MorphoError, match=r"a text in normalizer\.prepend holds half of a surrogate pair"):
        mo.weights.load_tokenizer(path)


def endless() -> dict[str, Any]:
    branch: list[Any] = [1.0]
    branch.append(branch)
    return {"x": branch}


DEEP: dict[str, Callable[[Any], object]] = {
    "asarray": lambda tree: mo.asarray(tree["x"]), "add": lambda tree: mo.ones(2) + tree["x"],
    "index": lambda tree: mo.ones(3)[tree["x"]], "compile": lambda tree: mo.compile(lambda a: a)(tree),
    "grad": lambda tree: mo.grad(lambda a: a["x"][0])(tree), "map": lambda tree: mo.tree.map(lambda a: a, tree),
    "scan": lambda tree: mo.scan(lambda c, x: (c, x), tree, mo.ones(2)),
    "vmap": lambda tree: mo.vmap(lambda a: a)(tree),
    "result": lambda tree: mo.compile(lambda a: tree)(mo.ones(2)),
    "save": lambda tree: mo.save(tree, "never.safetensors")}


@pytest.mark.parametrize("name", DEEP)
def test_lists_and_dicts_that_contain_themselves(name: str) -> None:
    with pytest.raises(ValueError, match=r"nested more than 100 levels deep.*is one part of itself"):
        DEEP[name](endless())


def test_a_caller_without_stack_is_told_so() -> None:
    """A tree that ends is not to blame for a recursion of the caller's own."""
    def deeper() -> Any:
        mo.tree.map(lambda leaf: leaf, [[[1]]])
        return deeper()

    with pytest.raises(RecursionError):
        deeper()


def test_a_handler_that_needs_the_entry_being_made() -> None:
    cache: BoundedCache[str, int] = BoundedCache(1 << 20, "programs")
    key = "k" * 5000
    with pytest.raises(MorphoError) as error:
        cache.get_or_create(key, lambda: cache.get_or_create(key, lambda: 1, 1), 1)
    text = str(error.value)
    assert "in the middle of making an entry" in text and "set a flag, and compute afterwards" in text
    assert len(text) < 400
