"""A server in a thread of the test's process, on a port that is free."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from one_stream import OneStreamEngine

import morpho as mo
from morpho.serve.hosting.registry import Spec
from morpho.serve.http.background import Server


def chat_folder(folder: Path, template: str | None = None, layers: int = 1) -> Path:
    """A tiny model with random weights that talks ChatML."""
    specials = ["<|im_start|>", "<|im_end|>"]
    tokenizer = mo.weights.train_bpe("to be or not to be, that is the question " * 4, 300, specials=specials)
    tokenizer.chat_template = mo.weights.chatml() if template is None else template
    mo.nn.seed(0)
    model = mo.models.create("gpt2", vocab_size=tokenizer.vocab_size, n_embd=16, n_layer=layers, n_head=2,
                             n_positions=1024, eos_token_id=tokenizer.special("<|im_end|>"))
    mo.models.save(folder, model)
    mo.weights.save_tokenizer(folder, tokenizer)
    return folder


def bert_folder(folder: Path) -> Path:
    """A tiny encoder with random weights."""
    tokenizer = mo.weights.train_bpe("the cat sat on the mat " * 4, 280)
    mo.nn.seed(0)
    model = mo.models.create("bert-base", vocab_size=tokenizer.vocab_size, hidden_size=16, num_hidden_layers=1,
                             num_attention_heads=2, intermediate_size=32, max_position_embeddings=64)
    mo.models.save(folder, model)
    mo.weights.save_tokenizer(folder, tokenizer)
    return folder


def one_stream(network: Any, tokenizer: Any, spec: Spec) -> OneStreamEngine:
    return OneStreamEngine(network, tokenizer)


class Running:
    """A server that runs, and a client of it."""

    def __init__(self, background: Server) -> None:
        self.registry, self.server, self.thread = background.registry, background.server, background.thread
        self.url, self.port = background.url, background.options.port
        token = background.options.token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.client = httpx.Client(base_url=self.url, timeout=60, headers=headers, trust_env=False)

    def engine(self, name: str | None = None) -> Any:
        with self.registry.lease(name) as served:
            assert served is not None
            return served.engine

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)

    def chunks(self, path: str, **body: Any) -> list[dict[str, Any]]:
        """The chunks of a stream, which must end as it should."""
        with self.client.stream("POST", path, json={**body, "stream": True}) as response:
            assert response.status_code == 200, response.read()
            lines = [line[6:] for line in response.iter_lines() if line.startswith("data: ")]
        assert lines.pop() == "[DONE]", lines
        return [json.loads(line) for line in lines]


@contextmanager
def serving(*specs: Spec, make_engine: Any = one_stream, **options: Any) -> Iterator[Running]:
    with Server([*specs], make_engine=make_engine, **options) as background:
        running = Running(background)
        try:
            yield running
        finally:
            running.client.close()
