"""The options of `morpho plan`, `morpho plan check` and `morpho plan measure`; the work is in `plan.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from morpho.cli.program import onnx

EPILOG = ("Also: `morpho plan check plan.json` verifies a plan, `morpho plan measure` describes this machine for the "
          "cluster file. docs/planner.md explains files, formulas and proofs.")
Texts = list[str]


def _panel(title: str) -> Any:
    """Options under one heading of the help: `option("what it does", metavar="FILE")`."""
    def option(text: str, *names: str, **more: Any) -> Any:
        return typer.Option(*names, help=text, rich_help_panel=title, **more)

    return option


model_, search, limit, output, play = map(_panel, ("Model", "Search", "Constraints", "What to show", "Simulation"))


def plan(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A name (gpt2-xl, prenorm-base), a config.json, its "
                                                               "folder, or a model.onnx.")],
    cluster: Annotated[Path, typer.Option("--cluster", "-c", metavar="FILE", help="Machines and links: TOML or JSON.")],
    dtype: Annotated[str | None, model_("Type of the weights: f32, f16, bf16, int8, q4; default: f16.", metavar="TYPE")
                     ] = None,
    context: Annotated[int | None, model_("Tokens of a full context; default: 1024, or the model's positions if fewer.",
                                          min=1, metavar="N")] = None,
    batch: Annotated[int | None, model_("Sequences that run together; default: 1.", min=1, metavar="N")] = None,
    micro_batches: Annotated[int, model_("Batches in flight; each has its own cache.", min=1, metavar="N")] = 1,
    inputs: onnx.Inputs = None,
    objective: Annotated[str, search("throughput, latency or balanced.", metavar="WHAT")] = "throughput",
    strategy: Annotated[str, search("How to search; --compare shows them all.", metavar="NAME")] = "optimal",
    seed: Annotated[int, search("Of everything random.", metavar="N")] = 0,
    seconds: Annotated[float | None, search("Most seconds to search: the answer then has a bound instead of a proof.",
                                             min=0, metavar="S")] = None,
    headroom: Annotated[float, limit("Share of memory that stays free.", min=0, metavar="X")] = 0.1,
    max_stages: Annotated[int | None, limit("Most stages.", min=1, metavar="N")] = None,
    exclude: Annotated[Texts | None, limit("Leave a node out; may be repeated.", metavar="NODE")] = None,
    pin: Annotated[Texts | None, limit("Keep a layer, or FIRST:END, on a node.", metavar="LAYER=NODE")] = None,
    tied: Annotated[str, limit("Layers that share weights: copy or together.", metavar="HOW")] = "copy",
    activations: Annotated[str, limit("Types that links may send, as in f16,int8; default: what the model computes in, "
                                      "so that links lose nothing.", metavar="TYPES")] = "",
    error_budget: Annotated[float | None, limit("Most rounding error of all links; chooses each link's type.",
                                                metavar="X")] = None,
    tensor: Annotated[int, limit("Most equal nodes that share each layer.", min=1, metavar="N")] = 1,
    data: Annotated[int, limit("Most copies of the pipeline.", min=1, metavar="N")] = 1,
    compare: Annotated[bool, output("Every strategy, with its distance from the bound.", "--compare")] = False,
    what_if: Annotated[Texts | None, output("'drop a', 'link a-b 10Gbit/s 0.2ms', 'a memory 64GB'; may be repeated.",
                                            metavar="CHANGE")] = None,
    explain: Annotated[bool, output("What binds, what relief is worth, what if a node dies.", "--explain")] = False,
    json: Annotated[str | None, output("Write the plan; - prints it and nothing else.", "--json",
                                       metavar="FILE")] = None,
    plot: Annotated[Path | None, output("Draw cluster and stages: .svg or .png.", metavar="FILE")] = None,
    gantt: Annotated[Path | None, output("Draw the steady state.", metavar="FILE")] = None,
    gantt_token: Annotated[Path | None, output("Draw the way of one token.", metavar="FILE")] = None,
    front: Annotated[Path | None, output("Draw the Pareto front (objective balanced).", metavar="FILE")] = None,
    simulate: Annotated[bool, play("Play the plan event by event.", "--simulate")] = False,
    jitter: Annotated[float, play("Spread of all times: 0.1 is 10 %.", min=0, metavar="X")] = 0.0,
    slow: Annotated[Texts | None, play("A node that takes longer.", metavar="NODE=FACTOR")] = None,
    fail: Annotated[Texts | None, play("A node that dies: the best plan without it takes over.",
                                       metavar="NODE=TIME")] = None,
    shared: Annotated[Texts | None, play("Nodes on one medium, one sends at a time: a,b,c.", metavar="NODES")] = None,
) -> None:
    """Say where every layer of a model goes on a set of unequal machines, how fast that is, and how good: proven."""
    from morpho.cli.planning import plan as part
    from morpho.plan import Cluster, Constraints, ModelCard

    machines = Cluster.load(cluster)
    constraints = Constraints(headroom, part.pins(pin or ()), tuple(exclude or ()), max_stages, tied,
                              tuple(name.strip() for name in activations.split(",") if name.strip()), error_budget,
                              tensor, data)
    if onnx.is_model([model]):
        card = onnx.card(model, inputs or (), {"dtype": dtype, "context": context, "batch": batch}).with_(
            micro_batches=micro_batches)
    elif inputs:
        raise typer.BadParameter("--input is for a MODEL.onnx")
    else:
        card = ModelCard.from_config(model, batch or 1, context, dtype or "f16", micro_batches)
    drawn = {"cluster": plot, "steady": gantt, "token": gantt_token, "front": front}
    wishes = part.Wishes(json, {what: path for what, path in drawn.items() if path}, what_if or (), compare, explain,
                         simulate or bool(jitter or slow or fail or shared), jitter, slow or (), fail or (),
                         shared or ())
    options = {} if seconds is None else {"seconds": seconds}
    part.show(card, machines, constraints, strategy, objective, seed, options, wishes)


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A plan written with --json.")],
    model: Annotated[str, typer.Option("--model", metavar="MODEL", help="Is it a plan for this model?")] = "",
    cluster: Annotated[Path | None, typer.Option("--cluster", "-c", metavar="FILE",
                                                 help="Is it a plan for these machines?")] = None,
) -> None:
    """Verify a plan without trusting its solver: cover, memory, arithmetic, and the bound or the proof, exactly."""
    from morpho.cli.planning import plan as part

    if not part.check(file, model, cluster):
        raise typer.Exit(1)


def measure(
    name: Annotated[str, typer.Option(help="What to call this machine; default: its host name.")] = "",
    anew: Annotated[bool, typer.Option("--anew", help="Measure again instead of using what is kept.")] = False,
    model: Annotated[str, typer.Option("--model", metavar="MODEL", help="Measure the layers of this model too.")] = "",
    dtype: Annotated[str, typer.Option(metavar="TYPE", help="Type of its weights.")] = "f16",
    context: Annotated[int | None, typer.Option(metavar="N", min=1, help="Tokens of a context, as for plan.")] = None,
    batch: Annotated[int, typer.Option(metavar="N", min=1, help="Sequences that run together.")] = 1,
    history: Annotated[bool, typer.Option(help="Take the memory bandwidth that runs had, where `morpho plan history` "
                                               "has some of this name.")] = True,
) -> None:
    """Measure this machine (FLOP/s of each type, memory bandwidth, memory; layers) and print it for a cluster file."""
    from morpho.cli.planning import measure as part
    from morpho.plan import ModelCard

    part.show(name, anew, ModelCard.from_config(model, batch=batch, context=context, dtype=dtype) if model else None,
              history)
