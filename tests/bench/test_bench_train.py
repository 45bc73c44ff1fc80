"""The training benchmarks measure what they say: the right losses and tokens, learning, one native call a step."""

from __future__ import annotations

import importlib
import json
from typing import Any

import numpy as np
import pytest

import morpho as mo
from benchmarks.harness.results import ThemeResult
from benchmarks.harness.rounds import Timing
from benchmarks.harness.run import SUITES
from benchmarks.peers import peers_of
from benchmarks.peers.morpho import train as morpho_peer
from benchmarks.peers.self_timed import Made, SelfTimed
from benchmarks.probes import digits
from benchmarks.probes import memory as memory_probe
from benchmarks.train import agreement, cases, first_step, generation, gpt, gpt_memory, gpt_step, mlp_step, smollm2

GPT = (1, 12, 3, 40, 2, 7)
RESNET = (4, 6, 4, 64)
TEXT = (1, 12, 3, 40, 4, 5)


def peer_module(peer: str) -> Any:
    """A peer of the suite; one that is not installed skips the test."""
    if peer != "morpho":
        pytest.importorskip("torch", reason="the peer of this benchmark")
    module = importlib.import_module(peers_of("train")[peer])
    if peer == "torch":
        module.torch.set_grad_enabled(True)
    return module


def losses(module: Any, name: str, inputs: dict[str, np.ndarray], steps: int) -> list[float]:
    """Of the first steps, the first of which is checked."""
    prepared = module.prepare(name, inputs)
    results = module.to_numpy(prepared.function(*prepared.arguments))
    assert cases.check(name, inputs, results) <= 1
    with pytest.raises(ValueError, match="expected"):
        cases.check(name, inputs, (results[0] * 1.03,))
    found = cases.answer(name, results)
    for _ in range(steps - len(found)):
        found += cases.answer(name, module.to_numpy(prepared.function(*prepared.arguments)))
    return found


@pytest.mark.parametrize("peer", ["morpho", "torch"])
def test_a_step_is_right_and_learns(peer: str) -> None:
    module = peer_module(peer)
    found = losses(module, "mlp_step", cases.make_inputs("mlp_step", (3, 8)), 51)
    assert found[-1] < found[0]


def test_the_small_network_is_one_native_call() -> None:
    prepared = morpho_peer.prepare("mlp_step", cases.make_inputs("mlp_step", (3, 8)))
    for _ in range(4):
        prepared.function(*prepared.arguments)
    assert prepared.function.native_calls == 3


def test_a_gpt_step_is_right_and_checkpoints_change_no_bit() -> None:
    inputs = cases.make_inputs("gpt_step", GPT)
    plain = losses(morpho_peer, "gpt_step", inputs, 4)
    assert plain[-1] < plain[0] and abs(plain[0] - gpt.loss(GPT)) < 1e-5
    assert losses(morpho_peer, "gpt_step_checkpoint", inputs, 4) == plain
    half = losses(morpho_peer, "gpt_step_bf16", inputs, 4)
    assert half != plain and np.allclose(half, plain, rtol=gpt.ALLOWED["bfloat16"])


@pytest.mark.parametrize("case, shape", [("gpt_step", GPT), ("resnet_step", RESNET)])
def test_torch_takes_the_same_steps(case: str, shape: tuple[int, ...]) -> None:
    torch, inputs = peer_module("torch"), cases.make_inputs(case, shape)
    assert np.allclose(losses(morpho_peer, case, inputs, 3), losses(torch, case, inputs, 3), rtol=1e-3)


def test_a_resnet_step_is_right_and_learns() -> None:
    found = losses(morpho_peer, "resnet_step", cases.make_inputs("resnet_step", RESNET), 4)
    assert found[-1] < found[0]


def test_generated_tokens_are_checked_against_float64() -> None:
    inputs = cases.make_inputs("generate", TEXT)
    prepared = morpho_peer.prepare("generate", inputs)
    (tokens,) = results = morpho_peer.to_numpy(prepared.function())
    assert cases.check("generate", inputs, results) <= 1 and len(cases.answer("generate", results)) == TEXT[-1]
    with pytest.raises(ValueError, match="below the likeliest"):
        cases.check("generate", inputs, ((tokens + 1) % TEXT[3],))
    with pytest.raises(ValueError, match="4 tokens instead of 5"):
        cases.check("generate", inputs, (tokens[1:],))


def test_the_transformers_library_makes_the_same_tokens() -> None:
    pytest.importorskip("transformers", reason="the peer of this benchmark")
    inputs = cases.make_inputs("generate", TEXT)
    peer = importlib.import_module(peers_of("train")["transformers"])
    found = [module.to_numpy(module.prepare("generate", inputs).function())[0] for module in (morpho_peer, peer)]
    assert found[0].tolist() == found[1].tolist()


def test_self_timed_calls_report_their_own_seconds() -> None:
    prepared = SelfTimed(lambda: Made(0.25, 3, "abc"), ())
    assert prepared.loop()(4) == 1.0
    assert morpho_peer.to_numpy(prepared.function()) == (3, "abc")
    assert cases.check("smollm2_decode", {"new": np.asarray(3)}, (3, "abc")) == 0
    with pytest.raises(ValueError, match="2 tokens instead of 3"):
        cases.check("smollm2_decode", {"new": np.asarray(3)}, (2, "ab"))


def test_unknown_cases_are_refused() -> None:
    with pytest.raises(KeyError):
        cases.make_inputs("vision_step", (1,))
    with pytest.raises(KeyError):
        morpho_peer.prepare("vision_step", {})


class Fake:
    """A session whose peers have fixed seconds by (label, tokens of the last two sizes), and remember who was asked."""

    def __init__(self, seconds: dict[str, float], quick: bool = False) -> None:
        self.seconds, self.quick, self.asked = seconds, quick, []  # type: ignore[var-annotated]
        self.modules, self.missing = peers_of("train"), {"torch_compile": "no C++ compiler"}

    def measure(self, case: str, shape: tuple[int, ...], peers: list[str], rounds: int = 0) -> dict[str, Timing]:
        return self.measure_mixed({peer: (peer, case) for peer in peers}, shape, rounds)

    def measure_mixed(self, labels: dict[str, tuple[str, str]], shape: tuple[int, ...], rounds: int = 0
                      ) -> dict[str, Timing]:
        self.asked.append((list(labels), shape))
        return {label: Timing(peer, [self.seconds[label]], 1, 0.0, [9.0, 8.0])
                for label, (peer, case) in labels.items() if peer not in self.missing}


def test_every_theme_of_the_suite_is_there() -> None:
    suite = SUITES["train"]
    assert suite.themes == ("gpt_step", "mlp_step", "first_step", "gpt_memory", "generation", "smollm2", "resnet")
    for theme in suite.themes:
        assert callable(importlib.import_module(f"{suite.package}.{theme}").run)


def test_the_small_network_has_its_targets() -> None:
    result = mlp_step.run(Fake({"morpho": 4e-6, "torch": 100e-6}))  # type: ignore[arg-type]
    assert [target.verdict for target in result.targets] == ["PASS", "PASS"] and len(result.tables[0].rows) == 2


def test_a_missing_compiler_is_said_and_a_slow_peer_is_left_out() -> None:
    session = Fake({"morpho": 2.0, "measured": 2.0, "torch": 5.0})
    result = gpt_step.run(session)  # type: ignore[arg-type]
    verdicts = {target.name: target.verdict for target in result.targets}
    assert verdicts["f32 step over PyTorch eager"] == "PASS" and verdicts["f32 step over torch.compile"] == "N/A"
    assert any("no C++ compiler" in note for note in result.notes)
    assert session.asked[-1] == (["morpho", "measured"], gpt.SIZE) and any("1280 s" in note for note in result.notes)
    assert verdicts["bf16 step over torch.autocast"] == "PASS" and not result.errors


def test_a_fast_peer_is_measured_at_the_full_size() -> None:
    session = Fake({"morpho": 0.01, "transformers": 0.02})
    result = generation.run(session)  # type: ignore[arg-type]
    assert [names for names, _ in session.asked] == [["morpho", "transformers"]] * 3
    assert [target.figure for target in result.targets] == [2.0, 2.0] and len(result.tables[0].rows) == 3


def test_losses_that_differ_are_an_error() -> None:
    result = ThemeResult("x")
    timings = {name: Timing(name, answer=[9.0, loss]) for name, loss in (("morpho", 8.0), ("torch", 8.001))}
    agreement.same_losses(result, "case", timings, 1e-3)
    assert not result.errors
    agreement.same_losses(result, "case", timings, 1e-5)
    assert len(result.errors) == 1 and "torch" in result.errors[0]


def test_the_parts_of_a_first_step_add_up() -> None:
    spent = {"passes": 300.0, "lower": 100.0, "plan": 100.0, "code": 1000.0, "llvm": 900.0}
    cold = {"first_s": 4.0, "later_s": 2.0, "trace_s": 0.25, "import_s": 0.1, "build_s": 0.2, "kernels": 7,
            "compile_ms": spent}
    warm = {**cold, "first_s": 2.25, "compile_ms": dict.fromkeys(spent, 0.0)}
    assert first_step.parts(cold) == {"trace": 0.25, "passes": 0.5, "LLVM": 1.0, "run": 2.0, "rest": 0.25}
    result = first_step.judge([[cold, warm]])
    assert [target.verdict for target in result.targets] == ["MISS", "PASS", "MISS", "PASS"]
    assert [row[2] for row in result.tables[0].rows] == ["2 s", "250 ms"]


def test_memory_of_a_step_is_what_was_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    answers = {}
    for kind in ("morpho", "checkpoint", "0.97"):
        with mo.settings(threads=2):  # the tiles of many threads would outweigh so small a model
            memory_probe.main("gpt", kind, (2, 24, 3, 40, 4, 32))
        answers[kind] = json.loads(capsys.readouterr().out.splitlines()[-1])
    result = ThemeResult("gpt_memory")
    gpt_memory.tables(result, answers)
    assert not result.errors and len(result.tables[1].rows) == 3
    assert result.targets[0].name.startswith("memory_budget=0.97") and result.targets[0].verdict == "PASS"
    arenas = [answers[kind]["arena_bytes"] for kind in ("morpho", "checkpoint", "0.97")]
    assert arenas[1] < arenas[0] and arenas[2] < arenas[0]
    answers["checkpoint"]["losses"][1] += 1e-6
    gpt_memory.tables(result, answers)
    assert "changed the losses" in result.errors[0]


def test_a_missing_file_is_said_with_the_command_that_fetches_it(tmp_path: Any) -> None:
    with mo.settings(cache_dir=str(tmp_path)):
        result = smollm2.run(None)  # type: ignore[arg-type]
    assert "morpho models pull smollm2" in result.notes[0]
    assert [target.verdict for target in result.targets] == ["N/A", "N/A"]


def test_the_build_of_a_peer_is_said() -> None:
    assert smollm2.built_with({}) == [] and "NEON = 1" in smollm2.built_with({"built with": "CPU : NEON = 1"})[0]


def test_texts_are_compared() -> None:
    assert smollm2.parting({"morpho": "a b"}) == []
    assert "same 3 characters" in smollm2.parting({"morpho": "a b", "llama_cpp": "a b"})[0]
    assert "part after 2 characters" in smollm2.parting({"morpho": "a b", "llama_cpp": "a c"})[0]


def test_digits_say_where_they_come_from() -> None:
    images, classes, source = digits.drawn(300)
    assert images.shape == (300, 8, 8) and set(classes) == set(range(10)) and "drawn" in source
    glyphs = {tuple(np.round(images[classes == digit].mean(0).ravel(), 1)) for digit in range(10)}
    assert len(glyphs) == 10
    answer = digits.train(images, classes, epochs=2)
    assert answer["tested"] == 75 and answer["trained"] == 225 and 0 <= answer["accuracy"] <= 1
