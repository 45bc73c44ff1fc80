"""Einsum with sparse operands: by the places of what is stored, so that nothing dense of its size is made."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.sparse.arrays import CSR, Compressed, Tensor, is_sparse
from morpho.sparse.checks import compressed, op, places, rows_of
from morpho.sparse.combine import multiply
from morpho.sparse.products import matmul, sddmm, turned
from morpho.sparse.reduce import diagonal


def einsum(subscripts: str, *operands: Any) -> Any:
    """A sum of products by subscripts, where some operands are sparse matrices.

    Two sparse operands that share an index are multiplied first. A result that has both indices of a sparse operand is
    sparse at its places; otherwise it is dense.

    >>> a = mo.sparse.from_dense(mo.asarray([[1.0, 0.0], [2.0, 3.0]]))
    >>> mo.sparse.einsum("ij,j->i", a, mo.asarray([1.0, 10.0])).tolist()
    [1.0, 32.0]
    >>> mo.sparse.einsum("ij,ik,kj->ij", a, mo.ones((2, 4)), mo.ones((4, 2))).data.tolist()
    [4.0, 8.0, 12.0]
    """
    terms, result = _terms(subscripts, operands)
    items = [(term, compressed("einsum", x) if is_sparse(x) else mo.asarray(x)) for term, x in
             zip(terms, operands, strict=True)]
    for term, x in items:
        if len(term) != len(x.shape):
            raise fail(ShapeError, "einsum", f"{term!r} has {len(term)} indices for {len(x.shape)} dimensions")
    items = [_without_repeats(term, x, result) for term, x in items]
    while sum(is_sparse(x) for _, x in items) > 1:
        items = _two_together(items, result)
    if not any(is_sparse(x) for _, x in items):
        return mo.einsum(",".join(term for term, _ in items) + "->" + result, *[x for _, x in items])
    number = next(n for n, (_, x) in enumerate(items) if is_sparse(x))
    term, a = items.pop(number)
    return _with_dense(term, compressed("einsum", a), items, result)


def _terms(subscripts: str, operands: tuple[Any, ...]) -> tuple[list[str], str]:
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if "." in text or not all(term.isalpha() or term == "" for term in [*terms, right]):
        raise fail(ArgumentError, "einsum", f"subscripts {subscripts!r} are not letters, commas and an arrow")
    if len(terms) != len(operands):
        raise fail(ArgumentError, "einsum", f"{len(terms)} terms for {len(operands)} operands")
    letters = "".join(terms)
    if not arrow:
        right = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if len(set(right)) != len(right) or not set(right) <= set(letters):
        raise fail(ArgumentError, "einsum", f"the result {right!r} repeats an index or has a new one")
    return terms, right


def _without_repeats(term: str, x: Any, result: str) -> tuple[str, Any]:
    """The diagonal of a sparse operand `ii`."""
    return (term[0], diagonal(x)) if is_sparse(x) and term[0] == term[1] else (term, x)


def _two_together(items: list[tuple[str, Any]], result: str) -> list[tuple[str, Any]]:
    """The first two sparse operands as one: product of elements, or of matrices over an index that nothing else has."""
    first, second = [n for n, (_, x) in enumerate(items) if is_sparse(x)][:2]
    (s, a), (t, b) = items[first], items[second]
    rest = [item for n, item in enumerate(items) if n not in (first, second)]
    shared = set(s) & set(t)
    if len(shared) == 2:
        return [(s, multiply(a, b if s == t else b.T)), *rest]
    others = result + "".join(term for term, _ in rest)
    if len(shared) == 1 and not shared & set(others):
        (k,) = shared
        left, right = (a if s[1] == k else a.T), (b if t[0] == k else b.T)
        return [(s.replace(k, "") + t.replace(k, ""), matmul(left, right)), *rest]
    raise fail(ArgumentError, "einsum", f"the sparse operands {s!r} and {t!r} do not make one matrix",
               "make one of them dense with to_dense()")


def _with_dense(term: str, a: Compressed, items: list[tuple[str, Any]], result: str) -> Any:
    """One sparse operand: a product, or by its elements."""
    i, j = term[0], term[1]

    if len(items) == 1:
        (other, x), = items
        if len(other) <= 2 and other.count(j) == 1 and i not in other and result == i + other.replace(j, ""):
            return matmul(a, x if other[0] == j else x.T)
        if len(other) <= 2 and other.count(i) == 1 and j not in other and result == j + other.replace(i, ""):
            return matmul(a.T, x if other[0] == i else x.T)
    if len(items) == 2 and set(result) == {i, j}:
        (s, x), (t, y) = items
        if len(s) == len(t) == 2 and len(set(s) & set(t)) == 1 and not (set(s) & set(t)) & {i, j}:
            (k,) = set(s) & set(t)
            if i in t:
                (s, x), (t, y) = (t, y), (s, x)
            if i in s and j in t:
                scores = sddmm(a, x if s[1] == k else x.T, y if t[0] == k else y.T)
                found = a.with_data(a.data * scores.data)
                return found if result == term else found.T

    return _by_elements(term, a, items, result)


def _by_elements(term: str, a: Compressed, items: list[tuple[str, Any]], result: str) -> Any:
    """Dense operands are looked up at every stored element, which becomes an index of its own."""
    i, j = term[0], term[1]
    letters = set("".join(other for other, _ in items) + result + term)
    e = next(c for c in "eABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in letters)
    row, col = places(a)
    parts, names = [a.data], [e]
    for other, x in items:
        name = other
        for letter, index in ((i, row), (j, col)):
            if name.count(letter) > 1:
                raise fail(ArgumentError, "einsum", f"{other!r} repeats an index of the sparse operand")
            if letter in name:
                if e in name:  # both indices: one lookup in both axes
                    axes = (name.index(e), name.index(letter))
                    size = x.shape[axes[0]]
                    x = mo.moveaxis(x, axes, (0, 1))
                    at = mo.arange(size, dtype=mo.int64) * x.shape[1] + mo.astype(index, mo.int64)
                    x = mo.take(mo.reshape(x, (-1, *x.shape[2:])), at, axis=0)
                    name = e + "".join(c for c in name if c not in (e, letter))
                else:
                    x = mo.take(x, index, axis=name.index(letter))
                    name = name.replace(letter, e)
        parts.append(x)
        names.append(name)
    if i in result and j in result:
        if len(result) > 2:
            raise fail(ArgumentError, "einsum", f"the result {result!r} has more indices than the sparse operand",
                       "make it dense with to_dense()")
        found = a.with_data(mo.einsum(",".join(names) + "->" + e, *parts))
        return found if result == term else found.T
    kept = i if i in result else j if j in result else ""
    rest = "".join(c for c in result if c != kept)
    if not kept:
        return mo.einsum(",".join(names) + "->" + rest, *parts)
    lines = mo.einsum(",".join(names) + "->" + e + rest, *parts)
    flat = mo.reshape(lines, (a.nnz, -1)) if rest else mo.reshape(lines, (a.nnz, 1))
    summed = _added_up(a, flat, kept == i)
    size = a.shape[0] if kept == i else a.shape[1]
    whole = mo.reshape(summed, (size, *lines.shape[1:]))
    return mo.moveaxis(whole, 0, result.index(kept))


def _added_up(a: Compressed, lines: Tensor, by_rows: bool) -> Tensor:
    """Sum of stored elements by row or column."""
    if isinstance(a, CSR) != by_rows:
        order = turned(a.with_data(mo.arange(a.nnz)))
        return op("spmm", lines, order.data, order.indptr, mo.ones(a.nnz, dtype=lines.dtype), axis=0)
    numbers = mo.arange(a.nnz, dtype=a.indices.dtype)
    return op("spmm", lines, numbers, a.indptr, mo.ones(a.nnz, dtype=lines.dtype), axis=0)


__all__ = ["einsum", "rows_of"]
