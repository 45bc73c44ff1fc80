"""What tokens stand for, for each kind of tokenizer that folders have: bytes join to the text that is decoded."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("tokenizers", reason="tokenizers is not installed")

import morpho as mo
from tokenizer_kinds import KINDS, write_tokenizer

LETTERS = st.characters(codec="utf-8") | st.sampled_from([" ", "  ", "\n", "e\u0301", "▁", "Ġ", "日", "👩‍👧", "<0x0A>"])


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, mo.weights.Tokenizer]:
    folder = tmp_path_factory.mktemp("kinds")
    return {kind: mo.weights.load_tokenizer(write_tokenizer(folder / kind, kind)) for kind in KINDS}


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.text])
@given(letters=st.lists(LETTERS, max_size=12))
def test_bytes_join_to_the_text(tokenizers: dict[str, mo.weights.Tokenizer], kind: str, letters: list[str]) -> None:
    tokenizer, text = tokenizers[kind], "".join(letters)
    said = KINDS[kind].text
    assert said is not None
    ids = tokenizer.encode(text, specials=False, around=False)
    assert b"".join(map(tokenizer.token_bytes, ids)).decode() == said(text)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_what_a_token_adds(tokenizers: dict[str, mo.weights.Tokenizer], kind: str, seed: int) -> None:
    """Of any tokens after others, where their bytes are UTF-8; streamed, too, and after a prompt."""
    tokenizer, draw = tokenizers[kind], random.Random(seed)
    plain = [number for number in range(tokenizer.vocab_size) if number not in tokenizer.specials.values()]
    assert all(tokenizer.token_bytes(number) for number in plain)
    anchor = tokenizer.encode("to be", around=False)
    before, compared = tokenizer.decode(anchor), 0
    if kind == "suffixed":
        before += " "  # the library leaves out the last token's blank
    for _ in range(200):
        ids = draw.choices(plain, k=draw.randint(1, 3))
        try:
            text = b"".join(map(tokenizer.token_bytes, ids)).decode()
        except UnicodeDecodeError:
            continue
        compared += 1
        if kind == "suffixed":
            assert tokenizer.decode([*anchor, *ids, *anchor]) == before + text + before.strip()
            continue
        assert tokenizer.decode([*anchor, *ids]) == before + text
        stream = tokenizer.stream(after=anchor)
        assert "".join(map(stream.push, ids)) + stream.finish() == text
    assert compared > 50


@pytest.mark.parametrize("kind", ["llama2", "mistral", "bert"])
def test_a_stop_string_may_begin_with_the_first_blank(tokenizers: dict[str, mo.weights.Tokenizer], kind: str) -> None:
    from morpho.models.text.stop_strings import StopStrings

    tokenizer = tokenizers[kind]
    token = next(number for number in range(tokenizer.vocab_size)
                 if re.fullmatch(rb" [a-z]+", tokenizer.token_bytes(number)))
    prompt, stop = tokenizer.encode("to be"), tokenizer.token_bytes(token).decode()
    assert StopStrings([stop], tokenizer, prompt).push(token) and not StopStrings([stop], tokenizer).push(token)


def test_a_written_tokenizer_is_read_again_with_its_bytes(tmp_path: Path) -> None:
    """Qwen2's pattern goes through the library when it comes back."""
    tokenizer = mo.weights.train_bpe("so é on and so on", 262)
    tokenizer.pattern = "qwen2"
    mo.weights.save_tokenizer(tmp_path, tokenizer)
    again = mo.weights.load_tokenizer(tmp_path)
    assert type(again) is not type(tokenizer) and again.vocab_size == tokenizer.vocab_size
    numbers = range(tokenizer.vocab_size)
    assert [*map(again.token_bytes, numbers)] == [*map(tokenizer.token_bytes, numbers)]
