"""`morpho audit`: replay what a server says it drew, and confirm or refute it; `morpho run --commit` writes that.

    morpho run smollm2 "Once" --commit answer.json
    morpho audit answer.json smollm2
    morpho audit answer.json my-model --blocks 2 --adapter folder
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXIT_REFUTED = 3
SHOWN = 200  # characters of a prompt


def audit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A commitment: what `morpho run --commit` wrote, or an "
                                         "answer of the server to a request with \"commitment\": true.")],
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="The weights that the answer claims, as "
                                                "`morpho run` takes them; default: the model that ships.")] = None,
    blocks: Annotated[int | None, typer.Option(min=1, metavar="N", help="Check N blocks of 32 tokens, drawn at random; "
                                               "default: all.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the choice of blocks; default: another one each time.")
                    ] = None,
    adapter: Annotated[Path | None, typer.Option(metavar="FOLDER", help="The LoRA adapter of the answer.")] = None,
    activations: Annotated[str, typer.Option(help="int8 where the server was started with it.")] = "exact",
    device: Annotated[str, typer.Option(metavar="NAME", help="Where to replay; default: the CPU.")] = "",
) -> None:
    """Replay an answer with the weights, and confirm or refute it exactly. Ends with 0 if all texts of the file are
    confirmed, 3 if one is refuted, 2 if the file cannot be audited."""
    import secrets

    import morpho as mo
    from morpho.backends.registry import canonical
    from morpho.cli.text.run import find
    from morpho.serve.engine.adapters import rank_of
    from morpho.serve.engine.audit import audit as replay
    from morpho.serve.engine.audit import read_commitments
    from morpho.serve.engine.engine import Engine

    documents = read_commitments(file)
    place = mo.models.SHIPPED if model is None else find(model, "audit")
    network, tokenizer = mo.models.load_with_tokenizer(place, activations=activations)
    if device:
        network.to(canonical(device, "audit"))
    refuted = 0
    for number, document in enumerate(documents):
        length = len(document["prompt"]) + len(document["tokens"]) + 1
        with Engine(network, tokenizer, pages=-(-length // 64) + 1, max_batch=1, drafted=0,
                    autocast=document["autocast"], adapter_rank=1 if adapter is None else rank_of(adapter)) as engine:
            if adapter is not None:
                engine.add_adapter("audited", adapter)
            chosen = secrets.randbits(32) if seed is None else seed
            verdict = replay(document, engine, blocks=blocks, seed=chosen)
        shown = [token for token in document["prompt"] if tokenizer is not None and token < tokenizer.vocab_size]
        prompt = tokenizer.decode(shown, specials=True) if tokenizer is not None else str(document["prompt"])
        which = f"text {number + 1} of {len(documents)}: " if len(documents) > 1 else ""
        sampled = "" if blocks is None else f", blocks drawn with seed {chosen}"
        typer.echo(f"{which}prompt {prompt[-SHOWN:]!r}")
        typer.echo(f"  sampling {document['sampling']}")
        if verdict.confirmed:
            typer.echo(f"  confirmed: {verdict.checked} of {verdict.total} tokens replayed{sampled}; every bit agrees")
            continue
        refuted += 1
        typer.echo(f"  REFUTED: {verdict.differing} of {verdict.checked} replayed tokens differ{sampled}")
        for reason in verdict.reasons:
            typer.echo(f"    {reason}")
    if refuted:
        raise typer.Exit(EXIT_REFUTED)
