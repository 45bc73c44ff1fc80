"""Sources of `morpho export`: functions of files, ONNX files, PyTorch's programs, language models. A caller in Rust."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from libraries import SECONDS, Caller, needs
from typer.testing import CliRunner

import morpho as mo
from morpho.ahead.site import export_model
from morpho.cli.main import app
from morpho.models.text.generators import Generator


def command(*words: object) -> str:
    done = CliRunner().invoke(app, ["export", *map(str, words)], catch_exceptions=True)
    return str(done.exception) if done.exception else done.output


def test_a_function_of_a_file(tmp_path: Path) -> None:
    needs("cc")
    (tmp_path / "part.py").write_text("import morpho as mo\ndef f(x, y): return mo.relu(x) @ y\n")
    told = command(f"{tmp_path}/part.py:f", "-o", tmp_path / "out", "--shape", "x=float32:n<=64,4", "--shape",
                   "y=float32:4,3")
    assert "f.h" in told and (tmp_path / "out" / "f.json").exists()
    assert "rows<=" not in told and "int64_t n;" in (tmp_path / "out" / "f.h").read_text()
    for words, refusal in (((f"{tmp_path}/part.py:g",), "no function 'g'"), ((f"{tmp_path}/part.py",), "say which one"),
                           ((f"{tmp_path}/part.py:f", "--shape", "x=flot:3"), "no input"),
                           ((f"{tmp_path}/none.py:f",), "no script")):
        assert refusal in command(*words, "-o", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_an_onnx_file_keeps_its_names(tmp_path: Path) -> None:
    needs("cc")
    mo.nn.seed(0)
    model = mo.nn.Sequential(mo.nn.Linear(4, 8), mo.nn.GELU()).eval()
    mo.onnx.save(model, tmp_path / "net.onnx", mo.zeros((3, 4)), input_names=["rows"], output_names=["scores"])
    assert "net.h" in command(tmp_path / "net.onnx", "-o", tmp_path / "out")
    text = (tmp_path / "out" / "net.h").read_text()
    assert "input: float32 (3, 4)" in text and "net_call(const float *rows, float *scores, void *workspace)" in text


def test_a_program_of_torch_export(tmp_path: Path) -> None:
    needs("cc")
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh()).eval()
    made = mo.torch.from_exported(torch.export.export(module, (torch.ones(4, 3),)))
    x = np.random.default_rng(0).standard_normal((4, 3)).astype("f")
    want = made(x).numpy()
    assert np.allclose(want, module(torch.as_tensor(x)).detach().numpy(), atol=1e-6)
    written = mo.export(made, x, path=tmp_path, name="tanh_layer")
    out = np.zeros((4, 5), "f")
    fields = [field["name"] for field in written.functions["tanh_layer"]["fields"]]
    assert Caller(written).call(dict(zip(fields, (x, out), strict=True))) == 0 and np.array_equal(out, want)
    with pytest.raises(mo.errors.ArgumentError, match=r"no torch\.export\.ExportedProgram"):
        mo.torch.from_exported(module)


def test_a_language_model_goes_on_as_in_python(tmp_path: Path) -> None:
    needs("cc")
    model = mo.models.create("gpt2", vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=64)
    written = export_model(_saved(model, tmp_path / "model"), tmp_path / "out", "native")
    prompt, there = [3, 1, 4, 1, 5], Generator(mo.models.load(tmp_path / "model"), 64)
    prefill, decode = Caller(written, "prefill"), Caller(written, "decode")
    states = {field["name"]: np.zeros(field["shape"], field["dtype"]) for field in prefill.figures["fields"]
              if field["role"] == "state"}
    out, want = np.zeros(50, "f"), there.start(prompt)
    position = np.zeros((), np.int64)
    assert prefill.call({**states, "ids": np.array([prompt]), "position": position, "out": out}, n=len(prompt)) == 0
    for count in range(4):
        assert np.array_equal(out, want)
        token = int(out.argmax())
        want = there.step(token)
        position[...] = len(prompt) + count
        assert decode.call({**states, "ids": np.array([[token]]), "position": position, "out": out}) == 0
    assert np.array_equal(out, want)


def _saved(model: object, folder: Path) -> Path:
    mo.models.save(folder, model)
    return folder


RUST = """
use std::ffi::c_void;
#[repr(C)] struct Buffer { data: *mut c_void, bytes: u64 }
#[repr(C)] struct Args { x: Buffer, out: Buffer, workspace: Buffer, threads: *const c_void }
#[link(name = "double_plus", kind = "dylib")]
extern "C" { fn double_plus(args: *const Args) -> i32; }
#[repr(C, align(64))] struct Workspace([u8; 65536]);
fn main() {
    let mut x = [1.0f32, 2.0, 3.0];
    let mut out = [0.0f32; 3];
    let mut workspace = Workspace([0; 65536]);
    let args = Args { x: Buffer { data: x.as_mut_ptr().cast(), bytes: 12 },
        out: Buffer { data: out.as_mut_ptr().cast(), bytes: 12 },
        workspace: Buffer { data: workspace.0.as_mut_ptr().cast(), bytes: 65536 }, threads: std::ptr::null() };
    let status = unsafe { double_plus(&args) };
    println!("{} {:?}", status, out);
}
"""


def test_a_rust_program_built_by_cargo(tmp_path: Path) -> None:
    needs("cargo", "cc")
    mo.export(lambda x: x * 2 + 1, np.zeros(3, "f"), path=tmp_path / "library", name="double_plus")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.rs").write_text(RUST)
    (tmp_path / "Cargo.toml").write_text('[package]\nname = "caller"\nversion = "0.1.0"\nedition = "2021"\n')
    (tmp_path / "build.rs").write_text(
        f'fn main() {{ println!("cargo:rustc-link-search={tmp_path}/library"); '
        f'println!("cargo:rustc-link-arg=-Wl,-rpath,{tmp_path}/library"); }}')
    done = subprocess.run(["cargo", "run", "--quiet", "--offline"], cwd=tmp_path, capture_output=True, text=True,
                          timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0 [3.0, 5.0, 7.0]\n"
