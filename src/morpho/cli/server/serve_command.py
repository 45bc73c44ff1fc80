"""The options of `morpho serve`."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Annotated

import typer

from morpho.base.errors import ArgumentError, fail

EPILOG = ("Not on loopback a token is required: python -c 'import secrets; print(secrets.token_urlsafe(32))' > key; "
          "chmod 600 key; morpho serve smollm2 --host 0.0.0.0 --token-file key")


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]...",
                       help="Folders, .gguf files or names from `morpho models`, each as NAME=PLACE to give it another "
                            "name. The first is loaded at once, others when they are asked for. Without one: the small "
                            "model that ships with Morpho.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Clients must send the token in this file.")
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Serve HTTPS with this certificate (PEM).")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's key (PEM).")] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Another name by which the server is reached.")
    ] = None,
    cors_origin: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Pages of this origin may ask, such as "
                                                              "https://example.org.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="BYTES", help="For the weights of all loaded models, such as 4GB; those not "
                                                       "used for longest give way. Default: 80 % of the machine's.")
    ] = None,
    kv: Annotated[str | None, typer.Option(metavar="BYTES", help="For keys and values of each model's texts, such as "
                                                                 "512MB.")] = None,
    max_batch: Annotated[int, typer.Option(min=1, help="Texts at once.")] = 64,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait; one more is answered with 429.")] = 256,
    context: Annotated[int | None, typer.Option(min=2, help="Most tokens of a prompt and its answer; default: the "
                                                            "model's.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Of one request, waiting included.")] = 600,
    lora: Annotated[
        list[str] | None, typer.Option(metavar="NAME=FOLDER", help="A LoRA adapter as PEFT writes it, which requests "
                                                                   "name as their model; MODEL:NAME=FOLDER of another "
                                                                   "model than the first.")
    ] = None,
    watch: Annotated[bool, typer.Option(help="Load a model anew when its files change.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log warnings and errors only.")] = False,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Show it live on another page of this machine; the "
                                                                "address is printed.")] = False,
    nodes: Annotated[int | None, typer.Option(min=1, help="A pipeline of so many workers on this machine.")] = None,
    hosts: Annotated[Path | None, typer.Option(metavar="FILE", help="A pipeline with a worker on each of these "
                                                                          "machines.")] = None,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A pipeline as `morpho plan --json` wrote it.")
    ] = None,
    activations: Annotated[str, typer.Option(help="int8: products round activations to 8 bits (docs/numerics.md, rule "
                                                  "6), which is faster; exact otherwise.")] = "exact",
    device: Annotated[str, typer.Option(help="Where models run, such as cuda; default: cpu.")] = "",
    prompt_cache: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep beginnings of prompts that were read in a file for each "
                                                         "model there, for the next start.")
    ] = None,
    draft: Annotated[
        str, typer.Option(metavar="MODEL", help="A smaller model of the same vocabulary, which guesses tokens: the "
                                                "same texts in fewer steps.")
    ] = "",
    static: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Serve the files of a page that `morpho export "
                                                                       "--target web` wrote, and no model.")] = None,
) -> None:
    """Serve models with OpenAI's API, with figures for Prometheus and a page to chat on: `morpho serve smollm2`."""
    if static is not None:
        from morpho.cli.server import static as pages

        if models:
            raise fail(ArgumentError, "serve", "--static serves a folder, and a model is named too", "leave out one")
        pages.serve(static, host, port)
        return
    begun = time.perf_counter()
    gc.disable()  # until the model is there: see `collecting_later`
    try:
        from morpho.cli.server import serve as part
        from morpho.cli.server.dashboard import watching

        wanted = part.Wanted(
            models or (), host, port, token_file, tls_certificate, tls_key, allow_host or (), cors_origin or (), memory,
            kv, max_batch, queue, context, timeout, lora or (), watch, quiet, nodes, hosts, plan,
            activations, device, prompt_cache, draft, begun)
        with watching(dashboard):
            part.serve(wanted)
    finally:
        gc.enable()
