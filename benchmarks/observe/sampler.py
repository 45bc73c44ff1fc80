"""What sampling costs: `python -m benchmarks.observe.sampler [SAMPLES]`: CPU time a sample, and its share of a core."""

from __future__ import annotations

import sys

from morpho.observe.monitor import Alerts, Sampler
from morpho.observe.monitor.resources import Gpus, Process
from morpho.observe.monitor.sampling import EVERY_S


def main() -> None:
    """Take samples one after another and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    process, gpus = Process(), Gpus()
    sampler = Sampler(EVERY_S, Alerts(), process, gpus)
    sampler.tick()
    begun, reads, calls = sampler.own_cpu_s, process.reads, gpus.calls
    for _ in range(count):
        sampler.tick()
    each_s = (sampler.own_cpu_s - begun) / count
    print(f"{1e6 * each_s:.1f} us of CPU a sample: {(process.reads - reads) / count:g} reads of the process, "
          f"{(gpus.calls - calls) / count:g} calls of NVML; every {EVERY_S:g} s that is "
          f"{100 * each_s / EVERY_S:.5f} % of a core")


if __name__ == "__main__":
    main()
