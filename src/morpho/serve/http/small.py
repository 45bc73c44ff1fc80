"""The small endpoints: embeddings, tokens, models, health, readiness, figures, the live view."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from morpho.base.distribution import version
from morpho.base.errors import MorphoError
from morpho.serve.api.anthropic import counted
from morpho.serve.api.errors import ApiError
from morpho.serve.api.others import detokenized, embedding_answer, embedding_inputs, model_entry, tokenized
from morpho.serve.api.ranking import rerank_request, score_request
from morpho.serve.http.logs import Record
from morpho.serve.http.security import Receive, Scope, Send
from morpho.serve.http.state import State, beside, read_fields, respond

STUCK_S = 60.0  # an engine with work that made no step for so long is not ready


async def count_tokens(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    await _tokens(scope, receive, send, state, counted)


async def embeddings(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    record: Record = scope["morpho.record"]
    fields = await read_fields(scope, receive, state.options)
    async with state.leased(fields.text("model", most=256)) as served:
        record.more["model"] = served.name
        if served.embedder is None:
            raise ApiError(400, f"the model '{served.name}' makes text, no vectors: serve an encoder too", "model")
        rows, encoding = await beside(fields.size, embedding_inputs, fields, served, state.options.limits)
        vectors = await asyncio.to_thread(served.embed, rows)
        tokens = sum(map(len, rows))
        record.more["prompt_tokens"] = tokens
        await respond(send, embedding_answer(served, vectors, tokens, encoding))


async def rerank(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    await _ranked(scope, receive, send, state, rerank_request)


async def score(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    await _ranked(scope, receive, send, state, score_request)


async def _ranked(scope: Scope, receive: Receive, send: Send, state: State, make: Any) -> None:
    record: Record = scope["morpho.record"]
    fields = await read_fields(scope, receive, state.options)
    async with state.leased(fields.text("model", most=256)) as served:
        record.more["model"] = served.name
        ranking = await beside(fields.size, make, fields, served, state.options.limits)
        scores = await asyncio.to_thread(ranking.scores)
        record.more["prompt_tokens"] = ranking.tokens
        await respond(send, ranking.answer(scores))


async def tokenize(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    await _tokens(scope, receive, send, state, tokenized)


async def detokenize(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    await _tokens(scope, receive, send, state, detokenized)


async def _tokens(scope: Scope, receive: Receive, send: Send, state: State, call: Any) -> None:
    fields = await read_fields(scope, receive, state.options)
    async with state.leased(fields.text("model", most=256)) as served:
        await respond(send, await beside(fields.size, call, fields, served, state.options.limits))


async def weights(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    """Take over the weights of a model's files as they are now; the answer comes when they are in use."""
    fields = await read_fields(scope, receive, state.options)
    name = fields.text("model", most=256)
    fields.finish()
    async with state.leased(name) as served:
        try:
            digest = await asyncio.to_thread(state.registry.take_weights, name)
        except MorphoError as error:
            raise ApiError(409, error.message or str(error), "model") from None
        await respond(send, {"object": "weights", "model": served.name, "weights": digest})


# -- models ------------------------------------------------------------------------------------------------------------
def _entries(state: State) -> list[dict[str, Any]]:
    loaded = {served.name: served for served in state.registry.loaded()}
    found = []
    for spec in state.registry.specs():
        served = loaded.get(spec.name)
        more: dict[str, Any] = {"loaded": served is not None, "root": spec.name, "parent": None}
        if served is not None:
            more.update(max_model_len=served.context, chat=served.talks, embeddings=served.embedder is not None)
        created = served.created if served is not None else int(time.time())
        found.append(model_entry(spec.name, created, **more))
        found += [model_entry(name, created, **{**more, "parent": spec.name}) for name in spec.adapters]
    return found


async def models(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    await respond(send, {"object": "list", "data": _entries(state)})


async def model(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    name = scope["path_params"]["name"]
    found = next((entry for entry in _entries(state) if entry["id"] == name), None)
    if found is None:
        raise ApiError(404, f"there is no model '{name[:80]}'", "model", "model_not_found")
    await respond(send, found)


# -- how it stands -----------------------------------------------------------------------------------------------------
def dead(state: State) -> str | None:
    """Why generation is over, if it is."""
    for served in state.registry.loaded():
        if served.engine is not None and not served.engine.alive:
            return f"the engine of {served.name} has ended: {served.engine.last_error or 'no reason is known'}"
    return None


def not_ready(state: State) -> str | None:
    """Why nothing can be asked now, if that is so."""
    if state.stopping:
        return "the server is shutting down"
    if not state.registry.loaded():
        return state.registry.failure(state.registry.default) or "no model is loaded yet"
    return dead(state) or _unready(state) or _stuck(state)


def _unready(state: State) -> str | None:
    """A pipeline whose stages are looking for each other."""
    for served in state.registry.loaded():
        if served.engine is not None and (reason := served.engine.unready()):
            return f"{served.name}: {reason}"
    return None


def _stuck(state: State) -> str | None:
    """An engine that has work and makes no steps; each question is a look."""
    now = time.monotonic()
    for served in state.registry.loaded():
        if served.engine is None:
            continue
        said = served.engine.stats()
        steps, since = state.progress.get(served.name, (-1, now))
        if said.steps != steps or not (said.running or said.waiting):
            state.progress[served.name] = said.steps, now
        elif now - since > STUCK_S:
            return f"the engine of {served.name} has made no step for {now - since:.0f} s"
    return None


async def health(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    """Whether the process does its work: 503 calls for a restart."""
    reason = dead(state)
    await respond(send, {"status": "dead" if reason else "ok", "reason": reason}, 503 if reason else 200)


async def ready(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    """Whether a request would be answered."""
    reason = not_ready(state)
    await respond(send, {"status": "not ready" if reason else "ready", "reason": reason}, 503 if reason else 200)


async def figures(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    body, kind = state.metrics.text()
    await respond(send, body, kind=kind.encode())


async def live(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    """State of the engines, for the page."""
    engines = [{"model": served.name, "alive": served.engine.alive, **served.engine.stats().to_dict(),
                "stages": served.engine.stages()}
               for served in state.registry.loaded() if served.engine is not None]
    await respond(send, {"version": version(), "uptime_s": round(time.monotonic() - state.begun, 1),
                         "default": state.registry.default, "ready": not_ready(state) is None, "engines": engines})
