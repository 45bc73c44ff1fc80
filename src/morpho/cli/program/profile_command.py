"""The command `morpho profile`: its options; what it does is in `profile.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from morpho.cli.program import onnx
from morpho.cli.program.script import split_options

CONTEXT = {"allow_interspersed_args": False}
Out = Annotated[list[Path] | None, typer.Option(
    "--out", "-o", metavar="FILE", help="Write what was found: .html, .svg (flame graph), .perfetto.json (for "
                                        "ui.perfetto.dev), .pftrace (its own format), .json (the trace) or .txt; "
                                        "may be repeated.")]
EPILOG = ("Options stand before the script; what follows is the script's own. An ONNX model takes --input [NAME=]FILE"
          " (.npy or .npz), once for each input; zeros without one.")


def profile(
    words: Annotated[list[str] | None, typer.Argument(metavar="SCRIPT [ARGUMENTS]", help="What to run.")] = None,
    out: Out = None,
    merge: Annotated[list[Path] | None, typer.Option(
        metavar="FILE", help="Instead of running a script: put the traces (.json) of several ranks together, on one "
                             "clock; may be repeated.")] = None,
    nodes: Annotated[int, typer.Option("-n", min=1, help="Ranks on this machine that run the script together.")] = 1,
    memory: Annotated[bool, typer.Option(help="Note which lines ask for memory.")] = True,
    perf_map: Annotated[bool, typer.Option("--perf-map", help="Write /tmp/perf-PID.map: symbols for perf.")] = False,
    jitdump: Annotated[bool, typer.Option("--jitdump", help="Write jit-PID.dump here, for perf inject --jit.")] = False,
) -> None:
    """Run a script and say what binds it, in a sentence, then in tables: `morpho profile train.py --steps 10`; or time
    the steps of an ONNX model: `morpho profile model.onnx --input x.npy`."""
    from morpho.cli.program import profile as part

    if merge or onnx.is_model(words):  # what follows is no script: options may stand anywhere
        words, given = split_options(words or (), ("--out", "-o", "--input", "--merge"))
        out = [*(out or ()), *(Path(value) for name, value in given if name in ("--out", "-o"))]
        merge = [*(merge or ()), *(Path(value) for name, value in given if name == "--merge")]
        if not merge:
            part.check_files(out)
            onnx.profile(Path(words[0]), [*words[1:], *(value for name, value in given if name == "--input")], out)
            return

    part.profile_script(words or (), out or (), merge or (), nodes, memory, perf_map, jitdump)
