"""The error of a file: one sentence, with the name of the file where it is known."""

from __future__ import annotations

from morpho.base.errors import ArgumentError, MorphoError, fail


def refuse(message: str, hint: str = "") -> MorphoError:
    """The error of a file that is damaged, hostile, or says what is not known."""
    return fail(ArgumentError, "onnx", message, hint)
