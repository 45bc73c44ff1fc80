"""`morpho tune SCRIPT [ARGUMENTS]`: run a script, then let kernels of the same bits race for what it computed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": False}


def tune(
    program: Annotated[list[str] | None, typer.Argument(metavar="SCRIPT [ARGUMENTS]",
                                                        help="What to run; its products, convolutions and loops are "
                                                             "tuned at the sizes it has.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Most time for the search, after the script.")] = 60.0,
    anew: Annotated[bool, typer.Option("--anew", help="Search again where a choice is kept already.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show the choices kept for this machine.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Drop all choices of this machine.")] = False,
    export: Annotated[Path | None, typer.Option("--export", metavar="FILE", help="Write the choices of this machine to "
                                                                                 "a file.")] = None,
    import_: Annotated[Path | None, typer.Option("--import", metavar="FILE", help="Take the choices of a file; those "
                                                 "of another machine or version only with --force.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Take them all the same: results stay the same, speed may "
                                                        "not.")] = False,
) -> None:
    """Find faster kernels of the same bits for a script on this machine: `morpho tune train.py --steps 1`."""
    actions = [bool(program), list_, forget, export is not None, import_ is not None]
    if sum(actions) != 1:
        raise typer.BadParameter("give a script, or one of --list, --forget, --export, --import")
    if program:
        _script(program, seconds, anew)
    elif list_:
        _list()
    else:
        _files(forget, export, import_, force)


def _files(forget: bool, export: Path | None, import_: Path | None, force: bool) -> None:
    from morpho.runtime.tuner import store

    if forget:
        store.forget()
        print("all choices are forgotten: the defaults hold")
    elif export is not None:
        print(f"{store.export(export)} choices written to {export}")
    elif import_ is not None:
        print(f"{store.take(import_, force)} choices taken from {import_}")


def _list() -> None:
    from morpho.runtime.tuner import store

    rows = store.kept().rows
    for key, row in rows.items():
        print(f"{key}: {row.choice.said()}  {row.gain:.2f}x")
    print(f"{len(rows)} choices kept in {store.path()}")


def _script(program: list[str], seconds: float, anew: bool) -> None:
    from morpho.base.errors import ArgumentError, fail
    from morpho.cli.program.script import check
    from morpho.tensor.tools import tune as part

    script = program[0]
    check(script, "tune")
    with part.Recorder() as recorder:
        _run(program)
    if not recorder.plans:
        raise fail(ArgumentError, "tune", f"{script} compiled nothing for the CPU: there is nothing to tune", line="")
    print(f"tuning {len(recorder.plans)} programs of {script}, at most {seconds:g} s; this wants a machine that is "
          "otherwise idle", flush=True)
    found = part.explored(recorder.plans, seconds, anew, tell=lambda one: print(f"  {one.line()}", flush=True))
    part.keep(found)
    print(part.TuneReport(found).summary())


def _run(program: list[str]) -> None:
    """Run a script as Python does; that it exits is no error of the tuner's."""
    from morpho.base.errors import ArgumentError, fail
    from morpho.cli.program import script

    if note := script.misplaced(program, ("--seconds", "--anew"), "tune"):
        print(note, file=sys.stderr)
    if status := script.run(program):
        raise fail(ArgumentError, "tune", f"{program[0]} ended with status {status}: nothing was tuned", line="")
