"""Commitments and audits: honest answers are confirmed, every kind of lie is refuted, damaged files are refused."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import Running, chat_folder, serving
from typer.testing import CliRunner

import morpho as mo
from morpho.cli.main import app
from morpho.serve.engine.audit import audit, check_document, read_commitments, reseal
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Event, Grammar, Request, SamplingParams
from morpho.serve.hosting.engines import EngineOptions
from morpho.serve.hosting.registry import Spec

CONFIG = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
          "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 160}
PARAMS = SamplingParams(temperature=0.8, top_k=9, seed=3, max_tokens=40, commitment=True)


def create(dtype: str = "float32") -> Any:
    mo.nn.seed(0)
    model = mo.models.create("llama", **CONFIG)
    return model if dtype == "float32" else model.to(dtype=dtype)


def ends(engine: Engine, prompt: tuple[int, ...], params: SamplingParams, **more: Any) -> list[Event]:
    return [event for event in engine.submit(Request(prompt, params, "a", **more)) if event.finish is not None]


@pytest.fixture(scope="module")
def engine() -> Any:
    with Engine(create(), pages=24) as engine:
        yield engine


@pytest.fixture(scope="module")
def honest(engine: Engine) -> dict[str, Any]:
    document = ends(engine, (1, 2, 3), PARAMS)[0].commitment
    assert document is not None
    return document


@pytest.mark.parametrize("dtype, autocast", [("float32", None), ("float32", "bfloat16")])
def test_honest_answers_are_confirmed(dtype: str, autocast: str | None) -> None:
    """Several texts at once, of all kinds of sampling, with guesses; 32 tokens take less than 300 bytes."""
    kinds = [replace(PARAMS, n=3, max_tokens=70), replace(PARAMS, temperature=0.0, max_tokens=70),
             replace(PARAMS, seed=None, top_p=0.9, min_p=0.01, repetition_penalty=1.3, frequency_penalty=0.2,
                     logit_bias={3: 2.0}),
             replace(PARAMS, min_tokens=4, stop_token_ids=tuple(range(10)), allowed_token_ids=tuple(range(30)))]
    with Engine(create(dtype), pages=64, autocast=autocast) as engine, \
            Engine(create(dtype), pages=8, autocast=autocast, max_batch=1, drafted=0) as auditor:
        streams = [engine.submit(Request((5, 6, 7) * (1 + number), params, str(number)))
                   for number, params in enumerate(kinds)]
        documents = [event.commitment for stream in streams for event in stream if event.finish is not None]
        assert len(documents) == 6
        for document in documents:
            assert document is not None
            verdict = audit(document, auditor)
            assert verdict.confirmed and verdict.checked == len(document["tokens"]), verdict.reasons
            assert len(document["records"]) <= -(-len(document["tokens"]) // 32) * 300
            sampled = audit(document, auditor, blocks=1, seed=4)
            assert sampled.confirmed and sampled.checked <= 32
        assert documents[-1] is not None and documents[-1]["finish"] == "stop" and documents[-1]["tokens"][-1] < 10


def lie(engine: Engine, claim: dict[str, Any], prompt: tuple[int, ...], params: SamplingParams) -> dict[str, Any]:
    """A commitment whose header says something else from the first link on."""
    true_chain = engine._chain

    def lying_chain(*given: Any) -> Any:
        chain = true_chain(*given)
        assert chain is not None
        header = chain._header_of
        chain._header_of = lambda: {**header(), **claim}
        return chain
    engine._chain = lying_chain  # type: ignore[method-assign]
    try:
        document = ends(engine, prompt, params)[0].commitment
    finally:
        del engine._chain
    assert document is not None
    return document


def test_lies_of_a_server_are_refuted(engine: Engine, honest: dict[str, Any]) -> None:
    """It used another prompt, seed, temperature or weights than its header says from the beginning."""
    sampling = honest["sampling"]
    for claim, prompt, params in (({"prompt": [1, 2, 3]}, (1, 2, 4), PARAMS),
                                  ({"sampling": sampling}, (1, 2, 3), replace(PARAMS, seed=4)),
                                  ({"sampling": sampling}, (1, 2, 3), replace(PARAMS, temperature=0.80001)),
                                  ({"sampling": sampling}, (1, 2, 3), replace(PARAMS, top_p=0.5))):
        assert not audit(lie(engine, claim, prompt, params), engine).confirmed
    tampered, rounded = create(), create()
    weight = tampered.model.layers[0].mlp.down_proj.weight
    bits = weight.numpy(copy=True)
    bits.view(np.uint32)[3, 5] ^= 1  # the lowest bit of one weight
    weight.assign(mo.asarray(bits))
    for parameter in rounded.parameters():
        if parameter.ndim == 2 and parameter.shape[1] == 32:
            parameter.assign(mo.quantise(parameter.value, "q8_0").dequantise())
    for model in (tampered, rounded):
        with Engine(model, pages=8) as other:
            verdict = audit(lie(other, {"weights": honest["weights"]}, (1, 2, 3), PARAMS), engine)
            assert not verdict.confirmed and verdict.first is not None and "weights" not in verdict.reasons[0]
            assert "the weights are sha256:" in audit(lie(other, {}, (1, 2, 3), PARAMS), engine).reasons[0]


def test_changed_commitments_are_refuted(engine: Engine, honest: dict[str, Any]) -> None:
    tokens = [*honest["tokens"]]
    tokens[7] = (tokens[7] + 1) % 64
    verdict = audit(reseal(honest, tokens=tokens), engine)
    assert verdict.first == 7 and "and the answer has" in verdict.reasons[0]
    raw = bytearray(base64.b64decode(honest["records"]))
    for place, first in ((0, 0), (4, 0), (6 * 32 + 3, 31), (len(raw) - 1, 39)):
        changed = bytearray(raw)
        changed[place] ^= 1
        verdict = audit(reseal(honest, records=base64.b64encode(changed).decode()), engine)
        assert not verdict.confirmed and verdict.first == first
    assert "ended by its length" in audit(reseal(honest, most=41), engine).reasons[0]
    assert "it stopped, and neither" in audit(reseal(honest, finish="stop"), engine).reasons[0]


def test_damaged_files_are_refused_by_name(honest: dict[str, Any], engine: Engine, tmp_path: Path,
                                           rng: np.random.Generator) -> None:
    for changes, words in (({"tokens": honest["tokens"][:-1]}, "'records' has 288 bytes, and 39 tokens have 282"),
                           ({"tokens": ["a"]}, "'tokens' is not a list"), ({"finish": "x"}, "'finish' is 'x'"),
                           ({"most": -1}, "'most' is -1"), ({"format": "2"}, "the format is '2'"),
                           ({"records": "?"}, "'records' or a number cannot be read"),
                           ({"weights": None}, "'weights' is 'None'"), ({"more": 1}, "'more' is no field"),
                           ({"index": 1}, "the seal does not fit the rest")):
        with pytest.raises(mo.errors.ArgumentError, match=words):
            check_document({**honest, **changes})
    with pytest.raises(mo.errors.ArgumentError, match="the sampling of the commitment cannot be read"):
        audit(reseal(honest, sampling={"unknown": 1}), engine)
    with pytest.raises(mo.errors.ArgumentError, match="token 64 is not in the model's vocabulary"):
        audit(reseal(honest, prompt=[64]), engine)
    with pytest.raises(mo.errors.ArgumentError, match="in half floats, whose bits"):
        audit(reseal(honest, device="cuda", autocast="bfloat16"), engine)
    with pytest.raises(mo.errors.ArgumentError, match="blocks=0 checks nothing"):
        audit(honest, engine, blocks=0)
    text = json.dumps(honest).encode()
    file = tmp_path / "damaged.json"
    for _ in range(150):  # no damage is a traceback, and none is confirmed
        damaged = bytearray(text)
        damaged[rng.integers(len(damaged))] ^= 1 << int(rng.integers(8))
        file.write_bytes(damaged if rng.random() < 0.8 else damaged[:rng.integers(len(damaged))])
        if file.read_bytes() != text:
            with pytest.raises(mo.errors.ArgumentError):
                read_commitments(file)


def test_weights_that_change_end_a_committed_text(honest: dict[str, Any]) -> None:
    model = create()
    with Engine(model, pages=8) as engine:
        assert engine.place()["weights"] == honest["weights"]
        stream = engine.submit(Request((1, 2), replace(PARAMS, max_tokens=150), "a"))
        events = iter(stream)
        next(events)
        weight = next(iter(model.parameters()))
        weight.assign(weight.value * 2)
        engine.refresh()
        *_, last = events
        assert last.error is None or "the weights changed" in last.error
        assert engine.place()["weights"] != honest["weights"]


def test_adapters(tmp_path: Path) -> None:
    learning = create()
    mo.nn.add_lora(learning, rank=2, targets=["q_proj"])
    for name, parameter in learning.named_parameters():
        if "lora_B" in name:
            parameter.assign(mo.full(parameter.shape, 0.1))
    mo.models.save_adapter(learning, tmp_path / "mine")
    with Engine(create(), pages=24) as engine, Engine(create(), pages=8) as plain:
        engine.add_adapter("mine", tmp_path / "mine")
        documents = [ends(engine, (1, 2), PARAMS, adapter=name)[0].commitment for name in ("mine", None)]
        for document in documents:
            assert document is not None and audit(document, engine).confirmed
        assert documents[0] is not None
        assert not audit(reseal(documents[0], adapter=None), engine).confirmed
        with pytest.raises(mo.errors.ArgumentError, match="--adapter"):
            audit(documents[0], plain)


def test_over_http_and_the_command(server: Running, chat_model: Path, tmp_path: Path) -> None:
    """Whole answers and streams; the text of an answer is checked against its tokens."""
    asked = {"model": "tiny", "max_tokens": 36, "n": 2, "seed": 4, "commitment": True}
    whole = server.post("/v1/completions", prompt="to be or", temperature=0.7, stop=["q"], **asked).json()
    chat = server.post("/v1/chat/completions", messages=[{"role": "user", "content": "or not"}], **asked).json()
    chunks = [json.loads(line[6:]) for line in server.post(
        "/v1/completions", prompt="to be or", temperature=0.7, stop=["q"], stream=True, **asked).text.splitlines()
        if line.startswith("data: {")]
    streamed = [each["choices"][0]["commitment"] for each in chunks if each["choices"][0].get("commitment")]
    assert sorted(each["index"] for each in streamed) == [0, 1]
    assert {each["seal"] for each in streamed} == {each["commitment"]["seal"] for each in whole["choices"]}
    file, command = tmp_path / "answer.json", CliRunner()
    for body in (whole, chat):
        file.write_text(json.dumps(body))
        result = command.invoke(app, ["audit", str(file), str(chat_model)])
        assert result.exit_code == 0 and result.output.count("every bit agrees") == 2, result.output
    whole["choices"][1]["text"] += "x"
    file.write_text(json.dumps(whole))
    result = command.invoke(app, ["audit", str(file), str(chat_model), "--blocks", "1"])
    assert result.exit_code == 3 and "the text is not that of the tokens" in result.output
    file.write_text(json.dumps({"choices": [{"text": "x"}]}))
    result = command.invoke(app, ["audit", str(file)])
    assert result.exit_code != 0 and "holds no commitment" in str(result.exception)


def test_run_writes_a_commitment(chat_model: Path, tmp_path: Path) -> None:
    """The same text as without; a stop text ends it."""
    command, file = CliRunner(), tmp_path / "c.json"
    given = ["run", str(chat_model), "to be", "--tokens", "20", "--seed", "5", "--raw", "--temperature", "0.9"]
    plain, committed = command.invoke(app, given), command.invoke(app, [*given, "--commit", str(file)])
    assert plain.stdout == committed.stdout and committed.exit_code == 0
    result = command.invoke(app, ["audit", str(file), str(chat_model)])
    assert result.exit_code == 0 and "confirmed: 20 of 20" in result.output
    assert json.loads(file.read_text())["text"].strip() in committed.stdout


def test_a_server_takes_new_weights(tmp_path: Path) -> None:
    """Between two steps, without a restart; the digest is that of the new file, and another form is refused."""
    folder = chat_folder(tmp_path / "policy")
    asked = {"prompt": "to be", "max_tokens": 8, "temperature": 0, "commitment": True, "ignore_eos": True}
    options = EngineOptions(kv_bytes=1 << 20, max_batch=8, warm=False)
    with serving(Spec("policy", folder), make_engine=options, watch_s=0) as server:
        before = server.post("/v1/completions", **asked).json()["choices"][0]
        engine = server.engine()
        model, tokenizer = mo.models.load_with_tokenizer(folder)
        for parameter in model.parameters():
            parameter.assign(parameter.value * -1.5)
        mo.models.save(folder, model)
        told = server.post("/v1/weights", model="policy").json()
        after = server.post("/v1/completions", **asked).json()["choices"][0]
        assert told["weights"] == after["commitment"]["weights"] != before["commitment"]["weights"]
        assert server.engine() is engine and after["text"] != before["text"]
        with Engine(model, tokenizer, pages=8) as alone:
            assert audit(after["commitment"], alone).confirmed and not audit(before["commitment"], alone).confirmed
        chat_folder(folder, layers=2)
        refused = server.post("/v1/weights", model="policy")
        assert refused.status_code == 409 and "in the new weights" in refused.json()["error"]["message"]
        assert server.post("/v1/completions", **asked).json()["choices"][0]["text"] == after["text"]


@pytest.mark.parametrize("kind", ["regex", "json_object"])
def test_grammars(chat_model: Path, kind: str) -> None:
    pytest.importorskip("llguidance")
    model, tokenizer = mo.models.load_with_tokenizer(chat_model)
    grammar = Grammar("regex", "[a-e]{8,40}") if kind == "regex" else Grammar("json_object")
    with Engine(model, tokenizer, pages=24) as engine:
        [last] = ends(engine, (1, 2), replace(PARAMS, grammar=grammar, max_tokens=50))
        assert last.commitment is not None and audit(last.commitment, engine).confirmed
        assert audit(last.commitment, engine, blocks=1, seed=1).confirmed
