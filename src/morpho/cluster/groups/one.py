"""The group of one: every collective is what it is for a single rank, at once. The same script runs alone."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from morpho.base.errors import GroupError, fail
from morpho.runtime.groups.group import DONE, Group, Work


class OneGroup(Group):
    """A group whose only rank is this process.

    >>> group = OneGroup()
    >>> x = np.ones(3, np.float32)
    >>> _ = group.all_reduce(x, "mean")
    >>> x.tolist(), group.rank, group.size
    ([1.0, 1.0, 1.0], 0, 1)
    """

    kind = "one"

    def __init__(self, epoch: int = 0, host: str = "localhost") -> None:
        self.rank, self.size, self.epoch, self.hosts = 0, 1, epoch, (host,)
        self._sent: dict[int, deque[np.ndarray]] = {}

    def split(self, color: int | None, key: int = 0) -> Group | None:
        return None if color is None else OneGroup(self.epoch, self.hosts[0])

    def _run(self, operation: str, wait: bool, *arguments: Any) -> Work:
        if operation in ("all_gather", "reduce_scatter", "all_to_all"):
            np.copyto(arguments[1], arguments[0].reshape(arguments[1].shape))
        elif operation == "send":
            buffer, _, tag = arguments
            self._sent.setdefault(tag, deque()).append(buffer.copy())
        elif operation == "recv":
            buffer, _, tag = arguments
            if not self._sent.get(tag):
                raise fail(GroupError, "recv", f"rank 0 waits for a message of tag {tag} from itself, and sent none")
            np.copyto(buffer, self._sent[tag].popleft().reshape(buffer.shape))
        return DONE

    def revoke(self) -> None:
        """Nobody else could wait."""

    def shrink(self) -> Group:
        return OneGroup(self.epoch + 1, self.hosts[0])

    def agree(self, flag: bool) -> bool:
        return flag
