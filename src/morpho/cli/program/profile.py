"""`morpho profile`: run a script as it is, and say what binds it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from morpho.base import settings
from morpho.base.errors import ArgumentError, fail
from morpho.cli.program import script
from morpho.observe.export.files import ENDINGS, save
from morpho.observe.export.text import report
from morpho.observe.trace.merge import clock_offset, gathered, merged
from morpho.observe.trace.model import Trace


def profile_script(words: Sequence[str], out: Sequence[Path], merge: Sequence[Path], nodes: int, memory: bool,
                   perf_map: bool, jitdump: bool) -> None:
    """Profile a script with the options of the command."""
    check_files(out)
    if merge:
        _merge([*merge, *map(Path, words)], out)
        return
    if not words:
        raise typer.BadParameter("name a script to run, or traces with --merge")
    script.check(words[0], "profile")
    if nodes > 1 and settings.world_size() is None:
        _on_ranks(words, out, nodes, memory, perf_map, jitdump)
        return
    held: dict[str, object] = {}
    trace, status = run(words, memory, held)
    _write_symbols(perf_map, jitdump)
    held.clear()
    if settings.world_size() is None:
        _show(trace, out)
    else:
        _share(trace, out)
    if not out and (note := script.misplaced(words, ("--out", "-o"), "profile")):
        typer.echo(note, err=True)
    if status:
        raise typer.Exit(status)


def _merge(files: Sequence[Path], out: Sequence[Path]) -> None:
    for path in files:
        if not path.is_file():
            raise fail(ArgumentError, "profile", f"there is no trace {path}", "write one with --out NAME.json", line="")
    _show(merged([Trace.load(path) for path in files]), out)


def check_files(files: Sequence[Path]) -> None:
    """Before a script runs for an hour."""
    for path in files:
        if not path.name.endswith(ENDINGS):
            raise fail(ArgumentError, "profile", f"--out {path}: the name has none of the endings "
                                                 f"{', '.join(ENDINGS)}", line="")
        if not path.absolute().parent.is_dir():
            raise fail(ArgumentError, "profile", f"--out {path}: there is no such folder", line="")


def run(words: Sequence[str], memory: bool = True, held: dict[str, object] | None = None) -> tuple[Trace, int]:
    """The trace of a script with its arguments, and its exit status. Its errors are shown as Python shows them. `held`
    gets what the script's names mean at its end, so that its compiled functions are still there."""
    from morpho.observe.record.session import profile

    recorded = profile(Path(words[0]).name, memory=memory)
    with recorded:
        status = script.run(words, held)
    return recorded.trace, status


def _show(trace: Trace, files: Sequence[Path]) -> None:
    typer.echo(report(trace))
    for path in files:
        typer.echo(f"written: {save(trace, path)}")


def _write_symbols(perf_map: bool, jitdump: bool) -> None:
    from morpho.observe.export import symbols

    if perf_map:
        typer.echo(f"written: {symbols.write_perf_map()}")
    if jitdump:
        typer.echo(f"written: {symbols.write_jitdump()}")


def _on_ranks(words: Sequence[str], files: Sequence[Path], nodes: int, memory: bool, perf_map: bool,
              jitdump: bool) -> None:
    """This command again on every rank, which finds its place by the launcher."""
    from morpho.cluster.launch.launcher import launch, module_job

    given = [*(f"--out={path}" for path in files), *([] if memory else ["--no-memory"]),
             *(["--perf-map"] if perf_map else []), *(["--jitdump"] if jitdump else [])]
    status = launch(module_job("morpho", ["profile", *given, *words], nodes), lambda text: typer.echo(text, err=True))
    if status:
        raise typer.Exit(status if 0 < status < 256 else 1)


def _share(trace: Trace, files: Sequence[Path]) -> None:
    """All ranks' traces on rank 0, which shows and writes them."""
    import morpho as mo

    group = mo.cluster.init()
    trace.rank, trace.ranks = group.rank, group.size
    trace.clock_offset_s, trace.clock_error_s = clock_offset(group)
    if traces := gathered(group, trace):
        _show(merged(traces), files)
    group.barrier()
