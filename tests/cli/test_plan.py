"""`morpho plan`, `plan check`, `plan measure`: tables, files, pictures, and errors of one sentence with exit code 2."""

from __future__ import annotations

import doctest
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import plan
from morpho.cli import main as command
from morpho.cli.planning import measure, measure_layers

NODE = {"memory": "16GB", "memory_bandwidth": "40GB/s", "flops": "1TFLOP/s"}
OFFICE: dict[str, Any] = {
    "network": {"bandwidth": "1Gbit/s", "latency": "0.2ms"},
    "node": [{**NODE, "name": "server", "memory": "64GB", "memory_bandwidth": "100GB/s"},
             {**NODE, "name": "desk", "count": 2}, {**NODE, "name": "laptop", "memory": "2GB"}],
}
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def office(tmp_path: Path) -> str:
    path = tmp_path / "office.json"
    path.write_text(json.dumps(OFFICE), encoding="utf-8")
    return str(path)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Exit code, output and errors of a command line."""
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["morpho", *words])
        monkeypatch.setenv("COLUMNS", "200")
        code = 0
        try:
            command.main()
        except SystemExit as error:
            code = int(error.code or 0)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def test_the_table(run: Run, office: str) -> None:
    code, out, _ = run("plan", "gpt2", "--cluster", office, "--batch", "8")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("gpt2 (f16) on office, batch 8, context 1024")
    assert lines[1].split() == ["stage", "machine", "layers", "memory", "of", "compute", "send", "bound", "by"]
    p = plan.solve(plan.ModelCard.from_config("gpt2", 8, 1024, "f16"), plan.Cluster.load(office))
    for stage in p.stages:
        assert any(f"{stage.node} " in line and f"[{stage.start}, {stage.end})" in line for line in lines)
    assert f"bottleneck: stage {p.predicted.bottleneck + 1} on" in out
    assert "proven optimal" in out and f"{p.predicted.tokens_per_s:.4g} tokens/s" in out and "first token after" in out


def test_files_and_pictures(run: Run, office: str, tmp_path: Path) -> None:
    names = {option: str(tmp_path / f"{option}.svg") for option in ("plot", "gantt", "gantt-token", "front")}
    target = str(tmp_path / "plan.json")
    code, out, _ = run("plan", "gpt2", "-c", office, "--objective", "balanced", "--json", target, *(
        word for option, path in names.items() for word in (f"--{option}", path)))
    assert code == 0 and f"wrote {target}" in out
    for path in names.values():
        assert Path(path).read_text(encoding="utf-8").startswith("<svg")
    assert plan.Plan.from_json(Path(target).read_text(encoding="utf-8")).optimal
    code, out, _ = run("plan", "check", target)
    assert code == 0 and "the plan is what it says" in out and "give --model to compare" in out and "sampled" in out
    code, out, _ = run("plan", "check", target, "--model", "gpt2", "--cluster", office)
    assert code == 0 and "give --" not in out and "the cluster is the one given" in out
    code, out, _ = run("plan", "check", target, "--model", "gpt2-medium")
    assert code == 1 and "WRONG  the model is the one given" in " ".join(out.split()).replace("WRONG the", "WRONG  the")
    data = json.loads(Path(target).read_text(encoding="utf-8"))
    data["predicted"]["tokens_per_s"] *= 2
    Path(target).write_text(json.dumps(data), encoding="utf-8")
    code, out, _ = run("plan", "check", target)
    assert code == 1 and "WRONG" in out and "not what it says" in out


def test_json_alone(run: Run, office: str) -> None:
    code, out, _ = run("plan", "gpt2", "-c", office, "--json", "-")
    assert code == 0 and plan.Plan.from_json(out).card.name == "gpt2"


def test_constraints_reach_the_solver(run: Run, office: str) -> None:
    code, out, _ = run("plan", "gpt2", "-c", office, "--exclude", "server", "--pin", "0:2=laptop", "--max-stages", "2",
                       "--headroom", "0.2", "--tied", "copy", "--dtype", "int8", "--objective", "latency", "--json",
                       "-")
    p = plan.Plan.from_json(out)
    assert code == 0 and p.objective == "latency" and p.card.dtype == "int8"
    assert p.constraints.pinned == {0: "laptop", 1: "laptop"} and p.constraints.excluded == ("server",)
    assert p.stages[0].node == "laptop" and len(p.stages) <= 2 and "server" not in {stage.node for stage in p.stages}
    assert p.stages[0].memory_available_bytes == 1_600_000_000


def test_comparison(run: Run, office: str) -> None:
    code, out, _ = run("plan", "gpt2", "-c", office, "--compare", "--seconds", "0.1")
    table = out[out.index("every strategy"):]
    assert code == 0
    for name in plan.strategies():
        assert name in table
    assert "proven optimal" in table and "0.00 %" in table


def test_what_if(run: Run, office: str) -> None:
    code, out, _ = run("plan", "gpt2", "-c", office, "--what-if", "drop desk-2", "--what-if",
                       "link server-laptop 10Gbit/s 0.1ms")
    table = out[out.index("what if"):]
    assert code == 0
    assert all(words in table for words in ("as it is", "drop desk-2", "link server-laptop", "all together"))
    code, _, err = run("plan", "gpt2", "-c", office, "--what-if", "drop chair")
    assert code == 2 and "unknown node 'chair'" in err


def test_simulation_and_explanation(run: Run, office: str) -> None:
    code, out, _ = run("plan", "gpt2", "-c", office, "--jitter", "0.2", "--slow", "server=2", "--fail", "desk-1=0.05s",
                       "--shared", "server,desk-1", "--explain")
    assert code == 0 and "simulated" in out and "passes lost to failures" in out
    assert "what relief is worth" in out and "if a node dies" in out


WRONG: list[tuple[list[str], str]] = [
    (["--objective", "speed"], "no objective 'speed'"), (["--strategy", "luck"], "no strategy 'luck'"),
    (["--dtype", "f8"], "dtype 'f8'"), (["--exclude", "chair"], "no node 'chair'"), (["--pin", "a"], "--pin 'a'"),
    (["--pin", "x=server"], "--pin x=server"),
    (["--pin", "0=server", "--pin", "0=laptop"], "pinned to server and to laptop"),
    (["--pin", "99=server"], "layer 99"), (["--slow", "server"], "--slow 'server'"),
    (["--slow", "server=fast"], "'fast'"), (["--fail", "server=soon"], "'soon'"), (["--plot", "plan.gif"], "plan.gif"),
    (["--headroom", "1.5"], "headroom is 1.5"),
    (["--activations", "f64"], "'f64'"), (["--json", "/nowhere/plan.json"], "cannot be written"),
    (["--context", "5000000"], "short"), (["--shared", "server,chair"], "no node 'chair'"),
]


@pytest.mark.parametrize(("words", "complaint"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_mistakes_are_one_sentence(run: Run, office: str, words: list[str], complaint: str) -> None:
    code, _, err = run("plan", "gpt2", "-c", office, *words)
    assert code == 2 and complaint in err and "Traceback" not in err and len(err.strip().splitlines()) == 1


def test_a_model_that_fits_nowhere_names_layer_and_shortfall(run: Run, office: str) -> None:
    code, _, err = run("plan", "llama-405b", "-c", office)
    assert code == 2 and "short" in err and "GB" in err
    tables = {**OFFICE, "node": [{**NODE, "name": "tiny", "memory": "50MB"}]}
    Path(office).write_text(json.dumps(tables), encoding="utf-8")
    code, _, err = run("plan", "gpt2", "-c", office)
    assert code == 2 and "layer 0 (embedding) needs" in err and "tiny" in err and "short" in err


CONFIG = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100, "n_positions": 32}


@pytest.mark.parametrize(("change", "complaint"), [
    ({"n_embd": None}, "lacks 'n_embd'"), ({"n_layer": -2}, "n_layer is -2"), ({"n_head": "four"}, "n_head is 'four'"),
    ({"model_type": "abacus"}, "model_type 'abacus'"),
    ({"n_head": 7}, "n_embd is 64 and n_head is 7, which does not divide it"),
])
def test_config_files(run: Run, office: str, tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    assert run("plan", str(tmp_path), "-c", office)[0] == 0
    path.write_text(json.dumps({**CONFIG, **change}), encoding="utf-8")
    code, _, err = run("plan", str(path), "-c", office)
    assert code == 2 and "config.json" in err and complaint in err and "Traceback" not in err


def test_the_context_that_is_assumed(run: Run, office: str, tmp_path: Path) -> None:
    """A model's own positions where they are fewer than the usual 1024 tokens; a note says what was taken."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    _, out, _ = run("plan", str(tmp_path), "-c", office)
    assert re.search(r"context 32\s*$", out, re.MULTILINE) and "longer" not in out  # the line is as long as the path
    assert "note: a context of 32 tokens is assumed; the model has positions for 32" in out
    _, out, _ = run("plan", str(tmp_path), "-c", office, "--context", "64")
    assert "context 64" in out and "is assumed" not in out
    assert "note: the context of 64 is longer than the model's 32 positions" in out
    _, out, _ = run("plan", "gpt2", "-c", office)
    assert "context 1024" in out and "is assumed" not in out  # as many as it has positions
    assert plan.ModelCard.from_config(CONFIG, context=None).context == 32
    assert plan.ModelCard.from_config({**CONFIG, "n_positions": 2048}, context=None).notes == (
        "a context of 1024 tokens is assumed; the model has positions for 2048",)


def test_names_of_the_registry(run: Run, office: str) -> None:
    code, out, _ = run("plan", "prenorm-small", "-c", office)
    assert code == 0 and "prenorm-small (f16)" in out
    code, _, err = run("plan", "resnet18", "-c", office)
    assert code == 2 and "resnet18 is of another kind" in err and "smollm2-135m" in err and "Traceback" not in err


def test_files_that_are_not_there_or_not_what_they_should_be(run: Run, office: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{", encoding="utf-8")
    for words in (["plan", "gpt2", "-c", "no.toml"], ["plan", "gpt2", "-c", str(broken)],
                  ["plan", str(broken), "-c", office], ["plan", "no-such-model", "-c", office],
                  ["plan", "check", "no.json"], ["plan", "check", str(broken)],
                  ["plan", "check", office]):
        code, _, err = run(*words)
        assert code == 2 and "Traceback" not in err and err.strip(), words
        assert words[:2] != ["plan", "check"] or words[2].rsplit("/", 1)[-1] in err.replace("\n", ""), words


def test_help_and_no_trace_in_a_process_of_its_own(office: str) -> None:
    start = [sys.executable, "-m", "morpho", "plan"]
    found = subprocess.run([*start, "--help"], capture_output=True, text=True, check=True)
    for words in ("--cluster", "--what-if", "--compare", "plan check", "plan measure", "Constraints"):
        assert words in found.stdout
    found = subprocess.run([*start, "gpt2", "-c", "no.toml"], capture_output=True, text=True, check=False)
    assert found.returncode == 2 and found.stderr.startswith("[plan] no.toml cannot be read") and not found.stdout


def test_measure(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "ROWS", 8)
    monkeypatch.setattr(measure, "INNER", 64)
    monkeypatch.setattr(measure, "COLUMNS", 64)
    monkeypatch.setattr(measure_layers, "ROUNDS", 1)
    code, out, err = run("plan", "measure", "--name", "here", "--anew")
    assert code == 0 and out.startswith('[[node]]\nname = "here"\n') and "cluster file" in err
    again = run("plan", "measure", "--name", "here")
    assert again[1] == out  # kept
    import tomllib

    path = tmp_path / "here.toml"
    path.write_text(out, encoding="utf-8")
    node = plan.Cluster.load(path).node("here")
    assert node.memory_bytes > 0 and node.rate("f32") > 0 and node.rate("int8") > 0
    assert tomllib.loads(out)["node"][0]["flops"].keys() >= {"f32", "bf16", "int8"}
    assert run("plan", "measure", "--name", 'a"b')[0] == 2


def test_the_example_of_a_node() -> None:
    assert doctest.testmod(measure).failed == 0 and doctest.testmod(measure_layers).failed == 0


@pytest.mark.parametrize("option", [("--what-if", "drop chair"), ("--plot", "plan.pdf"), ("--error-budget", "nan"),
                                    ("--front", "front.svg")])
def test_mistakes_are_said_before_anything_is_printed(run: Run, office: str, option: tuple[str, str]) -> None:
    code, out, err = run("plan", "gpt2", "-c", office, *option)
    assert code == 2 and not out and len(err.strip().splitlines()) == 1 and "<string>" not in err


TINY = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96}


@pytest.mark.parametrize("dtype", ["f32", "q4"])
def test_layers_of_a_model_are_measured_and_used(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                 dtype: str) -> None:
    monkeypatch.setattr(measure_layers, "ROUNDS", 1)
    monkeypatch.setattr(measure, "profile", lambda anew: {"memory_bytes": 8e9, "memory_bytes_per_s": 1e10, "f32": 1e11})
    config = tmp_path / "config.json"
    config.write_text(json.dumps(TINY), encoding="utf-8")
    asked = ("plan", "measure", "--name", "here", "--model", str(config), "--context", "8", "--dtype", dtype)
    code, out, err = run(*asked)
    assert code == 0, err
    path = tmp_path / "here.toml"
    path.write_text(out, encoding="utf-8")
    times = plan.Cluster.load(path).node("here").measured
    card = plan.ModelCard.from_config(str(config), context=8, dtype=dtype)
    keys = {layer.key for layer in card.layers}
    # Look-ups in packed tables keep their roofline, and that is said.
    assert set(times) == {key for key in keys if dtype == "f32" or not key.startswith("embedding")}
    assert ("not measured: embedding" in err) == (dtype == "q4") and all(min(pair) > 0 for pair in times.values())
    planned = plan.solve(card, plan.Cluster.load(path), objective="latency")
    block = next(pair for key, pair in times.items() if key.startswith("block"))
    assert planned.stages[0].binds == "measured" and planned.predicted.latency_s > 2 * block[1]
    assert run(*asked)[1] == out  # kept


def test_an_encoder_has_no_time_for_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(measure_layers, "calls_of", lambda layer, causal: (lambda: "prompt", lambda: "token"))
    monkeypatch.setattr(measure_layers, "best_of", lambda call: calls.append(call()) or 1.0)
    found = measure_layers.layer_times(plan.ModelCard.from_config("t5-small", context=8, dtype="f32"))
    encoder = next(key for key in found if key.startswith("block"))
    assert found[encoder] == (1.0, 0.0) and len(found) > 2 and "token" in calls
    assert all(pair == (1.0, 1.0) for key, pair in found.items() if key.startswith("cross block"))


def test_a_plan_of_an_onnx_file(run: Run, office: str, tmp_path: Path) -> None:
    w = mo.asarray(np.ones((64, 64), np.float32))
    rows = mo.Dim("rows", 1, 4096)
    file = mo.onnx.save(lambda x: mo.relu(mo.relu(x @ w) @ w) @ w, tmp_path / "chain.onnx", mo.zeros((2, 64)),
                        dynamic={"x": {0: rows}})
    code, out, _ = run("plan", str(file), "-c", office)
    assert code == 0
    assert out.startswith("chain.onnx (f32) on office") and "calls/s" in out and "x (1, 64)" in out
    np.save(tmp_path / "x.npy", np.zeros((512, 64), np.float32))
    code, out, _ = run("plan", str(file), "-c", office, "--input", str(tmp_path / "x.npy"), "--json", "-")
    assert code == 0
    p = plan.Plan.from_json(out)
    assert p.card.depth == 3 and plan.check(p).ok
    assert sum(layer.prefill_flops for layer in p.card.layers) >= 3 * 2 * 512 * 64 * 64
    assert p.card.layers[0].weight_bytes == 64 * 64 * 4


def test_onnx_files_that_have_no_plan(run: Run, office: str, tmp_path: Path) -> None:
    w = mo.asarray(np.ones((8, 8), np.float32))
    one = str(mo.onnx.save(lambda x: x @ w, tmp_path / "one.onnx", mo.zeros((2, 8))))
    for words, says in ((("plan", one), "one.onnx cannot be cut"), (("plan", one, "--dtype", "q4"), "--dtype is not"),
                        (("plan", one, "--input", "z=z.npy"), "z.npy"), (("plan", "gone.onnx"), "gone.onnx"),
                        (("plan", "gpt2", "--input", "x.npy"), "MODEL.onnx")):
        code, _, errors = run(*words, "-c", office)
        assert code == 2 and says in errors and "Traceback" not in errors, words
