"""What is written to a stream: chunks put between rims are those of `feed`, and a loop is woken once for a step."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from morpho.serve.api.answers import ChatAnswer, TextAnswer, sse
from morpho.serve.engine.request import Event, Request, SamplingParams, Usage
from morpho.serve.http.bridge import Events

TEXTS = ["to be", ' "or" \\ not\n\t', "", "\u00e9\u4e16\U0001f600", "\x00\x1f\u2028", "a\udc80b", "</script>"]


@pytest.mark.parametrize("kind", [ChatAnswer, TextAnswer])
def test_chunks_between_rims_are_those_of_feed(kind: Any) -> None:
    events = [Event(index, text, 1) for text in TEXTS for index in (0, 1)]
    events += [Event(0, "x", 1, finish="stop"), Event(1, "", finish="length", usage=Usage(3, 9))]
    requests: Any = [(1, 2)] if kind is TextAnswer else 1
    quick, plain = (kind("m", requests, 2, None, False) for _ in range(2))
    plain.id, plain.created = quick.id, quick.created
    for event in events:
        assert quick.written(0, event) == b"".join(sse(chunk) for chunk in plain.feed(0, event))
    assert quick.whole() == plain.whole()
    said = quick.written(0, Event(0, "later", 1)).removeprefix(b"data: ")
    assert json.loads(said)["choices"][0]["index"] == 0


class _Engine:
    """Hands out streams that are told by the test."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def submit(self, request: Request) -> Any:
        engine = self

        class Stream:
            def on_event(self, call: Any) -> None:
                engine.calls.append(call)

            def cancel(self) -> None:
                pass

        return Stream()


def test_a_step_wakes_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen streams hear something in one step of the engine's thread: one wake, and each has its events in order."""
    async def run() -> int:
        loop, engine, woken = asyncio.get_running_loop(), _Engine(), 0
        streams = [Events(engine, [Request((1,), SamplingParams(), str(number))]) for number in range(16)]  # type: ignore[arg-type]
        for stream in streams:
            stream.submit()
        call_soon = loop.call_soon_threadsafe

        def counted(*given: Any) -> Any:
            nonlocal woken
            if getattr(given[0], "__name__", "") == "_wake":
                woken += 1
            return call_soon(*given)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        waiting = [asyncio.create_task(stream.next()) for stream in streams]
        await asyncio.sleep(0)

        def step() -> None:
            for call in engine.calls:
                call(Event(0, "a", 1))
                call(Event(0, "b", 2, finish="stop"))

        step()  # on this thread, so that the loop cannot look in between
        found = await asyncio.gather(*waiting)
        assert all([event.text for _, event in each] == ["a", "b"] for each in found)
        assert await streams[0].next() == []
        return woken

    assert asyncio.run(run()) == 1


def test_pieces_of_text_take_no_turn_of_the_task() -> None:
    """They are pushed on while it waits, in order; what cannot be pushed, and what ends a text, goes through it."""
    async def run() -> None:
        engine = _Engine()
        stream = Events(engine, [Request((1,), SamplingParams(), "a")])  # type: ignore[arg-type]
        stream.submit()
        (call,), pushed, free = engine.calls, list[str](), True

        def push(arrived: list[Any]) -> bool:
            pushed.extend(event.text for _, event in arrived if free)
            return free

        stream.push = push
        waiting = asyncio.create_task(stream.next())
        for text in "abc":
            await asyncio.sleep(0)
            call(Event(0, text, 1))
        for _ in range(3):  # turns of the loop, which runs what was called before it comes back
            await asyncio.sleep(0)
        assert pushed == ["a", "b", "c"] and not waiting.done()
        free = False  # the reader is slow
        call(Event(0, "d", 1))
        assert [event.text for _, event in await waiting] == ["d"]
        free = True
        waiting = asyncio.create_task(stream.next())
        await asyncio.sleep(0)
        for event in (Event(0, "e", 1), Event(0, "f", 1, finish="stop")):
            call(event)
        assert [event.text for _, event in await waiting] == ["f"] and pushed == ["a", "b", "c", "e"]
        assert await stream.next() == []

    asyncio.run(run())


def test_a_fault_of_a_push_is_the_tasks() -> None:
    async def run() -> None:
        engine = _Engine()
        stream = Events(engine, [Request((1,), SamplingParams(), "a")])  # type: ignore[arg-type]
        stream.submit()

        def push(arrived: list[Any]) -> bool:
            raise ValueError("broken")

        stream.push = push
        waiting = asyncio.create_task(stream.next())
        await asyncio.sleep(0)
        engine.calls[0](Event(0, "a", 1))
        with pytest.raises(ValueError, match="broken"):
            await waiting

    asyncio.run(run())
