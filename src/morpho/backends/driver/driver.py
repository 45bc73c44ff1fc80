"""The driver: one generated function that checks the arguments of a call and runs any program without Python.

It is data-driven: a program is a table, so a new compiled function needs no driver of its own. Written once in LLVM
text here and in the `*_code.py` files, compiled once per machine, kept in the disk cache like any kernel. The tables
are arrays of 64-bit words; the classes of `tables.py` name their fields.
"""

from __future__ import annotations

from morpho.backends.driver.abi import Distances, Function
from morpho.backends.driver.control_code import control, run_control, set_turn, settle
from morpho.backends.driver.entry.entry_code import elsewhere, entry, try_tables
from morpho.backends.driver.entry.serve_code import serve
from morpho.backends.driver.entry.target_code import deliver
from morpho.backends.driver.interrupts import TABLE, InterruptField, poll, run_released, shield
from morpho.backends.driver.run_code import evaluate, launch_piece, run, run_launch, run_step, set_memory
from morpho.backends.driver.thread_code import thread_functions
from morpho.base.machine import host_architecture

FUNCTIONS = ("entry", "run", "run_released", "poll", "evaluate", "worker")


def driver_text(at: Distances, pauses: bool = False, architecture: str = "") -> str:
    """The driver's module, for objects in which things lie at these distances; `pauses` as of `thread_functions`."""
    parts = [
        f"{TABLE} = external global [{int(InterruptField.SIZE)} x i64]",
        poll(Function("poll", "i64 %force", "i32"), architecture or host_architecture()),
        shield(Function("shield", "", "void")),
        run_released(Function("run_released", "ptr %program, ptr %slots, ptr %values, ptr %scratch", "i64")),
        *thread_functions(pauses),
        run_step(Function("run_step", "ptr %step, ptr %slots, ptr %values, ptr %scratch, ptr %pool, ptr %spent",
                          "i32")),
        launch_piece(Function("launch_piece", "ptr %rows, ptr %pieces, i64 %first, i64 %last, i64 %left, i64 %right, "
                                            "ptr %scratch", "i32")),
        run_launch(Function("run_launch", "ptr %step, ptr %slots, ptr %values, ptr %scratch, ptr %pool", "i64")),
        set_memory(Function("set_memory", "ptr %step, ptr %slots, ptr %values", "void")),
        set_turn(Function("set_turn", "ptr %table, ptr %slots, ptr %values, i64 %turn", "void")),
        settle(Function("settle", "ptr %table, ptr %slots, ptr %values", "void")),
        control(Function("control", "ptr %row, ptr %slots, ptr %values, ptr %counters", "i64")),
        run_control(Function("run_control", "ptr %program, ptr %slots, ptr %values, ptr %scratch", "i64")),
        evaluate(Function("evaluate", "ptr %program, ptr %symbols, ptr %values", "void")),
        deliver(Function("deliver", "ptr %moves, i64 %count, i64 %status, ptr %copy", "void")),
        run(Function("run", "ptr %program, ptr %slots, ptr %values, ptr %scratch", "i64")),
        serve(Function("serve", "ptr %context, ptr %tensors, ptr %target, ptr %args, i64 %count, ptr %names", "ptr"),
              at),
        try_tables(Function("try_tables", "ptr %context, ptr %args, i64 %count, ptr %names", "ptr")),
        elsewhere(Function("elsewhere", "ptr %context, ptr %args, i64 %count, ptr %names", "ptr")),
        entry(Function("entry", "ptr %self, ptr %args, i64 %count, ptr %names", "ptr"), at),
    ]
    return "\n".join(parts)
