"""Operations and models through both doors: `torch.compile(backend="morpho")` and `mo.from_torch`."""

from __future__ import annotations

import os
import subprocess
import tomllib
import warnings
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra `torch`")

import morpho as mo  # noqa: E402
import morpho.torch  # noqa: E402
from morpho.torch.aten import TABLE  # noqa: E402
from pytorch import programs  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2e-3}


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch._dynamo.reset()
    morpho.torch.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def close(found: Any, expected: Any, name: str) -> None:
    """The same structure, dtypes and shapes, and values within the dtype's tolerance."""
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            close(one, other, name)
        return
    tolerance = TOLERANCE.get(expected.dtype, 2e-6)
    torch.testing.assert_close(found, expected, rtol=10 * tolerance, atol=tolerance, equal_nan=True, check_stride=True,
                               msg=lambda text: f"{name}: {text}")


@pytest.mark.parametrize("group", sorted(programs.GROUPS))
def test_operations_through_torch_compile(group: str) -> None:
    """Values, dtypes and strides are eager PyTorch's, and nothing stays in PyTorch."""
    module = programs.Group(group)
    expected = module(*programs.operands())
    found = torch.compile(module, backend="morpho", fullgraph=True)(*programs.operands())
    for name, value in expected.items():
        close(found[name], value, name)
    assert morpho.torch.report().left == {}
    assert morpho.torch.report().functions == 1


@pytest.mark.parametrize("group", sorted(programs.GROUPS))
def test_operations_through_export(group: str) -> None:
    """The same through `torch.export`, with NumPy arrays in and Morpho tensors out."""
    module = programs.Group(group)
    f = mo.from_torch(module, programs.operands())
    found = f(*[operand.numpy() for operand in programs.operands()])
    for name, value in module(*programs.operands()).items():
        parts, wanted = (list(v) if isinstance(v, list | tuple) else [v] for v in (found[name], value))
        close([torch.from_dlpack(part) for part in parts], [part.contiguous() for part in wanted], name)


def test_all_core_operations_but_three_are_in_the_table() -> None:
    """Two of which have a number or a size that the data decide, and one changes its argument's size in place."""
    from benchmarks.pytorch.opinfo import HANDLED, core_operations

    core = core_operations()
    missing = [name for name in core if name not in TABLE and name not in HANDLED]
    assert missing == ["aten._local_scalar_dense.default", "aten.nonzero.default", "aten.resize_.default"]
    assert len(core) - len(missing) >= 0.95 * len(core)


def test_no_compiler_and_no_other_program_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor needs a C++ compiler; here a training step starts no process at all."""
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", forbidden)
    monkeypatch.setattr(os, "posix_spawn", forbidden)
    layer = torch.nn.Linear(7, 3)
    torch.compile(lambda x: layer(x).tanh(), backend="morpho", fullgraph=True)(torch.ones(5, 7)).sum().backward()
    assert layer.weight.grad.shape == (3, 7) and morpho.torch.report().functions == 2


def test_pytorch_finds_the_backend_of_an_installed_morpho() -> None:
    """By the entry point, without an import of `morpho.torch`."""
    from morpho.torch.backend import morpho

    read = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    entry = EntryPoint("morpho", read["project"]["entry-points"]["torch_dynamo_backends"]["morpho"], "")
    assert entry.load() is morpho


def test_sixty_operations() -> None:
    """What the two tests above promise."""
    assert sum(len(group) for group in programs.GROUPS.values()) >= 60


MODELS = {"language": (programs.Language, lambda: torch.randint(50, (2, 12))),
          "images": (programs.Images, lambda: torch.randn(3, 3, 16, 16))}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_models_through_both_doors(name: str) -> None:
    """A small GPT and a small residual network: each is one native function, and equal to eager PyTorch."""
    make, data = MODELS[name]
    module, x = make().eval(), data()
    with torch.no_grad():
        expected = module(x)
        compiled = torch.compile(module, backend="morpho", fullgraph=True)
        close(compiled(x), expected, name)
        found = compiled(x).numpy()
    report = morpho.torch.report()
    assert report.functions == 1 and report.left == {} and report.calls == 2
    for threads in (1, 2):  # the same bits through either door, with any number of threads
        with mo.settings(threads=threads):
            assert np.array_equal(mo.from_torch(module, x)(x.numpy()).numpy(), found)


def test_an_exported_function_calls_no_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it look PyTorch up: weights are Morpho tensors over PyTorch's memory, and see what is written to it."""
    module = torch.nn.Linear(3, 2)
    f = mo.from_torch(module, torch.ones(4, 3))
    x = np.ones((4, 3), np.float32)
    before = f(x).numpy().copy()
    with torch.no_grad():
        module.bias.add_(1.0)

    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("PyTorch was called")

    for name in ("empty", "randint", "from_numpy", "from_dlpack", "as_tensor"):
        monkeypatch.setattr(torch, name, forbidden)
    np.testing.assert_allclose(f(x).numpy(), before + 1.0, rtol=1e-6)
    np.testing.assert_allclose(f(np.zeros((4, 3), np.float32)).numpy()[0], module.bias.tolist(), rtol=1e-6)


def test_structures_names_and_sizes_of_exported_functions() -> None:
    """Arguments by name, dictionaries and tuples out, and dynamic sizes without compiling anew."""

    class Two(torch.nn.Module):
        def forward(self, a: Any, b: Any = None) -> Any:
            return {"sum": a + b, "pair": (a * 2, b), "rows": (a @ b.t()).reshape(-1)}

    n = torch.export.Dim("n", min=1, max=64)
    f = mo.from_torch(Two(), torch.ones(5, 3), {"b": torch.ones(5, 3)}, dynamic_shapes={"a": {0: n}, "b": {0: n}})
    for size in (5, 2, 9):
        a = np.full((size, 3), 2.0, np.float32)
        found = f(a, b=a)
        assert found["sum"].numpy().tolist() == (a + a).tolist() and found["pair"][1].shape == (size, 3)
        assert found["rows"].shape == (size * size,)
    assert f.stats["recompiles"] == 0


def test_an_exported_function_with_random_numbers_takes_a_key() -> None:
    """The same key draws the same."""
    f = mo.from_torch(torch.nn.Dropout(0.5), torch.ones(64))
    x = np.ones(64, np.float32)
    one, again, other = (f(x, mo.random.key(seed)).numpy() for seed in (1, 1, 2))
    assert one.tolist() == again.tolist() != other.tolist()
    assert set(one.tolist()) == {0.0, 2.0}


def test_what_cannot_be_exported_is_said() -> None:
    """All lacking operations at once; modules that write; what is no module."""

    class Lacking(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.linalg.svd(x)[1], torch.linalg.qr(x)[0]

    with pytest.raises(RuntimeError, match=r"lacks: .*_linalg_svd.* x 1.*linalg_qr.* x 1"):
        mo.from_torch(Lacking(), torch.ones(3, 3))
    with pytest.raises(ValueError, match=r"writes to .*running_mean.*module.eval\(\)"):
        mo.from_torch(programs.Images().train(), torch.ones(2, 3, 16, 16))
    with pytest.raises(ValueError, match=r"a function is no torch\.nn\.Module"):
        mo.from_torch(lambda x: x, torch.ones(3))


def test_a_module_called_with_another_shape_than_its_example_says_so() -> None:
    f = mo.from_torch(torch.nn.Linear(4, 2), torch.ones(1, 4))
    assert f(np.ones((1, 4), np.float32)).shape == (1, 2)
    for shape in ((3, 4), (4,)):
        with pytest.raises(mo.errors.ArgumentError, match=r"example was of \(1, 4\).*test_doors.py.*dynamic_shapes"):
            f(np.ones(shape, np.float32))
    with pytest.raises(mo.errors.ArgumentError, match="the example holds a ndarray"):
        mo.from_torch(torch.nn.Linear(4, 2), np.ones((1, 4), np.float32))


def test_networks_for_images_have_the_documented_sizes() -> None:
    """What `morpho bench torch` calls ResNet, MobileNet and EfficientNet is layer for layer that."""
    from benchmarks.pytorch.vision import NETWORKS, PARAMETERS

    with torch.device("meta"):
        assert {name: sum(p.numel() for p in make().parameters()) for name, make in NETWORKS.items()} == PARAMETERS
