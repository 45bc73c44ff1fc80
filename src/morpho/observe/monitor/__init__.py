"""`mo.monitor`: figures of a running program, alerts when they pass a bound, and their way to other tools.

>>> import morpho as mo
>>> served = mo.monitor.counter("cakes_served", "Cakes that left the kitchen.", ["kind"])
>>> served.add(2, "plum")
>>> mo.monitor.snapshot("cakes_served")["cakes_served"]["values"]
[{'labels': {'kind': 'plum'}, 'value': 2}]

The registry is the one in which the engine counts: plans, compiled code, the memory pool, threads, caches, collectives,
and a server's engines are there as soon as they run.
"""

from morpho.observe.monitor import engine as _engine
from morpho.observe.monitor.alerts import Alert, Alerts, alert, alerts
from morpho.observe.monitor.delivery import Webhook
from morpho.observe.monitor.export import opentelemetry, prometheus, prometheus_text
from morpho.observe.monitor.figures import counter, gauge, histogram, observed, snapshot
from morpho.observe.monitor.sampling import Sampler, sample
from morpho.runtime.metrics import Counter, Gauge, Histogram, Observed

_engine.register()

__all__ = ["Alert", "Alerts", "Counter", "Gauge", "Histogram", "Observed", "Sampler", "Webhook", "alert", "alerts",
           "counter", "gauge", "histogram", "observed", "opentelemetry", "prometheus", "prometheus_text", "sample",
           "snapshot"]


def __dir__() -> list[str]:
    return sorted(__all__)
