"""The `morpho` command: `doctor`, `tour`, `plan`, `plan check`, `plan measure`, `bench core`, `kernels`, `plan`.

Each command imports what it needs when it runs, so that `--help` and a mistyped option answer at once. An error that
Morpho raises on purpose is one red line on standard error and exit code 2; anything else is a fault of ours and keeps
its traceback.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from morpho.base.errors import MorphoError
from morpho.cli import plan_command

EXIT_ERROR = 2


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
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench = typer.Typer(help="Measure speed against named baselines and peers.", no_args_is_help=True)
app.add_typer(bench, name="bench")


def version() -> str:
    """The installed version, or the source tree's own when Morpho is not installed."""
    from importlib import metadata

    try:
        return metadata.version("morpho")
    except metadata.PackageNotFoundError:
        import morpho

        return str(getattr(morpho, "__version__", "unknown"))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"morpho {version()}")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Morpho: lazy tensors, one graph, native code."""


@app.command("doctor")
def doctor() -> None:
    """Show what this machine offers: cores, instruction sets, caches, versions, optional parts and how to get them."""
    from morpho.cli import doctor as part

    part.show()


@app.command("tour")
def tour(
    source: Annotated[
        str | None,
        typer.Argument(help="An expression to follow, in the names `x`, `y` (float32, 4096 x 1024), `mo` and `np`; "
                            "without one, a prepared example."),
    ] = None,
) -> None:
    """Follow one expression from the call to the machine code, printing each stage."""
    from morpho.cli import tour as part

    part.show(source)


app.command("plan", epilog=plan_command.EPILOG)(plan_command.plan)
app.command("plan check")(plan_command.check)
app.command("plan measure")(plan_command.measure)


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


@bench.command("core")
def bench_core(only: Only = "", json: Json = None, quick: Quick = False, peers: Peers = "", threads: Threads = 2,
               gate: Gate = False, save_baseline: SaveBaseline = False) -> None:
    """Measure the engine: calls, GELU, fusion cases, compile times, memory, against peers in the same run."""
    _bench("core", only, json, quick, peers, threads, gate, save_baseline)


@bench.command("kernels")
def bench_kernels(only: Only = "", json: Json = None, quick: Quick = False, peers: Peers = "", threads: Threads = 2,
                  gate: Gate = False, save_baseline: SaveBaseline = False) -> None:
    """Measure products, fused layers, attention and GPT-2 against peers in the same run."""
    _bench("kernels", only, json, quick, peers, threads, gate, save_baseline)


@bench.command("plan")
def bench_plan(only: Only = "", json: Json = None, quick: Quick = False) -> None:
    """Measure the planner: exactness, time to proof, annealing, rules of thumb on 400 clusters, what-if."""
    _bench("plan", only, json, quick, "", 1, False, False)


def _bench(suite: str, only: str, json: Path | None, quick: bool, peers: str, threads: int, gate: bool,
           save_baseline: bool) -> None:
    from morpho.cli import bench as part

    status = part.run_suite(suite, only=only, json=json, quick=quick, peers=peers, threads=threads, gate=gate,
                            save_baseline=save_baseline)
    if status:
        raise typer.Exit(int(status))


def show_error(error: BaseException) -> None:
    """One red line on standard error, without the place in the command line's own machinery where it was raised."""
    from rich.console import Console

    text = " ".join(str(error).split()) or type(error).__name__
    text = re.sub(r" At (?:(?! At ).)*[/\\]typer[/\\][^:]*:\d+\.", "", text)
    Console(stderr=True).print(text, style="bold red", markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    """The entry point of the `morpho` script and of `python -m morpho`."""
    try:
        app(prog_name="morpho")
    except MorphoError as error:
        show_error(error)
        sys.exit(EXIT_ERROR)


if __name__ == "__main__":
    main()
