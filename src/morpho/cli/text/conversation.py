"""`morpho run MODEL` on a terminal: one line after another, each answered by the model."""

from __future__ import annotations

import contextlib
import sys

from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.cli.guard import show_error
from morpho.cli.text.writing import USUAL_TOKENS, Writer, answer, stream

PROMPT = "> "
Message = dict[str, str]


def converse(writer: Writer) -> None:
    """Read, answer, and again until Ctrl-D. A model with a chat template is told what was said before; of a
    conversation that outgrows its context the oldest part is forgotten, and that is said."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (editing and history for `input`)
    does = "talk to the model" if writer.talks else "the model goes on with what you write"
    print(f"{does}; Ctrl-C ends an answer, Ctrl-D the conversation", file=sys.stderr)
    messages: list[Message] = []
    while (line := _line()) is not None:
        if not line.strip():
            continue
        try:
            if writer.talks:
                messages = _turn(writer, messages, line)
            else:
                answer(writer, line)
        except MorphoError as error:  # the line is too long, or no text: the next one may be better
            show_error(error)


def _line() -> str | None:
    """The next line; None when there is none."""
    while True:
        try:
            return input(PROMPT)
        except UnicodeDecodeError:
            show_error(fail(ArgumentError, "run", "that line is not a text in UTF-8", "write it again", line=""))
        except (EOFError, KeyboardInterrupt):
            print()
            return None


def _turn(writer: Writer, before: list[Message], line: str) -> list[Message]:
    """Answer a line; the conversation with both."""
    messages = [*before, {"role": "user", "content": line}]
    ids = writer.chat(messages)
    room = min(writer.sampling.tokens or USUAL_TOKENS, writer.network.context // 4)
    forgotten = 0
    while len(messages) > 1 and len(ids) > writer.network.context - room:
        messages, forgotten = messages[2:], forgotten + 1
        ids = writer.chat(messages)
    if forgotten:
        print(f"[the context of {writer.network.context} tokens is full: the oldest {forgotten} answers and what they "
              f"answered are forgotten]", file=sys.stderr)
    return [*messages, {"role": "assistant", "content": stream(writer, ids)}]
