"""Prompts that are much too long: refused by their length, read no further than needed, and nobody waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import Running

import morpho as mo
from morpho.weights.text import bpe

pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from tokenizer_kinds import KINDS, write_tokenizer

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MANY = 1 << 18


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of the words that were merged."""
    merged: list[int] = []
    original = bpe.BytePairs._merged
    monkeypatch.setattr(bpe.BytePairs, "_merged", lambda self, word: merged.append(len(word)) or original(self, word))
    return merged


@pytest.mark.parametrize(("path", "body"), [
    (TEXT, {"prompt": "a" * 8 * MANY}), (TEXT, {"prompt": "word " * MANY}), (TEXT, {"prompt": ["b", "é" * MANY]}),
    (CHAT, {"messages": [{"role": "user", "content": "a" * MANY}]}),
    (CHAT, {"messages": [{"role": "user", "content": "<|im_end|>" + "a" * MANY}]}),
    (TEXT, {"prompt": [1] * MANY}), (TEXT, {"prompt": [[1, 2], [1] * MANY]}),
    ("/v1/responses", {"input": "a" * MANY}), ("/tokenize", {"prompt": "a" * 30 * MANY}),
], ids=["letters", "words", "several", "chat", "marked", "numbers", "lists", "responses", "tokenize"])
def test_what_is_much_too_long_is_not_read(server: Running, work: list[int], path: str, body: dict[str, Any]) -> None:
    response = server.post(path, model="tiny", **body)
    assert response.status_code == 400, response.text[:200]
    assert "tokens" in response.json()["error"]["message"] and sum(work) < 2000
    if path != "/tokenize":
        assert response.json()["error"]["code"] == "context_length_exceeded"


def test_an_input_of_an_encoder_that_is_too_long(server: Running, work: list[int]) -> None:
    for given_input in ("the cat " * MANY, [1] * MANY, ["a", "mat " * MANY]):
        error = server.post("/v1/embeddings", model="encoder", input=given_input).json()["error"]
        assert error["code"] == "context_length_exceeded" and sum(work) < 2000


def test_a_text_is_read_no_further_than_needed(work: list[int]) -> None:
    """Where the bytes alone do not say that it is too long."""
    tokenizer = mo.weights.train_bpe("internationalisation " * 9, 300)
    text = "".join(f"x{number} " for number in range(30000))
    assert tokenizer.encode_within(text, 5000) is None and sum(work) < 30000 < len(text)
    work.clear()
    assert tokenizer.encode_within(text, len(text)) == tokenizer.encode(text)


def test_others_do_not_wait(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """While large bodies are read, as many as there are, however they come."""
    with server.registry.lease("tiny") as served:
        assert served is not None
        tokenizer = served.tokenizer
    gate, readers = threading.Event(), []
    original = type(tokenizer).encode_within

    def encode_within(self: Any, text: str, most: int, **others: Any) -> Any:
        if len(text) > 20000:
            readers.append(threading.current_thread().name)
            assert gate.wait(30)
        return original(self, text, most, **others)

    monkeypatch.setattr(type(tokenizer), "encode_within", encode_within)

    def chunked() -> Iterator[bytes]:
        yield b'{"model": "tiny", "prompt": "' + b"a" * 30000 + b'"}'

    def ask(place: int) -> None:
        if place % 2:
            server.client.post(TEXT, content=chunked(), headers={"Content-Type": "application/json"})
        else:
            server.post(TEXT, model="tiny", prompt="a" * 30000)

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            if readers:
                break
            threading.Event().wait(0.05)
        assert server.client.get("/health").status_code == 200
        assert server.post(TEXT, model="tiny", prompt="to be", max_tokens=2).status_code == 200
        assert len(readers) == 1  # one after another
    finally:
        gate.set()
        for thread in threads:
            thread.join()
    assert len(readers) == 4 and len({*readers}) == 1


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> list[mo.weights.Tokenizer]:
    folder = tmp_path_factory.mktemp("kinds")
    pieces = {"▁": 0, "a": 1, "▁a": 2, "ab": 3, "▁▁▁▁": 4}
    sentence = mo.weights.SentencePieces(pieces, [-1.0] * 5, {byte: 5 + byte for byte in range(256)}, blank_first=True)
    return [sentence, *(mo.weights.load_tokenizer(write_tokenizer(folder / kind, kind)) for kind in KINDS)]


@given(st.lists(st.characters(codec="utf-8") | st.sampled_from(["    ", "ab ", "▁", "to be", "e\u0301\u0323", "각"]),
                max_size=12), st.integers(1, 3), st.integers(0, 12))
def test_the_bound_is_never_more_than_the_tokens(tokenizers: list[mo.weights.Tokenizer], letters: list[str],
                                                 times: int, most: int) -> None:
    text = "".join(letters) * times
    for tokenizer in tokenizers:
        ids = tokenizer.encode(text)
        assert tokenizer._fewest(text) <= len(ids)
        assert tokenizer.encode_within(text, most) == (ids if len(ids) <= most else None)
    assert tokenizers[0]._fewest("ab" * 1000) > 100 and tokenizers[1]._fewest("to be" * 1000) > 100
