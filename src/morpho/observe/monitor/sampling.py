"""A thread that looks at the process's resources now and then, keeps the last hour, and has alerts looked at."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any

from morpho.base.checks import as_seconds
from morpho.observe.monitor.alerts import Alerts
from morpho.observe.monitor.alerts import alerts as default_alerts
from morpho.observe.monitor.resources import Gpus, Process
from morpho.runtime.metrics import metrics

EVERY_S = 5.0
KEPT = 720  # samples: an hour

_cpu = metrics.gauge("morpho_process_cpu_cores", "Cores that the process used since the sample before.")
_rss = metrics.gauge("morpho_process_rss_bytes", "Resident memory of the process.")
_threads = metrics.gauge("morpho_process_threads", "Threads of the process.")
_own = metrics.gauge("morpho_monitor_cpu_seconds", "CPU time that sampling took so far.")
_gpu = {"utilisation": metrics.gauge("morpho_gpu_utilisation", "Share of time that kernels ran.", ["gpu"]),
        "used_bytes": metrics.gauge("morpho_gpu_used_bytes", "Memory in use on a GPU, by everybody.", ["gpu"]),
        "total_bytes": metrics.gauge("morpho_gpu_total_bytes", "Memory of a GPU.", ["gpu"]),
        "power_w": metrics.gauge("morpho_gpu_power_watts", "Power that a GPU draws.", ["gpu"])}


class Sampler:
    """Samples resources every `every_s` seconds until it is stopped, in a thread of its own.

    A sample is one system call for the process, three of NVML's for each GPU, and a look at the alerts; `own_cpu_s` is
    the CPU time it all took. `tick` takes one sample at once.

    >>> from morpho.observe.monitor import Sampler
    >>> with Sampler(every_s=60.0) as sampler:
    ...     sample = sampler.tick()
    >>> sample["rss_bytes"] > 1 << 20, sample["threads"] >= 1
    (True, True)
    """

    def __init__(self, every_s: float = EVERY_S, alerts: Alerts | None = None, process: Process | None = None,
                 gpus: Gpus | None = None, clock: Callable[[], float] = time.time) -> None:
        self.every_s = as_seconds("monitor", "every_s", every_s, threading.TIMEOUT_MAX)
        self.own_cpu_s, self.history = 0.0, deque[dict[str, Any]](maxlen=KEPT)
        self._alerts = default_alerts if alerts is None else alerts
        self._process, self._gpus, self._clock = process or Process(), gpus or Gpus(), clock
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Sampler:
        """Begin, if it has not begun."""
        if self._thread is None or not self._thread.is_alive():
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="morpho-sampler", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """End; the samples stay."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10)
            self._thread = None
        self._process.close()

    def tick(self) -> dict[str, Any]:
        """One sample, now."""
        begun = time.thread_time()
        sample: dict[str, Any] = {"time": self._clock(), **self._process.read()}
        before = self.history[-1] if self.history else None
        if before is not None and "cpu_s" in sample and sample["time"] > before["time"]:
            sample["cpu_cores"] = (sample["cpu_s"] - before["cpu_s"]) / (sample["time"] - before["time"])
            _cpu.set(sample["cpu_cores"])
        if "rss_bytes" in sample:
            _rss.set(sample["rss_bytes"])
            _threads.set(sample["threads"])
        sample["gpus"] = [dict(one) for one in self._gpus.read()]
        for number, one in enumerate(sample["gpus"]):
            for name, value in one.items():
                _gpu[name].set(value, str(number))
        self.history.append(sample)
        self._alerts.check()
        self.own_cpu_s += time.thread_time() - begun
        _own.set(self.own_cpu_s)
        return sample

    def _run(self) -> None:
        while True:
            self.tick()
            if self._stop.wait(self.every_s):
                return

    def __enter__(self) -> Sampler:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.stop()


_running: Sampler | None = None
_lock = threading.Lock()


def sample(every_s: float = EVERY_S) -> Sampler:
    """The sampler of the process, started: it ends with the process, or by `stop()`.

    >>> import morpho as mo
    >>> sampler = mo.monitor.sample(every_s=30.0)
    >>> mo.monitor.sample() is sampler
    True
    >>> sampler.stop()
    """
    global _running
    every_s = as_seconds("monitor", "every_s", every_s, threading.TIMEOUT_MAX)
    with _lock:
        if _running is None:
            _running = Sampler(every_s)
        return _running.start()
