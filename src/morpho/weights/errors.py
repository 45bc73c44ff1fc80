"""What goes wrong with files of weights, each class derived from the built-in one a Python user would catch."""

from __future__ import annotations

from morpho.base.errors import MorphoError


class FileFault(MorphoError, ValueError):
    """A file that is not what it should be: truncated, damaged, hostile, or of an unknown kind."""


class MissingFile(MorphoError, FileNotFoundError):
    """A file or folder that is not there."""

    __str__ = Exception.__str__


class NameFault(MorphoError, KeyError):
    """Names of tensors that are missing, left over, or of another shape."""

    __str__ = Exception.__str__  # a KeyError's own text is quoted


class MissingExtra(MorphoError, ImportError):
    """A library that is not installed; the message names the extra of Morpho that brings it."""


class PullError(MorphoError, RuntimeError):
    """A model that could not be fetched."""


class StorageError(MorphoError, OSError):
    """A file that could not be written: a full disk, a folder that is read-only. `errno` is the system's number."""

    __str__ = Exception.__str__


class FolderInUse(MorphoError, BlockingIOError):
    """A folder that another process is writing to; the message has its number."""

    __str__ = Exception.__str__
