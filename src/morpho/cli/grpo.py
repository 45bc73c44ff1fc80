"""`morpho train grpo`: a language model learns from a reward function, with a line a step and a folder at the end."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

PromptsFile = Annotated[Path, typer.Option(metavar="FILE", help="A prompt a line, or JSON lines with \"prompt\".")]


def grpo(
    model: Annotated[str, typer.Option(metavar="MODEL", help="A folder, or an installed model.")],
    prompts: PromptsFile,
    reward: Annotated[str, typer.Option(metavar="FILE.py:NAME", help="A function of (text, prompt, fields) that "
                                        "returns a number; fields are those of the prompt's JSON line.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The trained model, or with --lora the adapter.")],
    steps: Annotated[int, typer.Option(min=1)] = 50,
    batch: Annotated[int, typer.Option(min=1, help="Prompts a step.")] = 8,
    group: Annotated[int, typer.Option(min=2, help="Texts for each prompt.")] = 8,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a text at most.")] = 64,
    temperature: Annotated[float, typer.Option(min=0.01)] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="Draw from so many likeliest tokens; 0: all.")] = 0,
    lr: Annotated[float, typer.Option(help="Learning rate of AdamW.")] = 1e-5,
    kl: Annotated[float, typer.Option(min=0.0, help="Weight of the distance from the first model.")] = 0.0,
    lora: Annotated[int, typer.Option(min=0, metavar="RANK", help="Train LoRA matrices of this rank; 0: all.")] = 0,
    autocast: Annotated[str, typer.Option(metavar="DTYPE", help="bfloat16 or float16 for products.")] = "",
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Train a model on rewards: draw a group of texts for each prompt, and move towards those better than their group.
    Before each update the trainer's log-probabilities must be the sampler's, bit for bit; otherwise it stops."""
    import numpy as np

    import morpho as mo
    from morpho.cli.text.run import find
    from morpho.weights.atomic import atomic_file

    score = _function(reward)
    asked = _prompts(prompts)
    out.mkdir(parents=True, exist_ok=True)
    place = find(model, "train grpo")
    policy, tokenizer = mo.models.load_with_tokenizer(place, packed=False)
    reference = mo.models.load(place, packed=False).eval() if kl else None
    mo.nn.seed(seed)
    learning = mo.nn.add_lora(policy, lora) if lora else [*policy.parameters()]
    optimizer = mo.optim.AdamW(learning, lr=lr, weight_decay=0.0)
    known = {tuple(tokenizer.encode(one["prompt"])): one for one in asked}

    def rewarded(text: mo.rl.Rollout) -> float:
        one = known[text.prompt]
        return float(score(tokenizer.decode([*text.tokens]), one["prompt"], one))

    draws = np.random.default_rng(seed)
    typer.echo(f"{sum(p.size for p in learning):,} parameters learn; {len(asked)} prompts, "
               f"{batch} x {group} texts a step")
    with mo.rl.GRPO(policy, optimizer, rewarded, group_size=group, kl=kl, reference=reference, max_tokens=max_tokens,
                    temperature=temperature, top_k=top_k, autocast=autocast or None, seed=seed) as trainer, \
            (out / "metrics.jsonl").open("w", encoding="utf-8") as metrics:
        for _ in range(steps):
            chosen = draws.choice(len(known), min(batch, len(known)), replace=False)
            report = trainer.step([[*known][i] for i in chosen])
            metrics.write(json.dumps(vars(report)) + "\n")
            metrics.flush()
            typer.echo(f"step {report.step:4d}  reward {report.reward:8.4f}  loss {report.loss:10.6f}  "
                       f"KL(sampler, trainer) {report.kl_sampler_trainer:g}  {report.drawn} tokens")
    if lora:
        mo.models.save_adapter(policy, out)
        typer.echo(f"done: morpho serve {model} --adapter mine={out}")
        return
    mo.models.save(out, policy)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if place.is_dir() and (place / name).is_file():
            with atomic_file(out / name) as file:
                file.write((place / name).read_bytes())
    typer.echo(f"done: morpho run {out} PROMPT")


def _function(place: str) -> Callable[..., Any]:
    """The reward function of `FILE.py:NAME`."""
    from morpho.base.errors import ArgumentError, fail

    file, _, name = place.rpartition(":")
    hint = "give a file and a function, as in reward.py:reward"
    if not file or not Path(file).is_file():
        raise fail(ArgumentError, "train grpo", f"--reward {place} names no file", hint)
    spec = importlib.util.spec_from_file_location("reward_function", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise fail(ArgumentError, "train grpo", f"{file} has no function {name}", hint)
    return function  # type: ignore[no-any-return]


def _prompts(file: Path) -> list[dict[str, Any]]:
    """The prompts of a file, each with the fields of its line."""
    from morpho.base.errors import ArgumentError, fail

    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise fail(ArgumentError, "train grpo", f"--prompts {file} cannot be read: {error}") from None
    prompts = []
    for number, line in enumerate(lines, start=1):
        fields: Any = {"prompt": line}
        if line.lstrip().startswith("{"):
            try:
                fields = json.loads(line)
            except ValueError as error:
                raise fail(ArgumentError, "train grpo", f"{file}:{number} is no JSON: {error}") from None
        if not isinstance(fields, dict) or not isinstance(fields.get("prompt"), str) or not fields["prompt"]:
            raise fail(ArgumentError, "train grpo", f"{file}:{number} has no text under \"prompt\"")
        prompts.append(fields)
    if not prompts:
        raise fail(ArgumentError, "train grpo", f"--prompts {file} holds no prompt")
    return prompts
