"""Connectionist temporal classification: the loss of a sequence whose alignment with the inputs is not known.

The forward variables of Graves et al. (2006) over the labels with blanks between them, in logarithms, one step of time
after another; the gradient is that of the recursion.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import morpho as mo
from morpho.base.checks import as_whole, shown
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.nn.losses.reduction import check_reduction, full, reduced
from morpho.tensor.convert import following, unplaced
from morpho.tensor.functions.searching.search import classes_along
from morpho.tensor.recorded import recorded
from morpho.tensor.state.trace import current_trace

NONE = -1e30  # the logarithm of a path that does not exist; infinities would make NaN of gradients


@recorded
def ctc_loss(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0,
             reduction: str = "mean", zero_infinity: bool = False) -> mo.Tensor:
    """The negative logarithm of the probability that a sequence of frames says the labels wanted.

    log_probs: (T, N, C), or (T, C) for one sequence: log-probabilities of the classes in every frame.
    targets: (N, S), padded at will, or all labels one after another, (sum of target_lengths,); (S,) for one sequence.
    input_lengths, target_lengths: how many frames and labels count, for every sequence.
    reduction: "mean" divides each loss by its number of labels first, as PyTorch does.
    zero_infinity: count sequences that cannot be said, having too few frames, as 0; their loss is infinite otherwise.

    >>> frames = mo.log_softmax(mo.zeros((4, 1, 3)), axis=-1)
    >>> round(mo.nn.ctc_loss(frames, mo.asarray([[1, 2]]), [4], [2]).item(), 4)
    0.8432
    """
    name = "ctc_loss"
    check_reduction(name, reduction)
    frames = full(log_probs)
    if not frames.dtype.is_float or frames.ndim not in (2, 3) or not all(isinstance(n, int) for n in frames.shape):
        raise fail(ShapeError, name, f"log_probs {frames.dtype}{tuple(frames.shape)} are not floats [T, N, C] or [T, C]"
                                     " of known sizes")
    single, frames = frames.ndim == 2, frames.astype(frames.dtype.compute)
    frames = mo.expand_dims(frames, axis=1) if single else frames
    times, batch, classes = map(int, frames.shape)
    if not times:
        raise fail(ShapeError, name, "log_probs have no frame")
    number = as_whole(blank)
    if number is None or not 0 <= number < classes:
        raise fail(ArgumentError, name, f"blank={shown(blank)} is not one of {classes} classes")
    spoken = _lengths(name, "input_lengths", input_lengths, batch, times)
    labels, written = _labels(name, following(targets), target_lengths, batch, single)
    written_all = _lengths(name, "target_lengths", written, batch, int(labels.shape[1]))
    total = _forward(frames, labels, spoken, written_all, number)
    possible = total > NONE / 2
    # Times infinity, so that the gradient of what cannot be said is not finite either.
    loss = mo.where(possible, -total, 0.0) if zero_infinity else -total * mo.where(possible, 1.0, mo.inf)
    if reduction == "mean":
        loss = loss / mo.maximum(written_all, 1).astype(loss.dtype)
    loss = mo.squeeze(loss, axis=0) if single else loss
    return reduced(name, loss, reduction)


def _lengths(name: str, what: str, given: Any, batch: int, most: int) -> mo.Tensor:
    """Lengths (batch,), none of them beyond what there is; inside a compiled function their values are not known."""
    lengths = following(given)
    if not lengths.dtype.is_integer:
        raise fail(DTypeError, name, f"{what} are {lengths.dtype} and not integers")
    lengths = mo.reshape(lengths, (1,)) if not lengths.ndim and batch == 1 else lengths
    if tuple(lengths.shape) != (batch,):
        raise fail(ShapeError, name, f"{what} of shape {tuple(lengths.shape)} are not one for each of {batch} "
                                     "sequences")
    if current_trace() is None:
        values = lengths.numpy()
        if values.size and (values.min() < 0 or values.max() > most):
            raise fail(ArgumentError, name, f"{what} {values.tolist()} are not all between 0 and {most}")
    return lengths.astype(mo.int64)


def _labels(name: str, targets: mo.Tensor, lengths: Any, batch: int, single: bool) -> tuple[mo.Tensor, Any]:
    """Labels as (batch, S), with their lengths."""
    if not targets.dtype.is_integer:
        raise fail(DTypeError, name, f"targets are {targets.dtype} and not classes",
                   "class numbers are integers: targets.astype('int64')")
    targets = targets.astype(mo.int64)
    if targets.ndim == 2 and targets.shape[0] == batch and not single:
        return targets, lengths
    if targets.ndim != 1:
        raise fail(ShapeError, name, f"targets of shape {tuple(targets.shape)} are not labels of {batch} sequences",
                   f"they are ({batch}, S), or (sum of target_lengths,)")
    if single:
        return mo.expand_dims(targets, axis=0), lengths
    counts = np.asarray(lengths.numpy() if isinstance(lengths, mo.Tensor) else lengths)  # in one row: where each begins
    if counts.shape != (batch,) or counts.sum() != targets.shape[0]:
        raise fail(ShapeError, name, f"{targets.shape[0]} labels one after another do not have the target_lengths "
                                     f"{counts.tolist()}")
    width = int(counts.max(initial=0))
    places = (np.cumsum(counts) - counts)[:, None] + np.arange(width)
    if not width:
        return mo.zeros((batch, 0), dtype=mo.int64), lengths
    return mo.take(targets, unplaced(np.minimum(places, counts.sum() - 1)), axis=0), lengths


def _forward(frames: mo.Tensor, labels: mo.Tensor, spoken: mo.Tensor, written: mo.Tensor, blank: int) -> mo.Tensor:
    """The logarithm of the probability of all alignments, (batch,)."""
    times, batch, _ = frames.shape
    size = int(labels.shape[1])
    states = 2 * size + 1  # blank, label, blank, label, ..., blank
    used = mo.arange(size) < mo.expand_dims(written, axis=1)
    safe = mo.where(used, labels, blank)
    blanks = mo.full((batch, size, 1), blank, dtype=mo.int64)
    path = mo.reshape(mo.concat([blanks, mo.expand_dims(safe, axis=2)], axis=2), (batch, 2 * size))
    path = mo.concat([path, mo.full((batch, 1), blank, dtype=mo.int64)], axis=1)  # (batch, states)
    said = classes_along("ctc_loss", frames, mo.broadcast_to(path, (times, batch, states)), 2)
    said = mo.maximum(said, NONE)
    places = mo.arange(states)
    none = mo.full((batch, 2), NONE, dtype=frames.dtype)
    # A label may follow another one directly where it is not the same: two states back.
    twice = mo.concat([mo.full((batch, 2), blank, dtype=mo.int64), path], axis=1)[:, :states]
    leaps = mo.logical_and(path != blank, path != twice)
    now = mo.where(places < 2, said[0], NONE)
    for time in range(1, times):
        before = mo.concat([none, now], axis=1)
        one, two = before[:, 1:states + 1], mo.where(leaps, before[:, :states], NONE)
        moved = _added(now, one, two) + said[time]
        now = mo.where(mo.expand_dims(spoken > time, axis=1), mo.maximum(moved, NONE), now)
    last = 2 * mo.expand_dims(written, axis=1)
    final = mo.where(mo.logical_or(places == last, places == last - 1), now, NONE)
    empty = mo.logical_and(spoken == 0, written > 0)  # no frame says nothing, and nothing else
    total = mo.logsumexp(final, axis=1)
    return mo.where(spoken == 0, mo.where(empty, NONE, 0.0), total)


def _added(a: mo.Tensor, b: mo.Tensor, c: mo.Tensor) -> mo.Tensor:
    """log(exp(a) + exp(b) + exp(c))."""
    most = mo.maximum(mo.maximum(a, b), c).detach()
    return most + mo.log(mo.exp(a - most) + mo.exp(b - most) + mo.exp(c - most))
