"""A server over a pipeline of real processes: the tokens of one process, also when a worker is killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mpi4py", reason="workers are MPI processes: pip install 'morpho-tensor[cluster]'")

import httpx
import numpy as np
from serving import Running, chat_folder, serving

import morpho as mo
from morpho.cluster.pipeline.request import Request as Asked
from morpho.cluster.pipeline.request import Stream
from morpho.cluster.workers.ledger import Finished
from morpho.models.text.generation_keys import Defaults
from morpho.serve.engine.request import SamplingParams
from morpho.serve.hosting.engines import EngineOptions
from morpho.serve.hosting.registry import Spec
from morpho.serve.spread.choosing import ServedStream, to_plain
from morpho.serve.spread.options import PipelineOptions
from morpho.serve.spread.worker import MODULE


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def is_over(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_folder(tmp_path_factory.mktemp("spread"), layers=4)


def spread(place: Path, streams: int, positions: int) -> mo.cluster.Pipeline:
    return mo.cluster.Pipeline(place, nodes=3, streams=streams, positions=positions, threads=1, module=MODULE)


@pytest.fixture(scope="module")
def pair(model: Path) -> Iterator[tuple[Running, Running]]:
    """The same model in one process and over three workers."""
    with serving(Spec("tiny", model), make_engine=EngineOptions(kv_bytes=1 << 20, warm=False)) as one, \
            serving(Spec("tiny", model), make_engine=PipelineOptions(spread)) as three:
        yield one, three


ASKED: list[dict[str, Any]] = [
    {"temperature": 0}, {"temperature": 0.9, "seed": 3}, {"temperature": 0.8, "seed": 1, "n": 3},
    {"temperature": 0.7, "seed": 5, "min_p": 0.05, "top_k": 40, "frequency_penalty": 0.5, "presence_penalty": 0.5},
    {"temperature": 0, "logit_bias": {"65": 5}, "repetition_penalty": 1.3}, {"temperature": 0, "logprobs": 3},
    {"temperature": 0, "stop": ["e"]}, {"temperature": 0, "structured_outputs": {"regex": "(yes|no), [0-9]{2}"}},
]


def choices(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    found = response.json()
    return found["choices"], found["usage"]["completion_tokens"]


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: "-".join(asked))
def test_answers_are_those_of_one_process(pair: tuple[Running, Running], asked: dict[str, Any]) -> None:
    body = {"model": "tiny", "prompt": "to be or not", "max_tokens": 12, **asked}
    one, three = (choices(server.post("/v1/completions", **body)) for server in pair)
    assert three == one


def answered(server: Running, **body: Any) -> Any:
    response = server.post("/v1/completions", model="tiny", **body)
    said = response.json()
    return response.status_code, said["choices"] if response.status_code == 200 else said["error"]["message"]


def test_prompts_at_the_rim_of_the_context(pair: tuple[Running, Running]) -> None:
    """A piece of a prompt has 128 tokens, and the context 1024; who asks for more tokens than there is room for gets
    those there is room for, and a prompt without room is refused."""
    for length, wanted in ((127, 2), (128, 2), (129, 2), (1022, 9), (1023, 9), (1024, 1), (5000, 1), (0, 1)):
        body = {"prompt": [7] * length, "max_tokens": wanted, "temperature": 0, "ignore_eos": True, "logprobs": 0}
        one, three = (answered(server, **body) for server in pair)
        assert three == one
        assert one[0] == (200 if 0 < length < 1024 else 400)


def test_clients_that_go_away_change_nothing_for_others(pair: tuple[Running, Running]) -> None:
    """Long and short prompts with settings of their own at once, among streams that are left in the middle."""
    one, three = pair
    bodies = [{"prompt": [*range(40, 40 + length)] * 3, "max_tokens": 30, "logprobs": 0, **ASKED[place]}
              for place, length in enumerate((1, 30, 50, 100, 64, 2))]
    expected = [answered(one, **body) for body in bodies]
    found: dict[int, Any] = {}

    def ask(place: int) -> None:
        found[place] = answered(three, **bodies[place])

    def leave(place: int) -> None:
        body = {"model": "tiny", "prompt": [5, place], "max_tokens": 900, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", three.url + "/v1/completions", trust_env=False, timeout=60, json=body) as response:
            assert [*islice(response.iter_lines(), 1 + 2 * place)]

    before = three.engine().stats().cancelled
    threads = [threading.Thread(target=each, args=(place,)) for place in range(len(bodies)) for each in (leave, ask)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [found[place] for place in range(len(bodies))] == expected
    until(lambda: three.engine().stats().cancelled == before + len(bodies))
    assert three.engine().stats().running == three.engine().stats().waiting == 0


def test_stages_are_shown_and_what_cannot_be_done_is_refused(pair: tuple[Running, Running]) -> None:
    three = pair[1]
    [engine] = three.client.get("/live").json()["engines"]
    spans = [stage["layers"] for stage in engine["stages"] if stage["layers"]]
    assert spans[0][0] == 0 and all(a[1] == b[0] for a, b in pairwise(spans)) and len(spans) > 1
    assert all(stage["alive"] for stage in engine["stages"])
    text = three.client.get("/metrics").text
    assert 'morpho_stage_alive{model="tiny",node="worker-1"} 1.0' in text and "morpho_stage_layers" in text
    assert three.client.get("/ready").status_code == 200
    error = three.post("/v1/completions", model="tiny", prompt="to", max_tokens=4,
                       structured_outputs={"regex": "("}).json()["error"]
    assert "regex is not usable" in error["message"] and error["type"] == "invalid_request_error"


def test_texts_at_once_are_what_the_cache_has_room_for(model: Path) -> None:
    options = PipelineOptions(spread, kv_bytes=32 << 20, max_batch=64)
    network, _ = options.load(model)
    assert options.positions(model, network) == 64 * 1024  # 1024 positions of 4 layers of 2 x 16 numbers are 512 kB
    assert PipelineOptions(spread, kv_bytes=4 << 20).positions(model, network) == 8 * 1024
    assert PipelineOptions(spread, kv_bytes=1 << 20).positions(model, network) == 4 * 1024  # the least


def test_an_encoder_and_decoder_write_text(tmp_path: Path) -> None:
    tokenizer = mo.weights.train_bpe("to be or not to be, that is the question " * 4, 300)
    mo.nn.seed(1)
    network = mo.models.create("t5-small", vocab_size=tokenizer.vocab_size, d_model=32, d_kv=8, d_ff=32, num_layers=1,
                               num_heads=2, eos_token_id=None)
    mo.models.save(tmp_path, network)
    mo.weights.save_tokenizer(tmp_path, tokenizer)
    prompt = [*tokenizer.encode("to be or not")]
    expected = [*mo.models.generate(mo.models.load(tmp_path), prompt, max_new_tokens=6, temperature=0)]

    def two(place: Path, streams: int, positions: int) -> mo.cluster.Pipeline:
        return mo.cluster.Pipeline(place, nodes=2, streams=streams, threads=1, module=MODULE)

    with serving(Spec("t5", tmp_path), make_engine=PipelineOptions(two)) as running:
        found = running.post("/v1/completions", model="t5", prompt=prompt, max_tokens=6, temperature=0).json()
        assert found["choices"][0]["text"] == tokenizer.decode(expected)
        assert found["usage"]["completion_tokens"] == 6
    with serving(Spec("t5", tmp_path), make_engine=EngineOptions(warm=False)) as running:  # and in one process
        same = running.post("/v1/completions", model="t5", prompt=prompt, max_tokens=6, temperature=0).json()
        assert same["choices"][0]["text"] == tokenizer.decode(expected)


def test_adapters_are_refused_by_name(model: Path) -> None:
    with pytest.raises(mo.errors.ArgumentError, match="--lora pirate: a pipeline of workers has no LoRA"):
        PipelineOptions(spread)(None, None, Spec("tiny", model, {"pirate": model}))


def test_a_killed_worker_loses_and_doubles_no_token_of_any_stream(pair: tuple[Running, Running]) -> None:
    one, three = pair
    bodies = [{"model": "tiny", "prompt": f"to be {word}", "max_tokens": 120, "ignore_eos": True, "logprobs": 0, **how}
              for word in ("or", "not", "that") for how in ({"temperature": 0}, {"temperature": 0.9, "seed": 2})]
    expected = [one.chunks("/v1/completions", **body) for body in bodies]
    found: list[Any] = [None] * len(bodies)

    def ask(place: int) -> None:
        found[place] = three.chunks("/v1/completions", **bodies[place])

    engine = three.engine()
    before = engine.stats().generated_tokens
    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(bodies))]
    for thread in threads:
        thread.start()
    until(lambda: engine.stats().generated_tokens > before + 60)
    stage = next(each for each in engine.stages() if each["node"] == "worker-2")
    os.kill(stage["process"], signal.SIGKILL)
    until(lambda: engine.pipeline.epoch > 1)
    for thread in threads:
        thread.join(60)
    assert [_tokens(chunks) for chunks in found] == [_tokens(chunks) for chunks in expected]
    until(lambda: three.client.get("/ready").status_code == 200)
    assert [each["alive"] for each in engine.stages()].count(False) == 1
    assert 'morpho_stage_alive{model="tiny",node="worker-2"} 0.0' in three.client.get("/metrics").text


def _tokens(chunks: list[dict[str, Any]]) -> list[Any]:
    """Tokens one by one, however many came in one event."""
    return [(token, logprob) for chunk in chunks for choice in chunk["choices"] if choice["logprobs"]
            for token, logprob in zip(choice["logprobs"]["tokens"], choice["logprobs"]["token_logprobs"], strict=True)]


def test_the_end_of_all_workers_is_told(pair: tuple[Running, Running]) -> None:
    three = pair[1]
    engine = three.engine()
    for stage in engine.stages():
        if stage["alive"]:
            os.kill(stage["process"], signal.SIGKILL)
    until(lambda: not engine.alive)
    assert three.client.get("/ready").status_code == three.client.get("/health").status_code == 503
    response = three.post("/v1/completions", model="tiny", prompt="to", max_tokens=4)
    assert response.status_code == 503 and "all workers are gone" in response.json()["error"]["message"]


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGKILL], ids=["finishes", "killed"])
def test_the_command_leaves_no_process_behind(model: Path, kind: signal.Signals) -> None:
    words = [sys.executable, "-m", "morpho", "serve", f"tiny={model}", "--nodes", "2", "--port", "0", "--quiet"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        url = line.split("API ")[1].split("/v1")[0]
        live = httpx.get(url + "/live", trust_env=False).json()
        workers = [stage["process"] for stage in live["engines"][0]["stages"]]
        assert len(workers) == 2 and not any(map(is_over, workers))
        with httpx.stream("POST", url + "/v1/completions", trust_env=False, timeout=60, json={
                "prompt": "to be", "max_tokens": 100, "ignore_eos": True, "stream": True}) as response:
            lines = (line for line in response.iter_lines() if line.startswith("data: "))
            next(lines)
            process.send_signal(kind)
            if kind == signal.SIGTERM:  # what runs is finished
                *rest, last = lines
                assert last == "data: [DONE]" and json.loads(rest[-1][6:])["choices"][0]["finish_reason"] == "length"
        process.wait(60)
        until(lambda: all(map(is_over, workers)))
    finally:
        process.kill()
        process.wait()


def test_a_ledger_remembers_little_of_what_is_over() -> None:
    finished = Finished()
    for number in (2, 3, 5, 1):
        finished.add(number)
    assert (finished.all_below, len(finished)) == (4, 1) and 5 in finished and 4 not in finished
    finished.learn({"all_below": 5, "others": [9]})
    assert (finished.all_below, len(finished)) == (6, 1) and 9 in finished


@pytest.mark.parametrize("served", [False, True])
def test_the_last_stage_forces_and_forbids_what_files_say(served: bool) -> None:
    """In another process: what is said travels with the request."""
    said = Defaults(forced_bos_token_id=5, forced_eos_token_id=7, suppress_tokens=[2])
    request = Asked(1, (3, 4), 3, more=to_plain(SamplingParams(temperature=0.0), 0), said=said)
    request = Asked.from_dict(json.loads(json.dumps(request.to_dict())))
    logits = np.array([0, 1, 9, 0, 0, 0, 0, 0], np.float32)
    grammars: Any = None
    stream = ServedStream(request, (), grammars) if served else Stream(request)
    assert [stream.take(logits) for _ in range(3)] == [5, 1, 7]
