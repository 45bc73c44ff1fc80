"""Ollama's API besides chats and texts: which models there are, what is known of one, vectors, the version."""

from __future__ import annotations

import asyncio
import hashlib
import time
from datetime import UTC, datetime
from typing import Any

from morpho.base.distribution import version
from morpho.serve.api.errors import ApiError
from morpho.serve.api.fields import Fields
from morpho.serve.api.generate import tokens_of
from morpho.serve.api.ollama import OF_OTHERS, OF_THEIR_ENGINE
from morpho.serve.hosting.registry import Spec
from morpho.serve.hosting.served import Served
from morpho.serve.http.logs import Record
from morpho.serve.http.security import Receive, Scope, Send
from morpho.serve.http.state import State, beside, named, read_fields, respond

LETTERS = 64  # of a text that is cut, for each token that the model takes: no usual token is longer


def _details(spec: Spec, served: Served | None) -> dict[str, Any]:
    family = "" if served is None else str(served.network.config.get("model_type", ""))
    return {"parent_model": "", "format": "gguf" if spec.place.suffix == ".gguf" else "safetensors", "family": family,
            "families": [family] if family else [], "parameter_size": "", "quantization_level": ""}


def _entry(name: str, spec: Spec, served: Served | None) -> dict[str, Any]:
    signature = spec.signature()
    changed = max((at for _, at, _ in signature), default=0) / 1e9
    digest = hashlib.sha256(repr((name, signature)).encode()).hexdigest()  # of names and times: files are long
    return {"name": name, "model": name, "modified_at": _time(changed), "size": spec.file_bytes(), "digest": digest,
            "details": _details(spec, served)}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _entries(state: State, only_loaded: bool = False) -> list[dict[str, Any]]:
    loaded = {served.name: served for served in state.registry.loaded()}
    return [_entry(name, spec, loaded.get(spec.name)) for spec in state.registry.specs()
            for name in (spec.name, *spec.adapters) if spec.name in loaded or not only_loaded]


async def tags(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    await respond(send, {"models": _entries(state)})


async def running(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    """Models that are loaded; they stay until others need their memory."""
    far = _time(time.time() + 10 * 365 * 86400)
    await respond(send, {"models": [{**entry, "expires_at": far, "size_vram": 0}
                                    for entry in _entries(state, only_loaded=True)]})


async def version_of_server(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    await respond(send, {"version": version()})


async def show(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    """Describe one model, after loading it."""
    fields = await read_fields(scope, receive, state.options)
    fields = Fields({"model": fields.take("name"), **fields.left()})  # its older name
    fields.flag("verbose")
    name = named(scope, state, fields)
    fields.finish()
    async with state.leased(name) as served:
        spec = next(spec for spec in state.registry.specs() if served.name in (spec.name, *spec.adapters))
        kind = str(served.network.config.get("model_type", "model"))
        able = [("completion", served.engine is not None), ("tools", served.talks),
                ("embedding", served.embedder is not None)]
        info = {"general.architecture": kind, f"{kind}.context_length": served.context,
                "general.parameter_count": sum(each.size for each in served.network.parameters()),
                f"{kind}.embedding_length": served.width}
        await respond(send, {"modelfile": "", "parameters": "", "template": served.tokenizer.chat_template or "",
                             "details": _details(spec, served), "model_info": info,
                             "capabilities": [word for word, can in able if can],
                             "modified_at": _entry(served.name, spec, served)["modified_at"]})


# -- vectors -----------------------------------------------------------------------------------------------------------
async def embed(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    record: Record = scope["morpho.record"]
    begun = time.monotonic_ns()
    fields = await read_fields(scope, receive, state.options)
    async with state.leased(named(scope, state, fields)) as served:
        record.more["model"] = served.name
        if served.embedder is None:
            raise ApiError(400, f"the model '{served.name}' makes text, no vectors: serve an encoder too", "model")
        rows = await beside(fields.size, _inputs, fields, served, state.options.limits.inputs)
        vectors = await asyncio.to_thread(served.embed, rows) if rows else None
        record.more["prompt_tokens"] = tokens = sum(map(len, rows))
        await respond(send, {"model": served.name, "embeddings": [] if vectors is None else vectors.tolist(),
                             "total_duration": time.monotonic_ns() - begun, "load_duration": 0,
                             "prompt_eval_count": tokens})


def _inputs(fields: Fields, served: Served, most: int) -> list[list[int]]:
    given, cut = fields.take("input"), fields.flag("truncate", True)
    fields.only("dimensions", served.width, why=f"the vectors of this model have {served.width}")
    fields.irrelevant(*OF_OTHERS)
    if (options := fields.object("options")) is not None:
        options.irrelevant(*OF_THEIR_ENGINE)
        options.finish()
    fields.finish()
    several = [given] if isinstance(given, str) else given
    if not isinstance(several, list) or len(several) > most or not all(isinstance(each, str) for each in several):
        raise fields.wrong("input", f"is not a text, or a list of at most {most} texts")
    return [_tokens(each, served, cut) for each in several]


def _tokens(text: str, served: Served, cut: bool) -> list[int]:
    """The tokens of a text, of which those that the model has no room for are left out before the last special one."""
    tokenizer, room = served.tokenizer, served.context
    if not cut:
        return tokens_of(text, served, "input", room, specials=False)
    text = text[:room * LETTERS]
    found = list(tokenizer.encode(text, specials=False))
    if not found:
        raise ApiError(400, "'input' holds an empty text", "input")
    if len(found) > room:
        inner = list(tokenizer.encode(text, specials=False, around=False))
        after = next((len(found) - at - len(inner) for at in range(len(found) - len(inner) + 1)
                      if found[at:at + len(inner)] == inner), 0)
        found = [*found[:room - after], *found[len(found) - after:]]
    return found
