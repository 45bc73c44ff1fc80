"""5. Start-up: time and memory of ``import morpho``, and the CPU a process uses while idle.

    morpho bench core --only 5
"""

from __future__ import annotations

import statistics

from benchmarks.harness.probe import ProbeError, probe
from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session


def run(session: Session) -> ThemeResult:
    """Both parts; one that fails leaves the other standing."""
    result = ThemeResult("startup")
    for part in (imports, idle):
        try:
            part(session, result)
        except ProbeError as error:
            result.errors.append(str(error))
    return result


def imports(session: Session, result: ThemeResult) -> None:
    """``import morpho`` in a fresh process, whole and beyond NumPy's share."""
    table = Table("import morpho", ["state", "import", "to first use", "resident", "modules"])
    for name, arguments in (("NumPy included", []), ("NumPy already there", ["numpy"])):
        answers = [probe("import_cost", *arguments, threads=session.threads) for _ in range(3 if session.quick else 9)]
        result.figures[f"import, {name}"] = answers
        seconds = statistics.median(answer["seconds"] for answer in answers)
        usable = statistics.median(answer["usable_s"] for answer in answers)
        resident = [answer["resident_bytes"] for answer in answers if answer["resident_bytes"] is not None]
        megabytes = f"{statistics.median(resident) / 1e6:.1f} MB" if resident else "-"
        table.rows.append([name, duration(seconds), duration(usable), megabytes, str(answers[0]["modules"])])
        if not arguments:
            result.targets.append(Target("import morpho, NumPy included", seconds * 1e3, 200.0, False, " ms"))
    result.tables.append(table)


def idle(session: Session, result: ThemeResult) -> None:
    """CPU over two idle seconds after a threaded call."""
    answer = probe("idle_cpu", threads=session.threads)
    result.figures["idle"] = answer
    result.targets.append(Target("CPU of an idle process, of one core", answer["idle_share"] * 100, 1.0, False, " %"))
