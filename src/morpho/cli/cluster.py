"""`morpho cluster measure`, `status` and `doctor`, and `morpho plan history`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from morpho.base.errors import ArgumentError, GroupError, fail
from morpho.base.machine import machine
from morpho.base.units import format_bytes, format_seconds

MEASURE_S = 300.0


def measure(hosts_path: Path | None, nodes: int | None, out: Path | None) -> None:
    """Measure nodes and links, and write the cluster file that the planner reads."""
    from morpho.cluster.hosts.file import read_hosts
    from morpho.cluster.hosts.measuring import cluster_toml
    from morpho.cluster.hosts.reaching import check_reachable
    from morpho.cluster.launch.launcher import end
    from morpho.cluster.launch.mpiexec import HERE, start

    if (hosts_path is None) == (nodes is None):
        raise fail(ArgumentError, "cluster", "measure what?", "give --hosts FILE, or --nodes N for this machine")
    hosts = read_hosts(hosts_path) if hosts_path is not None else None
    if hosts is not None:
        check_reachable([(host.name, host.address) for host in hosts.hosts], hosts.agent)
    names = [host.name for host in hosts.hosts] if hosts else [f"worker-{number + 1}" for number in range(nodes or 1)]
    place = out or (hosts.cluster if hosts else Path("cluster.toml"))
    with tempfile.TemporaryDirectory() as folder:
        found, said = Path(folder) / "figures.json", Path(folder) / "said"
        with open(said, "wb") as file:
            process = start(len(names), [sys.executable, "-m", "morpho.cluster.launch.worker", "-m",
                                         "morpho.cluster.hosts.measuring", str(found)],
                            hosts.launch() if hosts else HERE, threads=None if hosts else 1, stdout=file,
                            stderr=subprocess.STDOUT)
            try:
                process.wait(MEASURE_S)
            except subprocess.TimeoutExpired:
                end(process)  # mpiexec ends its ranks; killed, it would leave them behind
        if not found.exists():
            last = said.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
            raise fail(GroupError, "cluster", f"the hosts could not be measured: {last[0]}")
        # On this machine every worker has one thread: as many as there are cores share its memory's bandwidth.
        share = 1 if hosts else min(len(names), machine().cores)
        text = cluster_toml(names, _corrected(names, json.loads(found.read_text()), share, hosts is None), share)
    place.write_text(text)
    print(text, end="")
    print(f"written to {place}: plan with it, morpho plan MODEL --cluster {place}", file=sys.stderr)


def _corrected(names: list[str], figures: list[dict[str, Any]], share: int, local: bool) -> list[dict[str, Any]]:
    """Figures of nodes with the memory bandwidth that runs had, where the prediction ledger has enough of them."""
    from morpho.cluster.frontend.history import effective, rows

    known = effective(rows(), len(names) if local else None)
    for name in names:
        if name in known:
            print(f"{name}: the bandwidth of its last {known[name][1]} runs is taken, {known[name][0] / 1e9:.3g} GB/s",
                  file=sys.stderr)
    return [{**each, "memory_bytes_per_s": known[name][0] * share} if name in known else each
            for name, each in zip(names, figures, strict=True)]


def status() -> None:
    """Which pipelines and launched scripts run on this machine, and who of them does what."""
    from morpho.cluster.frontend.status import running
    from morpho.cluster.launch import standing

    runs, launched = running(), standing.running()
    if not runs and not launched:
        print("no pipeline and no launched script runs here")
    for each in launched:
        print(f"{' '.join(each['program'])}: {each['count']} ranks, launcher {each['launcher']}")
        for row in each["rows"]:
            print(f"  {standing.sentence(row, time.time())}")
    for run in runs:
        print(f"{Path(run['model']).name}: epoch {run['epoch']}, {run['texts']} texts, frontend {run['frontend']}")
        for node, worker in run["workers"].items():
            first, end = worker["layers"] or (0, 0)
            held = f"layers [{first}, {end})" if worker["layers"] else "no layers, in reserve"
            late = time.time() - worker["said"]
            print(f"  {node}: process {worker['process']}, {held}, {worker['doing']}, heard {late:.1f} s ago")


def doctor(hosts_path: Path | None) -> bool:
    """Check what pipelines need, and print who waits for whom; return whether all is well."""
    from morpho.cluster.frontend.status import diagnosis, running
    from morpho.cluster.launch import standing

    problems = [*_machine_problems(), *(_host_problems(hosts_path) if hosts_path is not None else [])]
    for run in running():
        problems += [f"{Path(run['model']).name}: {line}" for line in diagnosis(run)]
    for run in standing.running():
        waits = standing.diagnosis(run)
        problems += [f"{Path(run['program'][0]).name}: {line}"
                     for line in (*waits, *(standing.lines_down(run) if waits else ()))]
    for line in problems:
        print(f"- {line}")
    print("all is well" if not problems else f"{len(problems)} problems")
    return not problems


def _machine_problems() -> list[str]:
    from morpho.base.errors import MorphoError
    from morpho.cluster.launch.mpiexec import mpiexec

    try:
        found = mpiexec()
    except MorphoError as error:
        return [str(error)]
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    first = (said.splitlines() or ["mpiexec says nothing"])[0]
    print(f"{first}, {found}")
    return [] if "Open MPI" in said and " 5." in first else [f"{first} is not Open MPI 5, which survives dead ranks"]


def _host_problems(path: Path) -> list[str]:
    from morpho.cluster.hosts.file import read_hosts
    from morpho.cluster.hosts.reaching import is_reachable

    hosts = read_hosts(path)
    found = [f"{host.name} ({host.address}) cannot be reached" for host in hosts.hosts
             if not is_reachable(host.address, hosts.agent)]
    if not hosts.cluster.exists():
        found.append(f"{hosts.cluster} is not there: morpho cluster measure --hosts {path}")
    if hosts.secret is not None and not hosts.secret.exists():
        found.append(f"the secret {hosts.secret} is not there")
    return found


BUSY = 0.2  # share of the cores: from here on a load is worth a word


def history(last: int) -> None:
    """Print predicted and measured figures of past runs."""
    from morpho.cluster.frontend.history import corrections, errors, rows

    found = rows()
    if not found:
        print("no runs yet: morpho run MODEL --nodes N makes one")
        return
    print(f"{'when':16}  {'model':18} stages texts  first token (error)   token (error)   tokens/s (error)")
    for row in found[-last:]:
        off, did = errors(row), row["measured"]
        cells = [_cell(format_seconds(did["first_token_s"]) if "first_token_s" in did else "-", off, "first_token_s"),
                 _cell(format_seconds(did["token_s"]) if "token_s" in did else "-", off, "token_s"),
                 _cell(f"{did['tokens_per_s']:.4g}" if "tokens_per_s" in did else "-", off, "tokens_per_s")]
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["time"]))
        print(f"{when}  {row['model'][:18]:18} {len(row['stages']):6} {row['streams']:5}  {'   '.join(cells)}")
        if isinstance(row.get("load"), float) and row["load"] > BUSY:
            print(f"    beside other programs that wanted {100 * row['load']:.0f} % of the cores, which the prediction "
                  "does not count")
        sent, held = did.get("sent_bytes", {}), did.get("memory_bytes", {})
        if sent:
            parts = [f"{node}: sent {format_bytes(sent[node])}, holds {format_bytes(held.get(node, 0))}"
                     for node in sent]
            print("    " + ", ".join(parts))
    for node, factor in corrections(found).items():
        print(f"stages on {node} take {factor:.2f} of the predicted time")


def _cell(text: str, off: dict[str, float], name: str) -> str:
    return f"{text} ({off[name]:+.0%})" if name in off else text
