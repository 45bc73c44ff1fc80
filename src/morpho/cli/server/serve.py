"""`morpho serve`: models behind OpenAI's API, with a page to chat on."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import morpho as mo
from morpho.backends.registry import HOST, canonical
from morpho.base import settings
from morpho.base.errors import ArgumentError, DeviceError, fail
from morpho.base.target import current_isa
from morpho.base.units import parse_bytes
from morpho.cli.text.run import find
from morpho.cli.text.spread import Spread
from morpho.models.rounding import check_activations
from morpho.serve.api.sampling import usual_drawing
from morpho.serve.hosting.registry import Registry, Spec, usual_memory
from morpho.serve.http.options import Options, read_token
from morpho.weights.hub import Reference, is_reference

SHIPPED_NAME = "shipped"


@dataclass(frozen=True)
class Wanted:
    """Options of the command line."""

    models: Sequence[str] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    allow_hosts: Sequence[str] = ()
    cors_origins: Sequence[str] = ()
    memory: str | None = None
    kv: str | None = None
    max_batch: int = 64
    queue: int = 256
    context: int | None = None
    timeout_s: float = 600.0
    adapters: Sequence[str] = ()
    watch: bool = True
    quiet: bool = False
    nodes: int | None = None
    hosts: Path | None = None
    plan: Path | None = None
    activations: str = "exact"
    device: str = ""
    prompt_cache: Path | None = None
    draft: str = ""
    begun: float = field(default_factory=time.perf_counter)


def serve(wanted: Wanted) -> None:
    """Load the first model, print how to reach it, and answer until Ctrl-C."""
    settings.get(), current_isa()  # mistakes in these are not mistakes in the model's files
    from morpho.serve.http.server import bound, check_extra

    check_extra()
    check_device(wanted.device)
    from morpho.serve.api.limits import Limits
    from morpho.serve.hosting.engines import EngineOptions
    from morpho.serve.hosting.making import registry_of
    from morpho.serve.http.logs import logging_to
    from morpho.serve.http.server import run

    options = Options(
        wanted.host, wanted.port, None if wanted.token_file is None else read_token(wanted.token_file),
        wanted.certificate, wanted.key, tuple(wanted.allow_hosts), tuple(wanted.cors_origins),
        limits=Limits(timeout_s=wanted.timeout_s), watch_s=2.0 if wanted.watch else 0.0)
    kv_bytes = None if wanted.kv is None else parse_bytes(wanted.kv, "serve", "--kv")
    make = EngineOptions(kv_bytes, wanted.max_batch, wanted.queue, wanted.context, True,
                         check_activations(wanted.activations),
                         canonical(wanted.device, "serve") if wanted.device else HOST, wanted.prompt_cache,
                         find(wanted.draft, "serve") if wanted.draft else None)
    registry = registry_of(specs_of(wanted.models, wanted.adapters), _spread(wanted, kv_bytes) or make,
                           usual_memory() if wanted.memory is None else parse_bytes(wanted.memory, "serve", "--memory"))
    listener = bound(options)  # a port that is taken is said before a model is loaded
    options = replace(options, port=listener.getsockname()[1])
    with logging_to(severity=logging.WARNING if wanted.quiet else logging.INFO):
        run(registry, options, listener, lambda: _say(registry, options, wanted.begun))


def check_device(name: str) -> None:
    """Engines keep keys and values in pages, which the kernels of CPUs and of GPUs read; another device is refused
    before anything is loaded."""
    chosen = canonical(name, "serve") if name else settings.get().device
    if chosen != HOST and not chosen.startswith("cuda"):
        raise fail(DeviceError, "serve", f"texts are not served by {chosen}: attention over pages of keys and values "
                                         "has a kernel for CPUs and GPUs only",
                   "leave out --device and MORPHO_DEVICE, or use `morpho run --device`, one text at a time")


def _spread(wanted: Wanted, kv_bytes: int | None) -> Any:
    """Maker of engines over pipelines, if the options ask for them."""
    over = Spread(wanted.nodes, wanted.hosts, wanted.plan)
    if not over.wanted:
        return None
    if wanted.device:
        raise fail(ArgumentError, "serve", "--device is for one process, and workers compute on their CPUs",
                   "leave out --device, or --nodes, --hosts and --plan")
    if wanted.draft:
        raise fail(ArgumentError, "serve", "--draft is of one process, and a pipeline makes no guesses",
                   "leave out --draft, or --nodes, --hosts and --plan")
    if wanted.prompt_cache is not None:
        raise fail(ArgumentError, "serve", "--prompt-cache is of one process, and a pipeline shares no prefixes",
                   "leave out --prompt-cache, or --nodes, --hosts and --plan")
    if wanted.activations != "exact":
        raise fail(ArgumentError, "serve", "--activations is of one process, and a pipeline's stages compute exactly",
                   "leave out --activations, or --nodes, --hosts and --plan")
    from morpho.serve.spread.options import PipelineOptions
    from morpho.serve.spread.worker import MODULE

    return PipelineOptions(lambda place, streams, positions: over.pipeline(place, streams=streams, positions=positions,
                                                                           module=MODULE, revive=True), kv_bytes,
                           wanted.max_batch, wanted.queue, wanted.context)


def specs_of(models: Sequence[str], adapters: Sequence[str]) -> list[Spec]:
    """The models that a command line names: a name of `morpho models list`, a folder or a GGUF file, each as
    `name=place` where it is to have another name; adapters as `name=folder` or `model:name=folder`."""
    places = {}
    for word in models or (SHIPPED_NAME,):
        name, given, place = word.partition("=")
        if not given or "/" in name:
            name, place = "", word
        if is_reference(place):
            name = name or Reference.of(place).repository.split("/")[1]
        found = mo.models.SHIPPED if place == SHIPPED_NAME and not Path(place).exists() else find(place, "serve")
        name = name or (word if "/" not in word and found.name != word else found.stem if found.is_file()
                        else found.resolve().name)
        if not re.fullmatch(r"[\w.:+-]{1,128}", name):
            raise fail(ArgumentError, "serve", f"{name!r} is no name of a model", f"give it one: name={place}")
        if name in places:
            raise fail(ArgumentError, "serve", f"two models are called {name!r}", f"name one: other={place}")
        places[name] = found
    of: dict[str, dict[str, Path]] = {name: {} for name in places}
    for word in adapters:
        name, given, folder = word.partition("=")
        base, colon, name = name.partition(":") if ":" in name else (next(iter(places)), "", name)
        if not given or not name or base not in of:
            raise fail(ArgumentError, "serve", f"--lora {word!r} names no adapter", "write name=FOLDER, or "
                                                                                    "model:name=FOLDER")
        if not Path(folder).is_dir():
            raise fail(ArgumentError, "serve", f"there is no folder {folder!r}", "give the folder that PEFT wrote")
        of[base][name] = Path(folder)
    return [Spec(name, place, of[name]) for name, place in places.items()]


def _say(registry: Registry, options: Options, begun: float) -> None:
    """How to reach the server, on standard output."""
    served = registry.loaded()[0]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.host, options.host)
    url = replace(options, host=shown).url if shown != options.host else options.url
    token = "" if options.token is None else " -H \"Authorization: Bearer $(cat TOKEN_FILE)\""
    insecure = " --cacert CERTIFICATE" if options.certificate else ""
    body: dict[str, Any]
    if served.engine is None:
        path, body = "embeddings", {"model": served.name, "input": "Hello"}
    elif served.talks:
        path, body = "chat/completions", {"model": served.name, "messages": [{"role": "user", "content": "Hello"}]}
    else:
        path, body = "completions", {"model": served.name, "prompt": "In the beginning", "max_tokens": 32}
    if served.engine is not None:  # what it is unless somebody says another: see docs/serve.md
        body["temperature"] = usual_drawing(served.defaults, served.talks)[0]
    print(f"{', '.join(registry.names)} at {url}: API {url}/v1, figures {url}/metrics, a page to chat on {url}/ "
          f"(ready after {time.perf_counter() - begun:.1f} s; Ctrl-C ends)\n"
          f"curl{insecure} {url}/v1/{path} -H 'Content-Type: application/json'{token} -d '{json.dumps(body)}'",
          flush=True)
