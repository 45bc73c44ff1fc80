"""A pipeline over machines that are network namespaces: other addresses, a line of 100 Mbit/s, an agent instead of
ssh."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

pytest.importorskip("mpi4py", reason="workers are MPI processes: pip install 'morpho-tensor[cluster]'")

from emulator import Emulator
from pipeline_models import folder_of, plan_of

import morpho as mo
from morpho.cluster import Pipeline

PROMPT = [3, 14, 15, 9, 2, 6, 5]


def namespace(process):
    return os.readlink(f"/proc/{process}/ns/net")


def test_a_text_over_emulated_machines_is_that_of_one_process(tmp_path):
    reason = Emulator.refusal()
    if reason:
        pytest.skip(f"no network namespaces: {reason}")
    folder = folder_of(tmp_path, "llama")
    plan = plan_of(folder, [3])
    slow = replace(plan.cluster, bandwidth_bytes_per_s=((12.5e6,) * 2,) * 2)
    with Emulator(slow) as machines, Pipeline(folder, plan, hosts=machines.hosts, threads=1) as pipeline:
        found = [*pipeline.wait().generate(PROMPT, max_new_tokens=20, temperature=0)]
        places = {namespace(process) for process in pipeline.processes.values()}
        assert len(places) == 2 and namespace("self") not in places
    assert found == [*mo.models.generate(mo.models.load(folder), PROMPT, max_new_tokens=20, temperature=0)]
