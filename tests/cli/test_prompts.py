"""Where the prompt of `morpho run` comes from, where its text stops, and conversations on a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import morpho as mo
from morpho.base.errors import MorphoError
from morpho.cli.main import app
from morpho.cli.text import conversation, writing
from morpho.cli.text import run as part
from morpho.cli.text.stop_text import StopText

LONG = "In the beginning was the word, and the word was good. " * 8


def call(*words: str, stdin: str | bytes = "") -> str:
    found = CliRunner().invoke(app, [*words], input=stdin)
    assert found.exit_code == 0, (found.output, found.exception)
    return found.stdout


def refused(*words: str, stdin: str | bytes = "") -> str:
    found = CliRunner().invoke(app, [*words], input=stdin)
    assert isinstance(found.exception, MorphoError), (found.output, found.exception)
    return str(found.exception)


def test_a_prompt_of_more_than_255_bytes() -> None:
    """It was looked for on the disk, where no name is as long."""
    assert len(LONG.encode()) > 255
    assert call("run", LONG, "--tokens", "2", "--temperature", "0").startswith(LONG)
    found = CliRunner().invoke(app, ["run", "word " * 30_000])
    assert "tokens, more than the limit of 256" in str(found.exception) and found.stdout == ""  # and is not repeated
    assert "no model of that name" in refused("run", "x" * 5000, "Once")
    assert "no model of that name" in refused("run", "a/" * 4000, "Once")
    assert "surrogate" in refused("run", "\udcff\udcfe")


@pytest.mark.parametrize("prompt", ["x" * 300, "a\nb", "a\0b", "\ud800", "/" * 5000, "~", "x/" * 2000, "東京" * 100])
def test_a_prompt_is_no_path(prompt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a model it is never looked for on the disk, and alone it makes no error there."""
    assert part.understood([prompt], None) == (None, prompt)
    monkeypatch.setattr(part.Path, "exists", lambda self: pytest.fail(f"{self} was looked for"))
    assert part.understood(["model", prompt], None) == ("model", prompt)


@pytest.mark.parametrize("word", ["smolm2", "smollm", "smollm2x", "other.gguf"])
def test_a_name_with_a_slip_is_no_prompt(word: str) -> None:
    """It was one, of the model that ships, which wrote verse."""
    with pytest.raises(MorphoError, match=r"no model of that name.*the names are smollm2; a prompt like this"):
        part.understood([word], None)
    assert part.understood(["Small"], None) == (None, "Small")


def test_prompts_from_files_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text(LONG + "\n", encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(part, "_writer", lambda model, *_: model)
        patch.setattr(part, "answer", lambda model, prompt: print((model, prompt)))
        for words, stdin in ((["--file", str(file)], ""), (["-"], LONG + "\n"), (["--file", "-"], LONG + "\r\n")):
            assert call("run", *words, stdin=stdin) == f"{(None, LONG)}\n"
            assert call("run", "model", *words, stdin=stdin) == f"{('model', LONG)}\n"
    assert "is not a text in UTF-8" in refused("run", "-", stdin=b"\xff\xfe")
    assert "cannot be read: No such file" in refused("run", "--file", str(tmp_path / "none"))
    assert "cannot be read: Is a directory" in refused("run", "--file", str(tmp_path))
    assert "a prompt and --file too" in refused("run", "model", "Once", "--file", str(file))
    assert "the prompt is empty" in refused("run", "-", stdin="\n")


@pytest.mark.parametrize("words", [[], ["smollm2"], [str(mo.models.SHIPPED)]])
def test_no_prompt_and_no_terminal(words: list[str]) -> None:
    said = refused("run", *words, "--tokens", "10")
    assert "there is no prompt" in said and "standard input" in said and all(word in said for word in words)


# -- stop texts --------------------------------------------------------------------------------------------------------
class Scripted:
    """A tokenizer and a model that says the tokens it is given, whatever the prompt."""

    eos, chat_template, context = None, "", 1000

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    def stream(self, after: Any = ()) -> Any:
        return mo.weights.StreamDecoder(self, False)  # type: ignore[arg-type]

    def _shown(self, number: int, specials: bool) -> bytes:
        return self.pieces[number]


def shown(pieces: Sequence[bytes], stops: Sequence[str], monkeypatch: pytest.MonkeyPatch,
          capsys: pytest.CaptureFixture[str]) -> str:
    made = Scripted(pieces)
    monkeypatch.setattr(mo.models, "generate", lambda *_, **__: iter(range(len(pieces))))
    text = writing.stream(writing.Writer(made, made, writing.Sampling(stop=tuple(stops)), False), [1])
    out = capsys.readouterr().out
    assert out == text + "\n"
    return text


@pytest.mark.parametrize(("pieces", "stops", "wanted"), [
    ([b"one ", b"END two"], ["END"], "one "),
    ([b"one E", b"N", b"D two"], ["END"], "one "),  # it straddles three tokens
    ([b"one E", b"N"], ["END"], "one EN"),  # and this never became one
    ([b"EN", b"EN", b"D"], ["END"], "EN"),
    ([b"aaa", b"aab"], ["aab"], "aaa"),
    ([b"abc"], ["abcd", "c"], "ab"),  # the one that is complete first
    ([b"t\xc3", b"\xa9 end"], ["é"], "t"),  # half a character
    ([b"t\xc3"], ["x"], "t\ufffd"),
    ([b"a", b"b"], [], "ab"),
])
def test_a_stop_text_is_not_shown(pieces: list[bytes], stops: list[str], wanted: str, monkeypatch: pytest.MonkeyPatch,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(pieces, stops, monkeypatch, capsys) == wanted


@given(st.lists(st.text("ab", max_size=4), max_size=8), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_stop_texts_are_found_however_the_text_is_cut(pieces: list[str], stops: list[str]) -> None:
    """Against looking at the whole text: what is shown is what stands before the first that is complete."""
    stop, out = StopText(stops), ""
    for piece in pieces:
        for letter in piece:  # letter by letter, and so in any other way
            out += stop.push(letter)
            if stop.found:
                break
        if stop.found:
            break
    whole = "".join(pieces)
    ends = [(whole.find(one) + len(one), -len(one)) for one in stops if one in whole]
    out += stop.finish()
    assert out == (whole[:sum(min(ends))] if ends else whole)
    again = StopText(stops)
    text = ""
    for piece in pieces:
        text += "" if again.found else again.push(piece)
    assert all(one not in text + again.finish() for one in stops) and again.found == stop.found


def test_stopping_on_the_command_line() -> None:
    whole = call("run", "In the", "--tokens", "12", "--temperature", "0").rstrip("\n")
    word = whole.removeprefix("In the").split()[1]
    cut = call("run", "In the", "--tokens", "12", "--temperature", "0", "--stop", word).rstrip("\n")
    assert word in whole and cut == whole[:whole.index(word, 6)]
    assert "empty text" in refused("run", "In", "--stop", "")


# -- conversations -----------------------------------------------------------------------------------------------------
def talk(words: Sequence[str], lines: Sequence[bytes]) -> tuple[str, int]:
    """A command on a terminal: each line is typed when it asks for one. What it shows, and its status."""
    process, terminal = pty.fork()
    if process == 0:  # pragma: no cover
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        os.execv(sys.executable, [sys.executable, "-m", "morpho", *words])
    seen, typed, end = b"", 0, time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                part = os.read(terminal, 4096)
            except OSError:  # the terminal is closed with the process
                break
            if not part:
                break
            seen += part
        if typed < len(lines) and seen.count(b"> ") > typed:
            os.write(terminal, lines[typed])
            typed += 1
    else:
        os.kill(process, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os.close(terminal)
    return seen.decode("utf-8", "replace"), status


def test_a_conversation_on_a_terminal() -> None:
    """Lines are answered one after the other, an error is a sentence and not the end, Ctrl-D is."""
    text, status = talk(["run", "--tokens", "3"], [b"Once upon\n", b"\n", b"\xff\xfe\n", b"and then\n", b"\x04"])
    assert status == 0 and "Traceback" not in text
    assert text.count("[3 tokens") == 2 and "Ctrl-D" in text and "UTF-8" in text


def test_a_conversation_remembers_and_forgets(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
                                              ) -> None:
    """What was said before is part of the next prompt, until the context is full."""
    seen: list[str] = []

    class Chatty(Scripted):
        context, chat_template = 150, mo.weights.chatml()
        specials, bos, eos = {}, None, None

        def encode(self, text: str, around: bool = True) -> list[int]:
            seen.append(text)
            return list(text.encode())

    made = Chatty([b"yes"])
    monkeypatch.setattr(mo.models, "generate", lambda *_, **__: iter([0]))
    writer = writing.Writer(made, made, writing.Sampling(tokens=10), True)
    lines = iter(["one", "two", "three", "x" * 400])
    monkeypatch.setattr("builtins.input", lambda _: next(lines, None) or (_ for _ in ()).throw(EOFError))
    conversation.converse(writer)
    assert "one" in seen[1] and "yes" in seen[1] and "two" in seen[1]
    said = capsys.readouterr()
    assert "are forgotten" in said.err and "one" not in seen[-1] and said.out.count("yes") >= 3


# -- how tokens are chosen: the user, else the model's files, else what is usual ---------------------------------------
def test_what_the_files_say_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: dict[str, Any] = {}

    def generate(network: Any, ids: Any, **how: Any) -> Any:
        said.update(how)
        return iter(())

    folder = tmp_path / "model"
    shutil.copytree(mo.models.SHIPPED, folder)
    monkeypatch.setattr(mo.models, "generate", generate)

    def chosen(config: dict[str, Any] | None, *words: str) -> tuple[Any, ...]:
        if config is not None:
            (folder / "generation_config.json").write_text(json.dumps(config))
        call("run", str(folder), "Once", *words)
        return tuple(said[name] for name in ("max_new_tokens", "temperature", "top_k", "top_p", "repetition_penalty"))

    assert chosen(None) == (120, 0.8, 50, 1.0, 1.0)
    assert chosen({"repetition_penalty": 1.3}) == (120, 0.8, 50, 1.0, 1.3)
    drawn = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "max_new_tokens": 7}
    assert chosen(drawn) == (7, 0.6, 20, 0.95, 1.0)
    words = ["--tokens", "9", "--temperature", "0", "--top-k", "0", "--top-p", "1", "--penalty", "1.1"]
    assert chosen({**drawn, "repetition_penalty": 2.0}, *words) == (9, 0.0, writing.ALL, 1.0, 1.1)
    assert chosen({**drawn, "top_k": 0, "top_p": None}) == (7, 0.6, writing.ALL, 1.0, 1.0)
    assert chosen({"do_sample": False, "temperature": 0.6}) == (120, 0.0, writing.ALL, 1.0, 1.0)
    assert chosen({"max_length": 30})[0] is None  # the prompt counts
    (folder / "generation_config.json").write_text(json.dumps({"num_beams": 4}))
    assert "num_beams" in refused("run", str(folder), "Once")


def test_all_tokens_may_be_drawn() -> None:
    assert call("run", "Once", "--tokens", "1", "--top-k", "0", "--seed", "1").startswith("Once")
