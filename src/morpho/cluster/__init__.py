"""`mo.cluster`: many processes and machines, one program.

>>> group = mo.cluster.init()
>>> group.size
1
"""

from morpho.cluster.frontend.pipeline import Pipeline
from morpho.cluster.world import init
from morpho.runtime.groups.group import Group, Work
from morpho.tensor.tools.foreign_calls import hint_calls as _hint_calls

__all__ = ["Group", "Pipeline", "Work", "init"]

_hint_calls(globals(), __all__)  # calls with other libraries' keywords
