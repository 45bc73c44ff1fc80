"""`mo.memory`: who holds memory, how fragmented it is, and whether it leaks.

>>> x = mo.ones((256, 256)).realise()
>>> mo.memory.report().live_bytes >= 256 * 256 * 4
True
"""

from morpho.observe.memory.leaks import Leak, watch_for_leaks
from morpho.observe.memory.report import Held, Report, report, track

__all__ = ["Held", "Leak", "Report", "report", "track", "watch_for_leaks"]
