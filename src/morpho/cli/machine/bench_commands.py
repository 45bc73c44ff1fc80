"""`morpho bench ...`: a table of suites, each a command with the same options, and the regression gate's commands."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

Only = Annotated[str, typer.Option(metavar="THEMES", help="Only these themes, by number or part of a name: `1,3`.")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write figures and machine to this file.")]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer rounds: a look, not a measurement.")]
Peers = Annotated[
    str, typer.Option(metavar="NAMES", help="Compare with these only: `numpy,torch`; default: all installed.")
]
Threads = Annotated[int, typer.Option(min=1, metavar="N", help="Threads for Morpho and for every peer.")]
Gate = Annotated[
    bool, typer.Option("--gate", help="Fail when a ratio is more than 20 % worse than the saved baseline.")
]
SaveBaseline = Annotated[
    bool, typer.Option("--save-baseline", help="Keep the ratios of this run as the baseline for --gate.")
]
Against = Annotated[Path | None, typer.Option("--against", metavar="FILE", help="Fail when a ratio is more than 20 % "
                                              "worse than in this file: a baseline, or what --json wrote.")]
History = Annotated[Path | None, typer.Option("--file", metavar="FILE", help="The history's file; default: in the "
                                                                                "cache folder.")]


Within = Annotated[float, typer.Option(min=0.0, metavar="SECONDS", help="Begin no further case after that.")]
Resume = Annotated[bool, typer.Option("--resume", help="Keep the cases that the file of --json holds.")]
Count = Annotated[int, typer.Option(min=0, metavar="N", help="So many times, in themes that do a thing again and "
                                    "again: `--only kills --count 200`; 0: as many as the theme says.")]


@dataclass(frozen=True)
class Suite:
    """A row of the table: what the command says of itself, whether the suite compares with peers, and whether it has
    themes that take a count."""

    name: str
    help: str
    peers: bool = True
    threads: int = 2
    counted: bool = False


SUITES = (
    Suite("core", "Measure the engine: calls, GELU, fusion cases, compile times, memory, against peers in the same "
                  "run."),
    Suite("kernels", "Measure products, fused layers, attention and GPT-2 against peers in the same run."),
    Suite("train", "Measure training steps, their memory and first calls, generation, SmolLM2 and ResNet against "
                   "peers."),
    Suite("programs", "Measure array programs of science: stencils, loops, sparse, complex, integers, an ocean's, "
                      "against peers."),
    Suite("serve", "Measure the generation engine: tokens/s of 1 to 64 texts at once, stalls by long prompts, against "
                   "peers."),
    Suite("sparse", "Measure sparse products and a network of sparse layers against SciPy and PyTorch in the same "
                    "run."),
    Suite("linalg", "Measure factorisations, eigenvalues and solves of mixed precision against NumPy and SciPy; "
                    "backward errors."),
    Suite("logic", "Measure logic programs: reachability, closure, paths, against graph libraries and Datalog engines.",
          peers=False),
    Suite("plan", "Measure the planner: exactness, time to proof, annealing, rules of thumb on 400 clusters, what-if.",
          peers=False, threads=1),
    Suite("cluster", "Measure several processes of one program: data parallel training, and a rank that is killed.",
          peers=False, threads=1, counted=True),
    Suite("profile", "Measure what profiling costs: the same programs with and without it, in turn.", peers=False),
    Suite("eager", "Measure programs that nobody compiled, beside eager PyTorch and NumPy in the same process.",
          peers=False, threads=1),
    Suite("tune", "Measure the tuner: gains over the defaults, exhaustive search, what exploring costs.", peers=False),
)

app = typer.Typer(help="Measure speed against named baselines and peers.")


@app.callback(invoke_without_command=True)
def gate(
    context: typer.Context,
    against: Against = None,
    results: Annotated[Path | None, typer.Option(metavar="FILE", help="Compare the figures of this file, which --json "
                                                 "wrote, instead of measuring.")] = None,
    quick: Quick = False,
    threads: Threads = 2,
) -> None:
    """Measure speed against named baselines and peers."""
    if context.invoked_subcommand is not None:
        return
    if against is None:
        print(context.get_help())
        raise typer.Exit(2)
    from morpho.cli.machine import bench as part

    _end(part.run_against(against, results, quick, threads))


def _end(status: int) -> None:
    if status:
        raise typer.Exit(int(status))


def _run(suite: Suite, only: str, json: Path | None, quick: bool, peers: str = "", threads: int | None = None,
         gate: bool = False, save_baseline: bool = False, against: Path | None = None, count: int = 0,
         within: float = 0.0, resume: bool = False) -> None:
    from morpho.cli.machine import bench as part

    _end(part.run_suite(suite.name, only=only, json=json, quick=quick, peers=peers, gate=gate,
                        save_baseline=save_baseline, threads=suite.threads if threads is None else threads,
                        against=against, count=count, within_s=within, resume=resume))


def _command(suite: Suite) -> Callable[..., None]:
    """The command of a row."""
    def with_peers(only: Only = "", json: Json = None, quick: Quick = False, peers: Peers = "", threads: Threads = 2,
                   gate: Gate = False, save_baseline: SaveBaseline = False, against: Against = None,
                   within: Within = 0.0, resume: Resume = False) -> None:
        _run(suite, only, json, quick, peers, threads, gate, save_baseline, against, within=within, resume=resume)

    def alone(only: Only = "", json: Json = None, quick: Quick = False, against: Against = None) -> None:
        _run(suite, only, json, quick, against=against)

    def counted(only: Only = "", json: Json = None, quick: Quick = False, against: Against = None, count: Count = 0
                ) -> None:
        _run(suite, only, json, quick, against=against, count=count)

    return with_peers if suite.peers else counted if suite.counted else alone


for _suite in SUITES:
    app.command(_suite.name, help=_suite.help)(_command(_suite))


@app.command("onnx")
def onnx(
    networks: Annotated[Path, typer.Option(metavar="FOLDER", help="Where `python -m benchmarks.onnx_files.networks "
                                                                  "FOLDER` put networks of wheels."),
                        ] = Path("onnx-networks"),
    json: Json = None, quick: Quick = False, threads: Threads = 2,
) -> None:
    """Measure real networks of ONNX files against ONNX Runtime in the same run: outputs, steady calls, first calls."""
    from morpho.cli.machine import bench as part

    _end(part.run_onnx(networks, json, quick, threads))


@app.command("torch")
def torch(
    only: Only = "", json: Json = None, quick: Quick = False, threads: Threads = 2,
    parts: Annotated[str, typer.Option(metavar="PARTS", help="Some of first,steady,train; default: all.")] = "",
    within: Within = 0.0, resume: Resume = False,
) -> None:
    """Measure PyTorch's models in Morpho: first call, steady state, training step, beside eager and Inductor."""
    from morpho.cli.machine import bench as part

    raise typer.Exit(part.run_torch(only, json, quick, threads, parts, within, resume))


@app.command("gpu")
def gpu(
    device: Annotated[str, typer.Argument(help="One of mo.devices().")] = "cuda:0",
    json: Json = None,
    seconds: Annotated[float, typer.Option(min=1.0, help="Most time for all of it.")] = 300.0,
) -> None:
    """Measure kernels on a GPU beside PyTorch's in the same run: elementwise, reductions, products, attention."""
    from morpho.cli.machine import bench as part

    part.run_gpu(device, json, seconds)


@app.command("conformance")
def conformance(
    only: Annotated[str, typer.Option(metavar="NAMES", help="Operations of PyTorch by parts of their names.")] = "",
    device: Annotated[str, typer.Option(help="Where Morpho's operands lie: one of mo.devices().")] = "cpu",
    samples: Annotated[int, typer.Option(min=1, help="Samples of an operation and dtype, at most.")] = 14,
    json: Json = None,
    gate: Annotated[bool, typer.Option("--gate", help="Fail when fewer agree than the stored counts say.")] = False,
    store: Annotated[bool, typer.Option("--store", help="Store the counts of this run.")] = False,
    notes: Annotated[bool, typer.Option("--notes", help="Show every refusal too.")] = False,
    resume: Annotated[Path | None, typer.Option(help="File of results so far; the next call goes on.")] = None,
    minutes: Annotated[float, typer.Option(min=0.0, help="Stop after so many minutes, with status 3.")] = math.inf,
) -> None:
    """Count how many of PyTorch's own samples (op_db) and of NumPy's own examples give the same values here."""
    from morpho.cli.machine import bench as part

    _end(part.run_conformance(only=only, device=device, samples=samples, json=json, gate=gate, store=store, notes=notes,
                              resume=resume, minutes=minutes))


@app.command("surface")
def surface(
    only: Annotated[str, typer.Option(metavar="NAMES", help="Functions by parts of their names, or whole families; "
                                      "`=topk` is the function of exactly that name.")] = "",
    threads: Annotated[str, typer.Option(metavar="NUMBERS", help="Thread counts, one run each: `1,2`.")] = "2",
    dtypes: Annotated[str, typer.Option(metavar="DTYPES", help="Only these: `float32,bfloat16`.")] = "",
    sizes: Annotated[str, typer.Option(metavar="SIZES", help="Only cases whose size begins so: `1M,1024x1024`.")] = "",
    against: Annotated[str, typer.Option(metavar="PEERS", help="Some of torch,numpy,scipy.")] = "torch,numpy,scipy",
    device: Annotated[str, typer.Option(help="One of mo.devices().")] = "cpu",
    folder: Annotated[Path | None, typer.Option("--json", metavar="FOLDER", help="Keep the results here, a file for "
                                                "each thread count.")] = None,
    quick: Quick = False,
    resume: Annotated[bool, typer.Option("--resume", help="Keep the cases that FOLDER holds.")] = False,
    within: Within = 0.0,
    gate: Annotated[bool, typer.Option("--gate", help="Fail when a count of kernels, steps or bytes is above the "
                                                      "stored one; nothing is timed.")] = False,
    store: Annotated[bool, typer.Option("--store", help="Store those counts.")] = False,
    page: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write docs/surface.md from the results of this "
                                              "folder.")] = None,
) -> None:
    """Measure every public function and its gradient beside the best of eager PyTorch, NumPy and SciPy."""
    from morpho.cli.machine import bench as part

    _end(part.run_surface(only=only, threads=threads, dtypes=dtypes, sizes=sizes, against=against, device=device,
                          folder=folder, quick=quick, resume=resume, within_s=within, gate=gate, store=store,
                          page=page))


@app.command("history")
def history(
    file: History = None,
    case: Annotated[str, typer.Option(metavar="TEXT", help="Only ratios whose names have this in them.")] = "",
    last: Annotated[int, typer.Option(min=1, metavar="N", help="So many runs.")] = 20,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it: .svg, or .html with all of it.")] = None,
) -> None:
    """Show how ratios went over past runs of `morpho bench`, as a table with sparklines or as a drawing."""
    from morpho.cli.machine import bench as part

    _end(part.show_history(file, case, last, svg))


@app.command("bisect")
def bisect(
    good: Annotated[str, typer.Argument(metavar="GOOD", help="A commit that was as it should be.")],
    bad: Annotated[str, typer.Argument(metavar="BAD", help="A later one that is not.")],
    case: Annotated[str, typer.Argument(metavar="CASE", help="A ratio such as `gelu/gelu L1 vs numpy`, or a case of "
                                                             "the gate of counts with --counter.")],
    counter: Annotated[str, typer.Option(metavar="NAME", help="Bisect on this count of `python -m benchmarks.gate`, "
                                                              "which noise cannot touch.")] = "",
    command: Annotated[str, typer.Option(metavar="COMMAND", help="Bisect on the number that this command prints last, "
                                         "in the checkout; less is better.")] = "",
) -> None:
    """Find the commit that made a ratio or a count worse: `git bisect run` in a temporary worktree."""
    from morpho.cli.machine import bench as part

    _end(part.bisect(good, bad, case, counter, command))
