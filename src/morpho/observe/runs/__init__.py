"""Training runs as files: what they write while they run, and how runs of past days are read and compared."""

from morpho.observe.runs.log import FILE, RunLog
from morpho.observe.runs.reading import RunRecord, read_run
from morpho.observe.runs.tensorboard import Events

__all__ = ["FILE", "Events", "RunLog", "RunRecord", "read_run"]
