"""Name of Morpho on the package index, where `morpho` is another project; the import is `morpho` all the same.

>>> install("plot")
"pip install 'morpho-tensor[plot]'"
"""

from __future__ import annotations

NAME = "morpho-tensor"


def install(extra: str) -> str:
    """The command that brings an extra, for hints of errors.

    >>> install("models")
    "pip install 'morpho-tensor[models]'"
    """
    return f"pip install '{NAME}[{extra}]'"


def version() -> str:
    """The installed version; `unknown` of a source tree that is not installed.

    >>> bool(version())
    True
    """
    from importlib import metadata  # not at import time: the package's metadata takes a while to find

    try:
        return metadata.version(NAME)
    except metadata.PackageNotFoundError:
        return "unknown"
