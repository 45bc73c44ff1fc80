"""Files for queues and clusters: `morpho launch --write slurm|pbs|kubernetes|statefulset`, explained by their comments.

>>> print(JobFile("slurm", ("train.py",), 4, 2).text().splitlines()[0])
#!/bin/bash
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from morpho.base.errors import ArgumentError, fail
from morpho.base.units import format_bytes
from morpho.plan import Plan

PORT = 29500


@dataclass(frozen=True)
class JobFile:
    """A job of `count` ranks, `each` of them on a node, or of a pipeline by a plan, which takes a node for each of its
    cluster. `program` is a script with its arguments; for a plan a `morpho` command with its own."""

    kind: str
    program: tuple[str, ...]
    count: int = 1
    each: int = 1
    threads: int | None = None
    image: str = ""
    plan: Plan | None = None
    plan_path: str = ""

    @property
    def nodes(self) -> int:
        return len(self.plan.cluster.nodes) if self.plan else -(-self.count // self.each)

    @property
    def name(self) -> str:
        words = [word for word in self.program if not word.startswith("-")] or ["ranks"]
        return re.sub("[^a-z0-9]+", "-", Path(words[0]).stem.lower()).strip("-")[:40] or "ranks"

    def text(self) -> str:
        """The file; an error where its kind cannot run this."""
        if self.kind not in WRITERS:
            raise fail(ArgumentError, "launch", f"--write {self.kind!r} is unknown",
                       "use " + ", ".join(WRITERS), line="")
        if self.count % self.each:
            raise fail(ArgumentError, "launch", f"{self.count} ranks do not part into nodes of {self.each}", line="")
        return WRITERS[self.kind](self)

    def command(self) -> str:
        """Command of every rank."""
        return shlex.join(["python", *self.program])

    def stages(self) -> list[str]:
        """Stages of the plan, for the file's comments."""
        assert self.plan is not None
        plan = self.plan
        rows = [f"{plan.card.name} over {len(plan.stages)} of {self.nodes} nodes: {plan.predicted.tokens_per_s:.3g} "
                f"tokens/s predicted, {plan.predicted.latency_s * 1e3:.3g} ms a token"]
        rows += [f"  {' + '.join(stage.members or (stage.node,))}: layers [{stage.start}, {stage.end}), "
                 f"{format_bytes(stage.memory_needed_bytes)}" for stage in plan.stages]
        return rows

    def pipeline_command(self) -> list[str]:
        """Lines of a shell that run a pipeline over the plan's nodes, from the first of them."""
        assert self.plan is not None
        rows = ["hosts=$(mktemp --suffix=.toml)", 'trap \'rm -f "$hosts"\' EXIT', 'cat > "$hosts" <<END',
                'secret = "$HOME/.config/morpho/cluster-secret"']
        for node in self.plan.cluster.nodes:
            rows += ["[[host]]", f"name = {json.dumps(node.name)}"]
        return [*rows, "END", f"{shlex.join(['morpho', *self.program])} --plan {shlex.quote(self.plan_path)} "
                '--hosts "$hosts"']


def _comments(rows: list[str]) -> list[str]:
    return [f"# {row}" for row in rows]


def _slurm(job: JobFile) -> str:
    rows = ["#!/bin/bash", f"#SBATCH --job-name={job.name}", f"#SBATCH --nodes={job.nodes}"]
    if job.plan:
        most = max(stage.memory_needed_bytes for stage in job.plan.stages)
        rows += ["#SBATCH --ntasks-per-node=1", f"#SBATCH --nodelist={','.join(_names(job))}",
                 f"#SBATCH --mem={-(-most * 11 // 10 >> 20)}M", *_comments(job.stages()),
                 *_comments(["--mem is the largest stage and a tenth more. The nodes are those that the plan names.",
                             "Stages are started from the first node, through srun; all hosts have the secret."])]
        return "\n".join([*rows, *job.pipeline_command()]) + "\n"
    rows += [f"#SBATCH --ntasks-per-node={job.each}",
             *([f"#SBATCH --cpus-per-task={job.threads}"] if job.threads else []),
             *_comments([f"{job.count} ranks, {job.each} on a node. srun starts them; they meet on the first node at a "
                         "port that follows",
                         "from the job's number (set MASTER_PORT for another) and speak over MPI from then on.",
                         "Where srun --mpi=list names pmix, --mpi=pmix saves the meeting."]),
             "export MORPHO_THREADS=${SLURM_CPUS_PER_TASK:-1}", f"srun --mpi=none --kill-on-bad-exit=0 {job.command()}"]
    return "\n".join(rows) + "\n"


def _names(job: JobFile) -> list[str]:
    assert job.plan is not None
    return [node.name for node in job.plan.cluster.nodes]


def _pbs(job: JobFile) -> str:
    threads = job.threads or 1
    rows = ["#!/bin/bash", f"#PBS -N {job.name[:15]}"]
    if job.plan:
        rows += [f"#PBS -l select={'+'.join(f'1:host={name}' for name in _names(job))}", "#PBS -l place=scatter",
                 *_comments([*job.stages(), "The nodes are those of the plan; stages are started through ssh."]),
                 'cd "$PBS_O_WORKDIR"']
        return "\n".join([*rows, *job.pipeline_command()]) + "\n"
    rows += [f"#PBS -l select={job.nodes}:ncpus={job.each * threads}:mpiprocs={job.each}", "#PBS -l place=scatter",
             *_comments([f"{job.count} ranks, {job.each} on a node. pbsdsh starts them on the lines of PBS_NODEFILE.",
                         "They meet on the first node at a port that follows from the job's number, and speak over "
                         "MPI from then on."]),
             f"pbsdsh -- /bin/bash -lc {shlex.quote(f'cd $PBS_O_WORKDIR && MORPHO_THREADS={threads} {job.command()}')}"]
    return "\n".join(rows) + "\n"


def _service(job: JobFile) -> list[str]:
    """A name for each pod: without it ranks do not find the first."""
    return ["apiVersion: v1", "kind: Service", "metadata:", f"  name: {job.name}", "spec:", "  clusterIP: None",
            "  publishNotReadyAddresses: true  # names resolve before the ranks are there", "  selector:",
            f"    app: {job.name}", "---"]


def _pod(job: JobFile, indent: str, rank: str, first: str) -> list[str]:
    """The pod of a rank."""
    words = ", ".join(json.dumps(word) for word in ("python", *job.program))
    rows = ["metadata:", "  labels:", f"    app: {job.name}", "spec:", f"  subdomain: {job.name}", "  containers:",
            f"    - name: {job.name}", f"      image: {json.dumps(job.image)}", f"      command: [{words}]",
            "      env:", "        - name: RANK", "          valueFrom:", "            fieldRef:",
            f"              fieldPath: {rank}", "        - name: WORLD_SIZE", f'          value: "{job.count}"',
            "        - name: MASTER_ADDR", f"          value: {first}", "        - name: MASTER_PORT",
            f'          value: "{PORT}"', "        - name: MORPHO_THREADS", f'          value: "{job.threads or 1}"',
            "      resources:", "        requests:", f'          cpu: "{job.threads or 1}"']
    return [indent + row for row in rows]


def _refuse_plan(job: JobFile) -> None:
    if job.plan:
        raise fail(ArgumentError, "launch", f"a plan is run over hosts that ssh or srun reaches, not over pods "
                   f"({job.kind})", "write slurm or pbs, or give a script", line="")
    if job.each != 1:
        raise fail(ArgumentError, "launch", f"a pod of {job.kind} is one rank, not {job.each}",
                   "leave --per-node out, and give a rank more --threads", line="")
    if not job.image:
        raise fail(ArgumentError, "launch", f"{job.kind} needs an image that has Python, Morpho and the script",
                   "give --image", line="")


def _kubernetes(job: JobFile) -> str:
    _refuse_plan(job)
    rows = [*_comments([f"An Indexed Job: {job.count} pods, each one rank, whose number is the pod's index.",
                        "They meet at pod 0, by its name in the service, and speak over MPI from then on.",
                        "kubectl apply -f FILE; kubectl logs -f -l "
                        f"app={job.name} --prefix"]), *_service(job),
            "apiVersion: batch/v1", "kind: Job", "metadata:", f"  name: {job.name}", "spec:",
            f"  completions: {job.count}", f"  parallelism: {job.count}  # all at once: ranks wait for each other",
            "  completionMode: Indexed", "  backoffLimit: 3", "  template:",
            *_pod(job, "    ", "metadata.annotations['batch.kubernetes.io/job-completion-index']",
                  f"{job.name}-0.{job.name}"), "      restartPolicy: Never"]
    return "\n".join(rows) + "\n"


def _statefulset(job: JobFile) -> str:
    _refuse_plan(job)
    rows = [*_comments([f"A StatefulSet: {job.count} pods with names that stay, each one rank with the pod's "
                        "number (Kubernetes 1.28 and later).",
                        "A pod that ends is started again: for servers; a script that ends belongs into "
                        "--write kubernetes."]),
            *_service(job), "apiVersion: apps/v1", "kind: StatefulSet", "metadata:", f"  name: {job.name}", "spec:",
            f"  serviceName: {job.name}", f"  replicas: {job.count}",
            "  podManagementPolicy: Parallel  # all at once: ranks wait for each other", "  selector:",
            "    matchLabels:", f"      app: {job.name}", "  template:",
            *_pod(job, "    ", "metadata.labels['apps.kubernetes.io/pod-index']", f"{job.name}-0.{job.name}")]
    return "\n".join(rows) + "\n"


WRITERS: dict[str, Callable[[JobFile], str]] = {"slurm": _slurm, "pbs": _pbs, "kubernetes": _kubernetes,
                                                "statefulset": _statefulset}
